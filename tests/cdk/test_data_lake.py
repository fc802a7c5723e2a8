"""The lake: retained, private, encrypted, ready for links."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match, Template

from training_storage import (
    ConstructError,
    DataLake,
    DataRepositoryAssociation,
    FolderLifecycle,
    ImportedDataLake,
    LustreFileSystem,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KEY_ARN = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
READABLE_BY_A_LINK = {"STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"}


@pytest.fixture
def lake_template(stack: Stack, resources: Callable[[Stack], Any]) -> Any:
    DataLake(stack, "Lake")
    return resources(stack)


def lake_bucket(template: Any) -> Any:
    return next(b for b in template.of_type("AWS::S3::Bucket").values() if "LoggingConfiguration" in b["Properties"])


def test_everything_of_the_lake_that_holds_data_is_retained(lake_template: Any) -> None:
    stateful = {**lake_template.of_type("AWS::S3::Bucket"), **lake_template.of_type("AWS::KMS::Key")}
    assert len(stateful) == 3
    for resource in stateful.values():
        # A creation that fails may take the empty lake away: kept, its derived name would be taken for ever.
        assert resource["DeletionPolicy"] == "RetainExceptOnCreate"
        assert resource["UpdateReplacePolicy"] == "Retain"


def test_every_bucket_blocks_public_access_and_enforces_ownership(lake_template: Any) -> None:
    for bucket in lake_template.of_type("AWS::S3::Bucket").values():
        assert set(bucket["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
        assert bucket["Properties"]["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]


def test_every_bucket_refuses_requests_without_tls(lake_template: Any) -> None:
    policies = lake_template.of_type("AWS::S3::BucketPolicy").values()
    assert len(policies) == 2
    for policy in policies:
        denied = [
            statement
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny" and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        assert [(s["Action"], s["Principal"]) for s in denied] == [("s3:*", {"AWS": "*"})]


def test_the_bucket_is_versioned_and_encrypted_with_a_rotating_key_and_a_bucket_key(lake_template: Any) -> None:
    properties = lake_bucket(lake_template)["Properties"]
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    rule = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    assert rule["BucketKeyEnabled"] is True
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert lake_template.one("AWS::KMS::Key")["Properties"]["EnableKeyRotation"] is True


def test_the_key_lets_fsx_in_before_its_role_exists(lake_template: Any) -> None:
    statements = lake_template.one("AWS::KMS::Key")["Properties"]["KeyPolicy"]["Statement"]
    fsx = next(s for s in statements if s.get("Sid") == "FSxForLustreThroughS3")
    assert fsx["Principal"] == {"AWS": "*"}
    assert set(fsx["Condition"]["StringEquals"]) == {"kms:CallerAccount", "kms:ViaService"}
    assert fsx["Condition"]["StringLike"]["aws:userid"] == "*:FSx"
    contexts = json.dumps(fsx["Condition"]["StringLike"]["kms:EncryptionContext:aws:s3:arn"])
    # With a bucket key the context is the bucket, without it the object.
    assert contexts.count("s3:::training-data-lake-") == 2
    assert '"/*"' in contexts


def test_the_key_policy_names_the_bucket_without_a_dependency_cycle(lake_template: Any) -> None:
    key = json.dumps(lake_template.one("AWS::KMS::Key"))
    assert "LakeBucket" not in key


def test_every_folder_has_a_lifecycle_that_a_link_can_read(lake_template: Any) -> None:
    rules = lake_bucket(lake_template)["Properties"]["LifecycleConfiguration"]["Rules"]
    folders = {rule["Prefix"]: rule for rule in rules if "Prefix" in rule}
    assert set(folders) == {
        f"{name}/" for name in ("raw", "datasets", "finetune", "models", "checkpoints", "logs", "evaluations")
    }
    for rule in folders.values():
        assert {transition["StorageClass"] for transition in rule["Transitions"]} <= READABLE_BY_A_LINK
        assert "ExpirationInDays" not in rule
    assert folders["checkpoints/"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


def test_incomplete_uploads_are_aborted_everywhere(lake_template: Any) -> None:
    rules = lake_bucket(lake_template)["Properties"]["LifecycleConfiguration"]["Rules"]
    assert [r["AbortIncompleteMultipartUpload"] for r in rules if "Prefix" not in r] == [{"DaysAfterInitiation": 7}]


def test_a_caller_can_replace_the_lifecycle_of_one_folder(stack: Stack, resources: Callable[[Stack], Any]) -> None:
    DataLake(
        stack,
        "Lake",
        lifecycles={
            "raw": FolderLifecycle(
                noncurrent_days=2, tiering_days=5, storage_class=s3.StorageClass.GLACIER_INSTANT_RETRIEVAL
            )
        },
    )
    rules = lake_bucket(resources(stack))["Properties"]["LifecycleConfiguration"]["Rules"]
    raw = next(rule for rule in rules if rule.get("Prefix") == "raw/")
    assert raw["NoncurrentVersionExpiration"] == {"NoncurrentDays": 2}
    assert raw["Transitions"] == [{"StorageClass": "GLACIER_IR", "TransitionInDays": 5}]


def test_access_logs_go_to_a_bucket_that_log_delivery_may_write_to(lake_template: Any) -> None:
    destination = lake_bucket(lake_template)["Properties"]["LoggingConfiguration"]["DestinationBucketName"]["Ref"]
    assert destination in lake_template.of_type("AWS::S3::Bucket")
    granted = [s for s in lake_template.statements("AWS::S3::BucketPolicy") if s.get("Sid") == "ServerAccessLogs"]
    assert granted[0]["Principal"] == {"Service": "logging.s3.amazonaws.com"}
    assert set(granted[0]["Condition"]) == {"ArnLike", "StringEquals"}


@pytest.mark.parametrize("prefix", ["My-Lake", "a.b", "-x", "x-", "ab", "a" * 36, "", "lake_1"])
def test_an_illegal_bucket_name_prefix_is_refused_with_the_value(stack: Stack, prefix: str) -> None:
    with pytest.raises(ConstructError, match=r"bucket_name_prefix must be 3 to 35 .*got: '"):
        DataLake(stack, "Lake", bucket_name_prefix=prefix)


def test_the_longest_prefix_makes_a_legal_bucket_name_in_the_longest_region() -> None:
    assert len(f"{'a' * 35}-{'1' * 12}-ap-northeast-1") <= 63


def test_an_unknown_folder_is_refused(stack: Stack) -> None:
    lifecycle = FolderLifecycle(noncurrent_days=1, tiering_days=30, storage_class=s3.StorageClass.INFREQUENT_ACCESS)
    with pytest.raises(ConstructError, match="lifecycles must name folders of the lake .* got: dataset"):
        DataLake(stack, "Lake", lifecycles={"dataset": lifecycle})


def linked_lake(stack: Stack, **options: Any) -> DataLake:
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)
    lake = DataLake(stack, "Lake", **options)
    file_system = LustreFileSystem(
        stack,
        "FileSystem",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
    )
    DataRepositoryAssociation(
        stack, "Link", file_system=file_system, file_system_path="/datasets", data_lake=lake, prefix="datasets/"
    )
    return lake


def test_a_linked_lake_refuses_cdk_event_notifications_and_says_what_to_do(stack: Stack) -> None:
    lake = linked_lake(stack)
    lake.bucket.add_event_notification(
        s3.EventType.OBJECT_CREATED, notifications.SnsDestination(sns.Topic(stack, "Topic"))
    )
    with pytest.raises(RuntimeError, match=r"MISCONFIGURED; add them to an imported bucket"):
        Template.from_stack(stack)


def test_a_linked_lake_refuses_event_bridge_and_native_notifications_too(stack: Stack) -> None:
    lake = linked_lake(stack)
    lake.bucket.enable_event_bridge_notification()
    assert lake.link_errors()
    other = DataLake(stack, "Other", bucket_name_prefix="other", linked_elsewhere=True)
    native = other.bucket.node.default_child
    assert isinstance(native, s3.CfnBucket)
    assert other.link_errors() == []
    native.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty()
    assert other.link_errors()


FREEZE = [s3.Transition(storage_class=s3.StorageClass.GLACIER, transition_after=Duration.days(90))]


def keep_to_the_vpc(lake: DataLake) -> None:
    assert lake.bucket.add_to_resource_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3:*"],
            resources=[lake.bucket.bucket_arn],
            conditions={"StringNotEquals": {"aws:SourceVpc": "vpc-1"}},
        )
    ).statement_added


def freeze_natively(lake: DataLake) -> None:
    bucket = lake.bucket.node.default_child
    assert isinstance(bucket, s3.CfnBucket)
    tier = s3.CfnBucket.TieringProperty(access_tier="DEEP_ARCHIVE_ACCESS", days=180)
    bucket.intelligent_tiering_configurations = [
        s3.CfnBucket.IntelligentTieringConfigurationProperty(id="a", status="Enabled", tierings=[tier])
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lake: lake.bucket.add_lifecycle_rule(transitions=FREEZE), "storage_class must not be GLACIER"),
        (
            lambda lake: lake.bucket.add_lifecycle_rule(prefix="datasets/a/", transitions=FREEZE),
            "GLACIER of datasets/a/",
        ),
        (freeze_natively, "storage_class must not be ARCHIVE_ACCESS or DEEP_ARCHIVE_ACCESS"),
        (keep_to_the_vpc, "the bucket policy must not depend on the caller's VPC"),
    ],
)
def test_a_linked_lake_refuses_at_synth_what_check_refuses(stack: Stack, change: Any, words: str) -> None:
    change(linked_lake(stack))
    with pytest.raises(RuntimeError, match=words):
        Template.from_stack(stack)


def test_what_touches_no_link_is_left_alone(stack: Stack) -> None:
    lake = linked_lake(stack)
    lake.bucket.add_lifecycle_rule(prefix="logs/", transitions=FREEZE)
    free = DataLake(stack, "Free", bucket_name_prefix="free")
    free.bucket.add_lifecycle_rule(transitions=FREEZE)
    keep_to_the_vpc(free)
    Template.from_stack(stack)


def test_a_lifecycle_of_a_linked_folder_to_glacier_is_refused(stack: Stack) -> None:
    frozen = FolderLifecycle(noncurrent_days=1, tiering_days=90, storage_class=s3.StorageClass.DEEP_ARCHIVE)
    lake = linked_lake(stack, lifecycles={"datasets": frozen})
    assert any("DEEP_ARCHIVE of datasets/" in error for error in lake.link_errors())
    other = DataLake(stack, "Other", bucket_name_prefix="other", lifecycles={"datasets": frozen})
    assert other.link_errors() == []


def test_a_lake_without_links_may_notify(stack: Stack) -> None:
    lake = DataLake(stack, "Lake")
    lake.bucket.add_event_notification(
        s3.EventType.OBJECT_CREATED, notifications.SnsDestination(sns.Topic(stack, "Topic"))
    )
    Template.from_stack(stack)


def test_the_way_round_leaves_the_linked_lake_alone(stack: Stack) -> None:
    lake = linked_lake(stack)
    imported = s3.Bucket.from_bucket_name(stack, "Imported", "training-data-lake-x")
    imported.add_event_notification(
        s3.EventType.OBJECT_CREATED, notifications.SnsDestination(sns.Topic(stack, "Topic"))
    )
    assert lake.link_errors() == []
    Template.from_stack(stack)


def role(scope: Stack) -> iam.Role:
    return iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def test_read_write_is_confined_to_its_prefixes(stack: Stack, resources: Callable[[Stack], Any]) -> None:
    lake = DataLake(stack, "Lake")
    lake.grant_read_write(role(stack), prefixes=["checkpoints/alpha/"])
    statements = resources(stack).statements()
    by_action = {json.dumps(s["Action"]): s for s in statements}
    listing = by_action['"s3:ListBucket"']
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["checkpoints/alpha/*"]}}
    objects = next(s for s in statements if "s3:PutObject" in s["Action"])
    assert json.dumps(objects["Resource"]).endswith('"/checkpoints/alpha/*"]]}')
    assert not [s for s in statements if "s3:DeleteObjectVersion" in s["Action"]]
    key = next(s for s in statements if "kms:Decrypt" in s["Action"])
    assert key["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]


def test_reading_grants_no_writing(stack: Stack, resources: Callable[[Stack], Any]) -> None:
    DataLake(stack, "Lake").grant_read(role(stack), prefixes=["datasets/"])
    actions = json.dumps([s["Action"] for s in resources(stack).statements()])
    assert "Put" not in actions
    assert "Delete" not in actions
    assert "GenerateDataKey" not in actions


def test_a_grant_in_another_stack_leaves_the_policies_of_the_lake_alone() -> None:
    app = App()
    home, job = (Stack(app, name, env=Environment(region="us-east-1")) for name in ("Home", "Job"))
    lake = DataLake(home, "Lake")
    before = Template.from_stack(home).to_json()["Resources"]
    app = App()
    home, job = (Stack(app, name, env=Environment(region="us-east-1")) for name in ("Home", "Job"))
    lake = DataLake(home, "Lake")
    lake.grant_read_write(role(job), prefixes=["models/"])
    assert Template.from_stack(home).to_json()["Resources"] == before


@pytest.mark.parametrize("prefix", ["datasets", "/datasets/", "*/", "datasets/*", "", "a//b/"])
def test_a_prefix_that_would_grant_more_than_a_folder_is_refused(stack: Stack, prefix: str) -> None:
    lake = DataLake(stack, "Lake")
    with pytest.raises(ConstructError, match="prefix must be a path that ends with a slash"):
        lake.grant_read(role(stack), prefixes=[prefix])


def test_granting_nothing_is_refused(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="prefixes must name at least one"):
        DataLake(stack, "Lake").grant_read(role(stack), prefixes=[])


def test_an_imported_lake_grants_by_identity_policy(stack: Stack, resources: Callable[[Stack], Any]) -> None:
    lake = ImportedDataLake(
        stack,
        "Lake",
        bucket_name="my-lake",
        encryption_key_arn=KEY_ARN,
    )
    lake.grant_read(role(stack), prefixes=["datasets/"])
    template = resources(stack)
    assert {r["Type"] for r in template.by_id.values()} == {"AWS::IAM::Role", "AWS::IAM::Policy"}
    assert "my-lake/datasets/*" in json.dumps(template.statements())


def test_a_bucket_with_dots_is_refused_as_a_lake(stack: Stack) -> None:
    with pytest.raises(ConstructError, match="bucket_name must be .* without dots, got: 'my.lake'"):
        ImportedDataLake(stack, "Lake", bucket_name="my.lake", encryption_key_arn=KEY_ARN)


@pytest.mark.parametrize("arn", ["alias/foo", "arn:aws:kms:us-east-1:111122223333:alias/foo", "1234abcd", ""])
def test_a_key_that_is_not_named_by_its_arn_is_refused(stack: Stack, arn: str) -> None:
    with pytest.raises(ConstructError, match=r"encryption_key_arn must be the ARN of a key .*not an alias, got: "):
        ImportedDataLake(stack, "Lake", bucket_name="my-lake", encryption_key_arn=arn)


def test_prefixes_as_one_text_are_refused_as_a_whole(stack: Stack) -> None:
    with pytest.raises(ConstructError, match=r"prefixes must be a list such as .*got: 'datasets/'"):
        DataLake(stack, "Lake").grant_read(role(stack), prefixes="datasets/")


def test_the_callers_key_encrypts_the_lake_and_lets_file_systems_in(
    stack: Stack, resources: Callable[[Stack], Any]
) -> None:
    key = kms.Key(stack, "Key")
    lake = DataLake(stack, "Lake", encryption_key=key)
    assert lake.encryption_key is key
    template = resources(stack)
    (name,) = template.of_type("AWS::KMS::Key")
    assert name in json.dumps(lake_bucket(template)["Properties"]["BucketEncryption"])
    statements = template.one("AWS::KMS::Key")["Properties"]["KeyPolicy"]["Statement"]
    assert "FSxForLustreThroughS3" in [statement.get("Sid") for statement in statements]


def test_an_imported_key_is_used_as_it_is_and_noted_when_the_lake_is_linked(stack: Stack) -> None:
    lake = DataLake(stack, "Lake", encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))
    pattern = Match.string_like_regexp("the policy of Test/Key must let linked file systems in")
    lake.mark_linked(prefix="datasets/")
    lake.mark_linked(prefix="logs/")
    assert len(Annotations.from_stack(stack).find_info("*", pattern)) == 1


def test_a_lake_of_this_app_needs_no_such_note(stack: Stack) -> None:
    linked_lake(stack)
    assert Annotations.from_stack(stack).find_info("*", Match.string_like_regexp("must let linked")) == []


@pytest.mark.parametrize(
    ("days", "message"),
    [
        ({"tiering_days": 7}, "tiering_days to STANDARD_IA must be a whole number, at least 30, got: 7; INTELLIGENT"),
        ({"tiering_days": -3}, "tiering_days to STANDARD_IA must be .* got: -3"),
        ({"noncurrent_days": 0}, "noncurrent_days must be a whole number, at least 1, got: 0"),
        ({"tiering_days": 0, "storage_class": s3.StorageClass.GLACIER}, "tiering_days must be .* at least 1, got: 0"),
        ({"tiering_days": 29, "storage_class": s3.StorageClass.ONE_ZONE_INFREQUENT_ACCESS}, "to ONEZONE_IA .* got: 29"),
    ],
)
def test_days_that_s3_refuses_are_refused_in_one_line(days: dict[str, Any], message: str) -> None:
    legal: dict[str, Any] = {
        "noncurrent_days": 1,
        "tiering_days": 30,
        "storage_class": s3.StorageClass.INFREQUENT_ACCESS,
    }
    FolderLifecycle(**legal)
    with pytest.raises(ConstructError, match=message):
        FolderLifecycle(**{**legal, **days})


def test_keeping_exports_takes_a_key_of_the_caller_only_where_it_can() -> None:
    stack = Stack(App(), "Lakes")
    imported = DataLake(stack, "A", bucket_name_prefix="aaa", encryption_key=kms.Key.from_key_arn(stack, "K", KEY_ARN))
    own = DataLake(stack, "B", bucket_name_prefix="bbb", encryption_key=kms.Key(stack, "Own"))
    for lake in (imported, own):
        lake.keep_exports()
    outputs = [key for key, output in Template.from_stack(stack).find_outputs("*").items() if "Export" in output]
    assert len(outputs) == 5


def test_a_shared_lake_exports_the_same_with_and_without_consumers() -> None:
    app = App()
    lakes = []
    for name in ("Used", "Unused"):
        lakes.append(DataLake(Stack(app, name), "Lake", bucket_name_prefix=name.lower()))
        lakes[-1].keep_exports()
    role = iam.Role(Stack(app, "Consumer"), "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    lakes[0].grant_read(role, prefixes=["datasets/"])
    used, unused = (
        {key for key, output in Template.from_stack(Stack.of(lake)).find_outputs("*").items() if "Export" in output}
        for lake in lakes
    )
    assert used == unused
    assert len(used) == 3
