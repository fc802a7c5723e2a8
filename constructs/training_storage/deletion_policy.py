"""What must outlive its stack, and a warning where an aspect of the app decided otherwise."""

from __future__ import annotations

import jsii
from aws_cdk import Annotations, CfnDeletionPolicy, CfnResource
from constructs import IValidation

__all__ = ["DELETES_DATA", "keep_forever", "warn_if_deleted"]

#: Id of the warning, for those who mean it: ``Annotations.of(scope).acknowledge_warning(DELETES_DATA)``.
DELETES_DATA = "training-storage:deletes-data"

_KEEPS = (CfnDeletionPolicy.RETAIN, CfnDeletionPolicy.RETAIN_EXCEPT_ON_CREATE)


def keep_forever(resource: CfnResource) -> None:
    """Keep a file system or a link through every update and deletion of the stack; only a failed creation removes it.

    CloudFormation deletes the dependencies of a resource whose own deletion failed during an update and calls the
    update a success, so it must never be the one that deletes unexported data.
    """
    resource.cfn_options.deletion_policy = CfnDeletionPolicy.RETAIN_EXCEPT_ON_CREATE
    resource.cfn_options.update_replace_policy = CfnDeletionPolicy.RETAIN
    warn_if_deleted(resource)


def warn_if_deleted(resource: CfnResource) -> None:
    """Warn at synth if an aspect (such as `RemovalPolicies.of(app).destroy()`) lets CloudFormation delete `resource`.

    The caller's aspects have the last word; nobody should learn of it from the empty directory.
    """
    resource.node.add_validation(_StaysWarning(resource))


@jsii.implements(IValidation)
class _StaysWarning:
    """No check that fails: validation is where the policies that aspects have set can be read."""

    def __init__(self, resource: CfnResource) -> None:
        self._resource = resource

    def validate(self) -> list[str]:
        options = self._resource.cfn_options
        goes = [
            name
            for name, policy in (
                ("DeletionPolicy", options.deletion_policy),
                ("UpdateReplacePolicy", options.update_replace_policy),
            )
            if policy not in _KEEPS
        ]
        if goes:
            Annotations.of(self._resource).add_warning_v2(
                DELETES_DATA,
                f"{' and '.join(goes)} no longer keep this {self._resource.cfn_resource_type}: CloudFormation would"
                " delete its data with the stack; leave it out of the aspect that sets removal policies",
            )
        return []
