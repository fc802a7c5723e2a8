"""What CloudFormation asks of the two custom resources, and how each is answered.

The *gate* comes after file system and links: it deletes them through the API once their data is in the lake. The
*keeper* comes before the file system: it goes last and removes a file system that a failed creation left, which no
client ever had. Both may be asked again at any time.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import TYPE_CHECKING, Any

from . import tags
from .calls import RUNNING
from .gate import Attempt, Link
from .refusal import NotFoundError, NotNowError, RefusalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .calls import Calls, Record
    from .gate import Gate, Waiting
    from .metrics import Metrics

KEEPER = "keeper"

_CREATION_FAILED = "ROLLBACK_IN_PROGRESS"
_UPDATE_ROLLS_BACK = "UPDATE_ROLLBACK_"
_log = logging.getLogger(__name__)

Event = dict[str, Any]


class Lifecycle:
    """Answers the events of CDK's provider framework.

    Parameters
    ----------
    gate, calls, metrics
        AWS.
    tag
        Value of the gate's tag on what it may touch.
    wait
        How long one attempt may take.
    clock
        Returns the present time, with a time zone.
    """

    def __init__(
        self,
        *,
        gate: Gate,
        calls: Calls,
        metrics: Metrics,
        tag: str,
        wait: dt.timedelta,
        clock: Callable[[], dt.datetime],
    ) -> None:
        self._gate = gate
        self._calls = calls
        self._metrics = metrics
        self._tag = tag
        self._wait = wait
        self._clock = clock

    def begin(self, event: Event) -> Event:
        """Return what later polls need: when the attempt began, and what the stack was doing then."""
        answer: Event = {
            # Never the file system's: another id would make CloudFormation delete this resource after the update.
            "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
            "Began": self._clock().isoformat(),
            "StackStatus": "",
        }
        if event["RequestType"] != "Create":
            try:
                answer["StackStatus"] = self._calls.stack_status(event["StackId"])
            except (NotNowError, NotFoundError, RefusalError) as error:
                # Then nothing counts as a rollback, which is the careful answer.
                _log.warning("the state of the stack is not known: %s", error)
        return answer

    def finished(self, event: Event) -> bool:
        """Go on with what an event asks; return whether it is done.

        Raises
        ------
        RefusalError
            With the reason that CloudFormation shows.
        """
        request, properties = event["RequestType"], event["ResourceProperties"]
        if properties.get("Kind") == KEEPER:
            return request != "Delete" or self._sweep(event)
        current = str(properties["FileSystemId"])
        if request == "Delete":
            return self._finish(current, properties, event)
        previous = event.get("OldResourceProperties") or {}
        replaced = str(previous.get("FileSystemId") or current)
        if replaced != current:
            if event["StackStatus"].startswith(_UPDATE_ROLLS_BACK):
                return self._take_back(kept=current, other=replaced, event=event)
            if not self._finish(replaced, previous, event):
                return False
        return self._hand_over(current)

    # ---- the gate ----

    def _finish(self, file_system_id: str, properties: Mapping[str, Any], event: Event) -> bool:
        waiting = self._gate.advance(file_system_id, self._attempt(properties, event))
        return _is_over(waiting)

    def _hand_over(self, file_system_id: str) -> bool:
        """Note on the file system that from now on clients may have it: what made it may still fail."""
        try:
            system = self._calls.file_system(file_system_id)
            if system is None:
                raise RefusalError(f"{file_system_id} does not exist", way_out="Make it again")
            if tags.HANDED_OVER not in tags.of(system):
                self._calls.tag(system["ResourceARN"], HANDED_OVER=self._clock().isoformat(timespec="seconds"))
        except NotNowError as error:
            _log.warning("waiting for AWS: %s", error)
            return False
        return True

    def _take_back(self, *, kept: str, other: str, event: Event) -> bool:
        """Answer an update that is rolled back: `kept` is the stack's again, `other` was made in between.

        It never fails: a rollback that fails leaves a stack that can do nothing any more.
        """
        for left in self._gate.restore(kept):
            _log.warning("%s: %s", kept, left)
        try:
            system = self._calls.file_system(kept)
            if system is not None and tags.LEFT_STANDING in tags.of(system):
                self._calls.untag(system["ResourceARN"], tags.LEFT_STANDING, tags.STACK)
            record = self._calls.file_system(other)
            if record is None:
                return True
            unused = self._is_unused(record)
            if unused:
                return self._remove(record)
            if unused is None and self._clock() < self._deadline(event):
                _log.info("waiting for CloudWatch to say whether clients wrote to %s", other)
                return False
            words = "the update that made it was rolled back"
            self._gate.mark_left_standing(other, words=words, stack_name=_stack_name(event))
        except NotNowError as error:
            _log.warning("waiting for AWS: %s", error)
            return False
        except (NotFoundError, RefusalError) as error:
            _log.warning("%s stays as it is: %s", other, error)
        return True

    # ---- the keeper ----

    def _sweep(self, event: Event) -> bool:
        """Remove file systems that nobody ever had; refuse while one stands that somebody had."""
        try:
            systems = [(system, self._is_unused(system)) for system in self._calls.file_systems_of(self._tag)]
            waits = self._clock() < self._deadline(event)
            used = [
                system["FileSystemId"]
                for system, unused in systems
                # CloudWatch may be late, but not for ever.
                if unused is False or (unused is None and not waits)
            ]
            removed = [unused is True and self._remove(system) for system, unused in systems]
        except NotNowError as error:
            _log.warning("waiting for AWS: %s", error)
            removed, used = [False], []
        if used:
            raise RefusalError(
                f"{', '.join(used)} stands, as its gate left it: it may hold data that is not in the lake."
                " Run 'training-storage status' to see why, and 'training-storage park' to finish it",
                way_out="",
            )
        if not all(removed) and self._clock() >= self._deadline(event):
            raise RefusalError("a file system that a failed creation left is not gone yet. Run it again", way_out="")
        return all(removed)

    def _is_unused(self, system: Record) -> bool | None:
        """Whether no client ever had a file system; None while CloudWatch does not know whether one wrote to it."""
        if system["Lifecycle"] == "DELETING":
            return True
        if tags.HANDED_OVER in tags.of(system):
            return False
        if system["Lifecycle"] in ("CREATING", "FAILED"):
            # Never handed over and not usable: there are no values, and there never will be.
            return True
        size = self._metrics.written_ever(system["FileSystemId"], created=system["CreationTime"]).size
        return None if size is None else not size

    def _remove(self, system: Record) -> bool:
        """Delete a file system that is unused; return False, because it takes a while."""
        identifier = system["FileSystemId"]
        running = [task for task in self._calls.tasks(identifier) if task["Lifecycle"] in RUNNING]
        if not running and system["Lifecycle"] not in ("CREATING", "DELETING"):
            _log.info("%s was never used: it is deleted", identifier)
            self._calls.delete_file_system(identifier)
        return False

    # ---- events ----

    def _attempt(self, properties: Mapping[str, Any], event: Event) -> Attempt:
        return Attempt(
            id=event["RequestId"],
            began=dt.datetime.fromisoformat(event["Began"]),
            deadline=self._deadline(event),
            gate=self._tag,
            stack_name=_stack_name(event),
            links=tuple(
                # CloudFormation hands every property over as text.
                Link(path=link["Path"], exported=str(link["Exported"]).lower() == "true")
                for link in properties.get("Links") or []
            ),
            never_used=event["StackStatus"] == _CREATION_FAILED,
        )

    def _deadline(self, event: Event) -> dt.datetime:
        return dt.datetime.fromisoformat(event["Began"]) + self._wait


def _is_over(waiting: Waiting | None) -> bool:
    if waiting is not None:
        _log.info("waiting for %s", waiting.what)
    return waiting is None


def _stack_name(event: Event) -> str:
    return str(event["StackId"]).split("/")[1]
