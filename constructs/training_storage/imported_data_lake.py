"""A lake on a bucket that exists already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from training_storage.data_lake_base import DataLakeBase
from training_storage.planning.catalog.limits import express_naming
from training_storage.validation import ConstructError, is_token, require_match, require_same_region, say_unchecked

if TYPE_CHECKING:
    from constructs import Construct

__all__ = ["ImportedDataLake"]


class ImportedDataLake(DataLakeBase):
    """A lake on a bucket that exists already: one of another app, or one that this app makes elsewhere.

    Nothing is changed on bucket and key. The key policy must let FSx in before a file system is linked:
    `allow_file_systems_to_use_key` does so for a key that the app makes.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    bucket_name
        Name of the bucket; either this or `bucket`.
    encryption_key_arn
        ARN of its KMS key; either this or `encryption_key`.
    bucket
        The bucket, made in this app or imported.
    encryption_key
        Its KMS key; if left out, the key that `bucket` was made or imported with.

    Attributes
    ----------
    bucket, encryption_key
        As given, or imported by name and ARN.
    derived_bucket_name
        The bucket's name: as stated, if it is known at synth.

    Raises
    ------
    ConstructError
        For a name that cannot be linked, an alias instead of a key, a key of another Region, or none.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket_name: str | None = None,
        encryption_key_arn: str | None = None,
        bucket: s3.IBucket | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        _require_one(bucket_name, bucket, "bucket_name", "bucket")
        if encryption_key_arn is not None and encryption_key is not None:
            raise ConstructError("encryption_key_arn or encryption_key must be given, got: both; leave one out")
        key = encryption_key
        if key is None and encryption_key_arn is None and bucket is not None:
            key = bucket.encryption_key
        if key is None and encryption_key_arn is None:
            raise ConstructError(
                "encryption_key must be given unless the bucket was made or imported with one, got: none; a bucket"
                " without a KMS key can be linked by DataRepositoryAssociation(bucket=...), but is no lake"
            )
        _require_legal_name(_stated_name(bucket) if bucket else bucket_name)
        if encryption_key_arn is not None:
            _require_key_arn(encryption_key_arn, Stack.of(scope).region)
        require_same_region(scope, key, what="encryption_key")
        super().__init__(scope, id)
        self.encryption_key = key or kms.Key.from_key_arn(self, "Key", encryption_key_arn or "")
        self.bucket = bucket or s3.Bucket.from_bucket_attributes(
            self, "Bucket", bucket_name=bucket_name, encryption_key=self.encryption_key, region=Stack.of(self).region
        )
        self.derived_bucket_name = (_stated_name(bucket) if bucket else bucket_name) or self.bucket.bucket_name
        say_unchecked(
            self,
            [
                name
                for name, value in (("bucket_name", bucket_name), ("encryption_key_arn", encryption_key_arn))
                if is_token(value)
            ],
        )


def _require_one(name: object, thing: object, *words: str) -> None:
    if (name is None) == (thing is None):
        got = "neither" if name is None else "both"
        raise ConstructError(f"{' or '.join(words)} must be given, got: {got}; give one of them")


def _stated_name(bucket: s3.IBucket) -> str | None:
    """Return the name of a bucket, where it is known at synth; one made here may have been given a name."""
    if not is_token(bucket.bucket_name):
        return bucket.bucket_name
    made = bucket.node.default_child
    name = made.bucket_name if isinstance(made, s3.CfnBucket) else None
    return None if name is None or is_token(name) else name


def _require_legal_name(name: str | None) -> None:
    if name is None:
        return
    require_match(
        name,
        r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
        what="bucket_name",
        allowed="3 to 63 lowercase letters, digits and hyphens without dots",
        way_out="dots break TLS host names and checkpoint writers",
    )
    if name.endswith(express_naming().suffix):
        raise ConstructError(
            f"bucket_name must be a general purpose bucket, got: {name!r}, a directory bucket; file systems"
            " cannot be linked to those"
        )


def _require_key_arn(arn: str, stack_region: str) -> None:
    require_match(
        arn,
        r"arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+",
        what="encryption_key_arn",
        allowed="the ARN of a key such as arn:aws:kms:us-east-1:111122223333:key/1234abcd-…, not an alias",
    )
    if is_token(arn) or is_token(stack_region):
        return
    key_region = arn.split(":")[3]
    if key_region != stack_region:
        raise ConstructError(
            f"encryption_key_arn must be a key of {stack_region}, where the job runs, got: one of {key_region}"
        )
