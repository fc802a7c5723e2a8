"""The four questions of the selection guide, asked on a terminal."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from typing import TYPE_CHECKING

from training_storage.cli.parser import PROGRAM
from training_storage.planning import InvalidJobError, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable

_POSIX, _OBJECT = ("y", "yes", "posix"), ("n", "no", "object")
_INSTANCES_QUESTION = "1. How large is the training cluster, in instances?"
_POSIX_QUESTION = (
    "2. Does the code depend on a POSIX file system (paths, directories, rename)? posix or yes; object or no for "
    "object storage (the S3 API); Enter if unsure:"
)
_OFTEN_QUESTION = "3. How often are checkpoints saved, in minutes? Enter to let the plan choose:"
_DATA_QUESTION = (
    "4. Is the data a long-term asset or hot during training? asset or hot, with its size if known (hot 50 TiB); or "
    "GiB in all, then GiB of it that training reads often (50000 10000); Enter if unknown:"
)
_LONGEST_MINUTES = 525_600
_MOST_GIB = 1e9
#: GiB in a unit of what people type; none is GiB.
_UNITS = {"": 1.0, "gib": 1.0, "tib": 1024.0, "gb": 1e9 / 2**30, "tb": 1e12 / 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(gib|tib|gb|tb)?(?![0-9a-z.,])", re.IGNORECASE | re.ASCII)
_SHOWN = 60


def can_ask() -> bool:
    """Whether somebody is there to answer: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(*, width: int) -> dict[str, str]:
    """Return the answers as fields of a job, and show the command that says the same.

    An answer that does not do is asked for again, with what is allowed.

    Parameters
    ----------
    width
        Columns that a question may take.

    Raises
    ------
    InvalidJobError
        If the input ends before all questions are answered.
    """
    values: dict[str, str] = {}
    for question, read in (
        (_INSTANCES_QUESTION, _instances),
        (_POSIX_QUESTION, _interface),
        (_OFTEN_QUESTION, _interval),
        (_DATA_QUESTION, _data),
    ):
        values |= _answer(question, read, width)
    command = [PROGRAM, "plan", *(word for name, value in values.items() for word in (_option(name), value))]
    sys.stderr.write(f"\nThe same without questions: {shlex.join(command)}\n\n")
    return values


def _answer(question: str, read: Callable[[str], dict[str, str]], width: int) -> dict[str, str]:
    while True:
        # A blank less, for the one between question and answer.
        sys.stderr.write(_wrapped(question, width - 1) + " ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            sys.stderr.write("\n")
            raise InvalidJobError(
                f"the input ended before all questions were answered. Say it in options: {PROGRAM} plan --help."
            )
        try:
            return read(line.strip())
        except InvalidJobError as error:
            sys.stderr.write(_wrapped(f"   {error}", width) + "\n")


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False)


def _refused(allowed: str, text: str) -> InvalidJobError:
    return InvalidJobError(f"the answer must be {allowed}, got: {text[:_SHOWN]!r}.")


def _instances(text: str) -> dict[str, str]:
    try:
        TrainingJob.from_strings({"instances": text})
    except InvalidJobError:
        raise _refused(TrainingJob.field_help("instances"), text) from None
    return {"instances": text}


def _interface(text: str) -> dict[str, str]:
    if not text:
        return {}
    if text.lower() not in (*_POSIX, *_OBJECT):
        raise _refused("posix, yes, object, no, or empty", text)
    return {"interface": "posix" if text.lower() in _POSIX else "object"}


def _interval(text: str) -> dict[str, str]:
    if not text:
        return {}
    field = "checkpoint_interval_minutes"
    try:
        job = TrainingJob.from_strings({"instances": "1", field: text})
    except InvalidJobError:
        job = None
    if job is None or (job.checkpoint_interval_minutes or 0) > _LONGEST_MINUTES:
        raise _refused(f"minutes from 0.01 to {_LONGEST_MINUTES:,} (a year), for example 30, or empty", text)
    return {field: text}


def _data(text: str) -> dict[str, str]:
    """Read ``asset`` or ``hot``, with or without a size, or the size of all and that of the hot part."""
    word, _, rest = text.partition(" ")
    kind = word.lower() if word.lower() in ("asset", "hot") else None
    sizes = _sizes(rest if kind else text)
    if sizes is None or len(sizes) > (1 if kind else 2):
        raise _refused(
            f"asset, hot, or one or two sizes up to {_MOST_GIB:,.0f} GiB, for example hot 50 TiB or 50000 10000, "
            "or empty",
            text,
        )
    if len(sizes) > 1 and sizes[1] > sizes[0]:
        raise _refused(f"a hot part of at most all the data ({sizes[0]:g} GiB)", text)
    if kind == "asset" and sizes:
        # An asset lies in the lake; nothing of it is kept hot.
        sizes.append(0.0)
    return {
        name: TrainingJob.field_text(name, int(gib) if gib == int(gib) else gib)
        for name, gib in zip(("dataset_gib", "hot_dataset_gib"), sizes, strict=False)
    }


def _sizes(text: str) -> list[float] | None:
    """Return the sizes in `text` in GiB, or None if it holds anything else."""
    found = list(_SIZE.finditer(text))
    if _SIZE.sub("", text).strip():
        return None
    sizes = [float(f"{float(size[1]) * _UNITS[(size[2] or '').lower()]:.6g}") for size in found]
    return None if any(gib > _MOST_GIB for gib in sizes) else sizes


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")
