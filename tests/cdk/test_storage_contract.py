"""The contract as a parameter: whole after deployment, readable by whom it is granted to, not too large."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template

from tests.cdk.small_stacks import tiers
from training_storage import StoragePlan, TrainingJob, plan_storage
from training_storage.planning.contract import Endpoint
from training_storage.planning.errors import InvalidPlanError
from training_storage.storage_contract import StorageContractParameter
from training_storage.testing import assert_compliant
from training_storage.training import StorageContract

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cdk.conftest import Resources

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads(
    (ROOT / "constructs/training_storage/training/storage_contract.schema.json").read_text(encoding="utf-8")
)
PARAMETER = "AWS::SSM::Parameter"

DEPLOYED = {
    "DNSName": "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
    "LustreMountName": "abcdefgh",
    "Arn": "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "AWS::FSx::FileSystem": "fs-0123456789abcdef0",
    "AWS::S3::Bucket": "training-data-lake-111122223333-us-east-1",
    "AWS::S3Express::DirectoryBucket": "hot-1a2b3c--use1-az4--x-s3",
}


def resolved(value: Any, template: dict[str, Any]) -> str:
    """Put deployed values in the place of references."""
    if isinstance(value, str):
        return value
    [(function, argument)] = value.items()
    if function == "Fn::Join":
        return "".join(resolved(item, template) for item in argument[1])
    if function == "Fn::GetAtt":
        return DEPLOYED[argument[1]]
    assert function == "Ref"
    return DEPLOYED[template["Resources"][argument]["Type"]]


def parameter(
    stack: Stack, vpc: ec2.IVpc, plan: StoragePlan, *, endpoint: Endpoint | None = None
) -> StorageContractParameter:
    made = tiers(stack, vpc, plan)
    return StorageContractParameter(
        stack,
        "Contract",
        plan=plan,
        data_lake=made.lake,
        file_system=made.file_system,
        directory_bucket=made.directory_bucket,
        engine="pcs",
        endpoint=endpoint,
    )


def test_what_is_deployed_is_a_contract_of_the_schema_that_the_reader_reads(
    stack: Stack, vpc: ec2.Vpc, job: dict[str, str]
) -> None:
    plan = plan_storage(TrainingJob.from_strings(job))
    parameter(stack, vpc, plan)
    template = dict(Template.from_stack(stack).to_json())
    [resource] = [one for one in template["Resources"].values() if one["Type"] == PARAMETER]
    text = resolved(resource["Properties"]["Value"], template)
    document = json.loads(text)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    read = StorageContract.from_json(text)
    assert read.job.instances == plan.job.instances
    assert (read.lustre is None) == (plan.fsx_lustre is None)
    # Parameter Store takes no value with a reference to another parameter in it.
    assert "{{" not in text


def test_the_name_is_known_beforehand_and_there_is_one_for_each_job(
    stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources]
) -> None:
    made = parameter(stack, vpc, plan_storage(TrainingJob(instances=8, name="llama-run-7")))
    assert made.parameter_name == "/training-storage/llama-run-7/contract"
    properties = resources(stack).one(PARAMETER)["Properties"]
    assert (properties["Name"], properties["Type"]) == (made.parameter_name, "String")


def test_the_text_of_the_construct_is_that_of_the_parameter(
    stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources]
) -> None:
    made = parameter(stack, vpc, plan_storage(TrainingJob(instances=8)))
    assert stack.resolve(made.text) == resources(stack).one(PARAMETER)["Properties"]["Value"]


@pytest.mark.parametrize(("characters", "tier"), [(10, "Standard"), (4000, "Advanced")])
def test_the_tier_is_the_least_that_holds_the_longest_contract(
    stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources], characters: int, tier: str
) -> None:
    parameter(stack, vpc, plan_storage(TrainingJob(instances=8)), endpoint=Endpoint(url="https://" + "a" * characters))
    assert resources(stack).one(PARAMETER)["Properties"]["Tier"] == tier


def test_a_contract_that_fits_no_parameter_is_refused(stack: Stack, vpc: ec2.Vpc) -> None:
    with pytest.raises(InvalidPlanError, match="must have at most 8192 characters"):
        parameter(stack, vpc, plan_storage(TrainingJob(instances=8)), endpoint=Endpoint(url="https://" + "a" * 8000))


def test_tiers_that_the_plan_does_not_have_are_refused(stack: Stack, vpc: ec2.Vpc) -> None:
    made = tiers(stack, vpc, plan_storage(TrainingJob(instances=256)))
    with pytest.raises(InvalidPlanError, match="file_system must be given exactly where the plan has one"):
        StorageContractParameter(
            stack,
            "Contract",
            plan=plan_storage(TrainingJob(instances=1)),
            data_lake=made.lake,
            file_system=made.file_system,
            engine="ec2",
        )


def test_reading_is_granted_on_this_parameter_alone_and_waits_for_nothing(
    stack: Stack, vpc: ec2.Vpc, resources: Callable[[Stack], Resources]
) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    parameter(stack, vpc, plan_storage(TrainingJob(instances=256))).grant_read(role)
    [statement] = [s for s in resources(stack).statements() if s["Action"] == "ssm:GetParameter"]
    assert statement["Effect"] == "Allow"
    arn = json.dumps(statement["Resource"])
    assert arn.endswith(':parameter/training-storage/default/contract"]]}')
    assert "*" not in arn
    # Pseudo parameters only: a policy that named the parameter would make the nodes' role wait for the storage.
    assert "Contract" not in arn


@pytest.mark.slow
def test_cfn_lint_and_cdk_nag_find_nothing(tmp_path: Path) -> None:
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=flags, outdir=str(tmp_path))
    stack = Stack(app, "Contract", env=Environment(region="us-east-1"))
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["use1-az4"],
        private_subnet_ids=["subnet-0123456789abcdef0"],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0"],
    )
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    parameter(stack, vpc, plan_storage(TrainingJob(instances=256))).grant_read(role)
    assert_compliant(app, linter=True)
