"""Why the library's own constructs stand as they do, for cdk-nag users: each finding acknowledged once, with a reason.

cdk-nag looks for the exact id of a finding on the construct or above it. Ids of wildcard findings hold resolved ARNs,
which CDK knows only after it has turned references into exports; so those are written while CDK validates the tree,
before any plugin reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IValidation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_iam as iam
    from constructs import IConstruct

_PACK = "AwsSolutions"


def acknowledge(construct: IConstruct, *, rule: str, reason: str) -> None:
    """Acknowledge the finding `rule` (such as "AS3") of the AwsSolutions pack on `construct` and below."""
    Validations.of(construct).acknowledge(Acknowledgment(id=f"{_PACK}-{rule}", reason=reason))


def acknowledge_wildcards(grantee: iam.IGrantable, *, resources: Sequence[str], reason: str) -> None:
    """Acknowledge that the policies of `grantee` name `resources`, which hold a wildcard."""
    principal: Any = grantee.grant_principal
    # A service or an ARN as principal has no policy here to acknowledge anything on.
    # An imported role is no Construct of Python's, and has policies all the same.
    if hasattr(principal, "node"):
        principal.node.add_validation(_WildcardAcknowledgement(principal, list(resources), reason))


@jsii.implements(IValidation)
class _WildcardAcknowledgement:
    """Not a check: the hook that runs after references are resolved."""

    def __init__(self, construct: IConstruct, resources: list[str], reason: str) -> None:
        self._construct = construct
        self._resources = resources
        self._reason = reason

    def validate(self) -> list[str]:
        stack = Stack.of(self._construct)
        for resource in self._resources:
            flat = _flatten(stack.resolve(resource))
            acknowledge(self._construct, rule=f"IAM5[Resource::{flat}]", reason=self._reason)
        return []


def _flatten(value: Any) -> str:  # noqa: ANN401 -- a resolved CloudFormation value
    """Write a CloudFormation value as cdk-nag writes it in the id of a finding."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_flatten(item) for item in value)
    function, argument = next(iter(value.items()))
    if function == "Fn::Join":
        delimiter, items = argument
        return str(delimiter).join(_flatten(item) for item in items)
    if function == "Fn::GetAtt":
        return f"<{argument[0]}.{argument[1]}>"
    if function == "Ref":
        return f"<{argument}>"
    return _flatten(argument)
