"""A directory bucket that exists already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import Stack

from training_storage.directory_bucket_base import DirectoryBucketBase
from training_storage.planning import legality
from training_storage.planning.catalog.limits import express_naming
from training_storage.validation import ConstructError, is_token, require_same_region, say_unchecked

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms
    from constructs import Construct

__all__ = ["ImportedDirectoryBucket"]


class ImportedDirectoryBucket(DirectoryBucketBase):
    """A directory bucket that another app made; its policy and lifecycle are that app's.

    Parameters
    ----------
    scope, id
        Where in the construct tree; the bucket is in the Region and account of its stack.
    bucket_name
        Full name, such as shards--use1-az4--x-s3.
    zone_id
        Needed only where the name is known at deployment; otherwise it is read from the name.
    encryption_key
        Its KMS key, so that grants hold the key as well; none for S3-managed keys.

    Attributes
    ----------
    bucket_name, bucket_arn, zone_id, encryption_key
        As given, or made of the name.

    Raises
    ------
    ConstructError
        For a name that is not one of a directory bucket, or a key of another Region.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket_name: str,
        zone_id: str | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        zone = _zone(bucket_name, zone_id)
        require_same_region(scope, encryption_key, what="encryption_key")
        super().__init__(scope, id)
        if is_token(bucket_name):
            say_unchecked(self, ["bucket_name"])
        self.bucket_name = bucket_name
        self.zone_id = zone
        self.encryption_key = encryption_key
        self.bucket_arn = Stack.of(self).format_arn(service="s3express", resource="bucket", resource_name=bucket_name)


def _zone(bucket_name: str, zone_id: str | None) -> str:
    """Return the zone that is part of the name, or the one that was given where the name is not known."""
    if is_token(bucket_name):
        if zone_id is None:
            raise ConstructError("zone_id must be given where bucket_name is known only at deployment, got: none")
        return zone_id
    zone = legality.DirectoryBucket(name=bucket_name).named_zone()
    if zone is None:
        raise ConstructError(
            f"bucket_name must be a base name, a zone id and {express_naming().suffix}, such as"
            f" 'shards--use1-az4--x-s3', got: {bucket_name!r}"
        )
    if zone_id is not None and not is_token(zone_id) and zone_id != zone:
        raise ConstructError(f"zone_id must be {zone}, that of {bucket_name}, got: {zone_id!r}; leave it out")
    return zone
