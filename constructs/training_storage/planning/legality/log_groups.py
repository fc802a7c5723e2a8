"""The log groups that file systems of a template log to, where the template makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from training_storage.planning.legality.finding import UNKNOWN
from training_storage.planning.legality.intrinsics import is_absent, plain_text, referenced

if TYPE_CHECKING:
    from training_storage.planning.legality.lustre_spec import Logging
    from training_storage.planning.legality.template import Stack

LOG_GROUP = "AWS::Logs::LogGroup"


def resolved(stack: Stack, properties: Mapping[str, Any], logging: Logging) -> Logging:
    """Return `logging` with the name that the template gives the log group which it refers to."""
    lustre = properties.get("LustreConfiguration")
    block = lustre.get("LogConfiguration") if isinstance(lustre, Mapping) else None
    destination = block.get("Destination") if isinstance(block, Mapping) else None
    named = isinstance(logging.group, str) and "${" not in logging.group
    made = dict(stack.of_type(LOG_GROUP))
    own = referenced(destination) & made.keys()
    if named or len(own) != 1:
        return logging
    logical_id = own.pop()
    if is_absent(made[logical_id].get("LogGroupName")):
        # CloudFormation makes a name of the stack's, which never begins with /aws/fsx.
        return replace(logging, group="a log group without a name")
    name = plain_text(made[logical_id]["LogGroupName"])
    return replace(logging, group=UNKNOWN if isinstance(name, str) and name.startswith("${") else name)
