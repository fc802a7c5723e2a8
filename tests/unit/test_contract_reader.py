"""The reader on a node: strict, one clear line for each fault, and the same variables for every contract."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    document["checkpoints"].update(path="/fsx/checkpoints/" if both else None, uri="s3://a/b/" if both else None)
    with pytest.raises(ContractError, match="checkpoints must name exactly one of path and uri"):
        StorageContract.from_dict(document)


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
