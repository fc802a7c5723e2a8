"""The data lake: one retained bucket that every training job shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jsii
from aws_cdk import Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct, IValidation

from training_storage.acknowledgements import acknowledge_wildcards
from training_storage.planning import legality
from training_storage.planning.folders import LAKE_FOLDERS
from training_storage.validation import ConstructError, capitalized, is_token, require_match

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DataLake", "DataLakeBase", "FolderLifecycle", "ImportedDataLake"]

# A bucket name has at most 63 characters; "-<12-digit account>-<Region>" takes 28 with the longest Region names.
_PREFIX_PATTERN = r"[a-z0-9][a-z0-9-]{1,33}[a-z0-9]"

_LIST_ACTIONS = ["s3:ListBucket"]
_READ_ACTIONS = ["s3:GetObject", "s3:GetObjectAttributes", "s3:GetObjectVersion"]
_WRITE_ACTIONS = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListMultipartUploadParts", "s3:PutObject"]


@dataclass(frozen=True, kw_only=True)
class FolderLifecycle:
    """What happens to the objects of one folder over time.

    Parameters
    ----------
    noncurrent_days
        Days for which an overwritten or deleted version is kept.
    tiering_days
        Days after which current versions move to `storage_class`.
    storage_class
        Where they move: only classes that a linked file system can read. Metadata of objects in S3 Glacier Flexible
        Retrieval or Deep Archive can be imported, but reads fail (FSx for Lustre guide, data repository event logs).
    """

    noncurrent_days: int
    tiering_days: int
    storage_class: s3.StorageClass


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


class DataLakeBase(Construct):
    """What tiers and clusters need of a lake, whether this app makes it or somebody else did.

    Attributes
    ----------
    bucket
        The bucket.
    encryption_key
        Its KMS key.
    derived_bucket_name
        The bucket's name made of account and Region, without a reference to the lake's stack: for outputs, which must
        not pass on what another stack exports.
    """

    bucket: s3.IBucket
    encryption_key: kms.IKey
    derived_bucket_name: str

    def s3_uri(self, prefix: str = "") -> str:
        """Return `s3://bucket/prefix` with a reference to the bucket, so that what uses it waits for the lake."""
        return f"s3://{self.bucket.bucket_name}/{prefix}"

    def derived_s3_uri(self, prefix: str = "") -> str:
        """Return `s3://bucket/prefix` without a reference to the bucket."""
        return f"s3://{self.derived_bucket_name}/{prefix}"

    def mark_linked(self, *, prefix: str) -> None:
        """Note that a file system of this app is linked to `prefix`; an imported lake has nothing to guard."""

    def claim_job(self, name: str) -> None:
        """Reserve the folders of the job called `name`, so that no two jobs of an app write into the same ones.

        Raises
        ------
        ConstructError
            If another job of the app has the name.
        """
        jobs: set[str] = self.__dict__.setdefault("_jobs", set())
        if name in jobs:
            raise ConstructError(
                f"name must be another for every job on a lake, got: {name!r} twice; both would write under"
                f" checkpoints/{name}/. Give one a name of its own"
            )
        jobs.add(name)

    def grant_read(self, grantee: iam.IGrantable, *, prefixes: Sequence[str]) -> iam.Grant:
        """Let `grantee` list and read the objects under `prefixes` (each ends with a slash)."""
        return self._grant(grantee, prefixes=prefixes, actions=_READ_ACTIONS, key_actions=["kms:Decrypt"])

    def grant_read_write(self, grantee: iam.IGrantable, *, prefixes: Sequence[str]) -> iam.Grant:
        """Let `grantee` list, read, write and delete the objects under `prefixes` (each ends with a slash).

        A delete leaves a noncurrent version behind, which the folder's lifecycle removes later; deleting versions is
        not granted.
        """
        return self._grant(
            grantee,
            prefixes=prefixes,
            actions=[*_READ_ACTIONS, *_WRITE_ACTIONS],
            key_actions=["kms:Decrypt", "kms:GenerateDataKey"],
        )

    def grant_list_names(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` list the lake from its root: names of objects, never their content.

        Mountpoint for Amazon S3 lists the root when it mounts the whole bucket, and for `ls` on the mounted folder.
        """
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=_LIST_ACTIONS,
            resource_arns=[self.bucket.bucket_arn],
            conditions={"StringEquals": {"s3:prefix": ""}},
        )

    def grant_list_uploads(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` list multipart uploads that have not ended, as a copy does that goes on after a crash.

        S3 knows no condition on the prefix for this action; it names keys and reads nothing.
        """
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["s3:ListBucketMultipartUploads"], resource_arns=[self.bucket.bucket_arn]
        )

    def _grant(
        self, grantee: iam.IGrantable, *, prefixes: Sequence[str], actions: list[str], key_actions: list[str]
    ) -> iam.Grant:
        """Grant by identity policy only: a job never edits the policies of the lake that all jobs share."""
        if isinstance(prefixes, str):
            raise ConstructError(f"prefixes must be a list such as ['datasets/'], got: {prefixes!r}")
        if not prefixes:
            raise ConstructError(
                "prefixes must name at least one prefix of the lake, got: none; for example 'datasets/'"
            )
        for prefix in prefixes:
            require_match(
                prefix,
                r"([^/*?]+/)+",
                what="prefix",
                allowed="a path that ends with a slash and has no wildcard, such as 'datasets/'",
            )
        patterns = [f"{prefix}*" for prefix in prefixes]
        listing = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=_LIST_ACTIONS,
            resource_arns=[self.bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": patterns}},
        )
        object_arns = [self.bucket.arn_for_objects(pattern) for pattern in patterns]
        objects = iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=object_arns)
        acknowledge_wildcards(grantee, resources=object_arns, reason="The wildcard ends within the folders granted.")
        key = iam.Grant.add_to_principal(
            grantee=grantee, actions=key_actions, resource_arns=[self.encryption_key.key_arn]
        )
        return listing.combine(objects).combine(key)


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
    access_logs_bucket
        Bucket for the server access logs; a retained one is made if none is given. A bucket of the caller must let
        logging.s3.amazonaws.com write to it.
    linked_elsewhere
        True if another app links the lake to a file system, so that the guard against event notifications holds
        although no link is seen here.

    Raises
    ------
    ConstructError
        For an illegal prefix or an unknown folder.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket_name_prefix: str = "training-data-lake",
        lifecycles: dict[str, FolderLifecycle] | None = None,
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
        unknown = sorted(set(lifecycles or {}) - set(LAKE_FOLDERS))
        if unknown:
            raise ConstructError(
                f"lifecycles must name folders of the lake ({', '.join(LAKE_FOLDERS)}), got: {', '.join(unknown)}"
            )
        super().__init__(scope, id)
        self._linked = linked_elsewhere
        self._linked_prefixes: list[str] = []

        bucket_name = f"{bucket_name_prefix}-{Aws.ACCOUNT_ID}-{Aws.REGION}"
        self.derived_bucket_name = bucket_name
        self.encryption_key: kms.Key = kms.Key(
            self,
            "Key",
            description=f"Data lake {bucket_name_prefix}",
            enable_key_rotation=True,
            removal_policy=_KEPT,
        )
        self.encryption_key.add_to_resource_policy(self._let_fsx_use_the_key(bucket_name))
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
        self._cfn_bucket = self.bucket.node.default_child
        # Set on the L1: what the L2 makes of an access-log bucket depends on the caller's feature flags.
        self._cfn_bucket.logging_configuration = s3.CfnBucket.LoggingConfigurationProperty(  # type: ignore[union-attr]
            destination_bucket_name=self.access_logs_bucket.bucket_name, log_file_prefix="data-lake/"
        )
        self.bucket.node.add_dependency(self.access_logs_bucket)
        self.node.add_validation(_LinksHold(self))

    def mark_linked(self, *, prefix: str) -> None:
        """Note that a file system of this app is linked to `prefix` of the lake."""
        self._linked = True
        self._linked_prefixes.append(prefix)

    def link_errors(self) -> list[str]:
        """Return why the lifecycle, the policy or the notifications of a linked lake would break its links."""
        return [*self.notification_errors(), *self._rule_errors()] if self._linked else []

    def _rule_errors(self) -> list[str]:
        """Return what the rules of `training-storage check` find on the bucket as it stands at synth."""
        stack = Stack.of(self)
        # The only view of an L1 that holds what its L2 renders late; the getters fail on such values.
        rendered = self._cfn_bucket._cfn_properties  # type: ignore[union-attr] # noqa: SLF001 -- protected, for subclasses
        resolved = capitalized(stack.resolve(rendered))
        # Notifications are looked at by `notification_errors`, which sees those of CDK as well.
        facts = [legality.bucket_facts(self.node.path, resolved, prefixes=self._linked_prefixes)]
        if self.bucket.policy is not None:
            document = stack.resolve(self.bucket.policy.document)
            facts.append(legality.policy_facts(self.node.path, document))
        return [finding.message for fact in facts for finding in legality.check_linked_bucket(fact)]

    def notification_errors(self) -> list[str]:
        """Return why CDK notifications on a linked lake would break its links; empty if there are none."""
        if not self._linked:
            return []
        native = getattr(self._cfn_bucket, "notification_configuration", None)
        if native is None and self.bucket.node.try_find_child("Notifications") is None:
            return []
        return [
            (
                "the lake is linked to a file system, so CDK event notifications on its bucket are refused: they"
                " overwrite the notification configuration named 'FSx' and the links become MISCONFIGURED; add them to"
                " an imported bucket instead (aws_s3.Bucket.from_bucket_name in the consuming stack), which keeps"
                " foreign entries"
            )
        ]

    def _let_fsx_use_the_key(self, bucket_name: str) -> iam.PolicyStatement:
        """Let FSx in before its role exists.

        The service-linked role of a file system is made with the file system, so no policy can name it beforehand.
        With an S3 bucket key the encryption context is the bucket's ARN, without it the object's: both are allowed.
        Source: FSx for Lustre guide, create-dra-linked-data-repo and s3-server-side-encryption-support.
        """
        bucket_arn = f"arn:{Aws.PARTITION}:s3:::{bucket_name}"
        return iam.PolicyStatement(
            sid="FSxForLustreThroughS3",
            principals=[iam.AnyPrincipal()],
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            resources=["*"],
            conditions={
                "StringEquals": {
                    "kms:CallerAccount": Aws.ACCOUNT_ID,
                    "kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}",
                },
                "StringLike": {
                    "aws:userid": "*:FSx",
                    "kms:EncryptionContext:aws:s3:arn": [bucket_arn, f"{bucket_arn}/*"],
                },
            },
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


class ImportedDataLake(DataLakeBase):
    """A lake that exists already.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    bucket_name
        Name of the bucket.
    encryption_key_arn
        ARN of its KMS key. The key policy must let FSx in (see `DataLake`), which cannot be checked at synth.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket_name: str,
        encryption_key_arn: str,
    ) -> None:
        require_match(
            bucket_name,
            r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
            what="bucket_name",
            allowed="3 to 63 lowercase letters, digits and hyphens without dots",
            way_out="dots break TLS host names and checkpoint writers",
        )
        if bucket_name.endswith("--x-s3"):
            raise ConstructError(
                f"bucket_name must be a general purpose bucket, got: {bucket_name!r}, a directory bucket; file systems"
                " cannot be linked to those"
            )
        require_match(
            encryption_key_arn,
            r"arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
            what="encryption_key_arn",
            allowed="the ARN of a key such as arn:aws:kms:us-east-1:111122223333:key/1234abcd-…, not an alias",
        )
        key_region = encryption_key_arn.split(":")[3] if not is_token(encryption_key_arn) else None
        stack_region = Stack.of(scope).region
        if key_region is not None and not is_token(stack_region) and key_region != stack_region:
            raise ConstructError(
                f"encryption_key_arn must be a key of {stack_region}, where the job runs, got: one of {key_region}"
            )
        super().__init__(scope, id)
        self.derived_bucket_name = bucket_name
        self.encryption_key = kms.Key.from_key_arn(self, "Key", encryption_key_arn)
        self.bucket = s3.Bucket.from_bucket_attributes(
            self, "Bucket", bucket_name=bucket_name, encryption_key=self.encryption_key, region=Stack.of(self).region
        )


@jsii.implements(IValidation)
class _LinksHold:
    """Runs at synth, when every link, lifecycle rule, policy statement and notification of the app is known."""

    def __init__(self, lake: DataLake) -> None:
        self._lake = lake

    def validate(self) -> list[str]:
        return self._lake.link_errors()
