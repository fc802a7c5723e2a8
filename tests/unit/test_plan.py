"""A plan: its JSON, what it assumed, its money, and reading it back strictly."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage.planning import (
    DATA_LAKE,
    InvalidJobError,
    InvalidPlanError,
    PlanningError,
    StoragePlan,
    TrainingJob,
    catalog,
    plan_storage,
    split_context,
    tariff,
)
from training_storage.planning.catalog import price_files
from training_storage.planning.solution import Solution, solve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def plan() -> StoragePlan:
    return plan_storage(TrainingJob(instances=256, name="run-7"))


def test_json_has_the_documented_keys(plan: StoragePlan) -> None:
    values = plan.to_dict()
    assert list(values) == [
        "schema_version",
        "job",
        "assumed",
        "selection",
        "demand",
        "fsx_lustre",
        "s3_express",
        "s3",
        "placement",
        "levers",
        "cost",
        "quotas",
        "warnings",
    ]
    assert values["schema_version"] == 1
    assert set(values["selection"]) == {"tiers", "rules", "reasons", "alternatives"}
    assert set(values["demand"]) == {
        "read_gb_per_s",
        "checkpoint_size_gib",
        "checkpoint_write_gb_per_s",
        "restore_gb_per_s",
        "hot_capacity_gib",
        "checkpoint_interval_minutes",
        "young_interval_minutes",
        "checkpoint_stall_seconds",
        "slowest_rank_gib",
        "effective_training_time_ratio",
        "mtbf_hours",
        "get_per_s",
        "put_per_s",
        "prefixes",
        "metadata_iops",
    }
    assert set(values["fsx_lustre"]) == {
        "deployment_type",
        "storage_capacity_gib",
        "per_unit_storage_throughput",
        "baseline_mb_per_s",
        "metadata_iops",
        "efa_enabled",
        "efa_interfaces_per_client",
        "file_system_type_version",
        "data_repository_associations",
    }
    assert set(values["cost"]) == {"currency", "prices_as_of", "per_month_usd", "per_hour_usd", "run_usd", "lake"}
    assert set(values["cost"]["lake"]) == {"checkpoints", "written_gib", "held_gib", "run_usd", "last_export_gib"}
    assert set(values["cost"]["per_month_usd"]) == {"s3", "fsx-lustre", "cluster"}
    assert set(values["cost"]["per_hour_usd"]) == {"running", "nodes_at_zero", "parked"}
    assert set(values["cost"]["run_usd"]) == {
        "storage",
        "lake_growth",
        "requests_and_transfer",
        "idle_accelerators",
        "lost_work",
        "total",
    }
    assert [set(quota) for quota in values["quotas"]] == [{"name", "code", "limit", "needed"}] * 2


@pytest.mark.parametrize(
    "fields",
    [
        {"instances": 1},
        {"instances": 256, "name": "run-7"},
        {"instances": 600, "interface": "object"},
        {"instances": 1200, "interface": "object", "checkpoint_interface": "posix"},
        {"instances": 8, "interface": "posix", "region": "us-gov-west-1"},
        {"instances": 4, "mean_file_size_mib": 0.1},
    ],
    ids=str,
)
def test_a_plan_reads_back_equal(fields: dict[str, Any]) -> None:
    original = plan_storage(TrainingJob(**fields))
    assert StoragePlan.from_dict(original.to_dict()) == original
    assert StoragePlan.from_json(original.to_json()) == original


def test_planning_twice_gives_the_same_text() -> None:
    first, second = (plan_storage(TrainingJob(instances=256)).to_json() for _ in range(2))
    assert first == second


def change(plan: StoragePlan, path: str, value: Any) -> str:
    values = plan.to_dict()
    node: Any = values
    *parents, last = path.split(".")
    for key in parents:
        node = node[key]
    if isinstance(node, list):
        node[int(last)] = value
    elif value is ...:
        del node[last]
    else:
        node[last] = value
    with pytest.raises(PlanningError) as error:
        StoragePlan.from_dict(values)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema_version", 2, "schema_version must be 1, got: 2."),
        ("schema_version", True, "schema_version must be 1, got: True."),
        ("schema_version", ..., "an object with schema_version"),
        ("demand", ..., "plan lacks demand."),
        ("fsx_lustre.efa_enabled", ..., "plan.fsx_lustre lacks efa_enabled."),
        ("fsx_lustre.size", 1, "plan.fsx_lustre has keys that this version does not know: size."),
        ("fsx_lustre.storage_capacity_gib", "1200", "storage_capacity_gib must be of type int, got: '1200'."),
        ("fsx_lustre.storage_capacity_gib", True, "storage_capacity_gib must be of type int, got: True."),
        ("fsx_lustre.efa_enabled", 1, "efa_enabled must be of type bool, got: 1."),
        ("warnings", "none", "plan.warnings must be a list, got: 'none'."),
        ("selection.tiers.0", 3, "plan.selection.tiers[0] must be of type str, got: 3."),
        ("cost.per_month_usd", [], "plan.cost.per_month_usd must be an object, got: []."),
        ("job", None, "plan.job must be an object, got: None."),
        ("job.instances", 0, "instances must be a whole number from 1 to 100000"),
        ("job.interface", "nfs", "interface must be one of posix, object"),
    ],
)  # fmt: skip
def test_a_plan_that_is_not_one_is_refused_at_its_place(plan: StoragePlan, path: str, value: Any, words: str) -> None:
    assert words in change(plan, path, value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a plan must be JSON"),
        ("[]", "must be an object with schema_version"),
        ('{"schema_version": NaN}', "finite numbers, got: NaN"),
        ('{"schema_version": 1, "schema_version": 1}', "each key once"),
    ],
)
def test_text_that_is_no_plan_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InvalidPlanError, match=words) as error:
        StoragePlan.from_json(text)
    assert "\n" not in str(error.value)


def test_a_plan_file_is_read(plan: StoragePlan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json(), encoding="utf-8")
    assert StoragePlan.read(path) == plan
    with pytest.raises(InvalidPlanError, match="file not found"):
        StoragePlan.read(tmp_path / "missing.json")
    with pytest.raises(InvalidPlanError, match="readable plan file"):
        StoragePlan.read(tmp_path)


@settings(max_examples=30, deadline=None)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    key=st.sampled_from(
        ["job", "assumed", "selection", "demand", "fsx_lustre", "s3", "placement", "cost", "quotas", "warnings"]
    ),
)
def test_a_damaged_plan_is_read_or_refused_but_never_crashes(plan: StoragePlan, value: Any, key: str) -> None:
    values = json.loads(plan.to_json())
    values[key] = value
    try:
        StoragePlan.from_dict(values)
    except PlanningError as error:
        assert "\n" not in str(error)  # noqa: PT017


# Resolved fields and assumptions


def test_the_job_of_a_plan_is_resolved(plan: StoragePlan) -> None:
    job = plan.job
    unresolved = {name for name in TrainingJob.field_names() if getattr(job, name) is None}
    assert unresolved == {"model", "workload", "mean_file_size_mib", "prices"}
    assert (job.network_path, job.tiers, job.lustre_deployment_type) == ("ena", plan.tiers, "PERSISTENT_2")
    assert (plan.region, plan.zone_id) == ("us-east-1", "use1-az1")


def test_what_was_not_given_is_assumed_and_what_was_given_is_not(plan: StoragePlan) -> None:
    assert "instance_type" in plan.assumed
    assert "instances" not in plan.assumed
    assert "name" not in plan.assumed
    given = plan_storage(TrainingJob(instances=256, instance_type="p5.48xlarge", interface="posix", region="us-east-1"))
    assert {"instance_type", "interface", "region"}.isdisjoint(given.assumed)
    assert "checkpoint_interface" in given.assumed


def test_what_a_given_field_makes_needless_is_not_assumed() -> None:
    job = TrainingJob(instances=8, checkpoint_size_gib=10.0, mtbf_hours=5.0, workload="unet3d")
    assumed = plan_storage(job).assumed
    needless = {
        "bytes_per_parameter",
        "model_parameters",
        "failures_per_1000_node_days",
        "read_gb_per_s_per_accelerator",
    }
    assert needless.isdisjoint(assumed)


# Folders and links


def test_links_of_the_file_system(plan: StoragePlan) -> None:
    assert plan.fsx_lustre is not None
    links = {
        link.file_system_path: (
            link.data_repository_path.removeprefix(f"s3://{DATA_LAKE}/"),
            link.auto_import_events,
            link.auto_export_events,
        )
        for link in plan.fsx_lustre.data_repository_associations
    }
    assert links == {
        "/datasets/": ("datasets/", ("NEW", "CHANGED", "DELETED"), ()),
        "/checkpoints/": ("checkpoints/run-7/", (), ()),
        "/logs/": ("logs/run-7/", (), ("NEW", "CHANGED")),
        "/evaluations/": ("evaluations/run-7/", (), ("NEW", "CHANGED")),
    }
    batch = {link.file_system_path: link.batch_import_metadata for link in plan.fsx_lustre.data_repository_associations}
    assert batch == {"/datasets/": False, "/checkpoints/": True, "/logs/": False, "/evaluations/": False}


def test_a_job_without_a_name_uses_default() -> None:
    plan = plan_storage(TrainingJob(instances=4))
    assert plan.s3.folders == (
        "raw/",
        "datasets/",
        "finetune/",
        "models/",
        "checkpoints/default/",
        "logs/default/",
        "evaluations/default/",
    )


def test_placement_names_every_kind_of_data_once(plan: StoragePlan) -> None:
    assert [place.data for place in plan.placement] == (
        ["raw", "datasets", "finetune", "models", "checkpoints", "logs", "evaluations"]
    )
    assert {place.durable for place in plan.placement} == {"s3"}
    hot = {place.data for place in plan.placement if place.hot == "fsx-lustre"}
    assert hot == {"datasets", "checkpoints", "logs", "evaluations"}


# Money


def test_the_parts_of_the_run_add_up(plan: StoragePlan) -> None:
    run = plan.cost.run_usd
    parts = [run.storage, run.lake_growth, run.requests_and_transfer, run.idle_accelerators, run.lost_work]
    assert run.total == pytest.approx(sum(part or 0 for part in parts), abs=0.03)


def test_a_run_by_hand() -> None:
    # 43,200 GiB at $0.60 for 720 of 730 hours; 49.92 failures of 256 nodes at $55.04 with 150 + 300 s lost each.
    run = plan_storage(TrainingJob(instances=256)).cost.run_usd
    assert run.storage == pytest.approx(43_200 * 0.600 * 720 / 730, abs=0.01)
    failures = 720 / (24_000 / (256 * 6.5))
    assert run.lost_work == pytest.approx(failures * 256 * 55.04 * 450 / 3600, rel=1e-4)
    # Restores of 5.67 TB at 42.1875 GB/s, and 8,640 stalls of 0.1384 s.
    idle_s = failures * 5.67e12 / 42.1875e9 + 8640 * 5.67e12 / (2048 * 20e9)
    assert run.idle_accelerators == pytest.approx(idle_s * 256 * 55.04 / 3600, rel=1e-4)
    # 2 newest and 4 kept, and 4 a day whose versions live a day: 10 checkpoints at $0.023.
    assert run.lake_growth == pytest.approx(10 * 5.67e12 / 2**30 * 0.023 * 720 / 730, rel=1e-4)


def test_hourly_money_runs_from_parked_to_running(plan: StoragePlan) -> None:
    hour, month = plan.cost.per_hour_usd, plan.cost.per_month_usd
    assert hour.parked == pytest.approx((month["s3"] or 0) / 730, abs=0.01)
    assert hour.nodes_at_zero == pytest.approx(((month["s3"] or 0) + (month["fsx-lustre"] or 0)) / 730, abs=0.01)
    assert hour.running == pytest.approx((hour.nodes_at_zero or 0) + 256 * 55.04, abs=0.01)


def test_checkpoints_on_s3_alone_grow_the_lake_by_a_day_of_replaced_versions() -> None:
    plan = plan_storage(TrainingJob(instances=8, interface="object", checkpoint_interval_minutes=60.0))
    month = plan.cost.per_month_usd["s3"]
    # 6 kept and 24 replaced within a day.
    assert month == pytest.approx(30 * plan.demand.checkpoint_size_gib * 0.023, rel=1e-4)


def test_requests_on_s3_alone_by_hand() -> None:
    # 1 node for 100 h, 80 GiB every 60 minutes in parts of 8 MiB, a failure every 10 h; reads of 0.008 GB/s.
    plan = plan_storage(
        TrainingJob(
            instances=1,
            interface="object",
            run_hours=100.0,
            mtbf_hours=10.0,
            checkpoint_size_gib=80.0,
            checkpoint_interval_minutes=60.0,
        )
    )
    parts = 80 * 128
    puts, gets = 100 * parts, 10 * parts + 0.008e9 * 360_000 / (8 * 2**20)
    expected = puts * 0.005 / 1000 + gets * 0.0004 / 1000
    assert plan.cost.run_usd.requests_and_transfer == pytest.approx(expected, abs=0.01)


def test_requests_and_transfer_on_express_by_hand() -> None:
    # As above on 600 nodes with 4,800 GiB; every sixth checkpoint is copied to the lake.
    plan = plan_storage(
        TrainingJob(
            instances=600,
            interface="object",
            run_hours=100.0,
            mtbf_hours=10.0,
            checkpoint_size_gib=4800.0,
            checkpoint_interval_minutes=60.0,
            read_gb_per_s_per_accelerator=0.001,
        )
    )
    parts, archived, read = 4800 * 128, 100 / 6, 4.8e9 * 360_000
    express = (
        100 * parts * 0.00113 / 1000
        + ((10 + archived) * parts + read / (8 * 2**20)) * 0.00003 / 1000
        + 100 * 4800 * 0.0032
        + ((10 + archived) * 4800 + read / 2**30) * 0.0006
    )
    assert plan.cost.run_usd.requests_and_transfer == pytest.approx(express + archived * parts * 0.005 / 1000, rel=1e-4)
    assert plan.cost.per_month_usd["s3-express"] == pytest.approx(3 * 4800 * 0.11)


def test_money_without_a_price_is_null_and_the_stand_in_is_named() -> None:
    plan = plan_storage(TrainingJob(instances=64, region="us-west-2"))
    assert plan.cost.per_month_usd["fsx-lustre"] is None
    assert plan.cost.per_month_usd["cluster"] == pytest.approx(64 * 55.04 * 730)
    assert (plan.cost.run_usd.storage, plan.cost.run_usd.total, plan.cost.per_hour_usd.running) == (None, None, None)
    assert plan.cost.run_usd.lost_work is not None
    assert any("s3, fsx-lustre in us-west-2" in w and "prices of us-east-1" in w for w in plan.warnings)
    assert plan.fsx_lustre == plan_storage(TrainingJob(instances=64)).fsx_lustre


def test_a_type_of_capacity_blocks_is_ranked_by_their_price() -> None:
    plan = plan_storage(TrainingJob(instances=64, instance_type="p5e.48xlarge"))
    assert plan.cost.per_month_usd["cluster"] is None
    assert any("effective Capacity Block price" in warning for warning in plan.warnings)


def test_a_file_of_prices_replaces_the_catalogs(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        'as_of = 2027-01-01\ncurrency = "USD"\nhours_per_month = 730\nranking_region = "us-east-1"\n'
        '[regions.us-east-1.instances]\n"p5.48xlarge" = { per_hour = 10.0 }\n',
        encoding="utf-8",
    )
    plan = plan_storage(TrainingJob(instances=4, prices=str(path)))
    assert plan.cost.prices_as_of == "2027-01-01"
    assert plan.cost.per_month_usd == {"s3": None, "cluster": 4 * 10 * 730}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "file not found"),
        ("as_of", "readable TOML file"),
        ("as_of = 2027-01-01\n", "without hours_per_month, ranking_region, regions"),
        ("as_of = 2027-01-01\nx = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("as_of = 2027-01-01\nx = " + "{a=" * 5000 + "1" + "}" * 5000, "nested too deeply"),
        ("as_of = 2027-01-01\n" + ".".join("a" * 5000) + " = 1\n", "without hours_per_month"),
    ],
)
def test_a_wrong_file_of_prices_is_one_line(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidJobError) as error:
        plan_storage(TrainingJob(instances=4, prices=str(path)))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


PRICES_HEAD = {
    "as_of": "2027-01-01",
    "currency": '"USD"',
    "hours_per_month": "730",
    "ranking_region": '"us-east-1"',
    "regions.us-east-1.s3.get_per_1000": "0.0004",
}


def prices_file(tmp_path: Path, **changes: str | None) -> str:
    """The path of a small file of prices with lines changed, added or (None) left out."""
    lines = {**PRICES_HEAD, **changes}
    path = tmp_path / "prices.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items() if value is not None))
    return str(path)


def test_the_small_file_of_the_next_tests_is_a_file_of_prices(tmp_path: Path) -> None:
    assert plan_storage(TrainingJob(instances=4, prices=prices_file(tmp_path))).cost.prices_as_of == "2027-01-01"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"regions.us-east-1.s3.get_per_1000": "-1"}, "regions.us-east-1.s3.get_per_1000 = -1"),
        ({"regions.us-east-1.s3.get_per_1000": "nan"}, "regions.us-east-1.s3.get_per_1000 = nan"),
        ({"regions.us-east-1.s3.get_per_1000": "9" * 300}, "numbers from 0 to 1,000,000"),
        ({"hours_per_month": "599"}, "hours_per_month from 600 to 800, for example 730, got: 599"),
        ({"hours_per_month": "801"}, "hours_per_month from 600 to 800, for example 730, got: 801"),
        ({"hours_per_month": "nan"}, "hours_per_month from 600 to 800"),
        ({"hours_per_month": "true"}, "hours_per_month from 600 to 800"),
        ({"hours_per_month": '"730"'}, "hours_per_month from 600 to 800"),
        ({"currency": '"EUR"'}, "currency = 'USD', because every amount of a plan is in it, got: 'EUR'"),
        ({"currency": '"usd"'}, "currency = 'USD'"),
        ({"currency": "1"}, "currency as text"),
        ({"as_of": '"2027-01-01"'}, "dates without quotes, for example as_of = 2027-01-31, got: as_of = '2027-01-01'"),
        ({"as_of": "1"}, "dates without quotes"),
        ({"as_of": "2027-01-01T00:00:00Z"}, "dates without quotes"),
        ({"regions.us-east-1.s3.as_of": "1"}, "got: regions.us-east-1.s3.as_of = 1"),
        ({"ranking_region": '"us-east-l"'}, "ranking_region as a known Region, got: 'us-east-l'"),
        ({"ranking_region": '"us-west-2"'}, "prices of their ranking_region"),
        ({"ranking_region": "3"}, "ranking_region as text, got: 3"),
        ({"regions.us-east-1.s3.get_per_1000": None, "regions": "3"}, "regions as a table, got: 3"),
        ({"regions.us-east-1.s3.get_per_1000": None, "regions": "[]"}, "regions as a table, got: []"),
        ({"regions.us-east-1.fsx-lustre": "0.1"}, "regions.us-east-1.fsx-lustre as a table, got: 0.1"),
        ({"hours_per_mouth": "730"}, "Did you mean 'hours_per_month'?"),
        ({"regions.us-east-1.s3.get_per_100": "1"}, "Did you mean 'get_per_1000'?"),
        ({"regions.us-east-1.s3-expres.get_per_1000": "1"}, "Did you mean 's3-express'?"),
        ({"regions.us-eastt-1.s3.get_per_1000": "1"}, "Did you mean 'us-east-1'?"),
        ({'regions.us-east-1.instances."p5.48xlrage".per_hour': "1"}, "Did you mean 'p5.48xlarge'?"),
        (
            {"regions.us-east-1.fsx-lustre.storage_per_gib_month.PERSISTENT_2.100": "1"},
            "PERSISTENT_2.100' in ",
        ),
    ],
    ids=str,
)
def test_a_file_of_prices_that_would_mislead_a_plan_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, str | None], words: str
) -> None:
    path = prices_file(tmp_path, **changes)
    with pytest.raises(InvalidJobError) as error:
        plan_storage(TrainingJob(instances=4, prices=path))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_the_catalogs_own_file_passes_as_a_users_and_the_layout_has_every_price_of_a_plan() -> None:
    catalog_file = resources.files("training_storage.planning.catalog") / "prices.toml"
    assert price_files.read_prices(str(catalog_file)).table == catalog.prices.catalog_prices().table
    region = price_files._layout()["regions"]["us-east-1"]
    for path in vars(tariff).values():
        if isinstance(path, tuple):
            assert region[path[0]][path[1]] == "price"


# Prices that change


PRICES = (
    'as_of = 2027-01-01\ncurrency = "USD"\nhours_per_month = 730\nranking_region = "us-east-1"\n'
    "[regions.us-east-1.s3]\nstorage_per_gib_month = 0.02\nput_per_1000 = 0.005\nget_per_1000 = 0.0004\n"
    "[regions.us-east-1.s3-express]\nstorage_per_gib_month = 0.1\nput_per_1000 = 0.001\nget_per_1000 = 0.00003\n"
    "upload_per_gib = 0.003\nretrieval_per_gib = 0.0006\n"
    "[regions.us-east-1.fsx-lustre]\nmetadata_iops_month = 0.05\n"
    "[regions.us-east-1.fsx-lustre.storage_per_gib_month]\n"
    "PERSISTENT_2 = { 125 = 0.14, 250 = 0.2, 500 = 0.3, 1000 = 0.6 }\n"
    '[regions.us-east-1.instances]\n"p5.48xlarge" = { per_hour = 50.0 }\n'
)


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("storage_per_gib_month = 0.02\n", "storage_per_gib_month = 0.021\n", ("s3", "storage_per_gib_month")),
        ("put_per_1000 = 0.005", "put_per_1000 = 0.006", ("s3", "put_per_1000")),
        ("1000 = 0.6 }", "1000 = 0.61 }", ("fsx-lustre", "storage_per_gib_month", "PERSISTENT_2", "1000")),
        ("per_hour = 50.0", "per_hour = 50.5", ("instances", "p5.48xlarge", "per_hour")),
        ("storage_per_gib_month = 0.1\n", "storage_per_gib_month = 0.11\n", ("s3-express", "storage_per_gib_month")),
        ("upload_per_gib = 0.003", "upload_per_gib = 0.0031", ("s3-express", "upload_per_gib")),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"instances": 256, "dataset_gib": 1000.0},
        {"instances": 1200, "interface": "object", "checkpoint_interface": "posix", "dataset_gib": 1000.0},
        {"instances": 600, "interface": "object"},
    ],
    ids=["lustre", "mixed", "express"],
)
def test_one_changed_price_changes_the_cost_by_exactly_that_much(
    tmp_path: Path, fields: dict[str, Any], old: str, new: str, path: tuple[str, ...]
) -> None:
    def planned(text: str) -> Solution:
        file = tmp_path / "prices.toml"
        file.write_text(text, encoding="utf-8")
        return solve(TrainingJob(**fields, prices=str(file)))

    assert PRICES.count(old) == 1
    before, after = planned(PRICES), planned(PRICES.replace(old, new))
    assert before.found.layout.file_system == after.found.layout.file_system
    price = after.situation.tariff.price(path)
    change = (price or 0) - (before.situation.tariff.price(path) or 0)
    amount = sum(line.amount for line in before.lines() if line.price == path)
    expected = (before.money().run_usd.total or 0) + change * amount
    assert after.money().run_usd.total == pytest.approx(expected, abs=0.01)


def test_a_plan_file_keeps_its_money_whatever_prices_say_later(tmp_path: Path) -> None:
    prices, file = tmp_path / "prices.toml", tmp_path / "plan.json"
    prices.write_text(PRICES, encoding="utf-8")
    original = plan_storage(TrainingJob(instances=64, prices=str(prices)))
    file.write_text(original.to_json(), encoding="utf-8")
    prices.write_text(PRICES.replace("500 = 0.3,", "500 = 3.0,"), encoding="utf-8")
    assert plan_storage(TrainingJob(instances=64, prices=str(prices))).fsx_lustre != original.fsx_lustre
    assert split_context({"plan": str(file)}).plan == original


# Quotas


def test_from_80_percent_of_a_quota_the_plan_warns() -> None:
    # 79,200 GiB are 78.6 %, 81,600 GiB 81 %.
    def warned(dataset: float) -> bool:
        plan = plan_storage(TrainingJob(instances=64, dataset_gib=dataset, checkpoint_size_gib=1.0))
        return any("L-8F1B9C74" in warning for warning in plan.warnings)

    assert not warned(79_200 * 0.85 - 10)
    assert warned(81_600 * 0.85 - 10)


def test_quotas_of_both_hot_tiers_are_listed() -> None:
    plan = plan_storage(TrainingJob(instances=1200, interface="object", checkpoint_interface="posix"))
    assert [(quota.code, quota.needed) for quota in plan.quotas] == [
        ("L-8F1B9C74", 100_800),
        ("L-FD6F2F22", 1),
        (None, 1),
    ]


def test_a_zone_that_is_not_known_to_offer_the_type_is_warned_of() -> None:
    plan = plan_storage(TrainingJob(instances=32, instance_type="p5en.48xlarge", zone_id="use1-az1"))
    assert any("use1-az1 is not known to offer p5en.48xlarge, use1-az2, use1-az6 are" in w for w in plan.warnings)


@pytest.mark.parametrize("value", ['"x"', "[1]", "true", "1e308", "-0.1", "nan", "inf"])
def test_a_price_that_is_no_price_is_refused_instead_of_changing_the_plan(tmp_path: Path, value: str) -> None:
    catalog_file = resources.files("training_storage.planning.catalog") / "prices.toml"
    text = catalog_file.read_text(encoding="utf-8")
    path = tmp_path / "prices.toml"
    path.write_text(text.replace("storage_per_gib_month = 0.023", f"storage_per_gib_month = {value}", 1))
    with pytest.raises(
        InvalidJobError, match=r"prices must hold numbers from 0 to 1,000,000, got: .*storage_per_gib_month"
    ):
        plan_storage(TrainingJob(instances=32, prices=str(path)))


def test_a_price_file_that_never_ends_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="no ordinary file"):
        plan_storage(TrainingJob(instances=32, prices="/dev/zero"))
