"""The service role of a stack, which ministack forgets: CloudFormation keeps it, uses it and shows it."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import re
from collections.abc import Callable
from html import escape
from typing import Any

from ministack.services import cloudformation
from ministack.services.cloudformation import handlers

_ROLE = "_training_storage_role"
_SETTING = ("CreateChangeSet", "CreateStack", "UpdateStack")
_STACK_ID = re.compile(r"<StackId>([^<]*)</StackId>")


def install() -> None:
    """Remember the role that an operation names, and show it in DescribeStacks."""
    for action in _SETTING:
        handlers._ACTION_HANDLERS[action] = _remembering(handlers._ACTION_HANDLERS[action])
    describe = handlers._ACTION_HANDLERS["DescribeStacks"]

    def describe_stacks(parameters: Any) -> Any:  # noqa: ANN401 - as ministack's
        status, headers, body = describe(parameters)
        roles = {stack["StackId"]: stack[_ROLE] for stack in cloudformation._stacks.values() if stack.get(_ROLE)}

        def with_role(found: re.Match[str]) -> str:
            role = roles.get(found[1])
            return found[0] + (f"<RoleARN>{escape(role)}</RoleARN>" if role else "")

        return status, headers, _STACK_ID.sub(with_role, body.decode()).encode()

    handlers._ACTION_HANDLERS["DescribeStacks"] = describe_stacks


def _remembering(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def operation(parameters: Any) -> Any:  # noqa: ANN401 - as ministack's
        answer = original(parameters)
        role, name = (_first(parameters, key) for key in ("RoleARN", "StackName"))
        stack = cloudformation._stacks.get(name.split("/")[1] if "/" in name else name)
        if role and stack is not None:
            stack[_ROLE] = role
        return answer

    return operation


def _first(parameters: Any, key: str) -> str:  # noqa: ANN401 - as ministack's
    value = parameters.get(key, "")
    return str(value[0] if isinstance(value, list) else value)
