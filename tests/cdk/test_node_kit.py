"""The node kit in a template: what nodes may do for it, and the user data that starts it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack, Stage
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm

from training_storage import ConstructError
from training_storage.node_kit import METRIC_NAMESPACE, NodeKit
from training_storage.planning.catalog.capacity_blocks import capacity_blocks
from training_storage.testing import assert_compliant, compliance_findings

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

PARAMETER = "/training-storage/default/contract"


def make(stack: Stack, **overrides: Any) -> NodeKit:
    arguments: dict[str, Any] = {
        "contract_parameter": PARAMETER,
        "job_name": "default",
        "engine": "pcs",
        "purchase": "on-demand",
    }
    return NodeKit(stack, "Kit", **(arguments | overrides))


def role(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def text(value: Any) -> str:
    return json.dumps(value)


def test_a_node_may_do_what_the_kit_does_and_nothing_else(stack: Stack, resources: Synthesize) -> None:
    kit = make(stack)
    kit.grant(role(stack))
    statements = {statement["Action"]: statement for statement in resources(stack).statements()}
    assert set(statements) == {"s3:GetObject", "ssm:GetParameter", "cloudwatch:PutMetricData"}
    # One object, not the bucket that holds every asset of the account.
    assert "*" not in text(statements["s3:GetObject"]["Resource"])
    assert stack.resolve(kit.asset.s3_object_key) in text(statements["s3:GetObject"]["Resource"])
    assert text(statements["ssm:GetParameter"]["Resource"]).endswith(f':parameter{PARAMETER}"]]}}')
    assert statements["cloudwatch:PutMetricData"]["Condition"] == {
        "StringEquals": {"cloudwatch:namespace": METRIC_NAMESPACE}
    }


def test_only_nodes_of_capacity_blocks_may_read_reservations(stack: Stack, resources: Synthesize) -> None:
    kit = make(stack, purchase="capacity-block")
    kit.grant(role(stack))
    actions = {statement["Action"] for statement in resources(stack).statements()}
    assert "ec2:DescribeCapacityReservations" in actions
    assert kit.apis == ("ssm", "monitoring", "ec2")


def test_a_parameter_may_be_a_construct(stack: Stack, resources: Synthesize) -> None:
    parameter = ssm.StringParameter(stack, "Contract", string_value="{}")
    logical_id = stack.resolve(parameter.parameter_name)["Ref"]
    kit = make(stack, contract_parameter=parameter)
    kit.grant(role(stack))
    (statement,) = (s for s in resources(stack).statements() if s["Action"] == "ssm:GetParameter")
    assert logical_id in text(statement["Resource"])
    assert logical_id in text(stack.resolve(kit.commands(role="compute")))


def test_the_asset_is_the_kit_without_the_construct(stack: Stack) -> None:
    kit = make(stack)
    kit.grant(role(stack))
    assembly = _synth(stack)
    folder = Path(assembly.directory) / kit.asset.asset_path
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"install.sh", "lib/common.sh", "lib/contract_env.py", "checks/50-mounted.sh", "engines/pcs.sh"} <= names
    assert not [name for name in names if name.endswith(".pyc") or name == "__init__.py"]


def run_user_data(
    stack: Stack, folder: Path, *, commands: dict[str, str], role: str = "compute", **fields: Any
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the lines as a first boot would, with stand-ins for the commands named; the outcome and the node's root."""
    kit = make(stack, purchase="capacity-block", **fields)
    kit.grant(iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")))
    lines = kit.commands(role=role, capacity_reservation_ids=["cr-0123456789abcdef0", "cr-0fedcba9876543210"])
    assembly = _synth(stack)
    archive = shutil.make_archive(str(folder / "kit"), "zip", Path(assembly.directory) / kit.asset.asset_path)
    # The tokens as a deployment would resolve them; then bash runs it for real.
    script = "\n".join(_resolved(stack, line) for line in lines)
    bin_folder, root = folder / "bin", folder / "nowhere"
    bin_folder.mkdir()
    for name, body in commands.items():
        text = body.replace("ARCHIVE", archive).replace("FOLDER", str(folder))
        (bin_folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (bin_folder / name).chmod(0o755)
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 1 kB\n", encoding="utf-8")
    hook = root / "etc/training-storage/drain.d/hook"
    hook.parent.mkdir(parents=True)
    hook.write_text(f'#!/bin/sh\necho "$@" >>{folder}/hook\n', encoding="utf-8")
    hook.chmod(0o755)
    run = subprocess.run(
        ["/bin/bash", "-c", script],
        env={"PATH": f"{bin_folder}:/usr/bin:/bin", "KIT_ROOT": str(root), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return run, root


AWS = 'echo "$@" >>FOLDER/aws\nfor last; do :; done\n[ "$1" != s3 ] || cp ARCHIVE "$last"'
# Nothing of this machine is to be touched: install.sh ends where it would call systemd.
NO_SYSTEMD = {"aws": AWS, "systemctl": "exit 7"}


def test_user_data_downloads_unpacks_and_installs(stack: Stack, tmp_path: Path) -> None:
    run, root = run_user_data(stack, tmp_path, commands=NO_SYSTEMD, block_end_minutes=60)
    called = (tmp_path / "aws").read_text(encoding="utf-8")
    assert called.startswith("s3 cp --only-show-errors --region us-east-1 s3://")
    # The kit's install.sh ran, with options that it knows.
    settings = (root / "etc/training-storage/kit.env").read_text(encoding="utf-8")
    assert f"KIT_PARAMETER={PARAMETER}\n" in settings
    assert "KIT_RESERVATIONS=cr-0123456789abcdef0\\ cr-0fedcba9876543210\n" in settings
    assert "KIT_BLOCK_END_MINUTES=60\n" in settings
    assert run.returncode == 7, run.stderr


@pytest.mark.parametrize(
    ("commands", "status"),
    [
        (NO_SYSTEMD, 7),
        ({"aws": '[ "$1" = s3 ] && exit 1\necho "$@" >>FOLDER/aws', "systemctl": "exit 0"}, 1),
        (NO_SYSTEMD | {"python3": "exit 3"}, 3),
    ],
    ids=["install", "download", "unpack"],
)
@pytest.mark.parametrize("role", ["compute", "login"])
def test_a_kit_that_cannot_be_installed_is_told(
    stack: Stack, tmp_path: Path, commands: dict[str, str], status: int, role: str
) -> None:
    run, root = run_user_data(stack, tmp_path, commands=commands, role=role)
    assert run.returncode == status
    reason = f"install: the node kit could not be installed (exit {status}): see the log of user data"
    assert (root / "run/training-storage/unhealthy").read_text(encoding="utf-8") == f"{reason}\n"
    (sent,) = [
        line for line in (tmp_path / "aws").read_text(encoding="utf-8").splitlines() if line.startswith("cloudwatch")
    ]
    assert "put-metric-data --region us-east-1 --namespace TrainingStorage" in sent
    job = {"Name": "Job", "Value": "default"}
    assert [metric["Dimensions"] for metric in json.loads(sent.split("--metric-data ")[1])] == [
        [job],
        [job, {"Name": "Check", "Value": "install"}],
    ]
    hook = tmp_path / "hook"
    assert hook.exists() == (role == "compute")
    if role == "compute":
        assert hook.read_text(encoding="utf-8") == f"drain training-storage: {reason}\n"


def test_what_the_checks_have_said_is_not_said_over(stack: Stack, tmp_path: Path) -> None:
    commands = NO_SYSTEMD | {
        "systemctl": '[ "$1" != start ] || { echo "nvme: gone" >"$KIT_ROOT/run/training-storage/unhealthy"; exit 1; }'
    }
    run, root = run_user_data(stack, tmp_path, commands=commands)
    assert run.returncode == 1
    assert (root / "run/training-storage/unhealthy").read_text(encoding="utf-8") == "nvme: gone\n"
    assert "cloudwatch" not in (tmp_path / "aws").read_text(encoding="utf-8")


def test_a_failure_after_the_kit_is_not_the_kits(stack: Stack) -> None:
    assert make(stack).commands(role="compute")[-1] == "trap - EXIT"


@pytest.mark.parametrize("role", ["compute", "login"])
def test_nodes_of_a_capacity_block_are_told_which(stack: Stack, role: str) -> None:
    kit = make(stack, purchase="capacity-block")
    with pytest.raises(ConstructError, match=f"must name the Capacity Blocks of {role} nodes .* got: none"):
        kit.commands(role=role)
    line = kit.commands(role=role, capacity_reservation_ids=["cr-0123456789abcdef0"])[-2]
    resolved = _resolved(stack, line)
    assert f"--block-end-minutes {capacity_blocks().end_minutes}" in resolved
    assert "--capacity-reservations cr-0123456789abcdef0" in resolved


@pytest.mark.slow
def test_cfn_lint_and_cdk_nag_find_nothing(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Test", env=Environment(region="us-east-1"))
    make(stack, purchase="capacity-block").grant(role(stack))
    assert_compliant(app, linter=True)


def test_cdk_nag_would_notice_another_wildcard(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Test", env=Environment(region="us-east-1"))
    nodes = role(stack)
    make(stack).grant(nodes)
    nodes.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=["arn:aws:s3:::cdk-assets/*"]))
    assert any("IAM5" in finding.rule for finding in compliance_findings(app, linter=False))


def _synth(stack: Stack) -> Any:
    stage = Stage.of(stack)
    assert stage is not None
    return stage.synth()


def _resolved(stack: Stack, line: str) -> str:
    value = stack.resolve(line)
    if isinstance(value, str):
        return value
    if "Fn::Sub" in value:
        return str(value["Fn::Sub"])
    return "".join(part if isinstance(part, str) else str(part.get("Fn::Sub", "x")) for part in value["Fn::Join"][1])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"engine": "hyperpod"}, "engine of the node kit must be one of ec2, pcs, got: 'hyperpod'"),
        ({"purchase": "lease"}, "purchase must be one of on-demand, spot, capacity-block, got: 'lease'"),
        ({"block_end_minutes": 0}, "block_end_minutes must be "),
        ({"job_name": "My Job"}, "job_name must be a lowercase letter, then at most 29"),
    ],
)
def test_what_is_none_is_refused(stack: Stack, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConstructError, match=message):
        make(stack, **overrides)


def test_a_role_is_compute_or_login(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="role must be one of compute, login, got: 'head'"):
        make(stack).commands(role="head")
