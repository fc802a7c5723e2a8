"""The reader on a node: strict, one clear line for each fault, and the same variables for every contract."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import JOBS
from tests.contracts import of_job
from training_storage.training import ContractError, StorageContract, environment
from training_storage.training import contract as reader

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "read_contract.py"


@pytest.fixture
def document() -> dict[str, Any]:
    return of_job(JOBS["256"])


@pytest.fixture
def file(tmp_path: Path, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A contract file that the variable names."""
    path = tmp_path / "storage.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setenv("TRAINING_STORAGE_CONTRACT", str(path))
    return path


# ---- reading ----


def test_the_variable_names_the_file_and_an_argument_beats_it(file: Path, tmp_path: Path) -> None:
    assert StorageContract.read().job.instances == 256
    other = tmp_path / "other.json"
    other.write_text(json.dumps(of_job(JOBS["17"])), encoding="utf-8")
    assert StorageContract.read(other).job.instances == 17


def test_without_the_variable_the_file_is_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINING_STORAGE_CONTRACT", raising=False)
    with pytest.raises(ContractError, match="'/etc/training-storage/storage.json'"):
        StorageContract.read()


def test_a_value_cannot_be_changed(file: Path) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        StorageContract.read().loader.part_size_mib = 1  # type: ignore[misc]


def test_whole_numbers_stand_for_numbers(document: dict[str, Any]) -> None:
    document["checkpoints"]["interval_minutes"] = 5
    assert StorageContract.from_dict(document).checkpoints.interval_minutes == 5.0


def test_a_location_is_the_fastest_place_of_a_kind_of_data() -> None:
    lustre, express = (StorageContract.from_dict(of_job(JOBS[name])) for name in ("256", "1200-mixed"))
    assert lustre.location("datasets") == "/fsx/datasets/"
    assert express.location("datasets").startswith("s3://hot-")
    assert express.location("checkpoints") == express.checkpoints.write_to == "/fsx/checkpoints/"
    assert express.location("raw") == express.s3.uris["raw"]


def test_an_unknown_purpose_is_refused_with_the_ones_there_are(document: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="purpose must be one of raw, datasets, .*, got: 'dataset'"):
        StorageContract.from_dict(document).location("dataset")


# ---- faults ----


def test_a_missing_file_says_where_a_contract_comes_from(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="no storage contract at .*/none.json.*TRAINING_STORAGE_CONTRACT.*SSM"):
        StorageContract.read(tmp_path / "none.json")


def test_a_folder_is_no_contract(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="must be a readable text file, got: "):
        StorageContract.read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "schema_version: 1"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="must be JSON, got text that is not"):
        StorageContract.from_json(text)


@pytest.mark.parametrize("values", [[], 1, {}, {"job": {}}])
def test_what_is_no_contract_is_refused(values: object) -> None:
    with pytest.raises(ContractError, match="must be an object with schema_version"):
        StorageContract.from_dict(values)


def test_a_newer_contract_says_which_version_to_install(document: dict[str, Any]) -> None:
    newer = {**document, "schema_version": 2, "reader_version": "0.7.0", "something": "new"}
    with pytest.raises(ContractError, match=r"at most 1 .*got: 2; install 0\.7\.0 or newer \(pip install --upgrade"):
        StorageContract.from_dict(newer)


def test_an_older_contract_asks_for_a_deployment(document: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="schema_version must be 1, got: 0; deploy the job again"):
        StorageContract.from_dict({**document, "schema_version": 0})


@pytest.mark.parametrize("version", [True, "1", 1.0, None])
def test_a_version_is_a_whole_number(document: dict[str, Any], version: object) -> None:
    with pytest.raises(ContractError, match="schema_version must be a whole number"):
        StorageContract.from_dict({**document, "schema_version": version})


