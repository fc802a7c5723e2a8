"""The app: from the context to the two stacks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, CfnResource, NestedStack, Stack
from aws_cdk.assertions import Annotations, Match

from app import build
from training_storage import ConstructError, cli
from training_storage.gpu_cluster import ENGINES
from training_storage.planning import PlanningError, TrainingJob, plan_storage

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[..., dict[str, Any]]

ROOT = Path(__file__).resolve().parents[2]
LAKE, STORAGE = "TrainingDataLake", "TrainingStorage"
MIXED = {"instances": "1200", "interface": "object", "checkpoint_interface": "posix"}


def of_type(template: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [resource for resource in template["Resources"].values() if resource["Type"] == kind]


@pytest.mark.parametrize(
    ("context", "file_systems", "directory_buckets"),
    [
        ({"instances": "8"}, 0, 0),
        ({"instances": "256"}, 1, 0),
        ({"instances": "1000", "interface": "object"}, 0, 1),
        (MIXED, 1, 1),
        ({"instances": "8", "tiers": "s3,fsx-lustre,s3-express"}, 1, 1),
    ],
)
def test_the_template_holds_the_tiers_of_the_plan(
    synthesize: Synthesize, context: dict[str, str], file_systems: int, directory_buckets: int
) -> None:
    template = synthesize(**context)[STORAGE]
    assert len(of_type(template, "AWS::FSx::FileSystem")) == file_systems
    assert len(of_type(template, "AWS::S3Express::DirectoryBucket")) == directory_buckets


@pytest.mark.parametrize(
    "context",
    [
        {"instances": "1"},
        {"instances": "256"},
        {"instances": "600", "interface": "object"},
        MIXED,
        {"instances": "32", "name": "alpha"},
        {},
    ],
    ids=str,
)
def test_the_lakes_template_is_the_same_byte_for_byte_for_every_job(
    synthesize: Synthesize, context: dict[str, str]
) -> None:
    assert json.dumps(synthesize(**context)[LAKE]) == json.dumps(synthesize(instances="8")[LAKE])


def test_the_lake_always_exports_what_jobs_use(synthesize: Synthesize) -> None:
    exports = [o for o in synthesize(instances="8")[LAKE]["Outputs"].values() if "Export" in o]
    assert len(exports) == 3


def test_the_storage_of_256_and_of_2000_instances_has_as_many_resources(synthesize: Synthesize) -> None:
    few, many = (synthesize(instances=count)[STORAGE]["Resources"] for count in ("256", "2000"))
    assert len(few) == len(many)
    assert sorted(few) == sorted(many)


def test_the_planned_sizes_are_the_deployed_ones(synthesize: Synthesize, job: dict[str, str]) -> None:
    plan = plan_storage(TrainingJob.from_strings(job)).fsx_lustre
    deployed = of_type(synthesize(**job)[STORAGE], "AWS::FSx::FileSystem")
    if plan is None:
        assert deployed == []
        return
    properties = deployed[0]["Properties"]
    lustre = properties["LustreConfiguration"]
    assert properties["StorageCapacity"] == plan.storage_capacity_gib
    assert lustre["PerUnitStorageThroughput"] == plan.per_unit_storage_throughput
    assert lustre["EfaEnabled"] == plan.efa_enabled
    assert lustre["MetadataConfiguration"]["Mode"] == plan.metadata_mode
    links = of_type(synthesize(**job)[STORAGE], "AWS::FSx::DataRepositoryAssociation")
    assert {link["Properties"]["FileSystemPath"] for link in links} == {
        link.file_system_path for link in plan.data_repository_associations
    }


def test_links_follow_the_decisions_on_what_leaves_by_itself(synthesize: Synthesize) -> None:
    links = of_type(synthesize(instances="32", name="alpha")[f"{STORAGE}-alpha"], "AWS::FSx::DataRepositoryAssociation")
    found = {}
    for link in links:
        properties = link["Properties"]
        policies = properties.get("S3", {})
        found[properties["FileSystemPath"].strip("/")] = (
            properties["DataRepositoryPath"]["Fn::Join"][1][-1],
            tuple(policies.get("AutoImportPolicy", {}).get("Events", ())),
            tuple(policies.get("AutoExportPolicy", {}).get("Events", ())),
            properties["BatchImportMetaDataOnCreate"],
        )
    assert found == {
        "datasets": ("/datasets/", ("NEW", "CHANGED", "DELETED"), (), False),
        "checkpoints": ("/checkpoints/alpha/", (), (), True),
        "logs": ("/logs/alpha/", (), ("NEW", "CHANGED"), False),
        "evaluations": ("/evaluations/alpha/", (), ("NEW", "CHANGED"), False),
    }


def test_a_name_enters_the_stack_name_and_the_tags_and_the_id_stays(synthesize: Synthesize) -> None:
    templates = synthesize(instances="32", name="alpha")
    assert set(templates) == {LAKE, "TrainingStorage-alpha"}
    for cluster in of_type(templates["TrainingStorage-alpha"], "AWS::PCS::Cluster"):
        assert cluster["Properties"]["Tags"] == {"training-storage:job": "alpha"}
    other = synthesize(instances="32", name="alpha", engine="ec2")
    group = of_type(other["TrainingStorage-alpha"], "AWS::AutoScaling::AutoScalingGroup")[0]
    tags = {tag["Key"]: tag["Value"] for tag in group["Properties"]["Tags"]}
    assert tags["training-storage:job"] == "alpha"


@pytest.mark.parametrize(("engine", "writing_roles"), [("ec2", 1), ("pcs", 2)])
def test_nodes_may_write_under_their_own_name_only(synthesize: Synthesize, engine: str, writing_roles: int) -> None:
    template = synthesize(instances="32", name="alpha", engine=engine)[f"{STORAGE}-alpha"]
    policy = json.dumps(of_type(template, "AWS::IAM::Policy"))
    for folder in ("checkpoints", "logs", "evaluations", "models"):
        assert f"/{folder}/alpha/*" in policy
    writing = [
        (p["Properties"]["PolicyName"], s)
        for p in of_type(template, "AWS::IAM::Policy")
        for s in p["Properties"]["PolicyDocument"]["Statement"]
        if "s3:PutObject" in s["Action"]
    ]
    assert len([name for name, _ in writing if name.startswith("StorageCluster")]) == writing_roles
    # The gate writes its reports, and nothing else of the stack writes to the lake.
    assert {name for name, _ in writing if not name.startswith("StorageCluster")} <= {
        name for name, _ in writing if name.startswith("StorageFinalExport")
    }
    for _, statement in writing:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        assert all("/alpha/" in json.dumps(resource) for resource in resources)


def test_nothing_in_a_job_stack_touches_the_lakes_policies(synthesize: Synthesize, job: dict[str, str]) -> None:
    template = synthesize(**job)[STORAGE]
    for kind in ("AWS::S3::BucketPolicy", "AWS::KMS::Key", "AWS::S3::Bucket", "Custom::S3BucketNotifications"):
        assert of_type(template, kind) == [], kind


def test_no_template_names_a_zone_or_an_account(synthesize: Synthesize, job: dict[str, str]) -> None:
    for template in synthesize(**job).values():
        text = json.dumps(template)
        assert "Fn::GetAZs" not in text
        assert '"AvailabilityZone"' not in text
        assert not re.search(r"(?<![0-9a-f])[0-9]{12}(?![0-9a-f])", text)


def test_another_partition_is_never_addressed_by_the_name_of_the_first(synthesize: Synthesize) -> None:
    templates = synthesize(instances="8", region="us-gov-west-1", zone_id="usgw1-az1")
    assert "arn:aws:" not in json.dumps(templates)


def test_the_outputs_say_what_a_person_needs_next(synthesize: Synthesize) -> None:
    outputs = synthesize(**MIXED, engine="ec2")[STORAGE]["Outputs"]
    common = {
        "CheckpointsUri",
        "ClientSecurityGroupId",
        "ContractParameterName",
        "DataLakeUri",
        "DatasetsUri",
        "DirectoryBucketName",
        "DirectoryBucketUri",
        "FileSystemId",
        "ImportDatasetsCommand",
        "MountCommand",
        "StartNodesCommand",
        "StartSessionCommand",
    }
    assert set(outputs) == common
    with_slurm = synthesize(**MIXED)[STORAGE]["Outputs"]
    assert set(with_slurm) == {*common, "ClusterId", "HomeFileSystemId"}
    assert all(output["Description"] for output in (*outputs.values(), *with_slurm.values()))


def test_a_plan_file_deploys_exactly_that_plan(synthesize: Synthesize, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan_storage(TrainingJob(instances=256)).to_json(), encoding="utf-8")
    assert synthesize(plan=str(path)) == synthesize(instances="256")


def test_an_adopted_network_makes_none(synthesize: Synthesize) -> None:
    template = synthesize(instances="256", vpc_id="vpc-01234567", subnet_id="subnet-01234567")[STORAGE]
    assert of_type(template, "AWS::EC2::VPC") == []
    file_system = of_type(template, "AWS::FSx::FileSystem")[0]
    assert file_system["Properties"]["SubnetIds"] == ["subnet-01234567"]


def test_an_adopted_lake_makes_none(synthesize: Synthesize) -> None:
    key = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    templates = synthesize(instances="256", data_lake_bucket_name="my-lake", data_lake_key_arn=key)
    assert set(templates) == {STORAGE}
    link = of_type(templates[STORAGE], "AWS::FSx::DataRepositoryAssociation")[0]
    assert link["Properties"]["DataRepositoryPath"] == "s3://my-lake/datasets/"


def test_the_lake_is_protected_from_termination() -> None:
    app = App(context=flags() | {"instances": "8"})
    build(app)
    lake = app.node.find_child(LAKE)
    assert isinstance(lake, Stack)
    assert lake.termination_protection is True


def flags() -> dict[str, Any]:
    return dict(json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"])


SPOT = {"instances": "8", "purchase": "spot"}
BAD_VALUES: list[tuple[dict[str, str], str]] = [
    ({"instances": "abc"}, "instances must be a whole number from 1 to 100000, for example 256, got: 'abc'"),
    ({"instances": "0"}, "instances must be a whole number from 1 to 100000, .*got: 0"),
    ({"instances": "-4"}, "instances must be a whole number .*got: -4"),
    ({"instances": "2.5"}, "instances must be a whole number .*got: '2.5'"),
    ({"instances": ""}, "instances must be a whole number .*got: ''"),
    ({"instances": "99999999999999999999"}, "instances must be a whole number .*got: 99999999999999999999"),
    (
        {"instances": "8", "zone_id": "us-east-1a"},
        "zone_id must be an Availability Zone id .*not a zone name, got: 'us-east-1a'; .*use1-az4",
    ),
    ({"instances": "8", "prices": "missing.toml"}, "prices must name a TOML file .*'missing.toml', file not found"),
    ({"INSTANCES": "256"}, "'INSTANCES' is not a key .*Did you mean 'instances'"),
    ({"instnaces": "256"}, "'instnaces' is not a key .*Did you mean 'instances'"),
    ({"instances": "8", "interface": "nfs"}, "interface must be one of posix, object, got: 'nfs'"),
    ({"instances": "8", "tiers": "tape"}, "tiers must be one of s3, fsx-lustre, s3-express, got: 'tape'"),
    ({"instances": "40000"}, "instances must be at most .* in a network made for the job, got: 40000"),
    ({"instances": "8", "engine": "slurm"}, "engine must be one of pcs, ec2, got: 'slurm'"),
    (
        {"instances": "2048", "engine": "pcs"},
        "engine must be ec2 here, got: 'pcs': AWS PCS has at most 2047 instances beside its login node",
    ),
    ({"engine": "pcs", "region": "cn-north-1"}, "engine must be ec2 here, got: 'pcs': AWS PCS is not in cn-north-1"),
    (
        {"instances": "8", "engine": "pcs", "region": "cn-north-1", "zone_id": "cnn1-az1"},
        "engine must be ec2 here, got: 'pcs': AWS PCS is not in cn-north-1",
    ),
    (
        {
            "instances": "256",
            "purchase": "capacity-block",
            "capacity_reservation_ids": "cr-0123456789abcdef0,cr-0123456789abcdef1",
        },
        "capacity_reservation_ids must name at least 4 Capacity Blocks for 256 instances",
    ),
    (
        {"instances": "8", "engine": "ec2", "home_file_system_id": "fs-01234567"},
        "home_file_system_id must be left out for engine ec2, which has no /home, got: 'fs-01234567'",
    ),
    ({"instances": "8", "time_to_live_hours": "3"}, "alarm_topic_arn must be given with time_to_live_hours"),
    ({"instances": "8", "vpc_id": "vpc-01234567"}, "vpc_id and subnet_id must be given together"),
    (
        {"instances": "8", "vpc_id": "vpc-01234567", "subnet_id": "subnet-01234567", "egress": "isolated"},
        "egress must be left out with vpc_id, got: 'isolated'",
    ),
    (
        {
            "instances": "8",
            "data_lake_bucket_name": "my-lake",
            "data_lake_key_arn": "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        },
        "encryption_key_arn must be a key of us-east-1, where the job runs, got: one of eu-west-1",
    ),
    (
        {
            "instances": "8",
            "data_lake_bucket_name": "my-lake--use1-az4--x-s3",
            "data_lake_key_arn": "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        },
        "must be a general purpose bucket, got: 'my-lake--use1-az4--x-s3'",
    ),
    ({"plan": "missing.json"}, "plan must name a plan file, got: 'missing.json'"),
    ({"instances": "8", "name": "Alpha"}, "name must .*got: 'Alpha'"),
    (
        {"instances": "32", "region": "eu-central-1", "instance_type": "g6.48xlarge"},
        "zone_id must be given: .*euc1-az1",
    ),
    ({"instances": "32", "lustre_deployment_type": "SCRATCH_1"}, "lustre_deployment_type must be one of PERSISTENT_2"),
]


@pytest.mark.parametrize(("context", "message"), BAD_VALUES, ids=lambda value: str(value)[:60])
def test_a_bad_value_gives_one_line_that_says_what_is_allowed(context: dict[str, str], message: str) -> None:
    with pytest.raises((PlanningError, ConstructError), match=message) as caught:
        build(App(context=flags() | context))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_isolated_has_an_endpoint_for_every_api_of_the_engine_and_no_other(synthesize: Synthesize, engine: str) -> None:
    template = synthesize(instances="8", egress="isolated", engine=engine)[STORAGE]
    endpoints = {
        json.dumps(endpoint["Properties"]["ServiceName"]).strip('"').rsplit(".", 1)[-1]
        for endpoint in of_type(template, "AWS::EC2::VPCEndpoint")
        if endpoint["Properties"]["VpcEndpointType"] == "Interface"
    }
    assert endpoints == set(ENGINES[engine].node_apis)


@pytest.mark.parametrize(
    ("context", "engine", "note"),
    [
        ({"instances": "2047"}, "pcs", None),
        ({"instances": "2048"}, "ec2", "AWS PCS has at most 2047 instances beside its login node"),
        ({"instances": "8", "region": "us-west-1"}, "ec2", "AWS PCS is not in us-west-1"),
        ({"instances": "8", "engine": "ec2"}, "ec2", None),
    ],
    ids=str,
)
def test_the_engine_is_chosen_and_the_reason_is_said(
    synthesize: Synthesize, context: dict[str, str], engine: str, note: str | None
) -> None:
    template = synthesize(**context)[STORAGE]
    assert len(of_type(template, "AWS::PCS::Cluster")) == (engine == "pcs")
    assert len(of_type(template, "AWS::AutoScaling::AutoScalingGroup")) == (engine == "ec2")
    lines = " ".join(" ".join(build(App(context=flags() | context))).split())
    assert f"engine {engine} (" in lines
    assert ("Not pcs:" in lines) == (note is not None)
    assert note is None or note in lines


def test_the_home_of_an_earlier_job_comes_back(synthesize: Synthesize) -> None:
    template = synthesize(instances="8", home_file_system_id="fs-0123456789abcdef0")[STORAGE]
    assert of_type(template, "AWS::EFS::FileSystem") == []
    assert template["Outputs"]["HomeFileSystemId"]["Value"] == "fs-0123456789abcdef0"


def test_another_version_of_slurm_can_be_had(synthesize: Synthesize) -> None:
    (cluster,) = of_type(synthesize(instances="8", slurm_version="25.11")[STORAGE], "AWS::PCS::Cluster")
    assert cluster["Properties"]["Scheduler"] == {"Type": "SLURM", "Version": "25.11"}


def test_another_way_of_purchase_is_named_beside_the_prices() -> None:
    assert any("not of purchase=spot" in line for line in build(App(context=flags() | SPOT)))
    assert not any("purchase" in line for line in build(App(context=flags() | {"instances": "8"})))


def run_app(tmp_path: Path, **context: str) -> subprocess.CompletedProcess[str]:
    """Run app.py as the CDK CLI does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_DEFAULT"))}
    return subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        env={**environment, "CDK_CONTEXT_JSON": json.dumps(flags() | context), "CDK_OUTDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.slow
def test_the_app_exits_2_with_one_line_and_no_stack_trace(tmp_path: Path) -> None:
    result = run_app(tmp_path, instances="abc")
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "training-storage: instances must be a whole number from 1 to 100000, for example 256, got: 'abc'."
    ]


