"""What would break the links of a bucket, looked for at synth, when all of the app is known."""

from __future__ import annotations

import jsii
from aws_cdk import Stack
from aws_cdk import aws_s3 as s3
from constructs import IValidation

from training_storage.planning import legality
from training_storage.validation import capitalized, is_token

__all__ = ["LinkedBucket", "linked_bucket"]

_MARK = "_training_storage_links"


def linked_bucket(bucket: s3.IBucket, *, called: str = "bucket") -> LinkedBucket:
    """Return what is known of the links of `bucket`: one object for each bucket of the app.

    Parameters
    ----------
    bucket
        The bucket; nothing can be found out about an imported one.
    called
        What to call it in messages.
    """
    known: LinkedBucket | None = vars(bucket).get(_MARK)
    if known is None:
        known = LinkedBucket(bucket, called=called)
        vars(bucket)[_MARK] = known
        bucket.node.add_validation(known)
    return known


@jsii.implements(IValidation)
class LinkedBucket:
    """The links of one bucket, and the check that its rules, policy and notifications leave them alone."""

    def __init__(self, bucket: s3.IBucket, *, called: str) -> None:
        self._bucket = bucket
        self._called = called
        self._prefixes: list[str] = []
        self._linked = False
        self._imports = False

    def mark(self, *, imports: bool) -> None:
        """Note that the bucket is linked; `imports` if changes of the bucket flow into the file system by themselves.

        Such a link may be in another app.
        """
        self._linked = True
        self._imports = self._imports or imports

    def add(self, *, prefix: str, imports: bool) -> None:
        """Note a link of this app to `prefix`."""
        self.mark(imports=imports)
        if not is_token(prefix):
            self._prefixes.append(prefix)

    def validate(self) -> list[str]:
        """Return why the links would break; empty if nothing is found, or nothing known."""
        resource = self._bucket.node.default_child
        if not self._linked or not isinstance(resource, s3.CfnBucket):
            return []
        return [*self._notification_errors(resource), *self._rule_errors(resource)]

    def _rule_errors(self, resource: s3.CfnBucket) -> list[str]:
        """Return what the rules of `training-storage check` find on the bucket as it stands at synth."""
        stack = Stack.of(self._bucket)
        # The only view of an L1 that holds what its L2 renders late; the getters fail on such values.
        rendered = resource._cfn_properties  # noqa: SLF001 -- protected, for subclasses
        resolved = capitalized(stack.resolve(rendered))
        # Notifications are looked at by `_notification_errors`, which sees those of CDK as well.
        name = self._bucket.node.path
        facts = [legality.bucket_facts(name, resolved, prefixes=self._prefixes)]
        if self._bucket.policy is not None:
            document = stack.resolve(self._bucket.policy.document)
            facts.append(legality.policy_facts(name, document))
        return [finding.message for fact in facts for finding in legality.check_linked_bucket(fact)]

    def _notification_errors(self, resource: s3.CfnBucket) -> list[str]:
        if not self._imports:
            return []
        native = getattr(resource, "notification_configuration", None)
        if native is None and self._bucket.node.try_find_child("Notifications") is None:
            return []
        return [
            (
                f"the {self._called} is linked to a file system, so CDK event notifications on its bucket are refused:"
                " they overwrite the notification configuration named 'FSx' and the links become MISCONFIGURED; add"
                " them to an imported bucket instead (aws_s3.Bucket.from_bucket_name in the consuming stack), which"
                " keeps foreign entries"
            )
        ]
