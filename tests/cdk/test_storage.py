"""The composition in somebody else's app, which has neither our stacks nor our feature flags."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from aws_cdk import App, CfnResource, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match, Template

from training_storage import ConstructError, DataLake, TrainingJob, TrainingStorage, plan_storage
from training_storage.gpu_cluster import ENGINES
from training_storage.node_kit import NodeKit
from training_storage.planning import catalog
from training_storage.training_network import maximum_addresses


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


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ("cn-north-1", r"zone_id=cnn1-az1 .*\. The catalog knows no accelerated instance of cn-north-1$"),
        ("eu-central-1", r"zone_id=euc1-az1 .*\. The catalog knows there, with its zone: instance_type=g7e\.48xlarge$"),
    ],
)
def test_a_region_without_a_known_zone_of_the_type_says_which_types_are_known_there(region: str, said: str) -> None:
    stack = Stack(App(), "Foreign", env=Environment(region=region))
    with pytest.raises(ConstructError, match=f"no zone of {region} is known to offer p5.48xlarge; such as {said}"):
        TrainingStorage(stack, "Storage", plan=plan(region=region), data_lake=DataLake(stack, "Lake"))


@pytest.mark.parametrize(("instance_type", "minutes"), [("p5.48xlarge", 30), ("p6e-gb200.36xlarge", 60)])
def test_nodes_are_told_how_long_before_the_end_of_their_block_they_end(
    foreign: Stack, instance_type: str, minutes: int
) -> None:
    zone = "use1-dfw2-az1" if instance_type.startswith("p6e") else None
    TrainingStorage(
        foreign,
        "Storage",
        plan=plan(instance_type=instance_type, zone_id=zone, instances=18),
        data_lake=DataLake(foreign, "Lake"),
        purchase="capacity-block",
        capacity_reservation_ids=["cr-0123456789abcdef0"],
    )
    templates = Template.from_stack(foreign).find_resources("AWS::EC2::LaunchTemplate").values()
    texts = [json.dumps(found["Properties"]["LaunchTemplateData"]["UserData"]) for found in templates]
    assert texts
    assert [text for text in texts if f"--block-end-minutes {minutes}" not in text] == []


ENGINE_ROLES = {"ec2": {"compute"}, "pcs": {"compute", "login"}}


def statements(template: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """What the policies of `role` (a logical id) allow."""
    return [
        statement
        for resource in template["Resources"].values()
        if resource["Type"] == "AWS::IAM::Policy" and {"Ref": role} in resource["Properties"]["Roles"]
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
    ]


def flat(value: Any) -> str:
    """An ARN with references replaced by a word for what they are."""
    if isinstance(value, list):
        return "".join(flat(item) for item in value)
    if isinstance(value, str):
        return value
    function, argument = next(iter(value.items()))
    if function == "Fn::Join":
        return str(argument[0]).join(flat(item) for item in argument[1])
    name = argument if isinstance(argument, str) else argument[0]
    for word in ("Key", "Bucket", "FileSystem"):
        if word in name:
            return f"<{word}>"
    return f"<{name}>"


def granted(template: dict[str, Any], role: str) -> set[tuple[str, str, str]]:
    """(action, resource, prefixes of a listing) of every grant of `role`."""
    found = set()
    for statement in statements(template, role):
        assert statement["Effect"] == "Allow"
        limits = statement.get("Condition", {})
        condition = ",".join(limits.get("StringLike", {}).get("s3:prefix", []))
        equal = limits.get("StringEquals", {})
        if "s3:prefix" in equal:
            condition = f"only {equal['s3:prefix']!r}"
        condition += equal.get("cloudwatch:namespace", "") + equal.get("aws:RequestTag/training-storage:job", "")
        actions, resources = statement["Action"], statement["Resource"]
        for action in [actions] if isinstance(actions, str) else actions:
            for resource in resources if isinstance(resources, list) else [resources]:
                found.add((action, flat(resource), condition))
    return found


READ = ("s3:GetObject", "s3:GetObjectAttributes", "s3:GetObjectVersion")
WRITE = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListMultipartUploadParts", "s3:PutObject")
SHARED = ("raw/", "datasets/", "finetune/", "models/")


def lake(actions: tuple[str, ...], folders: tuple[str, ...]) -> set[tuple[str, str, str]]:
    return {(action, f"<Bucket>/{folder}*", "") for action in actions for folder in folders}


def kit(storage: TrainingStorage, stack: Stack) -> set[tuple[str, str, str]]:
    """What the node kit calls, and Mountpoint's listing of the root."""
    asset = storage.node_kit.asset
    arn = f"arn:<AWS::Partition>:s3:::{flat(stack.resolve(asset.s3_bucket_name))}/{asset.s3_object_key}"
    return {
        ("s3:GetObject", arn, ""),
        (
            "ssm:GetParameter",
            "arn:<AWS::Partition>:ssm:us-east-1:<AWS::AccountId>:parameter/training-storage/alpha/contract",
            "",
        ),
        ("cloudwatch:PutMetricData", "*", "TrainingStorage"),
        ("s3:ListBucket", "<Bucket>", "only ''"),
    }