@pytest.mark.slow
def test_synth_needs_no_credentials_and_says_the_plan_on_stderr_once(tmp_path: Path) -> None:
    result = run_app(tmp_path, instances="256")
    assert result.returncode == 0
    assert result.stderr.count("Training storage for 256 x p5.48xlarge") == 1
    assert "s3, fsx-lustre" in result.stderr
    assert (tmp_path / "TrainingStorage.template.json").exists()
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert "missing" not in manifest


def test_missing_instances_is_an_error_on_the_stack_so_that_it_can_still_be_destroyed() -> None:
    app = App(context=flags())
    assert build(app) == []
    stack = app.node.find_child(STORAGE)
    assert isinstance(stack, Stack)
    app.synth()
    errors = Annotations.from_stack(stack).find_error("*", Match.string_like_regexp("instances is missing"))
    assert [error.entry.data for error in errors] == [
        "instances is missing: say how many instances train, for example -c instances=256"
    ]


def test_a_job_whose_number_is_missing_can_still_be_found_by_its_name(synthesize: Synthesize) -> None:
    assert set(synthesize(name="alpha")) == {LAKE, "TrainingStorage-alpha"}


def test_a_plan_that_reads_over_several_addresses_gets_them(synthesize: Synthesize) -> None:
    job = {"instances": "8", "read_gb_per_s_per_accelerator": "3"}
    assert plan_storage(TrainingJob.from_strings(job)).job.network_path == "ena-multi-ip"
    for engine in ENGINES:
        templates = of_type(synthesize(**job, engine=engine)[STORAGE], "AWS::EC2::LaunchTemplate")
        layouts = [template["Properties"]["LaunchTemplateData"]["NetworkInterfaces"] for template in templates]
        check_several_addresses(max(layouts, key=len))


