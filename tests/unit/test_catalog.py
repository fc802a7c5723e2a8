"""The catalog: every row has a known source and a date, and the readers say what the rows say."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import pytest

from training_storage.planning import InvalidJobError, LustrePlan, catalog
from training_storage.planning.catalog import prices
from training_storage.planning.catalog._data import load_row, row_names

DATA = {
    path.name: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in resources.files("training_storage.planning.catalog").iterdir()
    if path.name.endswith(".toml")
}


def rows_with_sources(node: dict[str, Any]) -> list[dict[str, Any]]:
    found = [node] if "source" in node else []
    for value in node.values():
        if isinstance(value, dict):
            found += rows_with_sources(value)
    return found


@pytest.mark.parametrize("name", sorted(DATA.keys() - {"sources.toml"}))
def test_every_row_names_a_known_source_and_a_date(name: str) -> None:
    rows = rows_with_sources(DATA[name])
    assert rows
    for row in rows:
        sources = [row["source"]] if isinstance(row["source"], str) else row["source"]
        assert set(sources) <= DATA["sources.toml"].keys()
        assert row["as_of"].year >= 2022


def test_every_price_stands_in_a_row_with_a_source() -> None:
    def bare(node: Any, *, covered: bool) -> bool:
        if isinstance(node, dict):
            return any(bare(value, covered=covered or "source" in node) for value in node.values())
        return isinstance(node, float) and not covered

    assert not bare(DATA["prices.toml"], covered=False)


# Instance types

TYPES = [
    "p4d.24xlarge",
    "p4de.24xlarge",
    "p5.4xlarge",
    "p5.48xlarge",
    "p5e.48xlarge",
    "p5en.48xlarge",
    "p6-b200.48xlarge",
    "p6-b300.48xlarge",
    "g5.12xlarge",
    "g5.24xlarge",
    "g5.48xlarge",
    "g6.12xlarge",
    "g6.24xlarge",
    "g6.48xlarge",
    "g6e.12xlarge",
    "g6e.24xlarge",
    "g6e.48xlarge",
    "g7e.12xlarge",
    "g7e.24xlarge",
    "g7e.48xlarge",
    "g7.48xlarge",
    "trn1.2xlarge",
    "trn1.32xlarge",
    "trn1n.32xlarge",
    "trn2.3xlarge",
    "trn2.48xlarge",
    "trn2u.48xlarge",
    "p6e-gb200.36xlarge",
]


def test_the_catalog_has_every_accelerated_type() -> None:
    assert sorted(catalog.instance_types()) == sorted(TYPES)


def test_a_type_reads_as_its_row() -> None:
    p5 = catalog.instance_type("p5.48xlarge")
    assert (p5.accelerators, p5.accelerator_name, p5.accelerator_memory_gib) == (8, "H100", 80)
    assert (p5.vcpus, p5.memory_gib, p5.local_nvme_gb, p5.architecture) == (192, 2048, 30_400, "x86_64")
    assert (p5.network_gbps, p5.single_address_gbps, p5.several_addresses_gbps) == (3200, 100, 800)
    assert p5.on_demand_price_per_hour("us-east-1") == 55.04
    assert p5.on_demand_price_per_hour("us-west-1") == 68.80
    assert p5.on_demand_price_per_hour("eu-north-1") is None
    assert catalog.instance_type("p6e-gb200.36xlarge").architecture == "arm64"


def test_trainium_2_has_96_gib_a_device() -> None:
    assert {catalog.instance_type(name).accelerator_memory_gib for name in TYPES if name.startswith("trn2")} == {96}


@pytest.mark.parametrize("name", TYPES)
def test_interfaces_obey_ec2(name: str) -> None:
    kind = catalog.instance_type(name)
    interfaces = kind.network_interfaces()
    primary, others = interfaces[0], interfaces[1:]
    assert (primary.network_card_index, primary.device_index, primary.interface_type) == (0, 0, "interface")
    # One EFA per card, no more than the type takes, and every card exists and has room.
    assert {other.interface_type for other in others} <= {"efa-only"}
    assert len({other.network_card_index for other in others}) == len(others) == kind.efa_interfaces_maximum
    assert all(other.network_card_index < kind.network_cards for other in others)
    places = [(interface.network_card_index, interface.device_index) for interface in interfaces]
    assert len(set(places)) == len(places)
    assert all(device < kind.interfaces_per_card_maximum for _, device in places)
    assert kind.address_bearing_interfaces() == 1


def test_several_addresses_reach_the_published_ip_bandwidth_and_obey_ec2() -> None:
    # EC2 user guide, efa-acc-inst-types, use case 2: up to 800 Gbps of IP with eight private addresses on a P5.
    for name in TYPES:
        kind = catalog.instance_type(name)
        several = kind.network_interfaces(several_addresses=True)
        places = [(interface.network_card_index, interface.device_index) for interface in several]
        assert len(set(places)) == len(places)
        assert all(card < kind.network_cards and device < kind.interfaces_per_card_maximum for card, device in places)
        addresses = kind.address_bearing_interfaces(several_addresses=True)
        if kind.several_addresses_gbps > kind.single_address_gbps:
            assert addresses * kind.single_address_gbps == kind.several_addresses_gbps, name
        else:
            assert addresses == 1, name


def test_a_p5_with_several_addresses_has_one_on_every_fourth_card() -> None:
    several = catalog.instance_type("p5.48xlarge").network_interfaces(several_addresses=True)
    ena = [(i.network_card_index, i.device_index) for i in several if i.interface_type == "interface"]
    assert ena == [(0, 0), *((card, 1) for card in range(4, 32, 4))]


def others(name: str) -> list[tuple[int, int]]:
    interfaces = catalog.instance_type(name).network_interfaces()[1:]
    return [(interface.network_card_index, interface.device_index) for interface in interfaces]


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("p5.48xlarge", 32),
        ("p5e.48xlarge", 32),
        ("p5en.48xlarge", 16),
        ("p6-b200.48xlarge", 8),
        ("p4d.24xlarge", 4),
        ("p5.4xlarge", 1),
        ("trn1n.32xlarge", 16),
        ("g6e.48xlarge", 4),
    ],
)
def test_efa_sits_beside_the_primary_on_card_0_and_first_on_the_others(name: str, cards: int) -> None:
    assert others(name) == [(0, 1), *((card, 0) for card in range(1, cards))]
    assert catalog.instance_type(name).efa_first_card == 0


def test_b300_has_no_efa_on_card_0() -> None:
    assert others("p6-b300.48xlarge") == [(card, 0) for card in range(1, 17)]
    assert catalog.instance_type("p6-b300.48xlarge").efa_first_card == 1


def test_gb200_has_efa_on_every_fourth_card() -> None:
    assert others("p6e-gb200.36xlarge") == [(1, 0), (5, 0), (9, 0), (13, 0)]


def test_a_type_without_efa_has_one_plain_interface() -> None:
    assert others("trn1.2xlarge") == []
    assert catalog.instance_type("trn1.2xlarge").efa_first_card is None


def test_lustre_over_efa_is_for_p5_and_p6() -> None:
    able = {name for name, kind in catalog.instance_types().items() if kind.efa_for_lustre}
    assert able == {
        "p5.4xlarge",
        "p5.48xlarge",
        "p5e.48xlarge",
        "p5en.48xlarge",
        "p6-b200.48xlarge",
        "p6-b300.48xlarge",
    }
    assert catalog.instance_type("p6-b300.48xlarge").lustre_efa_interfaces_default == 16
    assert catalog.instance_type("p5.48xlarge").lustre_efa_interfaces_default == 8
    for name in able:
        kind = catalog.instance_type(name)
        assert kind.lustre_efa_interfaces_default <= kind.efa_interfaces_maximum


def test_some_types_are_sold_in_capacity_blocks_only() -> None:
    only = {name for name, kind in catalog.instance_types().items() if kind.purchase == ("capacity-block",)}
    assert only == {"p5e.48xlarge", "trn2.3xlarge", "trn2.48xlarge", "trn2u.48xlarge", "p6e-gb200.36xlarge"}
    for name in only:
        assert catalog.instance_type(name).on_demand_price_per_hour("us-east-1") is None
    ultra = prices.catalog_prices().capacity_block_per_hour("p6e-gb200.36xlarge")
    assert ultra == pytest.approx(761.904 / 18) == pytest.approx(380.952 / 9)


def test_an_unknown_type_gets_a_suggestion() -> None:
    with pytest.raises(InvalidJobError, match="Did you mean 'p5.48xlarge'"):
        catalog.instance_type("p5.48xlage")


# Regions


def test_regions_have_partitions_and_suffixes() -> None:
    assert len(catalog.regions()) == 38
    china = catalog.region("cn-north-1")
    assert (china.partition, china.dns_suffix, china.pcs) == ("aws-cn", "amazonaws.com.cn", False)
    assert catalog.region("us-gov-west-1").partition == "aws-us-gov"
    assert catalog.region("us-east-1").pcs


def test_express_exists_in_seven_regions() -> None:
    assert {name for name, region in catalog.regions().items() if region.express_zone_ids} == {
        "us-east-1",
        "us-east-2",
        "us-west-2",
        "ap-south-1",
        "ap-northeast-1",
        "eu-west-1",
        "eu-north-1",
    }
    assert catalog.region("us-east-1").express_zone_ids == ("use1-az4", "use1-az5", "use1-az6")


def test_zone_ids_and_prefixes_belong_together() -> None:
    for region in catalog.regions().values():
        offered = {zone for zones in region.instance_types.values() for zone in zones}
        assert offered | set(region.express_zone_ids) == set(region.zone_ids)
        assert all(region.is_well_formed_zone_id(zone) for zone in region.zone_ids)
        assert set(region.instance_types) <= set(TYPES)


def test_lustre_by_region() -> None:
    full = [region for region in catalog.regions().values() if region.persistent_2_throughputs == (125, 250, 500, 1000)]
    assert len(full) == 15
    assert all(region.lustre_efa for region in full)
    assert catalog.region("il-central-1").lustre_deployment_types == ("PERSISTENT_2", "SCRATCH_2")
    assert catalog.region("cn-north-1").lustre_deployment_types == ("PERSISTENT_1",)
    assert catalog.region("ap-southeast-6").lustre_deployment_types == ()


# Lustre


@pytest.mark.parametrize(
    ("capacity", "per_unit", "efa", "legal"),
    [
        (1200, 125, False, True),
        (2400, 1000, False, True),
        (3600, 250, False, False),
        (1300, 250, False, False),
        (0, 250, False, False),
        (2400, 300, False, False),
        (4800, 1000, True, True),
        (4800, 125, True, False),
        (38_400, 125, True, True),
        (1200, 1000, True, False),
    ],
)
def test_legal_sizes(capacity: int, per_unit: int, efa: bool, legal: bool) -> None:
    kind = catalog.lustre.deployment_types()["PERSISTENT_2"]
    assert kind.is_legal(capacity_gib=capacity, per_unit=per_unit, efa=efa) is legal


def test_efa_exists_on_persistent_2_only() -> None:
    assert not catalog.lustre.deployment_types()["SCRATCH_2"].is_legal(capacity_gib=4800, per_unit=200, efa=True)


@pytest.mark.parametrize(
    ("capacity", "iops"),
    [
        (1200, 1500),
        (2400, 3000),
        (4800, 6000),
        (9600, 6000),
        (12_000, 12_000),
        (45_600, 12_000),
        (48_000, 24_000),
        (72_000, 36_000),
        (384_000, 192_000),
        (1_000_800, 192_000),
    ],
)
def test_automatic_metadata_iops(capacity: int, iops: int) -> None:
    assert catalog.lustre.automatic_metadata_iops(capacity) == iops


def test_metadata_iops_steps_are_the_services() -> None:
    assert catalog.lustre.metadata_iops_steps() == (1500, 3000, 6000, *range(12_000, 192_001, 12_000))


@pytest.mark.parametrize(
    ("capacity", "per_unit", "efa", "iops", "addresses"),
    [
        (1200, 1000, False, 1500, 1 + 1),
        (43_200, 1000, False, 12_000, 18 + 1),
        (96_000, 1000, True, 48_000, 20 + 4),
        (76_800, 125, True, 36_000, 2 + 3),
    ],
)
def test_addresses_of_a_file_system(capacity: int, per_unit: int, efa: bool, iops: int, addresses: int) -> None:
    plan = LustrePlan(
        deployment_type="PERSISTENT_2",
        storage_capacity_gib=capacity,
        per_unit_storage_throughput=per_unit,
        baseline_mb_per_s=capacity / 1024 * per_unit,
        metadata_iops=iops,
        efa_enabled=efa,
        efa_interfaces_per_client=8 if efa else 0,
        file_system_type_version="2.15",
        data_repository_associations=(),
    )
    assert catalog.lustre_servers(plan) == addresses


def test_ports_of_lustre() -> None:
    assert catalog.lustre.ports() == ((988, 988), (1018, 1023))


# Quotas and prices


def test_quotas_have_codes() -> None:
    quota = catalog.quotas.quota("persistent-2-storage")
    assert (quota.code, quota.limit) == ("L-8F1B9C74", 100_800)


def test_a_price_that_is_not_known_is_none() -> None:
    known = prices.catalog_prices()
    assert known.lustre_storage(region="us-west-2", deployment_type="PERSISTENT_2", per_unit=125) is None
    assert known.item(region="us-west-2", path=("s3", "storage_per_gib_month")) is None
    assert known.item(region="us-east-1", path=("s3-express", "storage_per_gib_month")) == 0.11


@pytest.mark.parametrize("name", ["regions.toml", "instance_types.toml"])
def test_a_row_parsed_alone_is_the_row_of_the_whole_file(name: str) -> None:
    whole = DATA[name]
    assert row_names(name) == tuple(whole)
    assert {row: load_row(name, row) for row in row_names(name)} == whole
    with pytest.raises(KeyError):
        load_row(name, "nowhere")
