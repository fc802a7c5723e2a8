"""Reads from a template what is known of buckets: lifecycles, policies and notifications of linked ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_storage.planning.legality import engine
from training_storage.planning.legality.express import ExpressPolicy
from training_storage.planning.legality.intrinsics import is_intrinsic, symbol
from training_storage.planning.legality.links import LinkedBucket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training_storage.planning.legality.finding import Finding
    from training_storage.planning.legality.template import Stack

_REPOSITORY = re.compile(r"s3://(?P<bucket>\$\{[^}]*\}|[^/]+)/?(?P<prefix>.*)", re.DOTALL)
_VPC_KEYS = ("aws:sourcevpc", "aws:sourcevpce", "aws:vpcsourceip")
_LIFECYCLE_PRINCIPAL = "lifecycle.s3."
_SESSION_ACTIONS = ("s3express:createsession", "s3express:*", "*")


def check_linked_buckets(stack: Stack) -> Iterator[tuple[str, Finding]]:
    """Yield what of the buckets in the template breaks their links."""
    prefixes: dict[str, list[str]] = {}
    importing: set[str] = set()
    for _, properties in stack.of_type("AWS::FSx::DataRepositoryAssociation"):
        match = _REPOSITORY.fullmatch(symbol(properties.get("DataRepositoryPath")))
        if match is None:
            continue
        prefix = match["prefix"]
        prefixes.setdefault(match["bucket"], []).append(prefix if not prefix or prefix.endswith("/") else f"{prefix}/")
        if "AutoImportPolicy" in (properties.get("S3") or {}):
            importing.add(match["bucket"])
    for logical_id, properties in stack.of_type("AWS::S3::Bucket"):
        names = [f"${{{logical_id}}}", symbol(properties.get("BucketName"))]
        linked = [name for name in names if name in prefixes]
        if not linked:
            continue
        own = [prefix for name in linked for prefix in prefixes[name]]
        imported = any(name in importing for name in linked)
        for holder, bucket in _facts(stack, logical_id, properties, names, own, imports=imported):
            for finding in engine.check_linked_bucket(bucket):
                yield holder, finding


def lifecycle_granted(policies: list[Mapping[str, Any]]) -> bool | None:
    """Whether one of the bucket's policies lets lifecycle open sessions; None where that cannot be read."""
    for policy in policies:
        document = policy.get("PolicyDocument")
        if not isinstance(document, Mapping) or is_intrinsic(document):
            return None
        for statement in _statements(document):
            service = symbol(_member(statement.get("Principal"), "Service"))
            services = _texts(_member(statement.get("Principal"), "Service"))
            actions = [action.lower() for action in _texts(statement.get("Action"))]
            if statement.get("Effect") == "Allow" and any(action in _SESSION_ACTIONS for action in actions):
                if any(_LIFECYCLE_PRINCIPAL in name for name in services):
                    return True
                if service.startswith("${"):
                    return None
    return False


def express_policy(properties: Mapping[str, Any]) -> ExpressPolicy:
    """Return actions and resources of a policy of a directory bucket."""
    document = properties.get("PolicyDocument")
    statements = _statements(document) if isinstance(document, Mapping) else []
    return ExpressPolicy(
        actions=tuple(action for statement in statements for action in _texts(statement.get("Action"))),
        resources=tuple(resource for statement in statements for resource in _texts(statement.get("Resource"))),
    )


def _facts(
    stack: Stack,
    logical_id: str,
    properties: Mapping[str, Any],
    names: list[str],
    prefixes: list[str],
    *,
    imports: bool,
) -> Iterator[tuple[str, LinkedBucket]]:
    """Yield what each resource adds to the bucket: the bucket itself, its policies, CDK's notifications."""
    native = "NotificationConfiguration" in properties and imports
    yield (
        logical_id,
        LinkedBucket(
            name=logical_id,
            prefixes=tuple(prefixes),
            transitions=tuple(_transitions(properties)),
            notifications="NotificationConfiguration" if native else "",
        ),
    )
    for policy_id, policy in stack.of_type("AWS::S3::BucketPolicy"):
        if symbol(policy.get("Bucket")) in names:
            conditions = tuple(_vpc_conditions(policy.get("PolicyDocument")))
            yield policy_id, LinkedBucket(name=logical_id, prefixes=(), source_vpc_conditions=conditions)
    for custom_id, custom in stack.of_type("Custom::S3BucketNotifications"):
        managed = str(custom.get("Managed", True)).lower() == "true"
        if imports and managed and symbol(custom.get("BucketName")) in names:
            yield custom_id, LinkedBucket(name=logical_id, prefixes=(), notifications="CDK notifications of the bucket")


def _transitions(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    lifecycle = properties.get("LifecycleConfiguration")
    rules = lifecycle.get("Rules") if isinstance(lifecycle, Mapping) else None
    for rule in rules if isinstance(rules, list) else []:
        if not isinstance(rule, Mapping) or rule.get("Status") != "Enabled":
            continue
        prefix = rule.get("Prefix") or ""
        given = rule.get("Transitions")
        single = rule.get("Transition")
        for transition in [*(given if isinstance(given, list) else []), single]:
            storage_class = _member(transition, "StorageClass")
            if isinstance(storage_class, str) and isinstance(prefix, str):
                yield storage_class, prefix


def _vpc_conditions(document: object) -> Iterator[str]:
    """Yield the condition keys of a policy that keep out callers from elsewhere."""
    if not isinstance(document, Mapping) or is_intrinsic(document):
        return
    for statement in _statements(document):
        condition = statement.get("Condition")
        if not isinstance(condition, Mapping) or statement.get("Effect") != "Deny":
            continue
        for keys in condition.values():
            for key in keys if isinstance(keys, Mapping) else ():
                if str(key).lower() in _VPC_KEYS and not _lets_services_through(condition):
                    yield str(key)


def _lets_services_through(condition: Mapping[str, Any]) -> bool:
    """Whether a denial excepts requests by AWS services or by the FSx role."""
    keys = {str(key).lower() for block in condition.values() if isinstance(block, Mapping) for key in block}
    return bool(keys & {"aws:principalisawsservice", "aws:viaawsservice", "aws:principalarn", "aws:userid"})


def _statements(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = document.get("Statement")
    statements = given if isinstance(given, list) else [given]
    return [statement for statement in statements if isinstance(statement, Mapping) and not is_intrinsic(statement)]


def _texts(value: object) -> list[str]:
    return [symbol(item) for item in value] if isinstance(value, list) else [] if value is None else [symbol(value)]


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None