def check_several_addresses(interfaces: list[dict[str, Any]]) -> None:
    assert len([i for i in interfaces if i["InterfaceType"] == "interface"]) == 8
    assert len([i for i in interfaces if i["InterfaceType"] == "efa-only"]) == 32
    assert not [i for i in interfaces if "AssociatePublicIpAddress" in i]


REPLACING_PROPERTIES = {
    "AWS::EC2::VPC": ("CidrBlock",),
    "AWS::EC2::Subnet": ("AvailabilityZoneId", "CidrBlock", "VpcId"),
    "AWS::EC2::SecurityGroup": ("GroupDescription", "GroupName", "VpcId"),
    "AWS::EFS::FileSystem": ("Encrypted", "KmsKeyId", "PerformanceMode"),
    "AWS::FSx::FileSystem": ("FileSystemType", "FileSystemTypeVersion", "KmsKeyId", "SecurityGroupIds", "SubnetIds"),
    "AWS::FSx::DataRepositoryAssociation": ("DataRepositoryPath", "FileSystemId", "FileSystemPath"),
}


def test_more_instances_change_nothing_that_replaces_the_file_system(synthesize: Synthesize) -> None:
    few, many = (synthesize(instances=count)[STORAGE]["Resources"] for count in ("17", "2000"))
    for identifier, resource in few.items():
        for name in REPLACING_PROPERTIES.get(resource["Type"], ()):
            assert many[identifier]["Properties"].get(name) == resource["Properties"].get(name), (identifier, name)


def test_check_finds_the_nested_templates_that_cdk_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = App(outdir=str(tmp_path))
    nested = NestedStack(Stack(app, "Main"), "Nested")
    properties = {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 1300,
        "SubnetIds": ["subnet-1"],
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
    }
    CfnResource(nested, "Fs", type="AWS::FSx::FileSystem", properties=properties)
    app.synth()
    main = str(tmp_path / "Main.template.json")
    for options in ([], ["--against", main]):
        assert cli.main(["check", str(tmp_path), "--region", "us-east-1", "--json", *options]) == 1
        captured = capsys.readouterr()
        assert [entry["rule"] for entry in json.loads(captured.out)] == ["lustre-capacity"]
        assert captured.err == ""
