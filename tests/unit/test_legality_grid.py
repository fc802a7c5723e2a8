"""The engine agrees with the grid of the documented facts, in both directions, whatever the input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_storage.planning import InvalidJobError, NoTierError, StoragePlan, TrainingJob, catalog, plan_storage
from training_storage.planning.legality import (
    FileSystem,
    MetadataConfiguration,
    check_file_system,
    check_plan,
    read_file_system,
)

# (deployment type, storage type): throughputs in MB/s per TiB -> (small capacities, step); written from the facts.
GRID: dict[tuple[str, str], dict[int | None, tuple[tuple[int, ...], int]]] = {
    ("SCRATCH_1", "SSD"): {None: ((1200, 2400), 3600)},
    ("SCRATCH_2", "SSD"): {None: ((1200,), 2400)},
    ("PERSISTENT_1", "SSD"): dict.fromkeys((50, 100, 200), ((1200,), 2400)),
    ("PERSISTENT_1", "HDD"): {12: ((), 6000), 40: ((), 1800)},
    ("PERSISTENT_2", "SSD"): dict.fromkeys((125, 250, 500, 1000), ((1200,), 2400)),
}
EFA_STEP = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
VERSIONS = {
    "SCRATCH_1": {"2.10", "2.12", "2.15"},
    "SCRATCH_2": {"2.10", "2.12", "2.15"},
    "PERSISTENT_1": {"2.10", "2.12", "2.15"},
    "PERSISTENT_2": {"2.12", "2.15"},
}
METADATA_IOPS = {1500, 3000, 6000, *range(12_000, 192_001, 12_000)}

#: What AUTOMATIC gives from a capacity in GiB on; from 48,000 GiB on 12,000 for each 24,000 GiB.
AUTOMATIC_IOPS = ((12_000, 12_000), (4_800, 6_000), (2_400, 3_000), (0, 1_500))

KINDS = st.sampled_from(["SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"])
STORAGE = st.sampled_from(["SSD", "HDD"])
THROUGHPUTS = st.sampled_from([None, 12, 40, 50, 100, 125, 200, 250, 300, 500, 1000])
CAPACITIES = st.one_of(
    st.integers(0, 80).map(lambda n: n * 1200),
    st.integers(0, 30).map(lambda n: n * 1800),
    st.integers(0, 8).map(lambda n: n * 19200),
    st.integers(-5000, 120_000),
)
METADATA = st.one_of(
    st.none(),
    st.just("AUTOMATIC"),
    st.sampled_from(sorted(METADATA_IOPS)),
    st.integers(0, 200_000),
)


def automatic_by_the_facts(capacity: int) -> int:
    if capacity >= 48_000:
        return min(192_000, 12_000 * (capacity // 24_000))
    return next(iops for least, iops in AUTOMATIC_IOPS if capacity >= least)


def legal_by_the_facts(
    *,
    kind: str,
    storage: str,
    throughput: int | None,
    capacity: int,
    efa: bool,
    version: str | None,
    metadata: Any,
) -> bool:
    tiers = GRID.get((kind, storage))
    if tiers is None or throughput not in tiers:
        return False
    if capacity <= 0 or (version is not None and version not in VERSIONS[kind]):
        return False
    small, step = tiers[throughput]
    if metadata is not None:
        if kind != "PERSISTENT_2" or version == "2.12":
            return False
        if metadata != "AUTOMATIC" and (metadata not in METADATA_IOPS or metadata < automatic_by_the_facts(capacity)):
            return False
    if efa:
        if kind != "PERSISTENT_2" or metadata is None or version == "2.12":
            return False
        assert throughput is not None
        small, step = (), EFA_STEP[throughput]
    return capacity in small or capacity % step == 0


@given(
    kind=KINDS,
    storage=STORAGE,
    throughput=THROUGHPUTS,
    capacity=CAPACITIES,
    efa=st.booleans(),
    version=st.sampled_from([None, "2.10", "2.12", "2.15", "2.16"]),
    metadata=METADATA,
)
def test_what_the_facts_allow_passes_and_nothing_else(
    kind: str,
    storage: str,
    throughput: int | None,
    capacity: int,
    efa: bool,
    version: str | None,
    metadata: str | int | None,
) -> None:
    configuration = None
    if metadata == "AUTOMATIC":
        configuration = MetadataConfiguration(mode="AUTOMATIC")
    elif metadata is not None:
        configuration = MetadataConfiguration(mode="USER_PROVISIONED", iops=metadata)
    findings = check_file_system(
        FileSystem(
            deployment_type=kind,
            storage_type=storage,
            storage_capacity_gib=capacity,
            per_unit_storage_throughput=throughput,
            file_system_type_version=version,
            metadata=configuration,
            efa_enabled=efa,
            drive_cache_type="READ" if storage == "HDD" else None,
        )
    )
    expected = legal_by_the_facts(
        kind=kind,
        storage=storage,
        throughput=throughput,
        capacity=capacity,
        efa=efa,
        version=version,
        metadata=metadata,
    )
    assert (findings == ()) is expected, [finding.message for finding in findings]
    assert all(len(finding.message) <= 200 for finding in findings)


@given(kind=st.sampled_from(sorted(GRID)), data=st.data(), multiple=st.integers(1, 40), efa=st.booleans())
def test_every_point_of_the_grid_is_legal_and_one_gib_beside_it_is_not(
    kind: tuple[str, str], data: st.DataObject, multiple: int, efa: bool
) -> None:
    throughput = data.draw(st.sampled_from(sorted(GRID[kind], key=str)))
    small, step = GRID[kind][throughput]
    second = kind[0] == "PERSISTENT_2"
    if efa and second and throughput is not None:
        small, step = (), EFA_STEP[throughput]

    def rules(capacity: int) -> list[str]:
        system = FileSystem(
            deployment_type=kind[0],
            storage_type=kind[1],
            storage_capacity_gib=capacity,
            per_unit_storage_throughput=throughput,
            metadata=MetadataConfiguration(mode="AUTOMATIC") if second else None,
            efa_enabled=efa and second,
            drive_cache_type="NONE" if kind[1] == "HDD" else None,
        )
        return [finding.rule for finding in check_file_system(system)]

    for capacity in (*small, multiple * step):
        assert rules(capacity) == []
        assert rules(capacity + 1) == rules(capacity - 1) == ["lustre-capacity"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
NAMES = ["DeploymentType", "PerUnitStorageThroughput", "EfaEnabled", "MetadataConfiguration", "LogConfiguration",
         "DataReadCacheConfiguration", "ImportPath", "ThroughputCapacity", "AutomaticBackupRetentionDays"]  # fmt: skip


@given(
    lustre=JSON | st.dictionaries(st.sampled_from(NAMES), JSON),
    top=st.dictionaries(st.sampled_from(["StorageCapacity", "StorageType", "SubnetIds", "Tags", "KmsKeyId"]), JSON),
)
def test_whatever_stands_in_the_properties_gives_findings_never_an_exception(lustre: Any, top: dict[str, Any]) -> None:
    for finding in check_file_system(read_file_system({**top, "LustreConfiguration": lustre})):
        assert len(finding.message) <= 200
        assert "\n" not in finding.message


REGIONS = sorted(catalog.regions())


@given(
    region=st.sampled_from(REGIONS),
    instances=st.integers(1, 1500),
    instance_type=st.sampled_from([None, "p4d.24xlarge", "p6-b200.48xlarge", "p5en.48xlarge"]),
    network_path=st.sampled_from([None, "ena", "efa", "efa-gds"]),
    kind=st.sampled_from([None, "PERSISTENT_2", "PERSISTENT_1", "SCRATCH_2"]),
)
def test_every_plan_is_legal_or_refused_with_a_reason(
    region: str, instances: int, instance_type: str | None, network_path: str | None, kind: str | None
) -> None:
    job = TrainingJob(
        instances=instances,
        region=region,
        instance_type=instance_type,
        network_path=network_path,
        lustre_deployment_type=kind,
    )
    try:
        plan = plan_storage(job)
    except (InvalidJobError, NoTierError) as refusal:
        assert len(str(refusal)) > 20  # noqa: PT017 -- a refusal is one of two right answers
        return
    assert [finding.message for finding in check_plan(plan)] == []


def plan(**job: Any) -> StoragePlan:
    return plan_storage(TrainingJob(**job))


def test_china_gets_persistent_1_on_2_12_with_warnings() -> None:
    made = plan(instances=64, region="cn-north-1")
    assert made.fsx_lustre is not None
    assert (made.fsx_lustre.deployment_type, made.fsx_lustre.file_system_type_version) == ("PERSISTENT_1", "2.12")
    assert any("cn-north-1" in warning for warning in made.warnings)
    assert check_plan(made) == ()


def test_govcloud_has_p5_clients_but_no_persistent_2() -> None:
    made = plan(instances=64, region="us-gov-west-1", instance_type="p5.48xlarge")
    assert made.fsx_lustre is not None
    assert (made.fsx_lustre.deployment_type, made.fsx_lustre.efa_enabled) == ("PERSISTENT_1", False)
    with pytest.raises(InvalidJobError, match="PERSISTENT_2"):
        plan(instances=64, region="us-gov-west-1", lustre_deployment_type="PERSISTENT_2")


def test_ireland_has_express_but_no_known_zone_with_p5() -> None:
    made = plan(instances=8, region="eu-west-1")
    assert check_plan(made) == ()
    assert any("zone" in warning and "eu-west-1" in warning for warning in made.warnings)


def test_malaysia_has_two_tiers_and_no_efa() -> None:
    made = plan(instances=64, region="ap-southeast-5")
    assert made.fsx_lustre is not None
    assert made.fsx_lustre.per_unit_storage_throughput in (125, 250)
    with pytest.raises(InvalidJobError, match="no EFA"):
        plan(instances=64, region="ap-southeast-5", network_path="efa")


def test_p6_b200_stands_in_one_zone_of_virginia() -> None:
    made = plan(instances=64, region="us-east-1", instance_type="p6-b200.48xlarge")
    assert made.zone_id == "use1-az6"
    assert check_plan(made) == ()


# (Region, what, given over a legal file system, rule)
REGIONAL: list[tuple[str, dict[str, Any], str | None]] = [
    ("us-east-1", {}, None),
    ("us-gov-west-1", {}, "region-deployment-type"),
    ("cn-north-1", {}, "region-deployment-type"),
    ("sa-east-1", {}, "region-deployment-type"),
    ("ap-southeast-6", {}, "region-lustre"),
    ("ap-southeast-5", {"per_unit_storage_throughput": 250}, None),
    ("ap-southeast-5", {"per_unit_storage_throughput": 500}, "region-throughput"),
    ("il-central-1", {"storage_capacity_gib": 38400, "efa_enabled": True}, "region-efa"),
    (
        "cn-north-1",
        {"deployment_type": "PERSISTENT_1", "per_unit_storage_throughput": 50, "metadata": None},
        "region-version",
    ),
    (
        "il-central-1",
        {"deployment_type": "PERSISTENT_1", "per_unit_storage_throughput": 50, "metadata": None},
        "region-deployment-type",
    ),
    ("sa-east-1", {"storage_type": "INTELLIGENT_TIERING"}, "region-storage-type"),
]


@pytest.mark.parametrize(("region", "changes", "rule"), REGIONAL, ids=lambda value: str(value)[:40])
def test_a_region_refuses_what_it_lacks(region: str, changes: dict[str, Any], rule: str | None) -> None:
    given_ = {
        "deployment_type": "PERSISTENT_2",
        "storage_capacity_gib": 1200,
        "per_unit_storage_throughput": 125,
        "file_system_type_version": "2.15",
        "metadata": MetadataConfiguration(mode="AUTOMATIC"),
        "region": catalog.region(region),
    }
    findings = check_file_system(FileSystem(**{**given_, **changes}))
    regional = [finding for finding in findings if finding.rule.startswith("region-")]
    assert (rule in {finding.rule for finding in regional}) if rule else findings == ()
    assert all(len(finding.message) <= 200 and region in finding.message for finding in regional)
