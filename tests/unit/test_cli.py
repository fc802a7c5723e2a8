"""The command: options, exit codes, one line on stderr, only the plan on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from training_storage import cli
from training_storage.planning import StoragePlan, TrainingJob, plan_storage

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CDK_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)


def failure(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = cli.main(argv)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("training-storage: ")
    return code, captured.err


def test_json_is_the_plan_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--instances", "256", "--json"]) == 0
    captured = capsys.readouterr()
    assert StoragePlan.from_json(captured.out) == plan_storage(TrainingJob(instances=256))
    assert captured.err == ""


def test_text_names_tiers_assumptions_places_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--instances", "1000", "--region", "us-east-1"]) == 0
    text = capsys.readouterr().out
    for words in (
        "huge-posix  1000 instances with POSIX",
        "instance_type=p5.48xlarge",
        "restart_seconds=300",
        "The plan takes 100% of the default quota",
        "checkpoints  hot on fsx-lustre, durable on s3; the newest 2 stay",
    ):
        assert words in text
    assert "region=us-east-1" not in text


def test_explain_adds_the_formulas_to_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--instances", "64"]) == 0
    plain = capsys.readouterr().out
    assert cli.main(["plan", "--instances", "64", "--explain"]) == 0
    explained = capsys.readouterr().out
    assert explained.startswith(plain)
    assert "How it was calculated" in explained.removeprefix(plain)


def test_every_assumed_value_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Without any field but `instances` the report names what was assumed; each can be said as an option."""
    plan = plan_storage(TrainingJob(instances=64))
    values = plan.job.to_strings()
    assert cli.main(["plan", "--instances", "64"]) == 0
    text = capsys.readouterr().out
    assert len(plan.assumed) > 15
    for name in plan.assumed:
        assert f"  {name}={values[name]} " in text
        option = f"--{name.replace('_', '-')}"
        assert cli.main(["plan", "--instances", "64", option, values[name], "--json"]) == 0
        given = json.loads(capsys.readouterr().out)
        assert name not in given["assumed"]
        assert given["job"][name] == plan.to_dict()["job"][name]


def test_every_field_of_a_job_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["plan", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for name in TrainingJob.field_names():
        assert f"--{name.replace('_', '-')} VALUE" in text


def test_options_reach_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "--instances=600", "--interface", "object", "--checkpoint-interval-minutes", "30", "--json"]
    assert cli.main(argv) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    assert (job["instances"], job["interface"], job["checkpoint_interval_minutes"]) == (600, "object", 30)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["plan"], "--instances is missing"),
        (["plan", "--instances", "abc"], "instances must be a whole number"),
        (["plan", "--instances", "-4"], "got: -4."),
        (["plan", "--instances", ""], "got: ''"),
        (["plan", "--instances"], "expected one argument"),
        (["plan", "--instnces", "4"], "Did you mean '--instances'?"),
        (["plan", "--inst", "4"], "'--inst' is not an option"),
        (["plan", "256"], "'256' is not an option"),
        (["plan", "--instances", "8", "--interface", "nfs"], "must be one of posix, object"),
        (["plan", "--instances", "8", "--prices", "missing.toml"], "'missing.toml', file not found"),
        (["plan", "--instances", "8", "--zone-id", "us-east-1a"], "not a zone name, got: 'us-east-1a'"),
        (["plan", "--instances", "8", "--json", "--explain"], "--explain goes with the report"),
        (["plant"], "invalid choice: 'plant'"),
        ([], "required: VERB"),
    ],
    ids=str,
)
def test_bad_input_is_one_line_and_exit_2(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, *argv)
    assert code == 2
    assert words in line


def test_a_job_that_no_tier_serves_is_one_line_and_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, "plan", "--instances", "64", "--workload", "unet3d", "--network-path", "ena")
    assert code == 3
    assert "22.9 GB/s" in line


@pytest.mark.parametrize("name", ["CDK_DEFAULT_REGION", "AWS_REGION"])
def test_the_callers_region_comes_from_the_environment(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv(name, "us-west-2")
    assert cli.main(["plan", "--instances", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["region"] == "us-west-2"


def test_out_writes_the_plan_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    assert cli.main(["plan", "--instances", "64", "--out", str(path)]) == 0
    assert capsys.readouterr().out.startswith("Training storage for 64")
    assert StoragePlan.read(path) == plan_storage(TrainingJob(instances=64))
    code, line = failure(capsys, "plan", "--instances", "65", "--out", str(path))
    assert code == 2
    assert "Add --force to replace it" in line
    assert StoragePlan.read(path).job.instances == 64
    assert cli.main(["plan", "--instances", "65", "--out", str(path), "--force"]) == 0
    assert StoragePlan.read(path).job.instances == 65
    assert list(tmp_path.iterdir()) == [path]


def test_out_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = failure(capsys, "plan", "--instances", "64", "--out", str(tmp_path / "missing" / "plan.json"))
    assert code == 2
    assert "No such file or directory" in line


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("training-storage 0.")


def test_a_closed_pipe_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "training_storage.cli", "plan", "--instances", "256", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=30) == 0


def test_planning_loads_neither_cdk_nor_boto3() -> None:
    script = (
        "import sys, training_storage.cli as cli; cli.main(['plan', '--instances', '256']); "
        "print([name for name in sys.modules if name.split('.')[0] in ('aws_cdk', 'jsii', 'boto3', 'botocore')])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
