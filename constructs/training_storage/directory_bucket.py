"""An S3 Express One Zone directory bucket as a temporary hot tier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import CfnDeletionPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3express as s3express

from training_storage.directory_bucket_base import DirectoryBucketBase
from training_storage.planning import legality
from training_storage.planning.catalog.limits import express_naming
from training_storage.validation import (
    claim_name,
    is_token,
    known,
    refuse,
    region_of,
    require_kinds,
    require_same_region,
    say_unchecked,
)

if TYPE_CHECKING:
    from constructs import Construct

__all__ = ["DirectoryBucket"]

_INCOMPLETE_UPLOAD_DAYS = 1


class DirectoryBucket(DirectoryBucketBase):
    """A directory bucket in one zone, encrypted, TLS only, whose objects can expire.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    zone_id
        Availability Zone id such as use1-az4, never a zone name: names mean different zones in each account.
    base_name
        First part of the name; `--<zone id>--x-s3` is appended. CloudFormation makes a name if none is given.
    encryption_key
        KMS key for SSE-KMS, fixed for the bucket's lifetime, never an alias; S3-managed keys if none is given.
    expiration_days
        Days after which objects are deleted; None keeps them. S3 Express has no tiering and no versions: what must
        last belongs into the lake.

    Attributes
    ----------
    bucket_name, bucket_arn
        Known at deployment.
    zone_id, encryption_key
        As given.
    policy, policy_document
        The bucket's policy, and what stands in it; `add_to_resource_policy` adds to it.

    Raises
    ------
    ConstructError
        For a zone name, a bucket name that S3 Express would refuse or that another directory bucket of the app has, or
        a key of another Region.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        zone_id: str,
        base_name: str | None = None,
        encryption_key: kms.IKey | None = None,
        expiration_days: int | None = None,
    ) -> None:
        require_kinds(encryption_key=encryption_key)
        spec = legality.DirectoryBucket(
            name=known(base_name),
            base_only=True,
            zone_id=known(zone_id),
            redundancy="SingleAvailabilityZone",
            algorithm="aws:kms" if encryption_key else "AES256",
            kms_key=None if encryption_key is None else _key_name(encryption_key),
            expires=True,
            expiration_days=known(expiration_days),
            lifecycle_granted=True,
            region=region_of(scope),
        )
        refuse(legality.check_directory_bucket(spec))
        require_same_region(scope, encryption_key, what="encryption_key")
        if base_name is not None:
            claim_name(
                scope,
                id,
                name=_full_name(base_name, zone_id),
                what="base_name",
                way_out="leave it out, and CloudFormation makes a name",
            )
        super().__init__(scope, id)
        # A key is always a token, and nothing about it is checked.
        unknown = [name for name in spec.unknown_fields() if name != "kms_key"]
        say_unchecked(self, unknown, parameters={"name": "base_name"})
        self.zone_id: str = zone_id
        self.encryption_key: kms.IKey | None = encryption_key

        self._resource = s3express.CfnDirectoryBucket(
            self,
            "Resource",
            bucket_name=None if base_name is None else _full_name(base_name, zone_id),
            location_name=zone_id,
            data_redundancy="SingleAvailabilityZone",
            bucket_encryption=_encryption(encryption_key),
            lifecycle_configuration=s3express.CfnDirectoryBucket.LifecycleConfigurationProperty(
                rules=_lifecycle_rules(expiration_days)
            ),
        )
        # CloudFormation cannot delete a bucket that holds objects, so deleting the stack never deletes data here.
        self._resource.cfn_options.deletion_policy = CfnDeletionPolicy.DELETE
        self._resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
        self.bucket_name: str = self._resource.ref
        self.bucket_arn: str = self._resource.attr_arn
        self.policy_document: iam.PolicyDocument = self._policy_document()
        self.policy = s3express.CfnBucketPolicy(
            self, "Policy", bucket=self.bucket_name, policy_document=self.policy_document
        )

    @property
    def resource(self) -> s3express.CfnDirectoryBucket:
        """The L1 resource."""
        return self._resource

    def add_to_resource_policy(self, statement: iam.PolicyStatement) -> None:
        """Add a statement to the bucket's policy, such as one that keeps callers to a VPC endpoint.

        Policies of directory buckets work on the bucket, never on its objects, and know `s3express:` actions only.
        """
        self.policy_document.add_statements(statement)

    def _policy_document(self) -> iam.PolicyDocument:
        return iam.PolicyDocument(
            statements=[
                iam.PolicyStatement(
                    sid="TlsOnly",
                    effect=iam.Effect.DENY,
                    principals=[iam.AnyPrincipal()],
                    actions=["s3express:*"],
                    resources=[self.bucket_arn],
                    conditions={"Bool": {"aws:SecureTransport": "false"}},
                ),
                # Without this grant lifecycle rules never run, and nothing says so.
                iam.PolicyStatement(
                    sid="LifecycleExpiration",
                    principals=[iam.ServicePrincipal("lifecycle.s3.amazonaws.com")],
                    actions=["s3express:CreateSession"],
                    resources=[self.bucket_arn],
                    conditions={"StringEquals": {"s3express:SessionMode": "ReadWrite"}},
                ),
            ]
        )


def _key_name(key: kms.IKey) -> str | legality.Unknown:
    """Return how the rules see a key: an alias by its name, since S3 Express takes none; a key is always a token."""
    if isinstance(key, kms.Alias) or ":alias/" in key.key_arn:
        name = key.key_arn.rpartition(":alias/")[2]
        return "alias/…" if is_token(name) else f"alias/{name}"
    return legality.UNKNOWN


def _full_name(base_name: str, zone_id: str) -> str:
    return f"{base_name}--{zone_id}{express_naming().suffix}"


def _encryption(key: kms.IKey | None) -> s3express.CfnDirectoryBucket.BucketEncryptionProperty:
    properties = s3express.CfnDirectoryBucket
    return properties.BucketEncryptionProperty(
        server_side_encryption_configuration=[
            properties.ServerSideEncryptionRuleProperty(
                # Always on for SSE-KMS in directory buckets.
                bucket_key_enabled=True if key else None,
                server_side_encryption_by_default=properties.ServerSideEncryptionByDefaultProperty(
                    sse_algorithm="aws:kms" if key else "AES256",
                    kms_master_key_id=key.key_arn if key else None,
                ),
            )
        ]
    )


def _lifecycle_rules(expiration_days: int | None) -> list[s3express.CfnDirectoryBucket.RuleProperty]:
    properties = s3express.CfnDirectoryBucket
    rules = [
        properties.RuleProperty(
            id="incomplete-uploads",
            status="Enabled",
            abort_incomplete_multipart_upload=properties.AbortIncompleteMultipartUploadProperty(
                days_after_initiation=_INCOMPLETE_UPLOAD_DAYS
            ),
        )
    ]
    if expiration_days is not None:
        rules.append(properties.RuleProperty(id="expire", status="Enabled", expiration_in_days=expiration_days))
    return rules
