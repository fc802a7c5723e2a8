"""Empties a directory bucket, once its newest complete checkpoint is in the lake."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from training_storage.operations.archive import ARCHIVED, Archive
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, why
from training_storage.operations.express_copy import OutOfTimeError, abort_upload, unfinished_uploads
from training_storage.operations.retention import RetentionRule
from training_storage.planning.catalog.s3 import copy_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from training_storage.operations.archive_settings import ArchiveSettings, S3Place

#: Keys that are listed before the checkpoints are looked at again.
_ROUND: Final = 50_000


def empty(
    client: Any,  # noqa: ANN401 -- boto3 clients have no type
    settings: ArchiveSettings,
    source: S3Place,
    *,
    disposable: bool,
    out_of_time: Callable[[], bool],
) -> bool:
    """Bring the newest complete checkpoint into the lake, then abort uploads and delete all objects.

    Keys are listed before the checkpoints are looked at: what is written meanwhile is not deleted unseen, but in the
    next round, which looks again.

    Parameters
    ----------
    disposable
        Whether the checkpoints may be lost: then nothing is looked at or copied.

    Returns
    -------
    bool
        Whether the bucket is empty; False if the time is up, and the next call goes on.

    Raises
    ------
    ArchiveError
        If the newest complete checkpoint cannot be brought into the lake, or the bucket cannot be emptied. Nothing
        of it has been deleted in that round.
    """
    try:
        while True:
            uploads = unfinished_uploads(client, bucket=source.bucket, prefix="")
            keys = list(islice(_keys(client, source.bucket), _ROUND))
            if not keys and not uploads:
                return True
            if not disposable:
                _secure(client, settings, out_of_time)
            for key, left in uploads.items():
                for upload in left:
                    abort_upload(client, bucket=source.bucket, key=key, upload_id=upload["UploadId"])
            if not _delete(client, source.bucket, keys, out_of_time):
                return False
    except OutOfTimeError:
        return False
    except AWS_ERRORS as error:
        if code_of(error) == "NoSuchBucket":
            return True
        raise ArchiveError(
            f"{source.bucket} could not be emptied: {why(error, action='s3express:CreateSession')}"
        ) from error


def _secure(client: Any, settings: ArchiveSettings, out_of_time: Callable[[], bool]) -> None:  # noqa: ANN401
    """Bring the newest complete checkpoint into the lake, and look whether it is there."""
    archive = Archive(settings=settings, s3=client, rule=RetentionRule(), out_of_time=out_of_time)
    if archive.run(archive.plan()).unfinished:
        raise OutOfTimeError
    for choice in archive.plan().choices:
        if choice.state != ARCHIVED:
            raise ArchiveError(f"{choice.found.name} is not whole in the lake ({choice.state})")


def _keys(client: Any, bucket: str) -> Iterator[str]:  # noqa: ANN401
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for entry in page.get("Contents", []):
            yield entry["Key"]


def _delete(client: Any, bucket: str, keys: list[str], out_of_time: Callable[[], bool]) -> bool:  # noqa: ANN401
    most = copy_limits().delete_keys_maximum
    for start in range(0, len(keys), most):
        if out_of_time():
            return False
        objects = [{"Key": key} for key in keys[start : start + most]]
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        for refused in answer.get("Errors", []):
            raise ClientError({"Error": refused}, "DeleteObjects")
    return True
