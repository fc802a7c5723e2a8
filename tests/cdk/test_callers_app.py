"""What a caller sets for a whole app reaches our constructs: boundaries, tags, aspects, injectors, a synthesizer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsii
import pytest
from aws_cdk import (
    Annotations,
    App,
    Aspects,
    DefaultStackSynthesizer,
    Environment,
    IAspect,
    IPropertyInjector,
    RemovalPolicies,
    Stack,
    Tags,
)
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk.assertions import Annotations as Found
from aws_cdk.assertions import Match, Template

from tests.cdk.compositions import Everything, everything

if TYPE_CHECKING:
    from constructs import IConstruct

DELETES = "training-storage:deletes-data"


def template(stack: Stack) -> dict[str, Any]:
    resources: dict[str, Any] = Template.from_stack(stack).to_json()["Resources"]
    return resources


def of_type(resources: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [resource for resource in resources.values() if resource["Type"] == kind]


def in_a_stack(**options: Any) -> tuple[Stack, Everything]:
    stack = Stack(App(), "Training", env=Environment(region="us-east-1"), **options)
    return stack, everything(stack, "First")


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """The resources of a stack with a boundary, tags and a property override for all of it."""
    stack, _ = in_a_stack()
    iam.PermissionsBoundary.of(stack).apply(iam.ManagedPolicy.from_managed_policy_name(stack, "Boundary", "Research"))
    Tags.of(stack).add("CostCentre", "4711")
    Tags.of(stack).add("Name", "speech", include_resource_types=["AWS::FSx::FileSystem"])
    Aspects.of(stack).add(MaintenanceOnSundays())
    return template(stack)


@jsii.implements(IAspect)
class MaintenanceOnSundays:
    """An aspect that overrides a property."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, fsx.CfnFileSystem):
            node.add_property_override("LustreConfiguration.WeeklyMaintenanceStartTime", "7:02:00")


def test_every_role_gets_the_callers_permissions_boundary(settings: dict[str, Any]) -> None:
    roles = of_type(settings, "AWS::IAM::Role")
    # Of the flow log, and of CDK's function that empties the default security group.
    assert len(roles) == 2
    assert all("policy/Research" in json.dumps(role["Properties"]["PermissionsBoundary"]) for role in roles)


@pytest.mark.parametrize(
    "kind",
    [
        "AWS::FSx::FileSystem",
        "AWS::FSx::DataRepositoryAssociation",
        "AWS::S3Express::DirectoryBucket",
        "AWS::S3::Bucket",
        "AWS::KMS::Key",
        "AWS::EC2::SecurityGroup",
        "AWS::Logs::LogGroup",
    ],
)
def test_every_resource_that_takes_tags_gets_the_callers(settings: dict[str, Any], kind: str) -> None:
    found = of_type(settings, kind)
    assert found
    for resource in found:
        assert {"Key": "CostCentre", "Value": "4711"} in resource["Properties"]["Tags"]


def test_a_tag_of_the_caller_wins_over_the_name_that_we_give(settings: dict[str, Any]) -> None:
    (system,) = of_type(settings, "AWS::FSx::FileSystem")
    assert [tag["Value"] for tag in system["Properties"]["Tags"] if tag["Key"] == "Name"] == ["speech"]


def test_an_aspect_of_the_caller_may_override_a_property(settings: dict[str, Any]) -> None:
    (system,) = of_type(settings, "AWS::FSx::FileSystem")
    assert system["Properties"]["LustreConfiguration"]["WeeklyMaintenanceStartTime"] == "7:02:00"


def test_an_aspect_that_lets_cloudformation_delete_data_is_obeyed_with_a_warning() -> None:
    stack, made = in_a_stack()
    RemovalPolicies.of(stack).destroy()
    resources = template(stack)
    warned = Found.from_stack(stack).find_warning("*", Match.string_like_regexp(r"no longer keep this AWS::"))
    assert sorted(str(warning.id) for warning in warned) == [
        "/Training/First/Datasets/Resource",
        "/Training/First/FileSystem/Resource",
        "/Training/First/Lake/Bucket/Resource",
        "/Training/First/Lake/Key/Resource",
    ]
    assert of_type(resources, "AWS::FSx::FileSystem")[0]["DeletionPolicy"] == "Delete"
    assert made.file_system.resource.cfn_options.deletion_policy is not None


def test_the_warning_can_be_acknowledged_and_does_not_come_without_need() -> None:
    quiet, _ = in_a_stack()
    template(quiet)
    assert Found.from_stack(quiet).find_warning("*", Match.string_like_regexp("no longer keep")) == []
    meant, made = in_a_stack()
    RemovalPolicies.of(made.file_system).destroy()
    Annotations.of(made.file_system).acknowledge_warning(DELETES, "A scratch file system without links.")
    template(meant)
    assert Found.from_stack(meant).find_warning("*", Match.string_like_regexp("no longer keep")) == []


@jsii.implements(IPropertyInjector)
class LogsForAYear:
    """The caller's default for every log group of the app."""

    @property
    def construct_unique_id(self) -> str:
        return str(logs.LogGroup.PROPERTY_INJECTION_ID)

    def inject(self, original_props: Any, *, id: str, scope: Any) -> Any:
        del id, scope
        return {**original_props, "retention": logs.RetentionDays.ONE_YEAR}


def test_property_injectors_of_the_caller_reach_what_is_made_here() -> None:
    stack, _ = in_a_stack(property_injectors=[LogsForAYear()])
    groups = of_type(template(stack), "AWS::Logs::LogGroup")
    assert [group["Properties"]["RetentionInDays"] for group in groups] == [365, 365]
    # What FSx demands of the name is not for an injector to lose.
    assert "/aws/fsx/Training/First/FileSystem" in {group["Properties"].get("LogGroupName") for group in groups}


def test_a_synthesizer_of_the_caller_says_where_assets_go() -> None:
    synthesizer = DefaultStackSynthesizer(qualifier="research", file_assets_bucket_name="our-assets-${AWS::Region}")
    stack, _ = in_a_stack(synthesizer=synthesizer)
    (function,) = of_type(template(stack), "AWS::Lambda::Function")
    assert function["Properties"]["Code"]["S3Bucket"] == "our-assets-us-east-1"
