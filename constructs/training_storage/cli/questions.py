"""The four questions of the selection guide, asked on a terminal."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from training_storage.cli.parser import PROGRAM
from training_storage.planning import InvalidJobError, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Callable

_YES, _NO = ("y", "yes"), ("n", "no")
_LARGE = "1. How large is the training cluster, in instances? "
_POSIX = (
    "2. Does the code depend on a POSIX file system (paths, directories, rename)? "
    "y, n for object storage (S3 API), Enter if unsure: "
)
_OFTEN = "3. How often are checkpoints saved, in minutes? Enter to let the plan choose: "
_HOT = (
    "4. Is the data a long-term asset or hot during training? GiB in all, then GiB of it that training reads often "
    "(50000 10000); Enter if unknown: "
)


def can_ask() -> bool:
    """Whether somebody is there to answer: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask() -> dict[str, str]:
    """Return the answers as fields of a job, and show the command that says the same.

    An answer that does not do is asked for again, with what is allowed.

    Raises
    ------
    InvalidJobError
        If the input ends before the size of the cluster is known.
    """
    values: dict[str, str] = {}
    for question, read in ((_LARGE, _instances), (_POSIX, _interface), (_OFTEN, _interval), (_HOT, _data)):
        values |= _answer(question, read, values)
    command = [PROGRAM, "plan", *(word for name, value in values.items() for word in (_option(name), value))]
    sys.stderr.write(f"\nThe same without questions: {shlex.join(command)}\n\n")
    return values


def _answer(question: str, read: Callable[[str], dict[str, str]], before: dict[str, str]) -> dict[str, str]:
    while True:
        sys.stderr.write(question)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise InvalidJobError(
                f"the input ended before all questions were answered. Say it in options: {PROGRAM} plan --help."
            )
        try:
            answer = read(line.strip())
            TrainingJob.from_strings({"instances": "1", **before, **answer})
        except InvalidJobError as error:
            sys.stderr.write(f"   {error}\n")
        else:
            return answer


def _instances(text: str) -> dict[str, str]:
    return {"instances": text}


def _interface(text: str) -> dict[str, str]:
    if not text:
        return {}
    if text.lower() not in (*_YES, *_NO):
        raise InvalidJobError(f"the answer must be y or n, or empty, got: {text[:60]!r}.")
    return {"interface": "posix" if text.lower() in _YES else "object"}


def _interval(text: str) -> dict[str, str]:
    return {"checkpoint_interval_minutes": text} if text else {}


def _data(text: str) -> dict[str, str]:
    numbers = text.split()
    if len(numbers) > 2:  # noqa: PLR2004 - the data in all, and the hot part
        raise InvalidJobError(f"the answer must be one or two numbers of GiB, or empty, got: {text[:60]!r}.")
    return dict(zip(("dataset_gib", "hot_dataset_gib"), numbers, strict=False))


def _option(field: str) -> str:
    return "--" + field.replace("_", "-")
