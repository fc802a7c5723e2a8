"""Every construct stands twice in the stack of a stage, and nested there; what a caller sets reaches all of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, cast

import jsii
import pytest
from aws_cdk import (
    App,
    CliCredentialsStackSynthesizer,
    Environment,
    IPropertyInjector,
    NestedStack,
    RemovalPolicies,
    Stack,
    Tags,
)
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match, Template

from tests.cdk.job_compositions import HERE, KEY, Jobs, archived, every_construct, job, jobs
from training_storage import (
    CheckpointArchive,
    ConstructError,
    DataLake,
    DataRepositoryAssociation,
    DirectoryBucket,
    ExpressGate,
    FinalExport,
    LustreFileSystem,
    Park,
    StorageAlarms,
    StorageContractParameter,
    TrainingJob,
    TrainingStorage,
    plan_storage,
)
from training_storage.planning.legality import check_template
from training_storage.testing import compliance_findings, lint_findings

ROLE = "arn:aws:iam::111122223333:role/nodes"
#: Names that are one account's and Region's.
NAMES = {
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
    "AWS::SSM::Parameter": "Name",
    "AWS::S3::Bucket": "BucketName",
    "AWS::S3Express::DirectoryBucket": "BucketName",
    "AWS::EC2::SecurityGroup": "GroupName",
    "AWS::IAM::Role": "RoleName",
    "AWS::Scheduler::Schedule": "Name",
    "AWS::Events::Rule": "Name",
    "AWS::Lambda::Function": "FunctionName",
}


@pytest.fixture(scope="module")
def all_of_it(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    return jobs(outdir=tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def templates(all_of_it: Jobs) -> list[dict[str, Any]]:
    return [dict(Template.from_stack(stack).to_json()) for stack in (all_of_it.stack, all_of_it.nested)]


def test_every_public_construct_stands_twice_in_one_stack_and_once_nested(all_of_it: Jobs) -> None:
    in_nested = Counter(type(one) for one in all_of_it.nested.node.find_all())
    in_both = Counter(type(one) for one in all_of_it.stack.node.find_all())
    for kind in every_construct():
        if kind is Park:
            # Its last act deletes the stack, which a nested one is not for it to delete.
            assert in_nested[kind] == 0
        else:
            assert in_nested[kind] >= 1, f"{kind.__name__} is in no nested stack: add it to job_compositions.py"
        assert in_both[kind] - in_nested[kind] >= 2, f"{kind.__name__} is not twice in one stack"


def test_nothing_of_it_clashes(templates: list[dict[str, Any]]) -> None:
    names = [
        f"{resource['Type']} {json.dumps(resource['Properties'][NAMES[resource['Type']]])}"
        for template in templates
        for resource in template["Resources"].values()
        if resource["Type"] in NAMES and NAMES[resource["Type"]] in resource.get("Properties", {})
    ]
    # Of lakes, directory buckets, contracts, file servers' groups, and what is named after a job.
    assert len(names) > 20
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_the_services_would_refuse_nothing_of_it(templates: list[dict[str, Any]]) -> None:
    for template in templates:
        assert check_template(template, region="us-east-1", nested_elsewhere=list(template["Resources"])).findings == ()


@pytest.mark.slow
def test_cdk_nag_and_the_linter_find_nothing_in_it(all_of_it: Jobs) -> None:
    assert [str(finding) for finding in compliance_findings(all_of_it.app, linter=False)] == []
    assert [str(finding) for finding in lint_findings(all_of_it.app)] == []


# ---- where park does not belong ----


def test_a_nested_job_has_no_park_which_is_said_once(all_of_it: Jobs) -> None:
    nested = all_of_it.jobs[4]
    with pytest.raises(ConstructError, match=r"park must be in a stack that is not nested, got: Prod/Training/Inner;"):
        _ = nested.park
    said = Annotations.from_stack(all_of_it.stack).find_info("*", Match.string_like_regexp("no park in a nested stack"))
    assert sorted(str(one.id) for one in said) == [
        "/Prod/Training/Inner/Five/Storage",
        "/Prod/Training/Inner/Six/Storage",
    ]


def test_a_nested_job_takes_no_time_to_park() -> None:
    stack = Stack(App(), "Training", env=HERE)
    lake = DataLake(stack, "Lake")
    with pytest.raises(ConstructError, match="park must be in a stack that is not nested"):
        job(NestedStack(stack, "Inner"), "Nested", lake=lake)


def test_jobs_that_share_a_stack_are_told_that_parking_one_deletes_both(all_of_it: Jobs) -> None:
    warned = Annotations.from_stack(all_of_it.stack).find_warning("*", Match.string_like_regexp("parking this job"))
    assert [str(one.id) for one in warned] == [
        f"/Prod/Training/{name}/Storage/Park" for name in ("Two", "Three", "Four")
    ]
    assert "what Prod/Training/One/Storage/Park parks" in str(warned[0].entry.data)


def test_two_jobs_of_one_name_in_an_account_and_region_are_refused() -> None:
    stack = Stack(App(), "Training", env=HERE)
    first = archived(stack, "One", lake=DataLake(stack, "Lake", bucket_name_prefix="first-lake"))
    other = DataLake(stack, "Other", bucket_name_prefix="other-lake")
    with pytest.raises(ConstructError, match="name of a job must be another for each, got: 'one' twice"):
        StorageContractParameter(
            stack,
            "Contract",
            plan=first.plan,
            data_lake=other,
            engine="ec2",
            directory_bucket=first.directory_bucket,
        )
    with pytest.raises(ConstructError, match="job_name of a park must be another for each, got: 'one' twice"):
        Park(stack, "Park", cluster=first.cluster, job_name="one", express_gate=first.express_gate)


# ---- what the caller brings and sets ----


@jsii.implements(IPropertyInjector)
class TracedFunctions:
    """The caller's default for every function of the app."""

    @property
    def construct_unique_id(self) -> str:
        return str(lambda_.Function.PROPERTY_INJECTION_ID)

    def inject(self, original_props: Any, *, id: str, scope: Any) -> Any:
        del id, scope
        return {**original_props, "tracing": lambda_.Tracing.ACTIVE}


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """A job in a stack with a boundary, tags, an injector, an aspect and a synthesizer of the caller."""
    app = App(property_injectors=[TracedFunctions()])
    synthesizer = CliCredentialsStackSynthesizer(qualifier="research")
    stack = Stack(app, "Training", env=HERE, synthesizer=synthesizer)
    job(stack, "One", lake=DataLake(Stack(app, "Lakes", env=HERE), "Lake"))
    iam.PermissionsBoundary.of(app).apply(iam.ManagedPolicy.from_managed_policy_name(stack, "Boundary", "Research"))
    Tags.of(app).add("CostCentre", "4711")
    RemovalPolicies.of(stack).retain(apply_to_resource_types=["AWS::Logs::LogGroup"])
    found: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
    return found