def every_key(values: dict[str, Any], place: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in values.items():
        found.append((*place, key))
        # Folders of the lake differ from job to job.
        if isinstance(value, dict) and key not in ("uris", "paths"):
            found += every_key(value, (*place, key))
    return found


def test_every_key_is_missed_by_name(document: dict[str, Any]) -> None:
    keys = [key for key in every_key(document) if key != ("schema_version",)]
    assert len(keys) > 50
    for key in keys:
        broken = json.loads(json.dumps(document))
        inner = broken
        for part in key[:-1]:
            inner = inner[part]
        del inner[key[-1]]
        with pytest.raises(ContractError, match=f"the key '{key[-1]}' is missing") as error:
            StorageContract.from_dict(broken)
        assert "\n" not in str(error.value)


def test_an_unknown_key_is_refused_with_the_ones_allowed(document: dict[str, Any]) -> None:
    document["loader"]["workers"] = 8
    with pytest.raises(ContractError, match="the key 'workers' is unknown in loader; allowed are workers_per_accelera"):
        StorageContract.from_dict(document)


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("loader", "prefetch_factor", "4", r"loader\.prefetch_factor must be a whole number, got: '4'"),
        ("loader", "prefetch_factor", 4.5, "must be a whole number, got: 4.5"),
        ("loader", "prefetch_factor", True, "must be a whole number, got: True"),
        ("lustre", "efa_enabled", 1, r"lustre\.efa_enabled must be true or false, got: 1"),
        ("checkpoints", "size_gib", None, r"checkpoints\.size_gib must be a number, got: None"),
        ("checkpoints", "size_gib", True, "must be a number, got: True"),
        ("s3", "bucket", None, r"s3\.bucket must be text, got: None"),
        ("s3", "uris", ["a"], r"s3\.uris must be an object of texts"),
        ("s3", "uris", {"raw": 1}, r"s3\.uris must be an object of texts"),
    ],
)
def test_a_wrong_type_is_refused_by_place(
    document: dict[str, Any], section: str, key: str, value: object, said: str
) -> None:
    document[section][key] = value
    with pytest.raises(ContractError, match=said):
        StorageContract.from_dict(document)


def test_a_section_that_is_no_object_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="scratch must be an object, got: '/scratch'"):
        StorageContract.from_dict({**document, "scratch": "/scratch"})


@pytest.mark.parametrize("both", [True, False])
def test_checkpoints_go_to_exactly_one_place(document: dict[str, Any], *, both: bool) -> None:
    document["checkpoints"].update(
        path="/fsx/checkpoints/" if both else None, uri="s3://lake/checkpoints/a/" if both else None
    )
    with pytest.raises(ContractError, match="checkpoints must name exactly one of path and uri"):
        StorageContract.from_dict(document)


# ---- what values may be ----

SCHEMA = json.loads(
    (ROOT / "constructs/training_storage/training/storage_contract.schema.json").read_text(encoding="utf-8")
)


def leaves_of_schema(node: dict[str, Any], place: str = "") -> dict[str, dict[str, Any]]:
    """Each leaf of the schema by its place, without null as an alternative."""
    if "$ref" in node:
        node = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]]
    if "properties" not in node and "oneOf" in node:
        (node,) = (one for one in node["oneOf"] if one != {"type": "null"})
        return leaves_of_schema(node, place)
    if "properties" not in node:
        return {place: node}
    assert node["additionalProperties"] is False
    return {
        found: leaf
        for name, inner in node["properties"].items()
        for found, leaf in leaves_of_schema(inner, f"{place}.{name}" if place else name).items()
    }


