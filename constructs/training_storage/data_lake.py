"""The data lake: one retained bucket that every training job shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aws_cdk import Aws, CfnResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from training_storage.data_lake_base import DataLakeBase
from training_storage.deletion_policy import warn_if_deleted
from training_storage.fsx_key_access import allow_file_systems_to_use_key
from training_storage.imported_data_lake import ImportedDataLake
from training_storage.linked_bucket import linked_bucket
from training_storage.planning.catalog.s3 import lifecycle_limits
from training_storage.planning.folders import LAKE_FOLDERS
from training_storage.validation import (
    ConstructError,
    claim_name,
    environment_difference,
    is_token,
    require_flags,
    require_integer,
    require_kinds,
    require_match,
    require_same_region,
)

if TYPE_CHECKING:
    from constructs import Construct, IConstruct

__all__ = ["DataLake", "DataLakeBase", "FolderLifecycle", "ImportedDataLake"]

# A bucket name has at most 63 characters; "-<12-digit account>-<Region>" takes 28 with the longest Region names.
_PREFIX_PATTERN = r"[a-z0-9][a-z0-9-]{1,33}[a-z0-9]"
_INFREQUENT_ACCESS = ("STANDARD_IA", "ONEZONE_IA")


@dataclass(frozen=True, kw_only=True)
class FolderLifecycle:
    """What happens to the objects of one folder over time.

    Parameters
    ----------
    noncurrent_days
        Days for which an overwritten or deleted version is kept; at least 1.
    tiering_days
        Days after which current versions move to `storage_class`; at least 1, and 30 for S3 Standard-IA and One
        Zone-IA (S3 user guide, transitioning objects).
    storage_class
        Where they move. S3 Glacier Flexible Retrieval and Deep Archive are for folders without a link: of a linked
        one the synth refuses them, because a file system lists such objects and fails to read them (FSx for Lustre
        guide, data repository event logs).

    Raises
    ------
    ConstructError
        For days that S3 refuses.
    """

    noncurrent_days: int
    tiering_days: int
    storage_class: s3.StorageClass

    def __post_init__(self) -> None:
        """Refuse what S3 would refuse when the bucket is made."""
        require_integer(self.noncurrent_days, what="noncurrent_days", minimum=1)
        name = str(self.storage_class.value)
        infrequent = name in _INFREQUENT_ACCESS
        require_integer(
            self.tiering_days,
            what=f"tiering_days to {name}" if infrequent else "tiering_days",
            minimum=lifecycle_limits().infrequent_access_days_minimum if infrequent else 1,
            way_out="INTELLIGENT_TIERING and GLACIER_INSTANT_RETRIEVAL take fewer" if infrequent else "",
        )


_ASSETS = FolderLifecycle(noncurrent_days=30, tiering_days=30, storage_class=s3.StorageClass.INTELLIGENT_TIERING)
_RECORDS = FolderLifecycle(noncurrent_days=30, tiering_days=90, storage_class=s3.StorageClass.INFREQUENT_ACCESS)
# Checkpoints are pruned and replaced all the time: kept for a month, their noncurrent versions would cost more than
# the file system.
_CHECKPOINTS = FolderLifecycle(noncurrent_days=1, tiering_days=30, storage_class=s3.StorageClass.INTELLIGENT_TIERING)

_LIFECYCLE_OF_FOLDER = {"checkpoints": _CHECKPOINTS, "logs": _RECORDS, "evaluations": _RECORDS}
# Kept through updates and deletion; only a creation that fails takes them away again, or the derived name would be
# taken for ever.
_KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
_INCOMPLETE_UPLOAD_DAYS = 7
_ACCESS_LOG_DAYS = 365


class DataLake(DataLakeBase):
    """One versioned, encrypted, private bucket for everything that outlives a training job.

    The bucket, its key and its access logs are retained when the stack goes. The name of the bucket is derived from
    `bucket_name_prefix`, account and Region, so that the key policy can name the bucket without a dependency cycle.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    bucket_name_prefix
        First part of the bucket name: 3 to 35 lowercase letters, digits and hyphens. The rest is account and Region.
    lifecycles
        Folder to `FolderLifecycle`; replaces the default of the folders it names.
    encryption_key
        KMS key of the bucket; a retained one with rotation is made if none is given. File systems are let in by its
        policy; the policy of an imported key must do so by itself (`allow_file_systems_to_use_key` shows what it
        needs).
    access_logs_bucket
        Bucket for the server access logs; a retained one is made if none is given. A bucket of the caller must let
        logging.s3.amazonaws.com write to it.
    linked_elsewhere
        True if another app links the lake to a file system, so that the guard against event notifications holds
        although no link is seen here.

    Attributes
    ----------
    bucket, encryption_key, access_logs_bucket
        What was made, or given.
    derived_bucket_name
        The bucket's name without a reference to this stack.

    Raises
    ------
    ConstructError
        For an illegal prefix, one that another lake has in the same account and Region, or an unknown folder.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket_name_prefix: str = "training-data-lake",
        lifecycles: dict[str, FolderLifecycle] | None = None,
        encryption_key: kms.IKey | None = None,
        access_logs_bucket: s3.IBucket | None = None,
        linked_elsewhere: bool = False,
    ) -> None:
        require_match(
            bucket_name_prefix,
            _PREFIX_PATTERN,
            what="bucket_name_prefix",
            allowed="3 to 35 lowercase letters, digits and inner hyphens, without dots",
        )
        if is_token(bucket_name_prefix):
            raise ConstructError(
                "bucket_name_prefix must be known at synth, got a token: the key policy names the bucket"
            )
        _require_lifecycles(lifecycles)
        unknown = sorted(set(lifecycles or {}) - set(LAKE_FOLDERS))
        if unknown:
            raise ConstructError(
                f"lifecycles must name folders of the lake ({', '.join(LAKE_FOLDERS)}), got: {', '.join(unknown)}"
            )
        require_flags(linked_elsewhere=linked_elsewhere)
        require_kinds(encryption_key=encryption_key, access_logs_bucket=access_logs_bucket)
        require_same_region(scope, encryption_key, what="encryption_key")
        require_same_region(scope, access_logs_bucket, what="access_logs_bucket")
        claim_name(
            scope,
            id,
            name=bucket_name_prefix,
            what="bucket_name_prefix",
            way_out="bucket names are derived from it, so give each lake of an account and Region its own",
        )
        super().__init__(scope, id)
        bucket_name = f"{bucket_name_prefix}-{Aws.ACCOUNT_ID}-{Aws.REGION}"
        self.derived_bucket_name = bucket_name
        self.encryption_key: kms.IKey = encryption_key or kms.Key(
            self,
            "Key",
            description=f"Data lake {bucket_name_prefix}",
            enable_key_rotation=True,
            removal_policy=_KEPT,
        )
        allow_file_systems_to_use_key(self.encryption_key, bucket_arns=[f"arn:{Aws.PARTITION}:s3:::{bucket_name}"])
        self.access_logs_bucket: s3.IBucket = access_logs_bucket or self._make_access_logs_bucket(bucket_name)
        self.bucket: s3.Bucket = s3.Bucket(
            self,
            "Bucket",
            bucket_name=bucket_name,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self.encryption_key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=True,
            removal_policy=_KEPT,
            lifecycle_rules=self._lifecycle_rules(lifecycles or {}),
        )
        # Set on the L1: what the L2 makes of an access-log bucket depends on the caller's feature flags.
        _resource_of(self.bucket).logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=self.access_logs_bucket.bucket_name, log_file_prefix="data-lake/"
        )
        self.bucket.node.add_dependency(self.access_logs_bucket)
        self._warn_of_deletion()
        links = linked_bucket(self.bucket, called="lake")
        if linked_elsewhere:
            links.mark(imports=True)

    def keep_exports(self) -> None:
        """Pin what other stacks of the app use of the lake as exports: the bucket's name and ARN, and the key's ARN.

        For a lake that several stacks share. CDK exports what stacks refer to today, no more and no less: taking a job
        out of the app would take away an export that its stack still uses, and CloudFormation would refuse the update
        of the lake's stack. A key that another stack makes is for that one to export, and an imported one for none.
        """
        stack, key = Stack.of(self), self.encryption_key
        values = [self.bucket.bucket_name, self.bucket.bucket_arn]
        if key.node.default_child is not None and Stack.of(key).node.path == stack.node.path:
            values.append(key.key_arn)
        for value in values:
            stack.export_value(value)

    def refuse_elsewhere(self, construct: IConstruct) -> None:
        """Refuse to be used in a stack of another account or Region: the derived name would be that of another bucket.

        Raises
        ------
        ConstructError
            If both are known and differ.
        """
        difference = environment_difference(self, construct)
        if difference is not None:
            what, here, there = difference
            raise ConstructError(
                f"data_lake must be in the {what} of the stack that uses it, {there}, got: {self.node.path} in"
                f" {here}; import it there by its name (ImportedDataLake)"
            )

    def _make_access_logs_bucket(self, source_bucket_name: str) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "AccessLogs",
            # Log delivery writes with S3-managed keys only.
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=_KEPT,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire",
                    expiration=Duration.days(_ACCESS_LOG_DAYS),
                    abort_incomplete_multipart_upload_after=Duration.days(_INCOMPLETE_UPLOAD_DAYS),
                )
            ],
        )
        bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="ServerAccessLogs",
                principals=[iam.ServicePrincipal("logging.s3.amazonaws.com")],
                actions=["s3:PutObject"],
                resources=[bucket.arn_for_objects("*")],
                conditions={
                    "ArnLike": {"aws:SourceArn": f"arn:{Aws.PARTITION}:s3:::{source_bucket_name}"},
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                },
            )
        )
        return bucket

    def _warn_of_deletion(self) -> None:
        """Warn where an aspect lets go what every job keeps its data in."""
        stays: list[object] = [self.bucket.node.default_child]
        if self.encryption_key.node.scope is self:
            stays.append(self.encryption_key.node.default_child)
        for resource in stays:
            if isinstance(resource, CfnResource):
                warn_if_deleted(resource)

    @staticmethod
    def _lifecycle_rules(overrides: dict[str, FolderLifecycle]) -> list[s3.LifecycleRule]:
        rules = [
            s3.LifecycleRule(
                id="incomplete-uploads",
                abort_incomplete_multipart_upload_after=Duration.days(_INCOMPLETE_UPLOAD_DAYS),
                expired_object_delete_marker=True,
            )
        ]
        for folder in LAKE_FOLDERS:
            lifecycle = overrides.get(folder) or _LIFECYCLE_OF_FOLDER.get(folder, _ASSETS)
            rules.append(
                s3.LifecycleRule(
                    id=folder,
                    prefix=f"{folder}/",
                    noncurrent_version_expiration=Duration.days(lifecycle.noncurrent_days),
                    transitions=[
                        s3.Transition(
                            storage_class=lifecycle.storage_class,
                            transition_after=Duration.days(lifecycle.tiering_days),
                        )
                    ],
                )
            )
        return rules


def _resource_of(bucket: s3.Bucket) -> s3.CfnBucket:
    """Return the L1 of a bucket that is made here."""
    resource = bucket.node.default_child
    if not isinstance(resource, s3.CfnBucket):
        raise ConstructError(f"a lake must be a bucket made by CDK, got: {bucket.node.path} without one")
    return resource


def _require_lifecycles(given: object) -> None:
    wrong = [] if given is None else [given]
    if isinstance(given, dict):
        wrong = [value for value in given.values() if not isinstance(value, FolderLifecycle)]
    if wrong:
        raise ConstructError(
            f"lifecycles must be a dict from folders to FolderLifecycle, got: {wrong[0]!r};"
            ' for example {"raw": FolderLifecycle(noncurrent_days=30, tiering_days=90, storage_class=…)}'
        )