def listing(*folders: str) -> tuple[str, str, str]:
    return ("s3:ListBucket", "<Bucket>", ",".join(f"{folder}*" for folder in folders))


KEY = {("kms:Decrypt", "<Key>", ""), ("kms:GenerateDataKey", "<Key>", "")}
FSX = "arn:<AWS::Partition>:fsx:us-east-1:<AWS::AccountId>"
DESCRIBE = {("fsx:DescribeFileSystems", "*", "")}
SESSIONS = {
    ("ssm:UpdateInstanceInformation", "*", ""),
    *((f"ssmmessages:{act}{kind}Channel", "*", "") for act in ("Create", "Open") for kind in ("Control", "Data")),
}
REGISTER = {("pcs:RegisterComputeNodeGroupInstance", "*", "")}


@pytest.mark.parametrize("engine", ENGINE_ROLES)
def test_nodes_with_accelerators_are_granted_the_jobs_folders_and_nothing_else(foreign: Stack, engine: str) -> None:
    storage = TrainingStorage(
        foreign, "Storage", plan=plan(name="alpha"), data_lake=DataLake(foreign, "Lake"), engine=engine
    )
    assert set(storage.cluster.roles) == ENGINE_ROLES[engine]
    role = foreign.resolve(storage.cluster.role.role_name)["Ref"]
    own = ("checkpoints/alpha/", "logs/alpha/", "evaluations/alpha/", "models/alpha/")
    assert granted(dict(Template.from_stack(foreign).to_json()), role) == {
        listing(*SHARED),
        listing(*own),
        *lake(READ, SHARED),
        *lake((*READ, *WRITE), own),
        *KEY,
        *DESCRIBE,
        ("fsx:CreateDataRepositoryTask", "<FileSystem>", ""),
        ("fsx:CreateDataRepositoryTask", f"{FSX}:task/*", ""),
        ("fsx:TagResource", f"{FSX}:task/*", "alpha"),
        *((f"fsx:Describe{what}", "*", "") for what in ("DataRepositoryAssociations", "DataRepositoryTasks")),
        *SESSIONS,
        *(REGISTER if engine == "pcs" else ()),
        *kit(storage, foreign),
    }


def test_the_login_node_reads_the_job_and_writes_results_but_neither_checkpoints_nor_weights(foreign: Stack) -> None:
    storage = TrainingStorage(foreign, "Storage", plan=plan(name="alpha"), data_lake=DataLake(foreign, "Lake"))
    role = foreign.resolve(storage.cluster.roles["login"].role_name)["Ref"]
    read_only = (*SHARED, "checkpoints/alpha/", "models/alpha/")
    own = ("logs/alpha/", "evaluations/alpha/")
    assert granted(dict(Template.from_stack(foreign).to_json()), role) == {
        listing(*read_only),
        listing(*own),
        *lake(READ, read_only),
        *lake((*READ, *WRITE), own),
        *KEY,
        *DESCRIBE,
        *SESSIONS,
        *REGISTER,
        *kit(storage, foreign),
    }


def test_the_login_node_reads_the_directory_bucket_and_nodes_with_accelerators_write_it(foreign: Stack) -> None:
    storage = TrainingStorage(
        foreign, "Storage", plan=plan(instances=600, interface="object"), data_lake=DataLake(foreign, "Lake")
    )
    template = dict(Template.from_stack(foreign).to_json())
    modes = {}
    for name, role in storage.cluster.roles.items():
        (session,) = [
            statement
            for statement in statements(template, foreign.resolve(role.role_name)["Ref"])
            if statement["Action"] == "s3express:CreateSession"
        ]
        modes[name] = session.get("Condition", {}).get("StringEquals", {}).get("s3express:SessionMode")
    assert modes == {"compute": None, "login": "ReadOnly"}


