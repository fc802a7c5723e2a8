"""The first rung: what `verify` tries, what it notices, and that it leaves nothing behind."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.training import lesser_store as lesser
from training_storage.cli import main
from training_storage.planning import TrainingJob, plan_storage
from training_storage.planning.contract import DeployedFileSystem, DeployedValues, storage_contract
from training_storage.training.contract import StorageContract
from training_storage.training.endpoint import endpoint_of
from training_storage.training.verify import Result, Target, targets_of, verify

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = ["write", "read", "list", "conditional write", "swap", "stale write refused", "delete"]
S3_ONLY = ["ranged read", "multipart", "multipart create only", "copy"]
SPEEDS = ["write speed", "read speed"]
SMALL: dict[str, Any] = {"size_mib": 8, "part_size_mib": 1, "requests": 4, "seconds": 5}


def a_contract(**job: Any) -> dict[str, Any]:
    plan = plan_storage(TrainingJob(region="us-east-1", **job))
    return storage_contract(
        plan,
        deployed=DeployedValues(
            bucket="lake",
            kms_key_arn="arn:aws:kms:us-east-1:000000000000:key/0",
            file_system=DeployedFileSystem(
                file_system_id="fs-0", dns_name="fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com", mount_name="m"
            )
            if plan.fsx_lustre
            else None,
            directory_bucket="hot--use1-az4--x-s3" if plan.s3_express else None,
        ),
        engine="pcs",
    )


def results(where: str, **options: Any) -> dict[str, Result]:
    target = Target(role="place", where=where)
    (found,) = verify([target], **(SMALL | options))
    return {check.name: check.result for check in found.checks}


def keys(aws: LocalAws, bucket: str) -> list[str]:
    return [entry["Key"] for entry in aws.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_every_check_of_a_bucket_is_well_and_nothing_stays(bucket: str, aws_environment: LocalAws) -> None:
    aws_environment.client("s3").put_object(Bucket=bucket, Key="job/theirs", Body=b"theirs")
    found = results(f"s3://{bucket}/job/")
    assert list(found) == [*EXPECTED, *S3_ONLY, *SPEEDS]
    assert set(found.values()) == {Result.OK}
    assert keys(aws_environment, bucket) == ["job/theirs"]


def test_every_check_of_a_folder_is_well_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    found = results(str(tmp_path))
    assert list(found) == [*EXPECTED, *SPEEDS]
    assert set(found.values()) == {Result.OK}
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


@pytest.mark.parametrize(
    ("quirk", "bad"),
    [
        (lesser.ignores("if-none-match"), {"conditional write"}),
        (lesser.ignores("if-match"), {"stale write refused"}),
        (lesser.ignores("if-none-match", method="POST"), {"multipart create only"}),
        (lesser.refuses("x-amz-copy-source"), {"copy"}),
        (lesser.ignores("range", method="GET"), {"ranged read", "speed"}),
    ],
    ids=["create-only", "stale", "completion", "copy", "ranges"],
)
def test_what_a_store_lacks_is_the_check_that_fails(
    bucket: str, aws_environment: LocalAws, quirk: Any, bad: set[str]
) -> None:
    with lesser.LesserStore.before(aws_environment.endpoint_url, quirk) as store:
        found = results(f"s3://{bucket}/job/", endpoint=endpoint_of(url=store.url))
    assert {name for name, result in found.items() if result != Result.OK} == bad
    assert keys(aws_environment, bucket) == []


def test_without_the_right_to_write_the_rest_is_skipped(bucket: str, aws_environment: LocalAws) -> None:
    def denies(request: lesser.Request) -> lesser.Refusal | None:
        return lesser.Refusal(status=403, code="AccessDenied") if request.method == "PUT" else None

    with lesser.LesserStore.before(aws_environment.endpoint_url, denies) as store:
        found = results(f"s3://{bucket}/job/", endpoint=endpoint_of(url=store.url))
    assert found == {
        "write": Result.FAILED,
        "conditional write": Result.SKIPPED,
        "stale write refused": Result.SKIPPED,
        "delete": Result.SKIPPED,
    }


def test_objects_that_cannot_be_deleted_are_named(bucket: str, aws_environment: LocalAws) -> None:
    def keeps(request: lesser.Request) -> lesser.Refusal | None:
        deletes = request.method == "DELETE" or "delete" in request.query
        return lesser.Refusal(status=403, code="AccessDenied") if deletes else None

    with lesser.LesserStore.before(aws_environment.endpoint_url, keeps) as store:
        (found,) = verify(
            [Target(role="place", where=f"s3://{bucket}/job/")], endpoint=endpoint_of(url=store.url), **SMALL
        )
    by_name = {check.name: check for check in found.checks}
    assert by_name["delete"].result == Result.FAILED
    assert "not deleted: s3://" in by_name["clean up"].detail


def test_a_place_that_is_slower_than_the_job_needs_is_said(tmp_path: Path) -> None:
    target = Target(role="scratch", where=str(tmp_path), write_gb_per_s=1e6, read_gb_per_s=1e-9)
    (found,) = verify([target], **SMALL)
    by_name = {check.name: check for check in found.checks}
    assert by_name["write speed"].result == Result.SLOW
    assert by_name["write speed"].detail.endswith("GB/s, this node needs 1e+06")
    assert by_name["read speed"].result == Result.OK
    assert not found.ok


def test_speed_is_bounded_in_bytes_and_time(tmp_path: Path) -> None:
    started = time.monotonic()
    results(str(tmp_path), size_mib=100_000, seconds=0.1)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(role="lustre", where="/no/fsx/checkpoints/", mount="/no/fsx"), "/no/fsx does not exist"),
        (Target(role="scratch", where="/no/scratch"), "/no/scratch is no folder"),
        (Target(role="mountpoint", where="/no/lake", read_only=True, mount="/no/lake"), "/no/lake does not exist"),
    ],
)
def test_a_place_that_is_not_there_is_said(target: Target, words: str) -> None:
    (found,) = verify([target], **SMALL)
    assert [(check.result, words in check.detail) for check in found.checks] == [(Result.FAILED, True)]


def test_a_plain_folder_is_no_mount(tmp_path: Path) -> None:
    (found,) = verify([Target(role="mountpoint", where=str(tmp_path), read_only=True, mount=str(tmp_path))], **SMALL)
    assert [(check.name, check.result) for check in found.checks] == [
        ("mounted", Result.FAILED),
        ("read", Result.OK),
    ]
    (root,) = verify([Target(role="mountpoint", where="/", read_only=True, mount="/")], **SMALL)
    assert root.ok


# ---- places and needs of a contract ---------------------------------------------------------------------------------


def test_a_contract_with_lustre_names_its_places_and_each_nodes_share() -> None:
    values = a_contract(instances=256)
    contract = StorageContract.from_dict(values)
    plan = {"demand": {"read_gb_per_s": 512.0, "restore_gb_per_s": 25.6}}
    targets = {target.role: target for target in targets_of(contract, plan)}
    assert list(targets) == ["lake", "lustre", "scratch", "mountpoint"]
    assert targets["lustre"].where == "/fsx/checkpoints/"
    assert targets["lustre"].mount == "/fsx"
    checkpoints = values["checkpoints"]
    share = checkpoints["size_gib"] * 2**30 / 1e9 / 256
    assert targets["lustre"].write_gb_per_s == pytest.approx(share / (checkpoints["interval_minutes"] * 60))
    assert targets["lake"].write_gb_per_s == pytest.approx(share / (checkpoints["durable_interval_minutes"] * 60))
    assert targets["lustre"].read_gb_per_s == pytest.approx(2.0)
    assert targets["scratch"].write_gb_per_s is None
    assert targets["mountpoint"].read_only
    assert {target.read_gb_per_s for target in targets_of(contract)} == {None}


def test_a_contract_of_object_stores_names_those() -> None:
    contract = StorageContract.from_dict(a_contract(instances=1000, interface="object"))
    targets = {target.role: target for target in targets_of(contract)}
    assert list(targets) == ["lake", "s3-express", "scratch", "mountpoint"]
    assert targets["s3-express"].where.startswith("s3://hot--use1-az4--x-s3/checkpoints/")
    assert targets["s3-express"].write_gb_per_s is not None


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def contract_file(bucket: str, aws_environment: LocalAws, tmp_path: Path) -> Path:
    """A contract whose places all exist here."""
    values = a_contract(instances=2)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    values["endpoint"] = {"url": aws_environment.endpoint_url, "addressing_style": "path", "checksums": "when_required"}
    values["s3"]["uris"] = {
        name: uri.replace("s3://lake/", f"s3://{bucket}/") for name, uri in values["s3"]["uris"].items()
    }
    values["checkpoints"] |= {
        "uri": values["s3"]["uris"]["checkpoints"],
        "durable_uri": values["s3"]["uris"]["checkpoints"],
        "local_path": str(scratch / "checkpoints"),
        # What a local server on two cores can do.
        "size_gib": 0.001,
    }
    values["scratch"]["path"] = str(scratch)
    values["mountpoint"]["path"] = "/"
    file = tmp_path / "storage.json"
    file.write_text(json.dumps(values), encoding="utf-8")
    return file


def test_the_command_says_that_all_is_well(
    contract_file: Path, capsys: pytest.CaptureFixture[str], bucket: str, aws_environment: LocalAws
) -> None:
    assert main(["verify", "--contract", str(contract_file), "--size-mib", "16"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"lake  s3://{bucket}/checkpoints/default/\n  write ")
    assert text.endswith("All 3 places do what training needs.\n")
    assert max(map(len, text.splitlines())) <= 100
    assert keys(aws_environment, bucket) == []


def test_the_command_fails_where_a_place_is_missing_and_says_it_as_json(
    contract_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads(contract_file.read_text())
    values["scratch"]["path"] = "/no/scratch"
    contract_file.write_text(json.dumps(values))
    arguments = ["verify", "--contract", str(contract_file), "--only", "scratch", "--only", "mountpoint", "--json"]
    assert main(arguments) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert not document["ok"]
    assert [(place["role"], place["ok"]) for place in document["places"]] == [("scratch", False), ("mountpoint", True)]


def test_places_can_be_named_without_a_contract(
    bucket: str, aws_environment: LocalAws, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--endpoint-url", aws_environment.endpoint_url, "--size-mib", "16"]
    assert main(["verify", f"s3://{bucket}/a/", str(tmp_path), *arguments]) == 0
    assert "All 2 places" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--contract", "/no/contract"], "no storage contract at '/no/contract'"),
        (["/tmp", "--only", "lake"], "--plan and --only belong to the places of a contract"),  # noqa: S108
        (["--contract", "CONTRACT", "--only", "disk"], "--only must be one of lake, scratch, mountpoint"),
        (["--contract", "CONTRACT", "--plan", "/no/plan"], "--plan must name a plan as JSON"),
        (["--contract", "CONTRACT", "--seconds", "0"], "--seconds must be a whole number from 1"),
        (["--contract", "CONTRACT", "--size-mib", "1"], "size_mib must be at least the part size"),
        (["relative:/what", "--endpoint-url", "nonsense"], "endpoint url must be http"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    contract_file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["verify", *[str(contract_file) if value == "CONTRACT" else value for value in arguments]]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_deletes_what_it_wrote(
    bucket: str, aws_environment: LocalAws, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "folder").mkdir()
    environment = aws_environment.environment() | {"PYTHONPATH": str(ROOT / "constructs")}
    bounds = ["--size-mib", "9000", "--seconds", "60"]
    run = subprocess.Popen(
        [sys.executable, "-m", "training_storage.cli", "verify", f"s3://{bucket}/a/", *bounds],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not any("/part-" in key for key in keys(aws_environment, bucket)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(run.pid, number)
    _, error = run.communicate(timeout=60)
    assert (run.returncode, error) == (130, "training-storage: interrupted; what was written is deleted\n")
    assert keys(aws_environment, bucket) == []


def test_the_contracts_preset_is_what_is_measured(contract_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def pretend(targets: list[Target], **options: Any) -> list[Any]:
        seen.update(options)
        return []

    monkeypatch.setattr("training_storage.training.verify.verify", pretend)
    assert main(["verify", "--contract", str(contract_file)]) == 0
    loader = StorageContract.read(contract_file).loader
    assert seen["part_size_mib"] == loader.part_size_mib
    assert seen["requests"] == loader.workers_per_accelerator * 8
    assert dataclasses.asdict(seen["endpoint"])["addressing_style"] == "path"
