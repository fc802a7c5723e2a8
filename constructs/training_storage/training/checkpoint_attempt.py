"""Which run a checkpoint's folder belongs to, and which attempt at it: the names say so, and cleaning up asks them.

A run is one job of the launcher; each of its starts is an attempt. Folders are named ``RUN-COUNTS-step-NNNNNNNNNN``.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from training_storage.checkpoint_format import checkpoint_name
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
#: Of a run: the counts behind it fit into the 63 characters of an attempt's name.
_RUN_LENGTH: Final = 40
_DIGEST_LENGTH: Final = 10


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One start of a run.

    Parameters
    ----------
    run
        The same for all attempts at one run, and no other run's.
    counts
        How often the launchers have started it again, the outer one first. Empty where nobody counts.
    """

    run: str
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidJobError(
                "attempt must be letters, digits, dots, underscores and hyphens, at most 63 and no mark first, got:"
                f" {self.name!r:.200}"
            )

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Self | None:
        """Return the attempt that the launchers count, the same on all ranks; None under none.

        Of Slurm its job, step and restart count; of torchrun its run and restart count; of torchrun below Slurm all.
        """
        known = os.environ if environment is None else environment
        named = known.get("TORCHELASTIC_RUN_ID", "")
        torch_run = "" if named == "none" else named
        restarts = (_count(known, "TORCHELASTIC_RESTART_COUNT"),) if named else ()
        job = known.get("SLURM_JOB_ID", "")
        if job:
            # Each srun of an allocation is a step, and may be a run of its own beside the others.
            step = f".{known['SLURM_STEP_ID']}" if known.get("SLURM_STEP_ID") else ""
            inner = f"-{torch_run}" if torch_run and torch_run != job else ""
            return cls(run=_run_name(f"{job}{step}{inner}"), counts=(_count(known, "SLURM_RESTART_COUNT"), *restarts))
        return cls(run=_run_name(torch_run), counts=restarts) if torch_run else None

    @classmethod
    def unique(cls) -> Self:
        """Return an attempt that no other process has, for processes that no launcher has started."""
        return cls(run=f"run-{dt.datetime.now(tz=dt.UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}", counts=(0,))

    @property
    def name(self) -> str:
        """What stands before the step."""
        return "-".join([self.run, *map(str, self.counts)])

    def folder_name(self, step: int) -> str:
        """Return the folder's name of a step."""
        return f"{self.name}-{checkpoint_name(step)}"

    def owns(self, folder_name: str) -> bool:
        """Whether a folder was written by this attempt, or by an earlier one at the same run, which has ended."""
        found = re.fullmatch(rf"{re.escape(self.run)}((?:-[0-9]+)*)-step-[0-9]+", folder_name)
        if found is None:
            return False
        counts = tuple(int(count) for count in found[1].split("-")[1:])
        # As many counts: the name of another run may begin with this one's.
        return len(counts) == len(self.counts) and counts <= self.counts


def _run_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"run-{text}").strip("-")
    if len(name) <= _RUN_LENGTH:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _RUN_LENGTH - _DIGEST_LENGTH - 1]}-{digest}"


def _count(known: Mapping[str, str], name: str) -> int:
    value = known.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else 0
