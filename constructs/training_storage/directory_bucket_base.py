"""What archives, gates and nodes need of a directory bucket, and what it grants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constructs import Construct

from training_storage.identity_grants import grant_to

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_kms as kms

__all__ = ["DirectoryBucketBase"]


class DirectoryBucketBase(Construct):
    """A directory bucket, whether this app makes it or somebody else did. CDK has no interface for one.

    Attributes
    ----------
    bucket_name, bucket_arn
        Its full name, with zone and suffix, and its ARN.
    zone_id
        Availability Zone id.
    encryption_key
        Its KMS key; None for S3-managed keys.
    """

    bucket_name: str
    bucket_arn: str
    zone_id: str
    encryption_key: kms.IKey | None

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` open read-only sessions (policies of directory buckets work on the bucket, not on objects)."""
        return self._grant(grantee, key_actions=["kms:Decrypt"], session_mode="ReadOnly")

    def grant_read_write(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` open read-write sessions."""
        return self._grant(grantee, key_actions=["kms:Decrypt", "kms:GenerateDataKey"], session_mode=None)

    def _grant(self, grantee: iam.IGrantable, *, key_actions: list[str], session_mode: str | None) -> iam.Grant:
        session = grant_to(
            grantee,
            actions=["s3express:CreateSession"],
            resource_arns=[self.bucket_arn],
            conditions={"StringEquals": {"s3express:SessionMode": session_mode}} if session_mode else None,
        )
        if self.encryption_key is None:
            return session
        return session.combine(grant_to(grantee, actions=key_actions, resource_arns=[self.encryption_key.key_arn]))