def of_type(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: resource for name, resource in resources.items() if resource["Type"] == kind}


def test_every_role_gets_the_callers_boundary(settings: dict[str, Any]) -> None:
    roles = of_type(settings, "AWS::IAM::Role")
    assert len(roles) > 15
    assert [name for name, role in roles.items() if "PermissionsBoundary" not in role["Properties"]] == []


def test_the_callers_tags_injectors_aspects_and_synthesizer_reach_what_is_made(settings: dict[str, Any]) -> None:
    functions = of_type(settings, "AWS::Lambda::Function")
    untraced = [name for name, one in functions.items() if "TracingConfig" not in one["Properties"]]
    # CDK's own function that restricts the default security group is none of the construct Function.
    assert [name for name in untraced if not name.startswith("CustomVpcRestrict")] == []
    for kind in ("AWS::Lambda::Function", "AWS::StepFunctions::StateMachine", "AWS::PCS::ComputeNodeGroup"):
        for name, resource in of_type(settings, kind).items():
            text = json.dumps(resource["Properties"])
            assert "CostCentre" in text or name.startswith("CustomVpcRestrict"), name
    for template in of_type(settings, "AWS::EC2::LaunchTemplate").values():
        specifications = template["Properties"]["LaunchTemplateData"]["TagSpecifications"]
        assert [one["ResourceType"] for one in specifications] == ["instance", "volume"]
        for one in specifications:
            keys = {tag["Key"] for tag in one["Tags"]}
            assert keys >= {"CostCentre", "Name"}
    groups = of_type(settings, "AWS::Logs::LogGroup")
    assert {group["DeletionPolicy"] for group in groups.values()} == {"Retain"}
    places = {json.dumps(one["Properties"]["Code"]["S3Bucket"]) for one in functions.values()}
    assert len(places) == 1
    assert "cdk-research-assets-" in places.pop()


