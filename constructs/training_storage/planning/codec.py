"""Dataclasses to plain JSON values and back, strictly."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from training_storage.planning.errors import InvalidPlanError

T = TypeVar("T")


def encode(value: object) -> Any:  # noqa: ANN401 - JSON values have no common type
    """Return `value` (dataclasses, tuples, mappings, scalars) as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def decode(kind: type[T], value: object, where: str) -> T:
    """Return the dataclass `kind` read from JSON values.

    A field with a default may be missing: files that were written before it existed still read.

    Raises
    ------
    InvalidPlanError
        For a missing or unknown key, or a value of the wrong type; names the place.
    """
    if not isinstance(value, dict):
        raise InvalidPlanError(f"{where} must be an object, got: {_show(value)}.")
    hints = _hints(kind)
    optional = _optional(kind)
    missing = [name for name in hints if name not in value and name not in optional]
    if missing:
        raise InvalidPlanError(f"{where} lacks {', '.join(missing)}. Write the plan again with this version.")
    unknown = [str(key) for key in value if key not in hints]
    if unknown:
        raise InvalidPlanError(f"{where} has keys that this version does not know: {', '.join(unknown)}.")
    return kind(
        **{name: _decode(hint, value[name], f"{where}.{name}") for name, hint in hints.items() if name in value}
    )


def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _optional(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}


def _decode(hint: Any, value: object, where: str) -> Any:  # noqa: ANN401 - one return a kind of type
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _decode(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise InvalidPlanError(f"{where} must be a list, got: {_show(value)}.")
        return tuple(_decode(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise InvalidPlanError(f"{where} must be an object, got: {_show(value)}.")
        return {str(key): _decode(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast("type[Any]", hint), value, where)
    return _scalar(hint, value, where)


def _scalar(hint: Any, value: object, where: str) -> object:  # noqa: ANN401
    if hint is object and isinstance(value, (str, int, float)):
        return value
    allowed = (int, float) if hint is float else (hint,)
    if isinstance(value, bool) and hint is not bool:
        raise InvalidPlanError(f"{where} must be of type {hint.__name__}, got: {_show(value)}.")
    if hint is object or not isinstance(value, allowed):
        raise InvalidPlanError(f"{where} must be of type {hint.__name__}, got: {_show(value)}.")
    return value


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - keeps the message on one line
