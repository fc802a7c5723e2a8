"""What tiers, links and clusters need of a data lake, and what it grants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructs import Construct

from training_storage.acknowledgements import acknowledge_wildcards
from training_storage.fsx_key_access import note_unknown_key_policy
from training_storage.identity_grants import grant_to
from training_storage.linked_bucket import linked_bucket
from training_storage.validation import ConstructError, require_match

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_s3 as s3
    from constructs import IConstruct

__all__ = ["DataLakeBase"]

_LIST_ACTIONS = ["s3:ListBucket"]
_READ_ACTIONS = ["s3:GetObject", "s3:GetObjectAttributes", "s3:GetObjectVersion"]
_WRITE_ACTIONS = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListMultipartUploadParts", "s3:PutObject"]


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
        """Note that a file system of this app is linked to `prefix`.

        From now on what would break the link fails at synth, as far as the bucket is made in this app: notifications
        that overwrite those of FSx, moves to classes that it cannot read, a policy that keeps it out.
        """
        linked_bucket(self.bucket, called="lake").add(prefix=prefix, imports=True)
        note_unknown_key_policy(self, self.encryption_key)

    def link_errors(self) -> list[str]:
        """Return why the lifecycle, the policy or the notifications of a linked lake would break its links."""
        return linked_bucket(self.bucket, called="lake").validate()

    def refuse_elsewhere(self, construct: IConstruct) -> None:
        """Refuse to be used by `construct` where the name of the bucket would be wrong; one that is stated never is."""

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
        return grant_to(
            grantee,
            actions=_LIST_ACTIONS,
            resource_arns=[self.bucket.bucket_arn],
            conditions={"StringEquals": {"s3:prefix": ""}},
        )

    def grant_list_uploads(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` list multipart uploads that have not ended, as a copy does that goes on after a crash.

        S3 knows no condition on the prefix for this action; it names keys and reads nothing.
        """
        return grant_to(grantee, actions=["s3:ListBucketMultipartUploads"], resource_arns=[self.bucket.bucket_arn])

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
        principal = grantee.grant_principal
        if isinstance(principal, Construct):
            self.refuse_elsewhere(principal)
        listing = grant_to(
            grantee,
            actions=_LIST_ACTIONS,
            resource_arns=[self.bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": patterns}},
        )
        object_arns = [self.bucket.arn_for_objects(pattern) for pattern in patterns]
        objects = grant_to(grantee, actions=actions, resource_arns=object_arns)
        acknowledge_wildcards(grantee, resources=object_arns, reason="The wildcard ends within the folders granted.")
        key = grant_to(grantee, actions=key_actions, resource_arns=[self.encryption_key.key_arn])
        return listing.combine(objects).combine(key)
