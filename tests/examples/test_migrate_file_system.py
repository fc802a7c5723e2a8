"""A file system by hand becomes ours: nothing is replaced, nothing is removed, and the deployed one stays the same."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from tests.cdk.small_stacks import lint_findings
from training_storage.cli import main
from training_storage.planning.guard import compare_templates

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.testing.local_aws import LocalAws

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "migrate_file_system"
CONTEXT: dict[str, Any] = json.loads((FOLDER / "cdk.json").read_text(encoding="utf-8"))["context"]


def app(name: str, *, outdir: Path | None = None, **context: str) -> App:
    """The app in `name`.py, with the feature flags of its cdk.json."""
    made = App(context={**CONTEXT, **context}, outdir=str(outdir) if outdir else None)
    importlib.import_module(f"examples.migrate_file_system.{name}").build(made)
    return made


def synthesized(name: str) -> dict[str, Any]:
    return dict(Template.from_stack(app(name).node.find_child("VisionStorage")).to_json())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def before() -> dict[str, Any]:
    return synthesized("before")


@pytest.fixture(scope="module")
def after() -> dict[str, Any]:
    return synthesized("after")


def test_the_update_replaces_and_removes_nothing(
    before: dict[str, Any], after: dict[str, Any], assert_nothing_lost: Callable[..., None]
) -> None:
    assert_nothing_lost(before, after)
    rules = ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
    removed = {
        name: before["Resources"][name]["Type"] for name in before["Resources"].keys() - after["Resources"].keys()
    }
    # Only rules, after the new ones stand.
    assert set(removed.values()) <= set(rules)
    for name in before["Resources"].keys() & after["Resources"].keys():
        assert before["Resources"][name]["Type"] == after["Resources"][name]["Type"]


def test_the_proof_of_the_readme_is_one(
    before: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "before.json").write_text(json.dumps(before), encoding="utf-8")
    made = app("after", outdir=tmp_path / "cdk.out")
    made.synth()
    proof = ["check", str(tmp_path / "cdk.out"), "--against", str(tmp_path / "before.json")]
    assert main(proof) == 0
    changed = json.loads((tmp_path / "before.json").read_text(encoding="utf-8"))
    changed["Resources"]["FileSystem8A8E25C0"]["Properties"]["KmsKeyId"] = "arn:aws:kms:us-east-1:111122223333:key/1"
    (tmp_path / "before.json").write_text(json.dumps(changed), encoding="utf-8")
    assert main(proof) == 1
    assert "FileSystem would be replaced because of KmsKeyId" in capsys.readouterr().out


def test_each_line_that_keeps_something_is_needed(before: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("examples.migrate_file_system.after")
    theirs = module.LustreFileSystem

    def lost(**changes: Any) -> list[str]:
        monkeypatch.setattr(
            module, "LustreFileSystem", lambda scope, id, **options: theirs(scope, id, **(options | changes))
        )
        return [loss.message for loss in compare_templates(before, synthesized("after"))]

    assert any("SecurityGroupIds" in message for message in lost(keep_l2_security_group=False))
    assert any("MetadataConfiguration" in message for message in lost(metadata_configuration=True))
    assert any("FileSystemTypeVersion" in message for message in lost(file_system_type_version="2.15"))
    assert lost() == []


def test_a_link_without_its_logical_id_would_be_made_twice(before: dict[str, Any], after: dict[str, Any]) -> None:
    renamed = {name if name != "Datasets" else "Other": value for name, value in after["Resources"].items()}
    losses = compare_templates(before, {**after, "Resources": renamed})
    assert [loss.logical_id for loss in losses] == ["Datasets"]


@pytest.mark.slow
def test_the_linter_finds_nothing(after: dict[str, Any]) -> None:
    assert lint_findings(after) == []


@pytest.mark.local_aws
def test_the_deployed_file_system_and_its_link_stay_the_same(local_aws: LocalAws) -> None:
    ec2 = local_aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.41.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.41.0.0/20", AvailabilityZoneId="use1-az4")["Subnet"]["SubnetId"]
    network = {"vpc_id": vpc, "subnet_id": subnet}
    with local_aws.deploy(app("before", **network)) as deployment:
        standing = {one.logical_id: one.physical_id for one in deployment.resources()}
        system = deployment.outputs()["FileSystemId"]
        deployment.update(app("after", **network))
        assert deployment.outputs()["FileSystemId"] == system
        now = {one.logical_id: one.physical_id for one in deployment.resources()}
        for name in ("Datasets", "FileSystem8A8E25C0", "FileSystemFsxLustreSecurityGroupA562BEC1"):
            assert now[name] == standing[name]
        fsx = deployment.client("fsx")
        (found,) = fsx.describe_file_systems(FileSystemIds=[system])["FileSystems"]
        assert found["LustreConfiguration"]["LogConfiguration"]["Level"] == "WARN_ERROR"
        # From here on it outlives its stack; by hand, link and file system would have been deleted with it.
        deployment.destroy(check=False)
        (found,) = fsx.describe_file_systems(FileSystemIds=[system])["FileSystems"]
        assert found["Lifecycle"] == "AVAILABLE"
        (link,) = fsx.describe_data_repository_associations()["Associations"]
        fsx.delete_data_repository_association(AssociationId=link["AssociationId"], DeleteDataInFileSystem=False)
        fsx.delete_file_system(FileSystemId=system)
        deadline = time.monotonic() + 30
        while system in {one["FileSystemId"] for one in fsx.describe_file_systems()["FileSystems"]}:
            assert time.monotonic() < deadline
            time.sleep(0.05)
