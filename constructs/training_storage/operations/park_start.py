"""Starting an execution of park, or joining the one that runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

_EXECUTIONS = 100


def executions(sfn: Any, machine_arn: str, *, status: str) -> list[dict[str, Any]]:  # noqa: ANN401 - boto3 clients have no type
    """Return the newest executions with a status, up to 100. Raises as ``states:ListExecutions``."""
    found: list[dict[str, Any]] = sfn.list_executions(
        stateMachineArn=machine_arn, statusFilter=status, maxResults=_EXECUTIONS
    )["executions"]
    return found


def start(
    sfn: Any,  # noqa: ANN401
    machine_arn: str,
    *,
    trigger: str,
    now: dt.datetime,
    **values: object,
) -> str:
    """Start an execution and return its ARN; one that somebody else started in the same minute is joined.

    The name is made of trigger and minute: whoever starts at the same time gets the same one, and Step Functions starts
    it once. Raises as ``states:StartExecution`` and ``states:DescribeExecution``.
    """
    content = json.dumps({"Trigger": trigger, **values}, sort_keys=True)
    number = 1
    while True:
        name = f"{trigger}-{now:%Y%m%dT%H%M}" + (f"-{number}" if number > 1 else "")
        try:
            return str(sfn.start_execution(stateMachineArn=machine_arn, name=name, input=content)["executionArn"])
        except ClientError as error:
            if error.response["Error"].get("Code") != "ExecutionAlreadyExists":
                raise
        arn = f"{machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
        if _state_of(sfn, arn).get("status") == "RUNNING":
            return arn
        # It ended within this minute, and names are not used twice.
        number += 1


def _state_of(sfn: Any, arn: str) -> Mapping[str, Any]:  # noqa: ANN401
    try:
        found: Mapping[str, Any] = sfn.describe_execution(executionArn=arn)
    except ClientError as error:
        # Of a machine that stood under this name before.
        if error.response["Error"].get("Code") == "ExecutionDoesNotExist":
            return {}
        raise
    return found
