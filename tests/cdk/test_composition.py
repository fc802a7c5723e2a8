"""Every construct stands several times in one stack, in a nested stack and in a stage, and across stacks."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template

from tests.cdk.compositions import Composed, composed
from training_storage import (
    ConstructError,
    DataLake,
    DataRepositoryAssociation,
    DirectoryBucket,
    ImportedDataLake,
    LustreFileSystem,
    TrainingNetwork,
)
from training_storage.planning.legality import check_template

if TYPE_CHECKING:
    from collections.abc import Callable

    from training_storage.testing.local_aws import LocalAws

    Synthesize = Callable[[Stack], Any]

HERE = Environment(account="111122223333", region="us-east-1")
NAMES = ("BucketName", "GroupName", "LogGroupName")


@pytest.fixture(scope="module")
def apps() -> Composed:
    return composed()


@pytest.fixture(scope="module")
def templates(apps: Composed) -> list[dict[str, Any]]:
    return [dict(Template.from_stack(stack).to_json()) for stack in (apps.stack, apps.nested)]


def stated_names(template: dict[str, Any]) -> list[str]:
    return [
        f"{resource['Type']} {name} {json.dumps(resource['Properties'][name])}"
        for resource in template["Resources"].values()
        for name in NAMES
        if name in resource.get("Properties", {}) and resource["Type"] != "AWS::EC2::FlowLog"
    ]


def test_nothing_clashes_that_has_a_name_of_its_own(templates: list[dict[str, Any]]) -> None:
    names = [name for template in templates for name in stated_names(template)]
    # Of each set: lake, directory bucket, log group, and the servers' group.
    assert len(names) == 12
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_the_services_would_refuse_nothing_of_it(templates: list[dict[str, Any]]) -> None:
    for template in templates:
        assert check_template(template, region="us-east-1", nested_elsewhere=list(template["Resources"])).findings == ()


@pytest.mark.local_aws
def test_two_of_everything_and_a_third_nested_stand_side_by_side(apps: Composed, local_aws: LocalAws) -> None:
    fsx = local_aws.client("fsx")
    before = {link["AssociationId"] for link in fsx.describe_data_repository_associations()["Associations"]}
    deployment = local_aws.deploy(apps.stack)
    assert deployment.status() == "CREATE_COMPLETE"
    links = [
        link
        for link in fsx.describe_data_repository_associations()["Associations"]
        if link["AssociationId"] not in before
    ]
    assert {link["Lifecycle"] for link in links} == {"AVAILABLE"}
    systems = {link["FileSystemId"] for link in links}
    repositories = {link["DataRepositoryPath"] for link in links}
    assert len(links) == len(systems) == len(repositories) == 3
    hot = {bucket["Name"] for bucket in local_aws.client("s3").list_directory_buckets()["Buckets"]}
    assert {f"{name}--use1-az4--x-s3" for name in ("first", "second", "third")} <= hot
    for link in links:
        fsx.delete_data_repository_association(AssociationId=link["AssociationId"], DeleteDataInFileSystem=False)
    for system in systems:
        fsx.delete_file_system(FileSystemId=system)
    deadline = time.monotonic() + 30
    while systems & {system["FileSystemId"] for system in fsx.describe_file_systems()["FileSystems"]}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # Without them nothing holds the stack; what holds data stays all the same.
    deployment.destroy()
    names = [bucket["Name"] for bucket in local_aws.client("s3").list_buckets()["Buckets"]]
    assert {f"lake-{name}-000000000000-us-east-1" for name in ("first", "second")} <= set(names)


def test_the_policies_that_keep_data_are_the_same_in_a_nested_stack(templates: list[dict[str, Any]]) -> None:
    # The local AWS deletes what a nested stack retains; AWS does not.
    outer, inner = (
        {
            (name.removeprefix("First").removeprefix("Third")[:-8], resource["Type"]): resource["DeletionPolicy"]
            for name, resource in template["Resources"].items()
            if not name.startswith("Second") and "DeletionPolicy" in resource
        }
        for template in templates
    )
    assert inner.items() <= outer.items()
    assert inner["LakeBucket", "AWS::S3::Bucket"] == "RetainExceptOnCreate"


@pytest.mark.slow
def test_neither_cdk_nag_nor_the_linter_finds_anything_in_it(
    apps: Composed, assert_compliant: Callable[..., None]
) -> None:
    assert_compliant(apps.app)


def test_each_file_system_waits_for_its_own_link_and_lake_only(templates: list[dict[str, Any]]) -> None:
    resources = templates[0]["Resources"]
    for name, resource in resources.items():
        if resource["Type"] == "AWS::FSx::DataRepositoryAssociation":
            own = re.match("First|Second", name)
            assert own
            assert all(needed.startswith(own[0]) for needed in resource["DependsOn"])


def make_file_system(scope: Stack, vpc: ec2.IVpc, name: str = "FileSystem", **options: Any) -> LustreFileSystem:
    return LustreFileSystem(
        scope,
        name,
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
        **options,
    )


def link(scope: Stack, file_system: LustreFileSystem, name: str, **options: Any) -> DataRepositoryAssociation:
    return DataRepositoryAssociation(
        scope, name.title(), file_system=file_system, file_system_path=f"/{name}", prefix=f"{name}/", **options
    )


def stacks(*names: str, env: Environment | None = None) -> list[Stack]:
    app = App()
    return [Stack(app, name, env=env or Environment(region="us-east-1")) for name in names]


def test_lake_file_system_link_and_clients_may_be_in_four_stacks(resources: Synthesize) -> None:
    lakes, systems, links, clients = stacks("Lakes", "Systems", "Links", "Clients")
    lake = DataLake(lakes, "Lake")
    system = make_file_system(systems, ec2.Vpc(systems, "Vpc", max_azs=1), encryption_key=lake.encryption_key)
    link(links, system, "datasets", data_lake=lake)
    group = system.client_security_group.security_group_id
    ec2.CfnNetworkInterface(clients, "Client", subnet_id="subnet-1", group_set=[group])
    association = resources(links).one("AWS::FSx::DataRepositoryAssociation")["Properties"]
    assert "Systems:ExportsOutputRefFileSystem" in json.dumps(association["FileSystemId"])
    assert "Lakes:ExportsOutputRefLakeBucket" in json.dumps(association["DataRepositoryPath"])
    assert {stack.stack_name for stack in links.dependencies} == {"Lakes", "Systems"}
    assert "Systems:ExportsOutput" in json.dumps(resources(clients).one("AWS::EC2::NetworkInterface"))


def test_links_of_one_file_system_in_several_stacks_are_made_one_after_another(resources: Synthesize) -> None:
    systems, first, second = stacks("Systems", "First", "Second")
    lake = DataLake(systems, "Lake")
    system = make_file_system(systems, ec2.Vpc(systems, "Vpc", max_azs=1))
    link(first, system, "datasets", data_lake=lake)
    link(second, system, "logs", data_lake=lake)
    # The file system's own stack stands before the others: its link waits for none of theirs, which would be a cycle.
    link(systems, system, "models", data_lake=lake)
    resources(second)
    assert "First" in {stack.stack_name for stack in second.dependencies}
    assert {stack.stack_name for stack in systems.dependencies} == set()


def test_links_in_nested_stacks_wait_for_each_other_in_both_directions(resources: Synthesize) -> None:
    (stack,) = stacks("Training")
    lake = DataLake(stack, "Lake")
    system = make_file_system(stack, ec2.Vpc(stack, "Vpc", max_azs=1))
    inner, other = NestedStack(stack, "Inner"), NestedStack(stack, "Other")
    link(inner, system, "datasets", data_lake=lake)
    link(stack, system, "logs", data_lake=lake)
    link(other, system, "models", data_lake=lake)
    with pytest.raises(ConstructError, match="links of nested stacks must be made stack by stack, got: one in"):
        link(inner, system, "raw", data_lake=lake)
    template = resources(stack)
    nested = template.of_type("AWS::CloudFormation::Stack")
    names = {"Inner": "", "Other": ""} | {re.match("Inner|Other", name)[0]: name for name in nested}  # type: ignore[index]
    (own,) = template.of_type("AWS::FSx::DataRepositoryAssociation").items()
    assert names["Inner"] in own[1]["DependsOn"]
    assert own[0] in nested[names["Other"]]["DependsOn"]


def test_two_lakes_whose_derived_names_clash_are_refused() -> None:
    one, other = stacks("One", "Other")
    DataLake(one, "Lake")
    for scope in (one, other):
        with pytest.raises(ConstructError, match=r"bucket_name_prefix must be another for each, got: 'training-data-l"):
            DataLake(scope, "Second")


def test_the_same_names_in_another_region_or_stage_do_not_clash() -> None:
    app = App()
    for name in ("Dev", "Prod"):
        # Where the account is not known, stages may well go to accounts of their own.
        DataLake(Stack(Stage(app, name), "Lake"), "Lake")
    for region in ("us-east-1", "eu-west-1"):
        DataLake(Stack(app, region, env=Environment(account="111122223333", region=region)), "Lake")
    with pytest.raises(ConstructError, match=r"also in us-east-1/Lake"):
        DataLake(Stack(Stage(app, "Third"), "Again", env=HERE), "Lake")


def test_two_directory_buckets_of_one_name_are_refused(stack: Stack) -> None:
    DirectoryBucket(stack, "One", zone_id="use1-az4", base_name="shards")
    DirectoryBucket(stack, "Two", zone_id="use1-az5", base_name="shards")
    with pytest.raises(
        ConstructError, match=r"base_name must be another for each, got: 'shards--use1-az4--x-s3' twice"
    ):
        DirectoryBucket(stack, "Three", zone_id="use1-az4", base_name="shards")


def elsewhere(app: App) -> Stack:
    return Stack(app, "Elsewhere", env=Environment(account="111122223333", region="eu-west-1"))


def test_a_lake_of_another_region_is_refused_because_its_derived_name_would_be_wrong() -> None:
    app = App()
    here, there = Stack(app, "Here", env=HERE), elsewhere(app)
    lake = DataLake(there, "Lake")
    system = make_file_system(here, ec2.Vpc.from_vpc_attributes(here, "Vpc", **VPC))
    words = "data_lake must be in the Region of the stack that uses it, us-east-1, got: Elsewhere/Lake in eu-west-1"
    with pytest.raises(ConstructError, match=words):
        link(here, system, "datasets", data_lake=lake)
    role = iam.Role(here, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    with pytest.raises(ConstructError, match=words):
        lake.grant_read(role, prefixes=["datasets/"])


VPC: dict[str, Any] = {
    "vpc_id": "vpc-0123456789abcdef0",
    "availability_zones": ["unused"],
    "private_subnet_ids": ["subnet-0123456789abcdef0"],
}


def test_a_link_in_another_environment_than_its_file_system_is_refused() -> None:
    app = App()
    here, there = Stack(app, "Here", env=HERE), elsewhere(app)
    account = Stack(app, "Account", env=Environment(account="444455556666", region="us-east-1"))
    system = make_file_system(here, ec2.Vpc.from_vpc_attributes(here, "Vpc", **VPC))
    for scope, what in ((there, "Region"), (account, "account")):
        lake = DataLake(scope, "Lake")
        with pytest.raises(ConstructError, match=f"a link must be made in the {what} of its file system"):
            link(scope, system, "datasets", data_lake=lake)


def test_what_the_caller_brings_from_another_region_is_refused_by_name() -> None:
    app = App()
    here, there = Stack(app, "Here", env=HERE), elsewhere(app)
    near, far = (ec2.Vpc.from_vpc_attributes(scope, "Vpc", **VPC) for scope in (here, there))
    lake = DataLake(there, "Lake")
    group = ec2.SecurityGroup(there, "Group", vpc=far)
    with pytest.raises(ConstructError, match="vpc must be in us-east-1, as the stack that uses it, got: Elsewhere/Vpc"):
        make_file_system(here, far)
    brought: dict[str, Any] = {"encryption_key": lake.encryption_key, "client_security_group": group}
    for what, given in brought.items():
        with pytest.raises(ConstructError, match=f"{what} must be in us-east-1"):
            make_file_system(here, near, **{what: given})
    with pytest.raises(ConstructError, match="encryption_key must be in us-east-1"):
        DirectoryBucket(here, "Hot", zone_id="use1-az4", encryption_key=lake.encryption_key)
    with pytest.raises(ConstructError, match="encryption_key must be in us-east-1"):
        ImportedDataLake(here, "Lake", bucket_name="lake", encryption_key=lake.encryption_key)


def test_a_network_in_a_stage_with_account_states_its_zone_by_id() -> None:
    stack = Stack(Stage(App(), "Prod", env=HERE), "Network")
    TrainingNetwork(stack, "Network", zone_id="use1-az4", addresses=10)
    subnets = Template.from_stack(stack).find_resources("AWS::EC2::Subnet").values()
    assert {subnet["Properties"]["AvailabilityZoneId"] for subnet in subnets} == {"use1-az4"}
    assert not any("AvailabilityZone" in subnet["Properties"] for subnet in subnets)
