"""Checks that every construct runs on its inputs before CDK sees them.

CDK and cfn-lint accept nearly every illegal storage configuration; the service then refuses it after minutes or
hours. Each check here says what is wrong, the value got, what is allowed and the way out, in one line.
Tokens (values known only at deployment) are passed over: nothing can be said about them at synth.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aws_cdk import Token

if TYPE_CHECKING:
    from collections.abc import Iterable


class ConstructError(ValueError):
    """A construct was given a value that AWS would refuse, or that would lose data."""


def is_token(value: object) -> bool:
    """Return whether `value` is known only at deployment."""
    return bool(Token.is_unresolved(value))


def require_one_of(value: object, allowed: Iterable[object], *, what: str, way_out: str = "") -> None:
    """Refuse a `value` that is not among `allowed`.

    Raises
    ------
    ConstructError
        Naming `what`, the value got and every allowed value.
    """
    choices = list(allowed)
    if is_token(value) or value in choices:
        return
    listed = ", ".join(str(choice) for choice in choices)
    raise ConstructError(_sentence(f"{what} must be one of {listed}, got: {value!r}", way_out))


def require_match(value: str, pattern: str, *, what: str, allowed: str, way_out: str = "") -> None:
    """Refuse a `value` that does not match the whole of the regular expression `pattern`.

    Raises
    ------
    ConstructError
        Naming `what`, the value got and `allowed` in words.
    """
    if is_token(value) or re.fullmatch(pattern, value):
        return
    raise ConstructError(_sentence(f"{what} must be {allowed}, got: {value!r}", way_out))


def require_integer(
    value: object, *, what: str, minimum: int, maximum: int | None = None, multiple_of: int = 1, way_out: str = ""
) -> None:
    """Refuse a `value` that is not a whole number in the range, on the grid.

    Raises
    ------
    ConstructError
        Naming `what`, the value got and the range.
    """
    if is_token(value):
        return
    allowed = (
        f"a whole number from {minimum} to {maximum}" if maximum is not None else f"a whole number, at least {minimum}"
    )
    if multiple_of != 1:
        allowed += f", in steps of {multiple_of}"
    legal = (
        isinstance(value, int)
        and not isinstance(value, bool)
        and value >= minimum
        and (maximum is None or value <= maximum)
        and value % multiple_of == 0
    )
    if not legal:
        raise ConstructError(_sentence(f"{what} must be {allowed}, got: {value!r}", way_out))


def _sentence(message: str, way_out: str) -> str:
    return f"{message}; {way_out}" if way_out else message
