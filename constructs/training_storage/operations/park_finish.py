"""Finishes file systems that no state machine can: their stack is gone, has lost them, or could not be deleted."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from training_storage.operations.final_export import tags
from training_storage.operations.final_export.calls import Calls
from training_storage.operations.final_export.gate import Attempt, Gate, Link
from training_storage.operations.final_export.metrics import Metrics
from training_storage.operations.final_export.refusal import NotFoundError, NotNowError, RefusalError
from training_storage.operations.final_export.report import Reports
from training_storage.operations.park_error import ParkError
from training_storage.operations.park_export import attempt_to_follow, fresh_attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from training_storage.operations.final_export.calls import Record

#: No limit for practical purposes: whoever waits here can stop waiting.
_LONGEST = dt.timedelta(days=30)


class Finisher:
    """Exports, compares and deletes file systems with the caller's rights and the gate's logic.

    Parameters
    ----------
    client
        From a service's name to its boto3 client.
    clock
        Returns the present time, with a time zone.
    pause
        Waits until the next look.
    say
        Shows what is waited for.
    metric_period_seconds
        Length of the periods of FSx's metrics.
    """

    def __init__(
        self,
        *,
        client: Callable[[str], Any],
        clock: Callable[[], dt.datetime],
        pause: Callable[[], None],
        say: Callable[[str, str], None],
        metric_period_seconds: int,
    ) -> None:
        self._calls = Calls(fsx=client("fsx"), s3=client("s3"), cloudformation=client("cloudformation"))
        self._metrics = Metrics(cloudwatch=client("cloudwatch"), clock=clock, period_seconds=metric_period_seconds)
        self._clock = clock
        self._pause = pause
        self._say = say

    def finish(self, file_system_id: str) -> None:
        """Return when the file system is gone and its data in the lake.

        Raises
        ------
        ParkError
            With the reason of the gate; file system and links stand.
        """
        try:
            prepared = self._repeat(lambda: self._prepare(file_system_id))
            if prepared is None:
                return
            gate, attempt = prepared
            while (waiting := gate.advance(file_system_id, attempt)) is not None:
                self._say("Export", waiting.what)
                self._pause()
        except RefusalError as error:
            raise ParkError(str(error)) from error

    def _repeat(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it returns
        while True:
            try:
                return call()
            except NotNowError as error:
                self._say("Export", f"waiting for AWS: {error}")
                self._pause()

    def _prepare(self, file_system_id: str) -> tuple[Gate, Attempt] | None:
        try:
            system = self._calls.file_system(file_system_id)
        except NotFoundError:
            return None
        if system is None:
            return None
        links = self._calls.links(file_system_id)
        expected = _expected(system, links)
        if not links and not expected and system["Lifecycle"] != "DELETING":
            written = self._metrics.written_ever(file_system_id, created=system["CreationTime"])
            if written.size != 0:
                raise ParkError(
                    f"{file_system_id} has no link to the lake, so nothing of it can be exported, and clients may have"
                    " written to it. Link its directories ('aws fsx create-data-repository-association') and run it"
                    " again, or delete it yourself"
                )
        began = self._clock()
        fresh = fresh_attempt(f"{file_system_id} {began.isoformat()}")
        attempt = Attempt(
            id=attempt_to_follow(self._calls, self._metrics, file_system_id, fresh=fresh, now=began),
            began=began,
            deadline=began + _LONGEST,
            gate=tags.of(system).get(tags.GATE, "park"),
            stack_name=tags.of(system).get(tags.STACK, "none"),
            links=expected,
        )
        gate = Gate(
            calls=self._calls,
            metrics=self._metrics,
            reports=Reports(calls=self._calls, uri=_report_uri(links)),
            clock=self._clock,
        )
        return gate, attempt


def _expected(system: Mapping[str, Any], links: Sequence[Record]) -> tuple[Link, ...]:
    """Return the links that the file system was made with, as its tag says; without a tag all that are there.

    Nobody knows then which of them only brought data in, so each one is exported.
    """
    text = tags.of(system).get(tags.EXPORTED_PATHS)
    if text is None:
        return tuple(Link(path=_directory(link["FileSystemPath"]), exported=True) for link in links)
    exported = tags.paths_of(text)
    others = [path for link in links if (path := _directory(link["FileSystemPath"])) not in exported]
    return (
        *(Link(path=path, exported=True) for path in exported),
        *(Link(path=path, exported=False) for path in others),
    )


def _report_uri(links: Sequence[Record]) -> str:
    """Return where reports go: within a linked prefix, for FSx writes nowhere else; that of the logs if linked."""
    places = [str(link["DataRepositoryPath"]).rstrip("/") + "/" for link in links]
    # Without any link nothing is exported, so nothing is reported.
    return (
        next((place for place in places if "/logs/" in place), places[0] if places else "s3://none/") + "final-export/"
    )


def _directory(path: object) -> str:
    return "/" + str(path).strip("/")
