"""Empties a directory bucket, once its newest complete checkpoint is in the lake and nothing else would be lost."""

from __future__ import annotations

import datetime as dt
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from training_storage.operations.archive import ARCHIVED, Archive
from training_storage.operations.archive_error import ArchiveError
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, why
from training_storage.operations.express_copy import OutOfTimeError, abort_upload, unfinished_uploads
from training_storage.operations.express_survey import Entry, Survey, entries
from training_storage.operations.retention import RetentionRule
from training_storage.planning.catalog.s3 import copy_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from training_storage.operations.archive_settings import ArchiveSettings, S3Place
    from training_storage.operations.checkpoint_listing import Listing

#: Keys that are listed before the checkpoints are looked at again.
_ROUND: Final = 50_000
#: How far S3's clock and this one may differ.
_SKEW: Final = dt.timedelta(minutes=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def empty(
    client: Any,  # noqa: ANN401 -- boto3 clients have no type
    settings: ArchiveSettings,
    source: S3Place,
    *,
    disposable: bool,
    out_of_time: Callable[[], bool],
) -> bool:
    """Bring the newest complete checkpoint into the lake, look what else would be lost, then delete all objects.

    All of the bucket is looked at before anything is deleted. Keys are listed before the checkpoints are looked at:
    what is written meanwhile is not deleted unseen, but in the next round, which looks again.

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
        If the newest complete checkpoint cannot be brought into the lake, something else would be lost, or the bucket
        cannot be emptied. Nothing that the lake lacks has been deleted.
    """
    try:
        if disposable:
            return _clear(client, source, out_of_time)
        guard = _Guard(client, settings, source, out_of_time)
        if next(entries(client, source.bucket), None) is not None:
            guard.look_at_everything()
        # The newest goes last: as long as it is there, it tells what is superfluous.
        return _clear(client, source, out_of_time, look=guard.look, spared=guard.newest) and _clear(
            client, source, out_of_time, look=guard.look
        )
    except OutOfTimeError:
        return False
    except AWS_ERRORS as error:
        if code_of(error) == "NoSuchBucket":
            return True
        raise ArchiveError(
            f"{source.bucket} could not be emptied: {why(error, action='s3express:CreateSession')}"
        ) from error


class _Guard:
    """Looks at what is about to be deleted."""

    def __init__(
        self,
        client: Any,  # noqa: ANN401
        settings: ArchiveSettings,
        source: S3Place,
        out_of_time: Callable[[], bool],
    ) -> None:
        self._client = client
        self._settings = settings
        self._source = source
        self._out_of_time = out_of_time
        #: Prefixes of the checkpoints that are in the lake.
        self.newest: tuple[str, ...] = ()
        #: What is older was looked at already.
        self._seen_until = _EPOCH

    def look_at_everything(self) -> None:
        """Look at all of the bucket, before anything of it is deleted."""
        began = dt.datetime.now(tz=dt.UTC) - _SKEW
        self.look(entries(self._client, self._source.bucket))
        self._seen_until = began

    def look(self, found: Iterable[Entry]) -> None:
        """Bring the newest into the lake, and refuse if something of `found` would be lost nevertheless."""
        survey = Survey(
            self._client,
            source=self._source,
            lake=self._settings.lake,
            listing=self._secure(),
            out_of_time=self._out_of_time,
        )
        lost = survey.lost(entry for entry in found if entry.modified_at >= self._seen_until)
        if lost:
            raise ArchiveError(
                f"it would lose {', '.join(lost)} (and what is like them): the lake has no such object, and no newer "
                "complete checkpoint makes it superfluous. Copy it to the same key of the lake, or remove it: aws s3 "
                f"rm {self._removable(lost[0])}; or deploy with checkpoints_disposable=true"
            )

    def _removable(self, key: str) -> str:
        """Return the object, or the whole checkpoint that it is of, as ``aws s3 rm`` takes it."""
        prefix = self._source.prefix
        folder, slash, _ = key.removeprefix(prefix).partition("/") if key.startswith(prefix) else ("", "", "")
        return f"--recursive {self._source.uri}{folder}/" if slash else f"s3://{self._source.bucket}/{key}"

    def _secure(self) -> Listing:
        """Bring the newest complete checkpoint into the lake, see that it is there, and return what the source has."""
        archive = Archive(settings=self._settings, s3=self._client, rule=RetentionRule(), out_of_time=self._out_of_time)
        if archive.run(archive.plan()).unfinished:
            raise OutOfTimeError
        plan = archive.plan()
        for choice in plan.choices:
            if choice.state != ARCHIVED:
                raise ArchiveError(f"{choice.found.name} is not whole in the lake ({choice.state})")
        self.newest = tuple(f"{self._source.prefix}{choice.found.name}/" for choice in plan.choices)
        return plan.source


def _clear(
    client: Any,  # noqa: ANN401
    source: S3Place,
    out_of_time: Callable[[], bool],
    *,
    look: Callable[[Sequence[Entry]], None] = lambda _: None,
    spared: tuple[str, ...] = (),
) -> bool:
    """Delete what does not begin with `spared`, in rounds, each after a `look`; return whether all is gone."""
    while True:
        uploads = unfinished_uploads(client, bucket=source.bucket, prefix="")
        every = entries(client, source.bucket)
        found = list(islice((entry for entry in every if not entry.key.startswith(spared)), _ROUND))
        if not found and not uploads:
            return True
        look(found)
        for key, left in uploads.items():
            for upload in left:
                abort_upload(client, bucket=source.bucket, key=key, upload_id=upload["UploadId"])
        if not _delete(client, source.bucket, [entry.key for entry in found], out_of_time):
            return False


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
