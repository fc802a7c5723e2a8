"""The directory bucket: named as S3 Express demands, expiring for real, granted by session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aws_cdk import CfnParameter, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk.assertions import Annotations, Match, Template

from training_storage import ConstructError, DirectoryBucket
from training_storage.planning.legality import check_template

if TYPE_CHECKING:
    from collections.abc import Callable

    Synthesize = Callable[[Stack], Any]

KIND = "AWS::S3Express::DirectoryBucket"


def role(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def test_it_stands_in_the_zone_named_by_id(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4")
    properties = resources(stack).one(KIND)["Properties"]
    assert properties["LocationName"] == "use1-az4"
    assert properties["DataRedundancy"] == "SingleAvailabilityZone"
    assert "BucketName" not in properties


@pytest.mark.parametrize("zone", ["us-east-1a", "use1", "use1-az", "USE1-AZ4", ""])
def test_a_zone_name_is_refused_and_the_way_to_the_id_is_shown(stack: Stack, zone: str) -> None:
    with pytest.raises(ConstructError, match=r"zone_id must be an Availability Zone id .*describe-availability-zones"):
        DirectoryBucket(stack, "Hot", zone_id=zone)


def test_a_base_name_gets_the_suffix_of_its_zone(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4", base_name="shards")
    assert resources(stack).one(KIND)["Properties"]["BucketName"] == "shards--use1-az4--x-s3"


@pytest.mark.parametrize(
    "name", ["My", "a.b", "-a", "a-", "", "xn--a", "mybucket--use1-az4--x-s3", "a" * 48, "under_score"]
)
def test_a_base_name_that_s3_express_refuses_is_refused(stack: Stack, name: str) -> None:
    with pytest.raises(ConstructError, match="base_name must"):
        DirectoryBucket(stack, "Hot", zone_id="use1-az4", base_name=name)


def test_the_longest_legal_base_name_fills_63_characters(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4", base_name="a" * 47)
    assert len(resources(stack).one(KIND)["Properties"]["BucketName"]) == 63


def test_lifecycle_may_open_the_session_without_which_nothing_expires(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4", expiration_days=3)
    template = resources(stack)
    statement = next(s for s in template.statements("AWS::S3Express::BucketPolicy") if s["Effect"] == "Allow")
    assert statement["Principal"] == {"Service": "lifecycle.s3.amazonaws.com"}
    assert statement["Action"] == "s3express:CreateSession"
    assert statement["Condition"] == {"StringEquals": {"s3express:SessionMode": "ReadWrite"}}
    rules = template.one(KIND)["Properties"]["LifecycleConfiguration"]["Rules"]
    assert {"Id": "expire", "Status": "Enabled", "ExpirationInDays": 3} in rules


def test_incomplete_uploads_are_aborted_even_when_objects_stay(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4")
    rules = resources(stack).one(KIND)["Properties"]["LifecycleConfiguration"]["Rules"]
    assert [list(rule) for rule in rules] == [["AbortIncompleteMultipartUpload", "Id", "Status"]]


@pytest.mark.parametrize("days", [0, -1, True, 1.5])
def test_an_expiry_of_less_than_a_day_is_refused(stack: Stack, days: Any) -> None:
    with pytest.raises(ConstructError, match="expiration_days must be a whole number, at least 1"):
        DirectoryBucket(stack, "Hot", zone_id="use1-az4", expiration_days=days)


def test_requests_without_tls_are_denied(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4")
    denied = next(s for s in resources(stack).statements("AWS::S3Express::BucketPolicy") if s["Effect"] == "Deny")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert denied["Action"] == "s3express:*"


def test_a_key_is_named_by_arn_with_its_bucket_key_on(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4", encryption_key=kms.Key(stack, "Key"))
    rule = resources(stack).one(KIND)["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    assert rule["BucketKeyEnabled"] is True
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert '"Arn"' in json.dumps(rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"])


def test_without_a_key_s3_manages_the_keys(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4")
    rule = resources(stack).one(KIND)["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    assert rule == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}


def test_access_is_by_session_on_the_bucket_never_by_s3_arn(stack: Stack, resources: Synthesize) -> None:
    bucket = DirectoryBucket(stack, "Hot", zone_id="use1-az4", encryption_key=kms.Key(stack, "Key"))
    bucket.grant_read_write(role(stack))
    statements = resources(stack).statements()
    session = next(s for s in statements if s["Action"] == "s3express:CreateSession")
    assert "Condition" not in session
    assert session["Resource"]["Fn::GetAtt"][1] == "Arn"
    assert ["kms:Decrypt", "kms:GenerateDataKey"] in [s["Action"] for s in statements]


def test_reading_opens_read_only_sessions(stack: Stack, resources: Synthesize) -> None:
    DirectoryBucket(stack, "Hot", zone_id="use1-az4").grant_read(role(stack))
    session = resources(stack).statements()[0]
    assert session["Condition"] == {"StringEquals": {"s3express:SessionMode": "ReadOnly"}}


@pytest.mark.parametrize("zone", ["use1-az1", "use1-az2", "use1-az3", "usw2-az1"])
def test_a_zone_without_s3_express_is_refused_and_the_ones_with_it_are_named(stack: Stack, zone: str) -> None:
    with pytest.raises(ConstructError, match="zone_id in us-east-1 must be one of use1-az4, use1-az5, use1-az6, got"):
        DirectoryBucket(stack, "Hot", zone_id=zone)


def test_a_region_without_s3_express_is_refused() -> None:
    frankfurt = Stack(None, "Frankfurt", env=Environment(region="eu-central-1"))
    with pytest.raises(ConstructError, match="the Region has no S3 Express"):
        DirectoryBucket(frankfurt, "Hot", zone_id="euc1-az1")


def test_a_zone_known_only_at_deployment_passes_and_is_noted(stack: Stack) -> None:
    DirectoryBucket(stack, "Hot", zone_id=CfnParameter(stack, "Zone").value_as_string)
    notes = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp("not checked at synth: zone_id"))
    assert len(notes) == 1


def test_an_alias_is_refused_as_a_key(stack: Stack) -> None:
    key = kms.Key(stack, "Key")
    named = CfnParameter(stack, "Name")
    for alias in (
        key.add_alias("alias/hot"),
        kms.Alias(stack, "Own", alias_name="alias/own", target_key=key),
        kms.Alias(stack, "Token", alias_name=named.value_as_string, target_key=key),
        kms.Alias.from_alias_name(stack, "There", "alias/there"),
    ):
        with pytest.raises(ConstructError, match="encryption_key must be the ARN or the id of a key, not an alias"):
            DirectoryBucket(stack, "Hot", zone_id="use1-az4", encryption_key=alias)


def test_a_zone_known_at_deployment_passes_the_rules_for_templates(stack: Stack, resources: Synthesize) -> None:
    zone = CfnParameter(stack, "Zone").value_as_string
    DirectoryBucket(stack, "Hot", zone_id=zone, base_name="data")
    resources(stack)
    template = Template.from_stack(stack).to_json()
    assert check_template(template, region="us-east-1").findings == ()


def test_the_caller_may_narrow_the_policy_of_the_bucket(stack: Stack, resources: Synthesize) -> None:
    bucket = DirectoryBucket(stack, "Hot", zone_id="use1-az4")
    bucket.add_to_resource_policy(
        iam.PolicyStatement(
            sid="OurEndpointOnly",
            effect=iam.Effect.DENY,
            principals=[iam.AnyPrincipal()],
            actions=["s3express:CreateSession"],
            resources=[bucket.bucket_arn],
            conditions={"StringNotEquals": {"aws:SourceVpce": "vpce-0123456789abcdef0"}},
        )
    )
    statements = resources(stack).statements("AWS::S3Express::BucketPolicy")
    assert [statement["Sid"] for statement in statements] == ["TlsOnly", "LifecycleExpiration", "OurEndpointOnly"]
    assert stack.resolve(bucket.policy.ref) == {"Ref": stack.get_logical_id(bucket.policy)}
