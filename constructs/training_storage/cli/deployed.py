"""Reads a deployed stack; boto3 is imported only here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.cli.template_files import parse_text
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.guard import Nested, NestedReader

if TYPE_CHECKING:
    from collections.abc import Mapping

_HIDDEN = "****"


@dataclass(frozen=True, kw_only=True)
class DeployedStack:
    """The template of a deployed stack, with the values of its parameters that can be read and its nested stacks."""

    template: dict[str, Any]
    parameters: dict[str, str]
    notes: tuple[str, ...]
    nested: NestedReader


def read_deployed(stack_name: str, *, region: str | None) -> DeployedStack:
    """Return the template that stands as `stack_name`.

    Raises
    ------
    InvalidJobError
        If it cannot be read; one line.
    """
    import boto3  # noqa: PLC0415 -- planning and checking files need no AWS
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        client = boto3.client("cloudformation", region_name=region)
        body = client.get_template(StackName=stack_name, TemplateStage="Processed")["TemplateBody"]
        stack = client.describe_stacks(StackName=stack_name)["Stacks"][0]
    except (BotoCoreError, ClientError) as error:
        raise InvalidJobError(
            f"--deployed must name a stack that can be read, got: '{stack_name}' ({' '.join(str(error).split())})."
        ) from None
    parsed = None if isinstance(body, dict) else parse_text(body, name=f"stack {stack_name}")
    values = {
        parameter["ParameterKey"]: parameter.get("ResolvedValue", parameter.get("ParameterValue", ""))
        for parameter in stack.get("Parameters", [])
    }
    hidden = [name for name, value in values.items() if value == _HIDDEN]
    return DeployedStack(
        template=dict(body) if parsed is None else parsed.document,
        parameters={name: value for name, value in values.items() if value != _HIDDEN},
        notes=(
            *(() if parsed is None else parsed.notes),
            *(f"parameter {name}: its value is hidden" for name in hidden),
        ),
        nested=_reader(client, stack_name, region=region),
    )


def _reader(client: Any, stack_name: str, *, region: str | None) -> NestedReader:  # noqa: ANN401 -- boto3 has no types
    """Return what reads the nested stacks of a deployed one."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    def read(logical_id: str, _: Mapping[str, Any]) -> Nested | None:
        try:
            detail = client.describe_stack_resource(StackName=stack_name, LogicalResourceId=logical_id)
            name = str(detail["StackResourceDetail"]["PhysicalResourceId"])
            found = read_deployed(name, region=region)
        except (BotoCoreError, ClientError, InvalidJobError, KeyError):
            return None
        return Nested(template=found.template, parameters=found.parameters, reader=found.nested)

    return read
