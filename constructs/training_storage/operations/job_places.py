"""Where jobs stand whose stacks have a name of somebody else's choice: by what is named after the job itself.

A stack of any name, nested ones included, holds the contract's parameter or the state machine of park under a fixed
name; CloudFormation says which stack has a resource of that name.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from training_storage.operations.aws_calls import code_of
from training_storage.operations.park_state import machine_name
from training_storage.planning.contract import PARAMETERS_PATH, parameter_name
from training_storage.training.contract import ContractError, StorageContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from training_storage.operations.cluster_state import Ask
    from training_storage.operations.stack_inventory import Stack

#: Parts of the answer that are missing where a job may stand unseen.
PARTS = ("contracts", "machines", "places")
_CONTRACT = re.compile(parameter_name("([^/]+)"))
_MACHINES = machine_name("")


def read_contracts(ssm: Any) -> dict[str, str]:  # noqa: ANN401 - boto3 clients have no type
    """Return the text of every contract by the name of its job; raises as ``ssm:GetParametersByPath``."""
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=f"{PARAMETERS_PATH}/", Recursive=True)
    return {
        match[1]: parameter["Value"]
        for page in pages
        for parameter in page["Parameters"]
        if (match := _CONTRACT.fullmatch(parameter["Name"]))
    }


def read_machines(sfn: Any) -> dict[str, str]:  # noqa: ANN401
    """Return the ARN of every state machine of park by the name of its job; raises as ``states:ListStateMachines``."""
    return {
        machine["name"].removeprefix(_MACHINES): machine["stateMachineArn"]
        for page in sfn.get_paginator("list_state_machines").paginate()
        for machine in page["stateMachines"]
        if machine["name"].startswith(_MACHINES)
    }


def read_holder(cloudformation: Any, physical_id: str) -> str | None:  # noqa: ANN401
    """Return the id of the stack that has a resource; None if none has it. Raises as ``DescribeStackResources``."""
    try:
        rows = cloudformation.describe_stack_resources(PhysicalResourceId=physical_id)["StackResources"]
    except cloudformation.exceptions.ClientError as error:
        # CloudFormation's way to say that no stack has it.
        if code_of(error) == "ValidationError":
            return None
        raise
    return next((str(row["StackId"]) for row in rows), None)


def read_places(
    client: Callable[[str], Any], stacks: Sequence[Stack], contracts: Mapping[str, str], *, ask: Ask
) -> dict[str, str]:
    """Return the id of the stack that holds each job of which a contract or a state machine stands.

    Parameters
    ----------
    client
        From a service's name to its client.
    stacks
        Every stack of the Region. One that is named after a job as ours are is taken for its place without asking.
    contracts
        What `read_contracts` returned.
    ask
        Calls AWS and notes what it refuses.
    """
    machines = ask("machines", "states:ListStateMachines", lambda: read_machines(client("stepfunctions"))) or {}
    named = {stack.job: stack.id for stack in stacks if stack.job is not None}
    cloudformation = client("cloudformation")
    places: dict[str, str] = {}
    for job in sorted({*contracts, *machines}):
        if job in named:
            places[job] = named[job]
            continue
        for physical_id in _names(job, contracts, machines):
            found = ask(
                "places",
                "cloudformation:DescribeStackResources",
                functools.partial(read_holder, cloudformation, physical_id),
            )
            if found is not None:
                places[job] = found
                break
    return places


def checkpoints_of(text: str | None) -> str | None:
    """Return where a contract says that a job's checkpoints go in the lake; None if it is none that can be read."""
    if text is None:
        return None
    try:
        return StorageContract.from_json(text).s3.uris.get("checkpoints")
    except ContractError:
        return None


def _names(job: str, contracts: Mapping[str, str], machines: Mapping[str, str]) -> Iterator[str]:
    if job in contracts:
        yield parameter_name(job)
    if job in machines:
        yield machines[job]
