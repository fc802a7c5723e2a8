"""The real CDK CLI bootstraps, deploys and destroys."""

import shutil
import subprocess
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import custom_resources

from training_storage.testing.local_aws import LocalAws

pytestmark = pytest.mark.local_aws

_ROOT = Path(__file__).parents[2]
_REGION = "us-west-2"


def _cli() -> str | None:
    local = _ROOT / "node_modules" / ".bin" / "cdk"
    return str(local) if local.exists() else shutil.which("cdk")


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stacks: a lake that exports, a job that imports, with a function whose code is an asset."""
    folder = tmp_path_factory.mktemp("cdk")
    handler = folder / "handler"
    handler.mkdir()
    (handler / "index.py").write_text(
        "import boto3\n"
        "def handler(event, context):\n"
        "    systems = boto3.client('fsx').describe_file_systems()['FileSystems']\n"
        "    return {'PhysicalResourceId': 'count', 'Data': {'Count': str(len(systems))}}\n",
        encoding="utf-8",
    )
    app = cdk.App(outdir=str(folder / "cdk.out"))
    environment = cdk.Environment(region=_REGION)
    lake = cdk.Stack(app, "Lake", env=environment)
    key = kms.Key(lake, "Key", removal_policy=cdk.RemovalPolicy.DESTROY)
    bucket = s3.Bucket(lake, "Bucket", encryption_key=key, removal_policy=cdk.RemovalPolicy.DESTROY)
    name = lake.export_value(bucket.bucket_name, name="lake-bucket")

    job = cdk.Stack(app, "Job", env=environment)
    job.add_dependency(lake)
    vpc = ec2.CfnVPC(job, "Vpc", cidr_block="10.0.0.0/16")
    subnet = ec2.CfnSubnet(job, "Subnet", vpc_id=vpc.ref, cidr_block="10.0.0.0/20", availability_zone_id="usw2-az4")
    group = ec2.CfnSecurityGroup(job, "Group", group_description="lustre", vpc_id=vpc.ref)
    rule = ec2.CfnSecurityGroupIngress(
        job, "Rule", group_id=group.ref, source_security_group_id=group.ref, ip_protocol="-1"
    )
    lustre = fsx.CfnFileSystem.LustreConfigurationProperty(
        deployment_type="PERSISTENT_2", per_unit_storage_throughput=125
    )
    file_system = fsx.CfnFileSystem(
        job,
        "FileSystem",
        file_system_type="LUSTRE",
        storage_capacity=1200,
        subnet_ids=[subnet.ref],
        security_group_ids=[group.ref],
        lustre_configuration=lustre,
    )
    file_system.node.add_dependency(rule)
    fsx.CfnDataRepositoryAssociation(
        job,
        "Link",
        file_system_id=file_system.ref,
        file_system_path="/data",
        data_repository_path=cdk.Fn.join("", ["s3://", name, "/data/"]),
    )
    function = lambda_.Function(
        job,
        "Count",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_asset(str(handler)),
    )
    provider = custom_resources.Provider(job, "Provider", on_event_handler=function)
    custom = cdk.CustomResource(job, "Custom", service_token=provider.service_token)
    custom.node.add_dependency(file_system)
    cdk.CfnOutput(job, "FileSystems", value=custom.get_att_string("Count"))
    app.synth()
    return folder / "cdk.out"


@pytest.fixture(scope="module")
def bootstrapping(local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> subprocess.Popen[bytes]:
    """The bootstrap, started: it runs while the app is synthesized."""
    if _cli() is None:
        pytest.skip("the CDK CLI is not installed: npm ci")
    return subprocess.Popen(
        [str(_cli()), "bootstrap", f"aws://000000000000/{_REGION}"],
        env=local_aws.environment(region_name=_REGION),
        cwd=tmp_path_factory.mktemp("bootstrap"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_cdk_bootstraps_deploys_and_destroys(
    local_aws: LocalAws, bootstrapping: subprocess.Popen[bytes], assembly: Path
) -> None:
    def cdk_cli(*arguments: str) -> None:
        done = subprocess.run(
            [str(_cli()), *arguments, "--app", str(assembly)],
            env=local_aws.environment(region_name=_REGION),
            cwd=assembly.parent,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    assert bootstrapping.wait(60) == 0
    cdk_cli("deploy", "--all", "--require-approval", "never")
    client = local_aws.client("fsx", region_name=_REGION)
    assert [fs["Lifecycle"] for fs in client.describe_file_systems()["FileSystems"]] == ["AVAILABLE"]
    cloudformation = local_aws.client("cloudformation", region_name=_REGION)
    [output] = cloudformation.describe_stacks(StackName="Job")["Stacks"][0]["Outputs"]
    assert output["OutputValue"] == "1"
    cdk_cli("destroy", "Job", "--force")
    assert client.describe_file_systems()["FileSystems"] == []
    assert cloudformation.describe_stacks(StackName="Lake")["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE"