def test_the_reader_allows_exactly_what_the_schema_does() -> None:
    patterns: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    least: dict[str, int] = {}
    above_zero: list[str] = []
    others: list[str] = []
    for place, leaf in leaves_of_schema(SCHEMA).items():
        if "pattern" in leaf:
            patterns[place] = leaf["pattern"].removeprefix("^").removesuffix("$")
        elif "enum" in leaf or leaf.get("const") == "TrainingStorage":
            choices[place] = tuple(leaf.get("enum", [leaf.get("const")]))
        elif leaf.get("type") == "integer":
            least[place] = leaf["minimum"]
        elif leaf.get("type") == "number":
            assert leaf["exclusiveMinimum"] == 0
            above_zero.append(place)
        else:
            others.append(place)
        if leaf.get("type") in ("integer", "number"):
            assert leaf["maximum"] == reader.MOST
    assert patterns == dict(reader.PATTERNS)
    assert choices == dict(reader.CHOICES)
    assert least == dict(reader.LEAST)
    assert tuple(above_zero) == reader.ABOVE_ZERO
    assert others == ["schema_version", "lustre.efa_enabled"]
    sections = {
        "s3.uris": SCHEMA["properties"]["s3"],
        "lustre.paths": SCHEMA["properties"]["lustre"]["oneOf"][1],
        "s3_express.uris": SCHEMA["properties"]["s3_express"]["oneOf"][1],
    }
    needed = {place: section["properties"][place.split(".")[1]]["required"] for place, section in sections.items()}
    assert {place: tuple(names) for place, names in needed.items()} == dict(reader.NEEDED)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("checkpoints.mode", "later", "checkpoints.mode must be one of async, sync, got: 'later'"),
        ("checkpoints.path", "fsx/checkpoints/", "checkpoints.path must be text of the form /"),
        ("checkpoints.path", "", "checkpoints.path must be text of the form /"),
        ("checkpoints.durable_uri", "http://lake/checkpoints/a/", "checkpoints.durable_uri must be text of the form"),
        ("checkpoints.size_gib", -1, "must be a number above 0, at most 9007199254740991, got: -1"),
        ("checkpoints.size_gib", math.nan, "must be a number above 0, at most 9007199254740991, got: nan"),
        ("checkpoints.interval_minutes", math.inf, "must be a number above 0, .*got: inf"),
        ("checkpoints.interval_minutes", 10**400, "must be a number above 0, .*got: 1000"),
        ("job.instances", 0, "job.instances must be a whole number from 1 to"),
        ("job.instances", -5, "job.instances must be a whole number from 1 to"),
        ("job.instances", 10**5000, "got: a int that is too large to show"),
        ("job.name", "a\nb", r"job.name must be text of the form .*, got: 'a\\nb'"),
        ("job.name", "a\x00", "job.name must be text of the form"),
        ("job.name", "a\n", "job.name must be text of the form"),
        ("job.name", "\ud800", "job.name must be text of the form"),
        ("region", "", "region must be text of the form"),
        ("s3.uris.datasets", "http://lake/datasets/", "s3.uris.datasets must be text of the form s3://"),
        ("s3.uris.more", "s3://lake/more/", "the key 'more' is unknown in s3.uris; allowed are raw, datasets"),
        ("lustre.mount_path", "fsx", "lustre.mount_path must be text of the form /"),
        ("cluster.metric_namespace", "AWS/EC2", "metric_namespace must be one of TrainingStorage, got: 'AWS/EC2'"),
        ("cluster.engine", "p" * 10_000, "got: 'p{59}…$"),
    ],
    ids=lambda value: repr(value)[:40] if not isinstance(value, int) else "number",
)
def test_a_value_that_is_none_is_refused_by_place(
    document: dict[str, Any], place: str, value: object, said: str
) -> None:
    *sections, last = place.split(".")
    inner = document
    for section in sections:
        inner = inner[section]
    inner[last] = value
    with pytest.raises(ContractError, match=said) as error:
        StorageContract.from_dict(document)
    assert len(str(error.value).splitlines()) == 1


def test_a_folder_of_the_lake_that_is_missing_is_named(document: dict[str, Any]) -> None:
    del document["s3"]["uris"]["logs"]
    with pytest.raises(ContractError, match="the key 'logs' is missing in s3.uris; deploy the job again"):
        StorageContract.from_dict(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "must be JSON of a few levels, got: text that is nested deeper"),
        ('{"schema_version": ' + "[" * 100_000 + "]" * 100_000 + "}", "must be JSON of a few levels"),
        ('{"schema_version": NaN}', "NaN is no number of JSON"),
        ('{"schema_version": -Infinity}', "-Infinity is no number of JSON"),
        ('{"schema_version": 1, "schema_version": 1}', "the key 'schema_version' stands twice in one object"),
        ('{"schema_version": ' + "9" * 5000 + "}", "must be JSON, got text that is not: "),
        ('{"schema_version": 1e999}', "schema_version must be a whole number, got: inf"),
        ('{"schema_version": 2, "reader_version": "0.2.0\\nrm"}', "install the newest or newer"),
    ],
    ids=lambda text: text[:30],
)
def test_hostile_text_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ContractError, match=said) as error:
        StorageContract.from_json(text)
    assert len(str(error.value).splitlines()) == 1


