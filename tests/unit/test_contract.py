"""The contract that a plan makes: by its schema for every job, with the values of the plan, and without secrets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.conftest import JOBS
from tests.contracts import BUCKET, EXPRESS, contract, deployed, of_job, plan
from training_storage.planning import TrainingJob, catalog, plan_storage
from training_storage.planning.catalog.contract import loader_figures, parameter_limits
from training_storage.planning.contract import (
    METRIC_NAMESPACE,
    READER_VERSION,
    SCHEMA_VERSION,
    Endpoint,
    longest_values,
    parameter_tier,
    storage_contract,
)
from training_storage.planning.errors import InvalidJobError, InvalidPlanError, NoTierError
from training_storage.training import contract as reader

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(
    (ROOT / "constructs/training_storage/training/storage_contract.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# ---- the schema ----


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_every_job_has_a_contract_of_the_schema(job: dict[str, str]) -> None:
    VALIDATOR.validate(of_job(job))


def test_every_job_has_a_contract_that_the_reader_reads(job: dict[str, str]) -> None:
    document = of_job(job)
    read = reader.StorageContract.from_dict(json.loads(json.dumps(document)))
    assert dataclasses.asdict(read) == document


# Jobs of every kind, not of every field: what a contract holds depends on tiers, sizes and names.
ANY_JOB = st.builds(
    TrainingJob,
    instances=st.integers(1, 3000),
    name=st.none() | st.from_regex(r"[a-z][a-z0-9-]{0,29}", fullmatch=True).filter(lambda name: name != "default"),
    instance_type=st.none() | st.sampled_from(sorted(catalog.instance_types())),
    interface=st.none() | st.sampled_from(["posix", "object"]),
    checkpoint_interface=st.none() | st.sampled_from(["posix", "object"]),
    model_parameters=st.none() | st.integers(10**6, 10**13),
    checkpoint_interval_minutes=st.none() | st.floats(0.01, 1e4),
    checkpoint_mode=st.none() | st.sampled_from(["async", "sync"]),
    checkpoints_kept=st.none() | st.integers(1, 10),
    durable_checkpoints_kept=st.none() | st.integers(0, 10),
    read_gb_per_s_per_accelerator=st.none() | st.floats(0, 2),
    dataset_gib=st.none() | st.floats(0, 1e6),
    mean_file_size_mib=st.none() | st.floats(1e-6, 1e8),
    region=st.none() | st.sampled_from(["us-west-2", "eu-west-1", "us-gov-west-1", "ap-northeast-1"]),
    lustre_deployment_type=st.none() | st.sampled_from(["PERSISTENT_2", "SCRATCH_2"]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(job=ANY_JOB)
def test_whatever_can_be_planned_has_a_contract_that_fits_a_parameter(job: TrainingJob) -> None:
    try:
        made = plan_storage(job)
    except (InvalidJobError, NoTierError):
        assume(False)  # noqa: FBT003 -- hypothesis takes it so
    assume(made.zone_id is not None)
    document = storage_contract(made, deployed=deployed(made), engine="ec2")
    VALIDATOR.validate(document)
    assert dataclasses.asdict(reader.StorageContract.from_dict(document)) == document
    assert parameter_tier(len(json.dumps(storage_contract(made, deployed=longest_values(made), engine="ec2"))))


def test_writer_reader_and_schema_know_the_same_version_and_namespace() -> None:
    assert SCHEMA["properties"]["schema_version"]["const"] == SCHEMA_VERSION == reader.SCHEMA_VERSION
    cluster = SCHEMA["properties"]["cluster"]["properties"]
    assert cluster["metric_namespace"]["const"] == METRIC_NAMESPACE
    assert READER_VERSION.count(".") == 2


# ---- what stands in it ----


def test_checkpoints_are_written_to_exactly_one_place_the_hottest_that_the_plan_has() -> None:
    places = {name: of_job(job)["checkpoints"] for name, job in JOBS.items()}
    for place in places.values():
        assert (place["path"] is None) != (place["uri"] is None)
    assert places["1"]["uri"] == places["1"]["durable_uri"] == f"s3://{BUCKET}/checkpoints/default/"
    assert places["256"]["path"] == "/fsx/checkpoints/"
    assert places["1000-object"]["uri"] == f"s3://{EXPRESS}/checkpoints/default/"
    assert places["1200-mixed"]["path"] == "/fsx/checkpoints/"


def test_each_tier_has_a_section_only_where_the_plan_has_the_tier() -> None:
    sections = {name: of_job(job) for name, job in JOBS.items()}
    has = {name: (bool(one["lustre"]), bool(one["s3_express"])) for name, one in sections.items()}
    assert has["1"] == (False, False)
    assert has["256"] == (True, False)
    assert has["1000-object"] == (False, True)
    assert has["1200-mixed"] == (True, True)


def test_lustre_paths_name_linked_folders_only() -> None:
    mixed = of_job(JOBS["1200-mixed"])
    assert set(mixed["lustre"]["paths"]) == {"checkpoints", "logs", "evaluations"}
    assert set(mixed["s3_express"]["uris"]) == {"datasets"}
    whole = of_job(JOBS["256"])
    assert whole["lustre"]["paths"]["datasets"] == "/fsx/datasets/"


def test_a_name_is_in_every_folder_of_the_jobs_own() -> None:
    named = contract(instances=256, name="llama-run-7")
    assert named["job"]["name"] == "llama-run-7"
    assert named["s3"]["uris"]["datasets"] == f"s3://{BUCKET}/datasets/"
    for folder in ("checkpoints", "logs", "evaluations"):
        assert named["s3"]["uris"][folder] == f"s3://{BUCKET}/{folder}/llama-run-7/"
    assert named["checkpoints"]["durable_uri"] == f"s3://{BUCKET}/checkpoints/llama-run-7/"


def test_sizes_servers_and_intervals_are_those_of_the_plan() -> None:
    made = plan(instances=256)
    assert made.fsx_lustre is not None
    document = contract(instances=256)
    lustre, checkpoints = document["lustre"], document["checkpoints"]
    assert lustre["storage_capacity_gib"] == made.fsx_lustre.storage_capacity_gib
    assert lustre["servers"] == catalog.lustre_servers(made.fsx_lustre)
    assert lustre["efa_interfaces"] == made.fsx_lustre.efa_interfaces_per_client == 0
    assert checkpoints["interval_minutes"] == made.demand.checkpoint_interval_minutes
    assert checkpoints["size_gib"] == made.demand.checkpoint_size_gib
    assert (checkpoints["mode"], checkpoints["kept"], checkpoints["durable_kept"]) == ("async", 2, 4)
    assert checkpoints["durable_interval_minutes"] == 360


def test_efa_is_told_with_its_number_of_interfaces() -> None:
    lustre = contract(instances=64, network_path="efa")["lustre"]
    assert (lustre["efa_enabled"], lustre["efa_interfaces"]) == (True, 8)


def test_without_a_hot_tier_the_newest_two_stay_whatever_a_hot_tier_would_keep() -> None:
    assert contract(instances=1, checkpoints_kept=5)["checkpoints"]["kept"] == 2
    assert contract(instances=256, checkpoints_kept=5)["checkpoints"]["kept"] == 5


# ---- loader and cache ----


@pytest.mark.parametrize(
    ("read", "workers"),
    [(0.001, 8), (0.68, 8), (0.86, 11), (1.5, 16), (3.0, 16)],
)
def test_loader_workers_follow_the_demand_between_8_and_16(read: float, workers: int) -> None:
    made = contract(instances=8, read_gb_per_s_per_accelerator=read)
    assert made["loader"]["workers_per_accelerator"] == workers


def test_loader_workers_never_outnumber_the_cores_of_an_accelerator() -> None:
    # 96 cores for 8 accelerators.
    made = contract(instances=8, instance_type="p4d.24xlarge", zone_id="use1-az1", read_gb_per_s_per_accelerator=1.5)
    assert made["loader"]["workers_per_accelerator"] == 12


def test_every_instance_type_has_cores_for_the_least_number_of_workers() -> None:
    least = loader_figures().workers_minimum
    assert all(kind.vcpus // kind.accelerators >= least for kind in catalog.instance_types().values())


@pytest.mark.parametrize(("file_mib", "part"), [(0.1, 8), (80_000, 8), (80_001, 9), (1_000_000, 100)])
def test_parts_are_8_mib_or_a_ten_thousandth_of_the_file(file_mib: float, part: int) -> None:
    assert contract(instances=8, mean_file_size_mib=file_mib)["loader"]["part_size_mib"] == part


def test_parts_suffice_for_the_checkpoint_of_one_rank_too() -> None:
    # 8,000 GiB by 8 ranks: 1,024,000 MiB each.
    assert contract(instances=1, checkpoint_size_gib=8000.0)["loader"]["part_size_mib"] == 103


def test_batches_are_prepared_ahead() -> None:
    assert contract(instances=8)["loader"]["prefetch_factor"] >= 4


def test_the_cache_is_bounded_by_a_quarter_of_the_disks_and_by_the_data_set() -> None:
    disks = catalog.instance_type("p5.48xlarge").local_nvme_gb * 1e9 / 2**30
    assert contract(instances=8)["mountpoint"]["cache_gib"] == int(disks * 0.95 / 4)
    assert contract(instances=8, dataset_gib=100.5)["mountpoint"]["cache_gib"] == 101
    assert contract(instances=8, dataset_gib=1e6)["mountpoint"]["cache_gib"] == int(disks * 0.95 / 4)


def test_scratch_tells_the_disks_that_a_node_should_find() -> None:
    assert contract(instances=8)["scratch"] == {"path": "/scratch", "local_nvme_gb": 30400}


def test_whole_numbers_are_written_as_such() -> None:
    text = json.dumps(contract(instances=256)["checkpoints"])
    assert '"durable_interval_minutes": 360,' in text


def test_express_is_the_shared_cache_where_the_plan_has_it() -> None:
    assert of_job(JOBS["1000-object"])["mountpoint"]["express_cache_bucket"] == EXPRESS
    assert of_job(JOBS["256"])["mountpoint"]["express_cache_bucket"] is None


# ---- what is refused ----


def test_a_plan_without_a_zone_has_no_contract() -> None:
    made = plan(instances=8)
    nowhere = dataclasses.replace(made, job=dataclasses.replace(made.job, zone_id=None))
    with pytest.raises(InvalidPlanError, match=r"plan\.job\.zone_id must be resolved, got: null"):
        storage_contract(nowhere, deployed=deployed(made), engine="ec2")


def test_deployed_values_must_be_those_of_the_tiers() -> None:
    made = plan(instances=256)
    with pytest.raises(InvalidPlanError, match="file_system must be given exactly where the plan has one.*has one"):
        storage_contract(made, deployed=dataclasses.replace(deployed(made), file_system=None), engine="ec2")
    with pytest.raises(InvalidPlanError, match="directory_bucket must be given .*the plan has none"):
        storage_contract(made, deployed=dataclasses.replace(deployed(made), directory_bucket=EXPRESS), engine="ec2")


def test_the_tier_of_the_parameter_follows_its_size() -> None:
    limits = parameter_limits()
    assert parameter_tier(limits.standard_characters_maximum) == "Standard"
    assert parameter_tier(limits.standard_characters_maximum + 1) == "Advanced"
    assert parameter_tier(limits.advanced_characters_maximum) == "Advanced"
    with pytest.raises(InvalidPlanError, match="at most 8192 characters, .*got: 8193"):
        parameter_tier(limits.advanced_characters_maximum + 1)


# ---- endpoints ----


def test_the_endpoint_of_aws_is_null_with_the_sdks_own_checksums() -> None:
    assert Endpoint().values() == {"url": None, "addressing_style": "auto", "checksums": "when_supported"}


def test_another_store_gets_checksums_only_where_they_are_required() -> None:
    made = Endpoint(url="https://s3.example.com:9000", addressing_style="path")
    document = storage_contract(plan(instances=1), deployed=deployed(plan(instances=1)), engine="ec2", endpoint=made)
    assert document["endpoint"] == {
        "url": "https://s3.example.com:9000",
        "addressing_style": "path",
        "checksums": "when_required",
    }
    VALIDATOR.validate(document)
    assert Endpoint(url="https://s3.example.com", checksums="when_supported").values()["checksums"] == "when_supported"


@pytest.mark.parametrize(
    "url",
    [
        "https://user:password@s3.example.com",
        "https://s3.example.com/?X-Amz-Signature=0f0f",
        "https://s3.example.com/AKIAIOSFODNN7EXAMPLE",
        "s3.example.com",
        "https://s3.example.com ",
    ],
)
def test_an_endpoint_with_room_for_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidJobError, match="endpoint url must be http") as error:
        Endpoint(url=url)
    assert url not in str(error.value)


def test_an_unknown_style_or_checksum_is_refused() -> None:
    with pytest.raises(InvalidJobError, match="endpoint addressing_style must be one of auto, path, virtual, got: 'x'"):
        Endpoint(addressing_style="x")
    with pytest.raises(InvalidJobError, match="endpoint checksums must be one of when_supported, when_required, got"):
        Endpoint(checksums="never")


# ---- no secrets ----

SECRETS = [
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "https://user:password@s3.example.com",
    "-----BEGIN PRIVATE KEY-----",
    "hunter2 hunter2",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "password=hunter2",
]


def text_leaves(values: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(values, dict):
        return [leaf for key, value in values.items() for leaf in text_leaves(value, (*place, key))]
    return [place] if isinstance(values, str) else []


def planted(document: dict[str, Any], place: tuple[Any, ...], secret: str) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(document))
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = secret
    return changed


@pytest.mark.parametrize("secret", SECRETS)
def test_no_text_of_the_contract_has_room_for_what_looks_like_a_secret(secret: str) -> None:
    document = of_job(JOBS["1200-mixed"])
    document["endpoint"]["url"] = "https://s3.example.com"
    places = text_leaves(document)
    assert len(places) > 30
    assert [place for place in places if VALIDATOR.is_valid(planted(document, place, secret))] == []


def test_no_object_of_the_contract_has_room_for_another_key() -> None:
    def objects(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, list):
            return [found for item in node for found in objects(item)]
        if not isinstance(node, dict):
            return []
        own = [node] if node.get("type") == "object" else []
        return own + [found for item in node.values() for found in objects(item)]

    found = objects(SCHEMA)
    assert len(found) >= 14
    assert all(one["additionalProperties"] is False for one in found)


def test_every_text_of_the_schema_has_a_pattern() -> None:
    def texts(node: Any) -> list[dict[str, Any]]:
        if isinstance(node, list):
            return [found for item in node for found in texts(item)]
        if not isinstance(node, dict):
            return []
        kinds = node.get("type")
        own = [node] if kinds == "string" or (isinstance(kinds, list) and "string" in kinds) else []
        return own + [
            found for key, item in node.items() if key != "oneOf" or "type" not in node for found in texts(item)
        ]

    assert [text for text in texts(SCHEMA) if "pattern" not in text] == []


# ---- the docs ----


def test_the_docs_explain_every_key() -> None:
    text = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    rows = {}
    for line in text.split("\n## Keys\n")[1].split("\n## ")[0].splitlines():
        if line.startswith("| `"):
            first, rest = line.removeprefix("| ").split(" | ", 1)
            for name in first.replace("`", "").split(", "):
                rows[name] = rest
    assert set(rows) == set(SCHEMA["properties"])
    for name, section in SCHEMA["properties"].items():
        objects = [section, *section.get("oneOf", [])]
        for key in (key for one in objects for key in one.get("properties", {})):
            assert f"`{key}`" in rows[name], f"{name}.{key}"


def test_the_docs_tell_the_figures_of_the_catalog() -> None:
    text = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    figures, limits = loader_figures(), parameter_limits()
    assert f"{figures.workers_minimum} to {figures.workers_maximum}: " in text
    assert f"({figures.request_mb_per_s} MB/s)" in text
    assert f"| `loader.prefetch_factor` | {figures.prefetch_factor} |" in text
    assert f"holds {limits.standard_characters_maximum:,} characters" in text
    assert f"one {limits.advanced_characters_maximum:,}" in text


def test_a_contract_is_about_as_long_as_the_docs_say() -> None:
    longest = 0
    for job in JOBS.values():
        made = plan_storage(TrainingJob.from_strings({**job, "name": "n" * 30}))
        document = storage_contract(made, deployed=longest_values(made), engine="pcs")
        longest = max(longest, len(json.dumps(document, separators=(",", ":"))))
    assert 2300 < longest < 2700