def test_no_node_starts_before_its_storage_stands(foreign: Stack) -> None:
    TrainingStorage(
        foreign,
        "Storage",
        plan=plan(instances=600, interface="object", checkpoint_interface="posix"),
        data_lake=DataLake(foreign, "Lake"),
    )
    template = Template.from_stack(foreign).to_json()
    by_type: dict[str, list[str]] = {}
    for identifier, resource in template["Resources"].items():
        by_type.setdefault(resource["Type"], []).append(identifier)
    needed = [
        *by_type["AWS::FSx::FileSystem"],
        *by_type["AWS::FSx::DataRepositoryAssociation"],
        *by_type["AWS::S3Express::DirectoryBucket"],
        *by_type["AWS::EFS::MountTarget"],
    ]
    for group in by_type["AWS::PCS::ComputeNodeGroup"]:
        assert set(needed) <= set(template["Resources"][group]["DependsOn"])


def test_a_callers_subnet_that_cannot_hold_256_nodes_and_the_file_servers_is_refused(foreign: Stack) -> None:
    vpc = ec2.Vpc(
        foreign,
        "Vpc",
        max_azs=1,
        subnet_configuration=[
            ec2.SubnetConfiguration(name="Small", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=24),
            ec2.SubnetConfiguration(name="Large", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=23),
        ],
    )
    small, large = vpc.isolated_subnets
    data_lake = DataLake(foreign, "Lake")
    with pytest.raises(
        ConstructError,
        match=r"subnet must hold \d+ addresses for 256 instances, \d+ file servers and the engine, got: 10.0.0.0/24,"
        " which holds 251",
    ):
        TrainingStorage(foreign, "No", plan=plan(instances=256), data_lake=data_lake, vpc=vpc, subnet=small)
    TrainingStorage(foreign, "Yes", plan=plan(instances=256, name="yes"), data_lake=data_lake, vpc=vpc, subnet=large)


