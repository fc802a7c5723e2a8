"""Grants by identity policy, which fail aloud where there is no policy to write into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import aws_iam as iam

from training_storage.validation import ConstructError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["grant_to"]


def grant_to(
    grantee: iam.IGrantable,
    *,
    actions: Sequence[str],
    resource_arns: Sequence[str],
    conditions: Mapping[str, Mapping[str, Any]] | None = None,
) -> iam.Grant:
    """Let `grantee` do `actions` on `resource_arns`, by a policy of its own.

    Raises
    ------
    ConstructError
        If the grantee has no policy here, such as a service, an account or an ARN. CDK would grant nothing and say
        nothing.
    """
    grant = iam.Grant.add_to_principal(
        grantee=grantee, actions=list(actions), resource_arns=list(resource_arns), conditions=conditions
    )
    if not grant.success:
        raise ConstructError(
            "grantee must be a role, user or group that policies can be attached to, got:"
            f" {grantee.grant_principal.policy_fragment.principal_json}; storage grants by identity policy only, so"
            " grant to the role that calls"
        )
    return grant
