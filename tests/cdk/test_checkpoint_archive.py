"""The scheduled archive and the gate of a directory bucket: least privilege, nothing lost, findings of none."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_sns as sns

from training_storage import ConstructError, DataLake, DirectoryBucket
from training_storage.checkpoint_archive import LAG_METRIC, NAMESPACE, CheckpointArchive
from training_storage.express_gate import ExpressGate
from training_storage.operations import archive_function
from training_storage.testing import assert_compliant

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

ROOT = Path(__file__).resolve().parents[2]


def made(stack: Stack, **changes: Any) -> tuple[CheckpointArchive, ExpressGate]:
    lake = DataLake(stack, "Lake")
    bucket = DirectoryBucket(stack, "Hot", zone_id="use1-az4", encryption_key=lake.encryption_key)
    gate = ExpressGate(
        stack, "Gate", directory_bucket=bucket, data_lake=lake, job_name="llama",
        disposable=changes.pop("disposable", False),
    )  # fmt: skip
    settings = {"durable_interval_minutes": 360.0, "durable_checkpoints_kept": 4, **changes}
    archive = CheckpointArchive(
        stack, "Archive", directory_bucket=bucket, data_lake=lake, job_name="llama", **settings
    )  # fmt: skip
    return archive, gate


def statements(template: Any, of: str) -> list[dict[str, Any]]:
    return [
        statement
        for name, policy in template.of_type("AWS::IAM::Policy").items()
        if name.startswith(of)
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]


def actions(found: list[dict[str, Any]]) -> set[str]:
    lists = [one["Action"] if isinstance(one["Action"], list) else [one["Action"]] for one in found]
    return {action for actions_ in lists for action in actions_}


def environment(template: Any, handler: str) -> dict[str, Any]:
    found = [
        one["Properties"]
        for one in template.of_type("AWS::Lambda::Function").values()
        if one["Properties"]["Handler"].endswith(handler)
    ]
    assert len(found) == 1
    return dict(found[0]["Environment"]["Variables"])


def test_the_archive_may_read_the_hot_bucket_and_write_its_own_prefix(stack: Stack, resources: Synthesize) -> None:
    made(stack)
    found = statements(resources(stack), "ArchiveRole")
    assert actions(found) == {
        "logs:CreateLogStream", "logs:PutLogEvents", "sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl",
        "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:ListBucket",
        "s3:ListBucketMultipartUploads", "s3:ListMultipartUploadParts", "s3:PutObject",
        "kms:Decrypt", "kms:GenerateDataKey", "s3express:CreateSession",
    }  # fmt: skip
    (session,) = [one for one in found if one["Action"] == "s3express:CreateSession"]
    assert session["Condition"] == {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}
    (objects,) = [one for one in found if one.get("Sid") == "LakeObjects"]
    assert json.dumps(objects["Resource"]).endswith('"/checkpoints/llama/*"]]}')
    assert not [one for one in found if one["Resource"] == "*"]


def test_without_pruning_the_archive_may_delete_nothing(stack: Stack, resources: Synthesize) -> None:
    made(stack, prune=False)
    template = resources(stack)
    assert "s3:DeleteObject" not in actions(statements(template, "ArchiveRole"))
    assert environment(template, "archive_function.handler")["PRUNE"] == "false"


def test_the_gate_may_never_delete_in_the_lake(stack: Stack, resources: Synthesize) -> None:
    made(stack)
    found = statements(resources(stack), "GateRole")
    assert "s3:PutObject" in actions(found)
    assert not {action for action in actions(found) if action.startswith("s3:Delete")}


def test_the_gate_may_compare_copies_of_data_sets_and_reads_no_other_folder(
    stack: Stack, resources: Synthesize
) -> None:
    made(stack)
    found = {one["Sid"]: one for one in statements(resources(stack), "GateRole") if "Sid" in one}
    assert found["LakeCopies"]["Action"] == "s3:GetObject"
    assert json.dumps(found["LakeCopies"]["Resource"]).endswith('"/datasets/*"]]}')
    assert found["LakeCopiesList"]["Condition"] == {"StringLike": {"s3:prefix": ["datasets/*"]}}
    read = [json.dumps(one["Resource"]) for one in found.values() if "s3:GetObject" in actions([one])]
    assert sorted(text.rsplit('"/', 1)[1] for text in read) == ['checkpoints/llama/*"]]}', 'datasets/*"]]}']


def test_the_gate_gives_its_reason_before_the_framework_and_cloudformation_give_up(
    stack: Stack, resources: Synthesize
) -> None:
    made(stack)
    template = resources(stack)
    seconds = int(environment(template, "express_gate_function.is_complete")["WAIT_SECONDS"])
    (waiter,) = template.of_type("AWS::StepFunctions::StateMachine").values()
    (retry,) = json.loads(
        "".join(
            part if isinstance(part, str) else "x" for part in waiter["Properties"]["DefinitionString"]["Fn::Join"][1]
        )
    )["States"]["framework-isComplete-task"]["Retry"]
    assert seconds + 60 < retry["IntervalSeconds"] * retry["MaxAttempts"] < 3600


def test_the_gate_of_disposable_checkpoints_reaches_no_lake(stack: Stack, resources: Synthesize) -> None:
    made(stack, disposable=True)
    template = resources(stack)
    assert not {action for action in actions(statements(template, "GateRole")) if action.startswith("s3:")}
    assert environment(template, "express_gate_function.is_complete")["DISPOSABLE"] == "true"


def test_the_gate_goes_before_the_bucket_and_its_own_permissions(stack: Stack, resources: Synthesize) -> None:
    made(stack)
    template = resources(stack)
    needed = template.one("Custom::ExpressGate")["DependsOn"]
    kinds = {template.by_id[name]["Type"] for name in needed}
    assert {"AWS::S3Express::DirectoryBucket", "AWS::IAM::Policy", "AWS::IAM::Role"} <= kinds


@pytest.mark.parametrize(
    ("interval", "rate"), [(360.0, "rate(15 minutes)"), (7.5, "rate(7 minutes)"), (1.0, "rate(1 minute)")]
)
def test_it_runs_often_enough_to_go_on_where_a_run_ended(
    stack: Stack, resources: Synthesize, interval: float, rate: str
) -> None:
    made(stack, durable_interval_minutes=interval)
    template = resources(stack)
    schedule = template.one("AWS::Scheduler::Schedule")["Properties"]
    assert schedule["ScheduleExpression"] == rate
    assert schedule["Target"]["RetryPolicy"] == {"MaximumRetryAttempts": 0}
    assert "DeadLetterConfig" in schedule["Target"]
    assert float(environment(template, "archive_function.handler")["DURABLE_INTERVAL_MINUTES"]) == interval


def test_a_failed_run_is_kept_and_alarms(stack: Stack, resources: Synthesize) -> None:
    made(stack, alarm_topic=sns.Topic(stack, "Topic"))
    template = resources(stack)
    invoke = template.one("AWS::Lambda::EventInvokeConfig")["Properties"]
    assert invoke["MaximumRetryAttempts"] == 0
    assert "OnFailure" in invoke["DestinationConfig"]
    alarms = {
        one["Properties"]["MetricName"]: one["Properties"]
        for one in template.of_type("AWS::CloudWatch::Alarm").values()
    }
    assert set(alarms) == {"Errors", LAG_METRIC}
    assert alarms[LAG_METRIC]["Threshold"] == 720
    assert all(len(alarm["AlarmActions"]) == 1 for alarm in alarms.values())


def test_alarm_and_function_name_the_same_metric() -> None:
    assert (NAMESPACE, LAG_METRIC) == (archive_function.NAMESPACE, archive_function.LAG_METRIC)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"durable_interval_minutes": 0.5}, "durable_interval_minutes must be at least 1, got: 0.5"),
        ({"durable_interval_minutes": float("nan")}, "durable_interval_minutes must be at least 1"),
        ({"durable_checkpoints_kept": -1}, "durable_checkpoints_kept must be 0 or more"),
    ],
)
def test_what_is_no_schedule_is_refused(stack: Stack, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConstructError, match=words):
        made(stack, **changes)


@pytest.mark.slow
def test_cdk_nag_finds_nothing(tmp_path: Path) -> None:
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=flags, outdir=str(tmp_path))
    made(Stack(app, "Test", env=Environment(region="us-east-1")))
    assert_compliant(app, linter=False)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The functions' code as Lambda unpacks it."""
    folder = tmp_path_factory.mktemp("assembly")
    app = App(outdir=str(folder))
    stack = Stack(app, "Test", env=Environment(region="us-east-1"))
    made(stack)
    app.synth()
    assets = [path for path in folder.glob("asset.*") if (path / "training_storage").is_dir()]
    assert len(assets) == 1
    return assets[0]


def test_the_code_of_the_functions_is_what_they_import_and_runs_without_cdk(unpacked: Path) -> None:
    code = (
        "import sys; sys.modules.update({'aws_cdk': None, 'jsii': None, 'tqdm': None});"
        "from training_storage.operations import archive_function, express_gate_function;"
        "from training_storage.planning.catalog.s3 import copy_limits; copy_limits();"
        "print(archive_function.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, capture_output=True, text=True, check=False, timeout=60,
        env={"PYTHONPATH": str(unpacked), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip().startswith(str(unpacked))


def test_the_code_of_the_functions_holds_no_constructs_and_is_small(unpacked: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in unpacked.rglob("*"):
            archive.write(path, path.relative_to(unpacked))
    names = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*.py")}
    assert "training_storage/storage.py" not in names
    assert not [name for name in names if name.startswith(("training_storage/testing", "training_storage/cli"))]
    assert len(packed.getvalue()) < 1_000_000
