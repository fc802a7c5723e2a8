"""The `aws` command as far as the pages use it: operations by botocore's models, against the local AWS.

The AWS CLI itself cannot be installed beside Sphinx: it pins another release of docutils.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import botocore.session
import jmespath  # type: ignore[import-untyped]
from botocore import xform_name
from botocore.exceptions import UnknownServiceError
from botocore.validate import ParamValidator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_GLOBAL = {"--region", "--query", "--output", "--profile"}
_GLOBAL_FLAGS = {"--no-cli-pager"}
#: A placeholder of a page where a time must stand.
_SOME_TIME = "2026-12-01T00:00:00Z"
_SESSION = botocore.session.get_session()


@dataclass(frozen=True, kw_only=True)
class AwsCommand:
    """One operation with its parameters, valid by the service's model."""

    service: str
    method: str
    parameters: dict[str, Any]
    query: str | None

    def run(self, client: Callable[[str], Any]) -> str:
        """Call it; return the answer as the AWS CLI prints it."""
        answer = getattr(client(self.service), self.method)(**self.parameters)
        answer.pop("ResponseMetadata", None)
        if self.query is not None:
            answer = jmespath.search(self.query, answer)
        return json.dumps(answer, indent=4, default=str) + "\n"


def parse(words: Sequence[str]) -> AwsCommand:
    """Return what `aws` is asked for.

    Raises
    ------
    ValueError
        For a service, an operation, an option or a value that AWS does not have.
    """
    service, operation, *rest = words
    try:
        model = _SESSION.get_service_model(service)
    except UnknownServiceError:
        raise ValueError(f"aws has no service {service!r}") from None
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if operation not in names:
        raise ValueError(f"aws {service} has no operation {operation!r}")
    shape = model.operation_model(names[operation]).input_shape
    members = {} if shape is None else {xform_name(name, "-"): name for name in shape.members}
    parameters: dict[str, Any] = {}
    query = None
    for option, values in _options(rest):
        if option in _GLOBAL_FLAGS:
            continue
        if option in _GLOBAL:
            query = values[0] if option == "--query" else query
            continue
        name = members.get(option.removeprefix("--"))
        negative = members.get(option.removeprefix("--no-"))
        if name is None and negative is None:
            raise ValueError(f"aws {service} {operation} has no option {option}")
        if name is None:
            parameters[str(negative)] = False
        else:
            parameters[name] = _value(shape.members[name], values, option)
    if shape is not None:
        report = ParamValidator().validate(parameters, shape)
        if report.has_errors():
            raise ValueError(f"aws {service} {operation}: {report.generate_report()}")
    return AwsCommand(service=service, method=xform_name(names[operation]), parameters=parameters, query=query)


def _options(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found.append((name, [value] if equals else []))
        elif found:
            found[-1][1].append(word)
        else:
            raise ValueError(f"aws takes no {word!r} here")
    return found


def _value(shape: Any, values: list[str], option: str) -> Any:
    kind = shape.type_name
    if kind == "boolean" and not values:
        return True
    if not values:
        raise ValueError(f"{option} needs a value")
    if kind == "list" and not values[0].startswith("["):
        return [_one(shape.member, value, option) for value in values]
    if len(values) != 1:
        raise ValueError(f"{option} takes one value, got: {values}")
    return _one(shape, values[0], option)


def _one(shape: Any, text: str, option: str) -> Any:
    kind = shape.type_name
    if kind in ("structure", "list", "map"):
        if text.startswith(("[", "{")) and '"' in text:
            return json.loads(text)
        value, rest = _shorthand(shape, text, option)
        if rest:
            raise ValueError(f"{option} cannot be read from {rest!r} on")
        return value
    if kind in ("integer", "long"):
        return int(text)
    if kind in ("double", "float"):
        return float(text)
    if kind == "boolean":
        return {"true": True, "false": False}[text]
    return _SOME_TIME if kind == "timestamp" and "…" in text else text


def _shorthand(shape: Any, text: str, option: str) -> tuple[Any, str]:
    """Read `A=1,B=2`, `{A=1}` or `[1,2]`; return the value and what follows it."""
    if shape.type_name == "list":
        if not text.startswith("["):
            return _list_without_brackets(shape, text, option)
        items, rest = [], text[1:]
        while not rest.startswith("]"):
            item, rest = _shorthand(shape.member, rest, option)
            items.append(item)
            rest = rest.removeprefix(",")
        return items, rest[1:]
    if shape.type_name not in ("structure", "map"):
        end = min((at for sign in ",]}" if (at := text.find(sign)) >= 0), default=len(text))
        return _one(shape, text[:end], option), text[end:]
    braced = text.startswith("{")
    rest = text[1:] if braced else text
    found: dict[str, Any] = {}
    while rest and not rest.startswith("}"):
        key, equals, rest = rest.partition("=")
        members = getattr(shape, "members", {})
        if not equals or (shape.type_name == "structure" and key not in members):
            raise ValueError(f"{option} has no key {key!r}; it has {', '.join(members)}")
        found[key], rest = _shorthand(members[key] if members else shape.value, rest, option)
        if not rest.startswith(","):
            break
        rest = rest[1:]
    return found, rest[1:] if braced else rest


def _list_without_brackets(shape: Any, text: str, option: str) -> tuple[list[Any], str]:
    """Read the values of a list up to the next `Key=`."""
    items, rest = [], text
    while True:
        item, rest = _shorthand(shape.member, rest, option)
        items.append(item)
        following = rest.removeprefix(",")
        if rest == following or "=" in following.partition(",")[0]:
            return items, rest
        rest = following