@pytest.mark.parametrize(("egress", "engine_takes"), [("nat", 0), ("isolated", 8)])
def test_a_network_made_here_holds_nodes_servers_and_endpoints_or_is_refused(
    foreign: Stack, egress: str, engine_takes: int
) -> None:
    made = plan(instances=33_000)
    # A p5 has one address, and so has a file server and an endpoint.
    most = maximum_addresses() - catalog.lustre_servers(made.fsx_lustre) - engine_takes
    with pytest.raises(ConstructError, match=f"instances must be at most {most} in a network made for the job, got"):
        TrainingStorage(foreign, "Storage", plan=made, data_lake=DataLake(foreign, "Lake"), egress=egress)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "eks"}, "engine must be one of pcs, ec2, got: 'eks'"),
        ({"engine": "ec2", "home_file_system_id": "fs-01234567"}, "home_file_system_id must be left out"),
        ({"slurm_version": "23.11"}, "slurm_version must be one of 24.11, 25.05, 25.11, 26.05, got: '23.11'"),
    ],
)
def test_an_engine_that_cannot_is_refused(foreign: Stack, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConstructError, match=message):
        TrainingStorage(foreign, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"), **options)


def test_the_engine_and_the_reason_for_it_can_be_asked_for(foreign: Stack) -> None:
    storage = TrainingStorage(foreign, "Storage", plan=plan(instances=2048), data_lake=DataLake(foreign, "Lake"))
    assert storage.engine.name == storage.cluster.engine == "ec2"
    assert "2047" in str(storage.engine.note)


def test_what_the_cluster_waits_for_comes_before_all_of_it(foreign: Stack) -> None:
    storage = TrainingStorage(foreign, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"))
    gate = CfnResource(foreign, "Gate", type="AWS::CloudFormation::WaitConditionHandle")
    assert storage.file_system is not None
    gate.node.add_dependency(storage.file_system)
    storage.cluster.node.add_dependency(gate)
    resources = Template.from_stack(foreign).to_json()["Resources"]
    (cluster,) = (r for r in resources.values() if r["Type"] == "AWS::PCS::Cluster")
    assert "Gate" in cluster["DependsOn"]


def test_every_api_that_the_node_kit_calls_has_its_endpoint_in_an_isolated_network() -> None:
    for engine, engine_class in ENGINES.items():
        for purchase in ("on-demand", "spot", "capacity-block"):
            stack = Stack(App(), "Kit")
            kit = NodeKit(stack, "Kit", contract_parameter="/a/b", job_name="default", engine=engine, purchase=purchase)
            assert set(kit.apis) <= set(engine_class.node_apis)


@pytest.mark.parametrize("engine", ENGINE_ROLES)
def test_every_node_installs_the_kit_with_the_contract_of_its_job(foreign: Stack, engine: str) -> None:
    storage = TrainingStorage(
        foreign, "Storage", plan=plan(name="alpha"), data_lake=DataLake(foreign, "Lake"), engine=engine
    )
    template = Template.from_stack(foreign)
    data = [
        json.dumps(found["Properties"]["LaunchTemplateData"]["UserData"])
        for found in template.find_resources("AWS::EC2::LaunchTemplate").values()
    ]
    assert len(data) == len(ENGINE_ROLES[engine])
    assert all(storage.contract.parameter_name in text and "install.sh" in text for text in data)
    assert sorted(role for role in ("compute", "login") for text in data if f"--role {role}" in text) == sorted(
        ENGINE_ROLES[engine]
    )


@pytest.mark.parametrize("engine", ENGINE_ROLES)
def test_no_role_of_nodes_carries_a_policy_of_somebody_else(foreign: Stack, engine: str) -> None:
    storage = TrainingStorage(foreign, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"), engine=engine)
    template = Template.from_stack(foreign).to_json()
    for role in storage.cluster.roles.values():
        properties = template["Resources"][foreign.resolve(role.role_name)["Ref"]]["Properties"]
        assert "ManagedPolicyArns" not in properties


@pytest.mark.parametrize(
    ("egress", "options", "warned"),
    [
        ("isolated", {}, True),
        ("isolated", {"engine": "ec2"}, False),
        ("isolated", {"ami_parameter": "/team/pcs-image"}, False),
        ("nat", {}, False),
    ],
)
def test_synth_warns_of_nodes_that_would_lack_packages_in_an_isolated_network(
    foreign: Stack, egress: str, options: dict[str, Any], *, warned: bool
) -> None:
    TrainingStorage(foreign, "Storage", plan=plan(), data_lake=DataLake(foreign, "Lake"), egress=egress, **options)
    found = Annotations.from_stack(foreign).find_warning("*", Match.string_like_regexp("egress=isolated: /aws/.*Give"))
    assert len(found) == warned


@pytest.mark.parametrize("engine", ENGINE_ROLES)
def test_nodes_look_for_the_end_of_their_own_capacity_block(foreign: Stack, engine: str) -> None:
    blocks = [f"cr-{number:017x}" for number in range(2)]
    TrainingStorage(
        foreign,
        "Storage",
        plan=plan(instances=128),
        data_lake=DataLake(foreign, "Lake"),
        engine=engine,
        purchase="capacity-block",
        capacity_reservation_ids=blocks,
    )
    told: dict[str, list[list[str]]] = {"compute": [], "login": []}
    for found in Template.from_stack(foreign).find_resources("AWS::EC2::LaunchTemplate").values():
        text = json.dumps(found["Properties"]["LaunchTemplateData"]["UserData"])
        role = "login" if "--role login" in text else "compute"
        told[role].append(re.findall(r"cr-[0-9a-f]{17}", text))
    if engine == "pcs":
        assert sorted(told["compute"]) == [[block] for block in blocks]
        assert told["login"] == [blocks]
    else:
        assert told == {"compute": [blocks], "login": []}


def test_every_alarm_tells_the_topic(foreign: Stack) -> None:
    topic = sns.Topic.from_topic_arn(foreign, "Topic", "arn:aws:sns:us-east-1:111122223333:alarms")
    TrainingStorage(
        foreign,
        "Storage",
        plan=plan(),
        data_lake=DataLake(foreign, "Lake"),
        alarm_topic=topic,
        release_after_days=7,
    )
    alarms = Template.from_stack(foreign).find_resources("AWS::CloudWatch::Alarm")
    assert {name for name, alarm in alarms.items() if alarm["Properties"]["AlarmActions"] == [topic.topic_arn]} == set(
        alarms
    )
    assert len(alarms) == 7  # capacity, throughput, exports, links, nodes, watch, release


def test_a_release_without_a_file_system_is_refused(foreign: Stack) -> None:
    with pytest.raises(ConstructError, match=r"release_after_days must be left out without fsx-lustre, got: 7; .* s3$"):
        TrainingStorage(
            foreign, "Storage", plan=plan(instances=8), data_lake=DataLake(foreign, "Lake"), release_after_days=7
        )


def test_checkpoints_that_no_hot_tier_holds_cannot_be_disposable(foreign: Stack) -> None:
    with pytest.raises(ConstructError, match="checkpoints_disposable must be left out, got: True; no hot tier"):
        TrainingStorage(
            foreign, "Storage", plan=plan(instances=8), data_lake=DataLake(foreign, "Lake"), checkpoints_disposable=True
        )