def test_groups_and_keys_of_the_caller_are_taken() -> None:
    stack = Stack(App(), "Training", env=HERE)
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)
    group = ec2.SecurityGroup(stack, "Proxy", vpc=vpc)
    made = TrainingStorage(
        stack,
        "Storage",
        plan=plan_storage(TrainingJob(instances=1000, interface="object")),
        data_lake=DataLake(stack, "Lake"),
        engine="ec2",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        security_groups=[group],
        encryption_key=kms.Key.from_key_arn(stack, "Key", KEY),
    )
    assert group in made.cluster.node_security_groups
    resources: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
    (bucket,) = of_type(resources, "AWS::S3Express::DirectoryBucket").values()
    assert KEY in json.dumps(bucket["Properties"]["BucketEncryption"])
    (template,) = of_type(resources, "AWS::EC2::LaunchTemplate").values()
    assert "Proxy" in json.dumps(template["Properties"]["LaunchTemplateData"]["NetworkInterfaces"])


def test_functions_take_a_role_of_the_caller_and_grant_it_what_they_need() -> None:
    app = App()
    stack = Stack(app, "Training", env=Environment(account="111122223333", region="us-east-1"))
    lake, role = DataLake(stack, "Lake"), iam.Role.from_role_arn(stack, "Role", ROLE)
    bucket = DirectoryBucket(stack, "Hot", zone_id="use1-az4")
    gate = ExpressGate(stack, "Gate", directory_bucket=bucket, data_lake=lake, job_name="one", role=role)
    archive = CheckpointArchive(
        stack,
        "Archive",
        directory_bucket=bucket,
        data_lake=lake,
        job_name="one",
        durable_interval_minutes=60,
        durable_checkpoints_kept=2,
        role=role,
    )
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, flow_logs={"all": ec2.FlowLogOptions()})
    system = LustreFileSystem(
        stack,
        "FileSystem",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
    )
    DataRepositoryAssociation(
        stack,
        "Logs",
        file_system=system,
        file_system_path="/logs",
        data_lake=lake,
        prefix="logs/one/",
        export_events=["NEW"],
    )
    export = FinalExport(stack, "Export", file_system=system, data_lake=lake, job_name="one", role=role)
    alarms = StorageAlarms(stack, "Alarms", job_name="one", file_system=system, baseline_mb_per_s=150, role=role)
    assert alarms.watch is not None
    resources: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
    for function in (*gate.functions, archive.function, *export.functions, alarms.watch):
        logical_id = stack.get_logical_id(cast("lambda_.CfnFunction", function.node.default_child))
        assert resources[logical_id]["Properties"]["Role"] == ROLE
    granted = json.dumps(
        [
            one["Properties"]
            for one in of_type(resources, "AWS::IAM::Policy").values()
            if one["Properties"]["Roles"] == ["nodes"]
        ]
    )
    for action in ("fsx:DeleteFileSystem", "s3express:CreateSession", "cloudwatch:PutMetricData", "s3:DeleteObject"):
        assert action in granted
    # What its policies hold is acknowledged as that of a role made here.
    assert [str(finding) for finding in compliance_findings(app, linter=False) if "/Role/" in finding.path] == []


def test_what_may_start_a_park_may_start_this_one_only() -> None:
    stack = Stack(App(), "Training", env=HERE)
    made = archived(stack, "One", lake=DataLake(stack, "Lake"))
    made.park.grant_start(iam.Role(stack, "Operator", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")))
    policies = of_type(Template.from_stack(stack).to_json()["Resources"], "AWS::IAM::Policy")
    (policy,) = (one for name, one in policies.items() if name.startswith("OperatorDefaultPolicy"))
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "states:StartExecution"
    assert str(statement["Resource"]["Ref"]).startswith("OneStoragePark")
