"""Puts what CDK listed as assets where the templates look for it, in a local AWS that nobody bootstrapped."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from training_storage.testing.assembly import read_json

if TYPE_CHECKING:
    from training_storage.testing.local_aws import LocalAws

__all__ = ["ASSETS_BUCKET", "publish", "put", "written"]

#: Where the CDK CLI puts templates, by CDK's default.
ASSETS_BUCKET: Final = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"

_US_EAST_1: Final = "us-east-1"


def publish(manifest: Path, *, aws: LocalAws, region: str) -> list[str]:
    """Put the file assets of a list where the templates expect them; return what was not put, one line each.

    An object that is there is not put again: its key is the hash of its content. Images are not built.

    Parameters
    ----------
    manifest
        ``STACK.assets.json``.
    aws
        The local AWS.
    region
        Where assets go that name no Region.

    Raises
    ------
    ValueError
        For an asset that a command of the user makes; one line.
    """
    content = read_json(manifest)
    for name, asset in content.get("files", {}).items():
        source = asset["source"]
        if "path" not in source:
            raise ValueError(
                f"an asset must be a file or folder of the assembly, got: {name} of '{manifest}', which a command"
                " makes; deploy it with the CDK CLI"
            )
        for destination in asset["destinations"].values():
            place = written(str(destination.get("region", region)), region=region)
            bucket = written(destination["bucketName"], region=place)
            if not _stands(aws, bucket, destination["objectKey"], region=place):
                body = _content(manifest.parent / source["path"], packaging=source["packaging"])
                put(aws, bucket, destination["objectKey"], body, region=place)
    return [
        f"image {asset.get('displayName', name)}: not built, so what runs it cannot start"
        for name, asset in content.get("dockerImages", {}).items()
    ]


def written(text: str, *, region: str) -> str:
    """Return a text of an assembly with the placeholders of the local account filled in."""
    from training_storage.testing.local_aws.local_aws import ACCOUNT  # noqa: PLC0415 -- it imports boto3

    values = {"${AWS::AccountId}": ACCOUNT, "${AWS::Region}": region, "${AWS::Partition}": "aws"}
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text


def put(aws: LocalAws, bucket: str, key: str, body: bytes, *, region: str) -> None:
    """Put an object; the bucket is made if it is not there."""
    s3 = aws.client("s3", region_name=region)
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
        elsewhere = {} if region == _US_EAST_1 else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        s3.create_bucket(Bucket=bucket, **elsewhere)
        s3.put_object(Bucket=bucket, Key=key, Body=body)


def _stands(aws: LocalAws, bucket: str, key: str, *, region: str) -> bool:
    try:
        aws.client("s3", region_name=region).head_object(Bucket=bucket, Key=key)
    except ClientError:
        return False
    return True


def _content(source: Path, *, packaging: str) -> bytes:
    if packaging != "zip":
        return source.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        return Path(shutil.make_archive(str(Path(folder) / "asset"), "zip", source)).read_bytes()


def parameter_missing(aws: LocalAws, name: str, *, region: str) -> bool:
    """Whether Parameter Store has no such parameter."""
    found: dict[str, Any] = aws.client("ssm", region_name=region).get_parameters(Names=[name])
    return not found["Parameters"]