def test_a_key_that_stands_twice_is_refused_wherever_it_stands(document: dict[str, Any]) -> None:
    text = json.dumps(document).replace('"kept": ', '"kept": 7, "kept": ')
    with pytest.raises(ContractError, match="the key 'kept' stands twice"):
        StorageContract.from_json(text)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**60)
    | st.floats()
    | st.text()
    | st.sampled_from(["", "/", "/a", "a/", "s3://a/b/", "http://a", "async", "default", "us-east-1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(JOBS)))
def test_whatever_is_done_to_a_contract_it_reads_as_it_stands_or_is_refused_in_one_line(
    data: st.DataObject, name: str
) -> None:
    changed = json.loads(json.dumps(of_job(JOBS[name])))
    for _ in range(data.draw(st.integers(1, 3))):
        inner = changed
        while True:
            key = data.draw(st.sampled_from(sorted(inner)) | st.text(max_size=5)) if inner else data.draw(st.text())
            if not isinstance(inner.get(key), dict) or data.draw(st.integers(0, 4)) == 0:
                break
            inner = inner[key]
        if key in inner and data.draw(st.integers(0, 3)) == 0:
            del inner[key]
        else:
            inner[key] = data.draw(VALUES)
    for as_text in (False, True):
        try:
            found = StorageContract.from_json(json.dumps(changed)) if as_text else StorageContract.from_dict(changed)
        except ContractError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017 -- most examples raise, and none must
        else:
            assert dataclasses.asdict(found) == changed


# ---- variables ----


def test_every_contract_has_the_same_variables() -> None:
    names = [set(environment(StorageContract.from_dict(of_job(job)))) for job in JOBS.values()]
    assert all(each == names[0] for each in names)


def test_variables_hold_the_values_and_nothing_where_there_is_none() -> None:
    variables = StorageContract.from_dict(of_job(JOBS["256"])).environment()
    assert variables["TRAINING_STORAGE_SCHEMA_VERSION"] == "1"
    assert variables["TRAINING_STORAGE_LUSTRE_MOUNT_PATH"] == "/fsx"
    assert variables["TRAINING_STORAGE_LUSTRE_EFA_ENABLED"] == "false"
    assert variables["TRAINING_STORAGE_S3_URIS_DATASETS"].endswith("/datasets/")
    assert variables["TRAINING_STORAGE_CHECKPOINTS_PATH"] == "/fsx/checkpoints/"
    assert variables["TRAINING_STORAGE_CHECKPOINTS_URI"] == ""
    assert variables["TRAINING_STORAGE_CHECKPOINTS_DURABLE_INTERVAL_MINUTES"] == "360"
    assert variables["TRAINING_STORAGE_S3_EXPRESS_BUCKET"] == ""
    assert variables["TRAINING_STORAGE_S3_EXPRESS_URIS_DATASETS"] == ""


def test_variables_need_no_quotes_in_a_shell_and_are_names(job: dict[str, str]) -> None:
    for name, value in environment(StorageContract.from_dict(of_job(job))).items():
        assert re.fullmatch(r"TRAINING_STORAGE_[A-Z0-9_]+", name)
        assert value == "" or shlex.quote(value) == value


def test_the_node_kit_writes_the_same_variables(job: dict[str, str]) -> None:
    kit = runpy.run_path(str(ROOT / "constructs/training_storage/node_kit/lib/contract_env.py"))
    document = json.loads(json.dumps(of_job(job)))
    written = dict(kit["variables"](document))
    absent = {f"TRAINING_STORAGE_{name.upper()}" for name in ("lustre", "s3_express") if document[name] is None}
    known = environment(StorageContract.from_dict(document))
    assert {name: value for name, value in written.items() if name not in absent} == {
        name: value for name, value in known.items() if name in written or value
    }


def test_no_variable_takes_the_name_of_the_one_that_names_the_file(document: dict[str, Any]) -> None:
    assert reader.PATH_VARIABLE not in environment(StorageContract.from_dict(document))


# ---- the module and the example ----


def test_the_reader_loads_the_standard_library_only() -> None:
    script = (
        "import sys, training_storage.training as t; t.StorageContract;"
        "print([m for m in ('aws_cdk', 'jsii', 'boto3', 'botocore', 'torch', 'training_storage.planning')"
        " if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_the_reader_is_one_file_for_python_3_9() -> None:
    text = Path(reader.__file__).read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 9))
    imported = {
        (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else node.names[0].name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= set(sys.stdlib_module_names)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]
    # Arguments of dataclass and zip that 3.9 does not know.
    keywords = {keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords}
    assert not {"kw_only", "slots", "strict"} & keywords


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import training_storage.training as package  # noqa: PLC0415

    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'Contract'"):
        _ = package.Contract


def test_the_example_has_20_lines_and_finds_everything_with_the_contract_alone(
    job: dict[str, str], tmp_path: Path
) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 20
    path = tmp_path / "storage.json"
    document = of_job(job)
    path.write_text(json.dumps(document), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINING_STORAGE"))}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env={**kept, "TRAINING_STORAGE_CONTRACT": str(path), "PYTHONPATH": str(ROOT / "constructs")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    read = StorageContract.from_dict(document)
    for wanted in (
        read.location("datasets"),
        read.checkpoints.write_to,
        read.checkpoints.durable_uri,
        f"{read.loader.workers_per_accelerator} workers",
        f"{read.loader.part_size_mib} MiB",
    ):
        assert wanted in done.stdout
