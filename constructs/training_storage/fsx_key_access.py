"""What the policy of a KMS key needs, so that linked file systems can read and write a bucket encrypted with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Annotations, Aws
from aws_cdk import aws_iam as iam

from training_storage.validation import remember, remembered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_kms as kms
    from constructs import IConstruct

__all__ = ["allow_file_systems_to_use_key", "note_unknown_key_policy"]

_FACT = "lets file systems in:"


def allow_file_systems_to_use_key(key: kms.IKey, *, bucket_arns: Sequence[str] = ()) -> bool:
    """Let linked file systems of the account use `key` for objects in S3, before their roles exist.

    The service-linked role of a file system is made with its link, so no policy can name it beforehand. With an S3
    bucket key the encryption context is the bucket's ARN, without it the object's: both are allowed.
    Source: FSx for Lustre guide, create-dra-linked-data-repo and s3-server-side-encryption-support.

    Parameters
    ----------
    key
        The key of the bucket.
    bucket_arns
        Confine it to objects of these buckets. Give no ARN of a bucket that is encrypted with the key and made in the
        same stack: the two would wait for each other.

    Returns
    -------
    bool
        Whether the policy was changed: that of an imported key cannot be.
    """
    conditions: dict[str, dict[str, object]] = {
        "StringEquals": {
            "kms:CallerAccount": Aws.ACCOUNT_ID,
            "kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}",
        },
        "StringLike": {"aws:userid": "*:FSx"},
    }
    if bucket_arns:
        contexts = [context for arn in bucket_arns for context in (arn, f"{arn}/*")]
        conditions["StringLike"]["kms:EncryptionContext:aws:s3:arn"] = contexts
    added = key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="FSxForLustreThroughS3",
            principals=[iam.AnyPrincipal()],
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            resources=["*"],
            conditions=conditions,
        )
    )
    if added.statement_added:
        remember(key, f"{_FACT} {key.node.path}", "yes")
    return added.statement_added


def note_unknown_key_policy(scope: IConstruct, key: kms.IKey) -> None:
    """Note once on `scope` that the policy of `key` must let file systems in, unless it was seen to."""
    if remembered(key, f"{_FACT} {key.node.path}") is None:
        Annotations.of(scope).add_info_v2(
            "training-storage:key-policy",
            f"not checked at synth: the policy of {key.node.path} must let linked file systems in"
            " (allow_file_systems_to_use_key does so for a key of this app), or the link becomes MISCONFIGURED",
        )
