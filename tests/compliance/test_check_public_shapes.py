"""Templates in the shapes that people publish: legal as they are, and planted faults are found, nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk.assertions import Template

from training_storage import cli

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(__file__).parent / "templates"
SHAPES = sorted(path.name for path in FOLDER.glob("*.yaml"))

# (shape, text, what it becomes, resource, rule)
PLANTED = [
    ("cluster-head-node.yaml", "StorageCapacity: 1200", "StorageCapacity: 3600", "SharedStorage", "lustre-capacity"),
    ("cluster-head-node.yaml", "DeploymentType: SCRATCH_2", "DeploymentType: SCRATCH2", "SharedStorage",
     "lustre-deployment-type"),
    ("cluster-head-node.yaml", "DataCompressionType: LZ4", "DataCompressionType: ZSTD", "SharedStorage",
     "lustre-compression"),
    ("cluster-head-node.yaml", "SubnetIds: [!Ref SubnetId]", "SubnetIds: [!Ref SubnetId, !Ref Second]",
     "SharedStorage", "lustre-subnets"),
    ("cluster-head-node.yaml", "DataCompressionType: LZ4", "AutomaticBackupRetentionDays: 7", "SharedStorage",
     "lustre-backups"),
    ("efa-recipe.yaml", "StorageCapacity: !Ref Capacity\n", "StorageCapacity: 3000\n", "FileSystem", None),
    ("efa-recipe.yaml", "PerUnitStorageThroughput: !Ref Throughput", "PerUnitStorageThroughput: 200", "FileSystem",
     "lustre-throughput"),
    ("efa-recipe.yaml", "Iops: 12000", "Iops: 10000", "FileSystem", "lustre-metadata-iops"),
    ("efa-recipe.yaml", 'FileSystemTypeVersion: "2.15"', 'FileSystemTypeVersion: "2.12"', "FileSystem",
     "lustre-version-features"),
    ("efa-recipe.yaml", "        MetadataConfiguration: {Mode: USER_PROVISIONED, Iops: 12000}\n", "", "FileSystem",
     "lustre-efa-metadata"),
    ("efa-recipe.yaml", "log-group:/aws/fsx/recipe", "log-group:/recipes/fsx", "FileSystem", "lustre-log-group"),
    ("efa-recipe.yaml", "DestinationSecurityGroupId: !Ref FsxSecurityGroup", "CidrIp: 0.0.0.0/0", "FileSystem",
     "lustre-efa-security-group"),
    ("efa-recipe.yaml", "FileSystemPath: /results", "FileSystemPath: /data/results", "ResultsLink",
     "link-path-overlap"),
    ("efa-recipe.yaml", "FileSystemPath: /results", "FileSystemPath: /", "ResultsLink", "link-root"),
    ("efa-recipe.yaml", "FileSystemPath: /results", "FileSystemPath: results", "ResultsLink", "link-path"),
    ("efa-recipe.yaml", "${BucketName}/results", "${BucketName}/data/results", "ResultsLink", "link-prefix-overlap"),
    ("efa-recipe.yaml", "s3://${BucketName}/results", "https://${BucketName}/results", "ResultsLink", "link-prefix"),
    ("efa-recipe.yaml", "Events: [NEW, CHANGED]}", "Events: [NEW, UPDATED]}", "ResultsLink", "link-events"),
    ("efa-recipe.yaml", "BatchImportMetaDataOnCreate: true", "ImportedFileChunkSize: 600000", "DataLink",
     "link-chunk-size"),
    ("managed-cluster.yaml", "DeploymentType: PERSISTENT_2", "DeploymentType: PERSISTENT_1", "Storage",
     "lustre-metadata-type"),
    ("managed-cluster.yaml", "AutomaticBackupRetentionDays: 7", "AutomaticBackupRetentionDays: 120", "Storage",
     "lustre-backup-days"),
    ("managed-cluster.yaml", "train-${AWS::AccountId}--use1-az4--x-s3", "train-bucket", "HotBucket",
     "express-name-suffix"),
    ("managed-cluster.yaml", "LocationName: use1-az4", "LocationName: us-east-1a", "HotBucket", "express-zone"),
    ("managed-cluster.yaml", "LocationName: use1-az4", "LocationName: use1-az2", "HotBucket", "express-zone-region"),
    ("managed-cluster.yaml", "DataRedundancy: SingleAvailabilityZone",
     "DataRedundancy: SingleAvailabilityZone\n      VersioningConfiguration: {Status: Enabled}", "HotBucket",
     "express-features"),
]  # fmt: skip


@pytest.fixture
def findings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[str], list[tuple[str, str]]]:
    """Run check on a text in us-east-1; return resource and rule of each finding."""

    def run(text: str) -> list[tuple[str, str]]:
        path = tmp_path / "template.yaml"
        path.write_text(text, encoding="utf-8")
        code = cli.main(["check", str(path), "--json", "--region", "us-east-1"])
        found = [(entry["logical_id"], entry["rule"]) for entry in json.loads(capsys.readouterr().out)]
        assert code == (1 if found else 0)
        return found

    return run


@pytest.mark.parametrize("shape", SHAPES)
def test_published_shapes_are_clean_as_they_are(findings: Any, shape: str) -> None:
    assert findings((FOLDER / shape).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(("shape", "old", "new", "resource", "rule"), PLANTED, ids=[f"{r[0]}:{r[4]}" for r in PLANTED])
def test_a_planted_fault_is_found_and_nothing_else_is_said_of_other_resources(
    findings: Any, shape: str, old: str, new: str, resource: str, rule: str | None
) -> None:
    text = (FOLDER / shape).read_text(encoding="utf-8")
    assert old in text
    found = findings(text.replace(old, new, 1))
    if rule is None:  # which step applies depends on a parameter, so nothing is claimed
        assert found == []
        return
    assert (resource, rule) in found
    assert {name for name, _ in found} == {resource}
    # A zone that is changed no longer agrees with the bucket's name either.
    others = {other for _, other in found} - {rule}
    assert others <= ({"express-name-zone", "express-redundancy"} if "zone" in rule else set())


def test_the_output_of_cdk_constructs_is_clean_and_its_faults_are_found(findings: Any) -> None:
    stack = Stack(App(), "Foreign", env=Environment(region="us-east-1"))
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1)
    fsx.LustreFileSystem(
        stack,
        "Fs",
        vpc=vpc,
        vpc_subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        lustre_configuration=fsx.LustreConfiguration(
            deployment_type=fsx.LustreDeploymentType.PERSISTENT_2, per_unit_storage_throughput=125
        ),
    )
    template = Template.from_stack(stack).to_json()
    assert findings(json.dumps(template)) == []
    system = next(r for r in template["Resources"].values() if r["Type"] == "AWS::FSx::FileSystem")
    system["Properties"]["LustreConfiguration"]["ImportPath"] = "s3://bucket"
    assert [rule for _, rule in findings(json.dumps(template))] == ["lustre-import-path"]


def test_this_apps_own_templates_are_clean(
    findings: Any, synthesize: Callable[..., dict[str, Any]], job: dict[str, str]
) -> None:
    for template in synthesize(**job).values():
        assert findings(json.dumps(template)) == []
