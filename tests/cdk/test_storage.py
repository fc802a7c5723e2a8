"""The composition in somebody else's app, which has neither our stacks nor our feature flags."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from training_storage import ConstructError, DataLake, TrainingJob, TrainingStorage, plan_storage


@pytest.fixture
def foreign() -> Stack:
    return Stack(App(), "Foreign", env=Environment(region="us-east-1"))


def plan(**fields: Any) -> Any:
    return plan_storage(TrainingJob(**({"instances": 32} | fields)))


def test_two_jobs_of_one_name_on_one_lake_are_refused(foreign: Stack) -> None:
    lake = DataLake(foreign, "Lake")
    TrainingStorage(foreign, "One", plan=plan(), data_lake=lake)
    with pytest.raises(ConstructError, match="name must be another for every job on a lake, got: 'default' twice"):
        TrainingStorage(foreign, "Two", plan=plan(), data_lake=lake)


def test_two_jobs_of_different_names_stand_in_one_stack(foreign: Stack) -> None:
    lake = DataLake(foreign, "Lake")
    for name in ("alpha", "beta"):
        TrainingStorage(foreign, name, plan=plan(name=name), data_lake=lake)
    template = Template.from_stack(foreign)
    template.resource_count_is("AWS::FSx::FileSystem", 2)
    template.resource_count_is("AWS::FSx::DataRepositoryAssociation", 8)


def test_a_plan_for_another_region_than_the_stack_is_refused() -> None:
    stack = Stack(App(), "Foreign", env=Environment(region="eu-west-1"))
    with pytest.raises(ConstructError, match="the plan must be for eu-west-1, .*got: one for us-east-1; plan again"):
        TrainingStorage(stack, "Storage", plan=plan(), data_lake=DataLake(stack, "Lake"))


def test_a_stack_without_a_region_takes_any_plan() -> None:
    stack = Stack(App(), "Foreign")
    TrainingStorage(stack, "Storage", plan=plan(), data_lake=DataLake(stack, "Lake"))
    Template.from_stack(stack).resource_count_is("AWS::FSx::FileSystem", 1)


def test_a_public_subnet_is_refused(foreign: Stack) -> None:
    vpc = ec2.Vpc(foreign, "Vpc", max_azs=1)
    with pytest.raises(ConstructError, match="subnet must be private, got: Foreign/Vpc/PublicSubnet1"):
        TrainingStorage(
            foreign,
            "Storage",
            plan=plan(),
            data_lake=DataLake(foreign, "Lake"),
            vpc=vpc,
            subnet=vpc.public_subnets[0],
        )


def test_half_a_network_is_refused(foreign: Stack) -> None:
    vpc = ec2.Vpc(foreign, "Vpc", max_azs=1)
    with pytest.raises(ConstructError, match="vpc and subnet must be given together"):
        TrainingStorage(foreign, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"), vpc=vpc)


def test_a_callers_network_is_used(foreign: Stack) -> None:
    vpc = ec2.Vpc(foreign, "Vpc", max_azs=1)
    storage = TrainingStorage(
        foreign, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"), vpc=vpc, subnet=vpc.private_subnets[0]
    )
    assert storage.network is None
    Template.from_stack(foreign).resource_count_is("AWS::EC2::VPC", 1)


def test_a_bucket_is_no_lake_and_a_dict_is_no_plan(foreign: Stack) -> None:
    bucket: Any = s3.Bucket(foreign, "Bucket")
    no_plan: Any = {}
    with pytest.raises(ConstructError, match="data_lake must be a DataLake .*got: a Bucket; wrap"):
        TrainingStorage(foreign, "Storage", plan=plan(), data_lake=bucket)
    with pytest.raises(ConstructError, match="plan must be what plan_storage returned, got: a dict"):
        TrainingStorage(foreign, "Storage", plan=no_plan, data_lake=DataLake(foreign, "Lake"))


def test_it_stands_in_a_nested_stack_and_in_a_stage(foreign: Stack) -> None:
    nested = NestedStack(foreign, "Nested")
    TrainingStorage(nested, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"))
    Template.from_stack(nested).resource_count_is("AWS::FSx::FileSystem", 1)

    stage = Stage(App(), "Prod", env=Environment(region="us-east-1"))
    stack = Stack(stage, "Training")
    TrainingStorage(stack, "Storage", plan=plan(), data_lake=DataLake(stack, "Lake"))
    Template.from_stack(stack).resource_count_is("AWS::FSx::FileSystem", 1)
