"""Reads from a template what is known of buckets: lifecycles, policies and notifications of linked ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from training_storage.planning.legality import engine
from training_storage.planning.legality.express import ExpressPolicy
from training_storage.planning.legality.intrinsics import is_intrinsic, symbol
from training_storage.planning.legality.links import LinkedBucket
from training_storage.planning.legality.properties import read_link

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from training_storage.planning.legality.finding import Finding
    from training_storage.planning.legality.template import Stack

_REPOSITORY = re.compile(r"s3://(?P<bucket>\$\{[^}]*\}|[^/]+)/?(?P<prefix>.*)", re.DOTALL)
_VPC_KEYS = ("aws:sourcevpc", "aws:sourcevpce", "aws:vpcsourceip")
#: What FSx does in a linked bucket (its service-linked role, and the check of the bucket's ACL).
_FSX_ACTIONS = (
    "s3:abortmultipartupload",
    "s3:deleteobject",
    "s3:getbucketacl",
    "s3:getbucketnotification",
    "s3:getobject",
    "s3:listbucket",
    "s3:putbucketnotification",
    "s3:putobject",
)
_LIFECYCLE_PRINCIPAL = "lifecycle.s3."
_SESSION = "s3express:createsession"
_SESSION_MODE, _READ_WRITE = "s3express:sessionmode", "readwrite"


@dataclass(kw_only=True)
class _Linked:
    """The linked prefixes of one bucket, and whether something of it is imported by itself."""

    prefixes: list[str] = field(default_factory=list)
    imports: bool = False


def check_linked_buckets(stack: Stack) -> Iterator[tuple[str, Finding]]:
    """Yield what breaks the links of buckets, whether the template makes the buckets or only names them."""
    linked = _linked(stack)
    for logical_id, properties in stack.of_type("AWS::S3::Bucket"):
        names = [f"${{{logical_id}}}", symbol(properties.get("BucketName"))]
        own = [linked.pop(name) for name in dict.fromkeys(names) if name in linked]
        if own:
            both = _Linked(
                prefixes=[prefix for one in own for prefix in one.prefixes], imports=any(one.imports for one in own)
            )
            yield from _check_bucket(stack, logical_id, properties, names, both)
    for name, one in linked.items():
        yield from _check_bucket(stack, name, {}, [name], one)


def bucket_facts(
    name: str, properties: Mapping[str, Any], *, prefixes: Sequence[str], imports: bool = False
) -> LinkedBucket:
    """Return what the properties of AWS::S3::Bucket say of a linked bucket."""
    return LinkedBucket(
        name=name,
        prefixes=tuple(prefixes),
        transitions=(*_transitions(properties), *_archive_tiers(properties)),
        notifications="NotificationConfiguration" if "NotificationConfiguration" in properties and imports else "",
    )


def policy_facts(name: str, document: object) -> LinkedBucket:
    """Return what a policy of a linked bucket says of it."""
    return LinkedBucket(name=name, prefixes=(), source_vpc_conditions=tuple(_vpc_conditions(document)))


def _linked(stack: Stack) -> dict[str, _Linked]:
    """Return what is linked, by how the template calls the bucket."""
    found: dict[str, _Linked] = {}

    def add(path: object, *, imports: bool) -> None:
        match = _REPOSITORY.fullmatch(symbol(path))
        if match is None:
            return
        one = found.setdefault(match["bucket"], _Linked())
        prefix = match["prefix"]
        one.prefixes.append(prefix if not prefix or prefix.endswith("/") else f"{prefix}/")
        one.imports = one.imports or imports

    for _, properties in stack.of_type("AWS::FSx::DataRepositoryAssociation"):
        # An empty list of events turns the import off.
        add(properties.get("DataRepositoryPath"), imports=read_link(properties).import_events != ())
    for _, properties in stack.of_type("AWS::FSx::FileSystem"):
        lustre = properties.get("LustreConfiguration")
        if isinstance(lustre, Mapping) and "ImportPath" in lustre:
            add(lustre["ImportPath"], imports=lustre.get("AutoImportPolicy", "NONE") != "NONE")
    return found


def lifecycle_granted(policies: list[Mapping[str, Any]]) -> bool | None:
    """Whether the bucket's policies let lifecycle open sessions that write; None where that cannot be read."""
    granted: bool | None = False
    for policy in policies:
        document = policy.get("PolicyDocument")
        if not isinstance(document, Mapping) or is_intrinsic(document):
            return None
        for statement in _statements(document):
            actions = _texts(statement.get("Action"))
            named = _names_lifecycle(statement.get("Principal"))
            if named is False or not any(_matches(action, _SESSION) for action in actions):
                continue
            modes = _session_modes(statement.get("Condition"))
            if statement.get("Effect") == "Deny" and named and modes is True:
                return False
            if statement.get("Effect") == "Allow" and modes is not False:
                granted = True if named else granted or None
    return granted


def _names_lifecycle(principal: object) -> bool | None:
    """Whether a statement is about lifecycle; None where the service is known only at deployment."""
    if principal == "*" or "*" in _texts(_member(principal, "AWS")):
        return True
    services = _texts(_member(principal, "Service"))
    if any(_LIFECYCLE_PRINCIPAL in name for name in services):
        return True
    return None if any(name.startswith("${") for name in services) else False


def _session_modes(condition: object) -> bool | None:
    """Whether conditions let sessions that write through: None where other conditions decide as well."""
    certain = True
    for operator, keys in condition.items() if isinstance(condition, Mapping) else ():
        for key, value in keys.items() if isinstance(keys, Mapping) else ():
            if str(key).lower() != _SESSION_MODE:
                certain = False
                continue
            values = [text.lower() for text in _texts(value)]
            named = _READ_WRITE in values or any("${" in text for text in values)
            if named == ("not" in str(operator).lower()):
                return False
    return True if certain else None


def express_policy(properties: Mapping[str, Any]) -> ExpressPolicy:
    """Return actions and resources of a policy of a directory bucket."""
    document = properties.get("PolicyDocument")
    statements = _statements(document) if isinstance(document, Mapping) else []
    return ExpressPolicy(
        actions=tuple(action for statement in statements for action in _texts(statement.get("Action"))),
        resources=tuple(resource for statement in statements for resource in _texts(statement.get("Resource"))),
    )


def _check_bucket(
    stack: Stack, name: str, properties: Mapping[str, Any], names: list[str], linked: _Linked
) -> Iterator[tuple[str, Finding]]:
    """Yield what is wrong with the bucket itself, its policies, and CDK's notifications of it."""
    own = bucket_facts(name, properties, prefixes=linked.prefixes, imports=linked.imports)
    facts = [(name, own)]
    for policy_id, policy in stack.of_type("AWS::S3::BucketPolicy"):
        if symbol(policy.get("Bucket")) in names:
            facts.append((policy_id, policy_facts(name, policy.get("PolicyDocument"))))
    for custom_id, custom in stack.of_type("Custom::S3BucketNotifications"):
        managed = str(custom.get("Managed", True)).lower() == "true"
        if linked.imports and managed and symbol(custom.get("BucketName")) in names:
            notified = LinkedBucket(name=name, prefixes=(), notifications="CDK notifications of the bucket")
            facts.append((custom_id, notified))
    for holder, bucket in facts:
        for finding in engine.check_linked_bucket(bucket):
            yield holder, finding


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


def _archive_tiers(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the archive tiers of S3 Intelligent-Tiering, which are opted into, with their prefixes."""
    configurations = properties.get("IntelligentTieringConfigurations")
    for configuration in configurations if isinstance(configurations, list) else []:
        if _member(configuration, "Status") != "Enabled":
            continue
        prefix = _member(configuration, "Prefix") or ""
        tierings = _member(configuration, "Tierings")
        for tiering in tierings if isinstance(tierings, list) else []:
            tier = _member(tiering, "AccessTier")
            if isinstance(tier, str) and isinstance(prefix, str):
                yield tier, prefix


def _vpc_conditions(document: object) -> Iterator[str]:
    """Yield the condition keys of a policy that keep FSx out because it comes from elsewhere."""
    if not isinstance(document, Mapping) or is_intrinsic(document):
        return
    for statement in _statements(document):
        condition = statement.get("Condition")
        if not isinstance(condition, Mapping) or statement.get("Effect") != "Deny" or not _keeps_fsx_out(statement):
            continue
        for operator, keys in condition.items():
            for key, value in keys.items() if isinstance(keys, Mapping) else ():
                if (
                    str(key).lower() in _VPC_KEYS
                    and _holds_elsewhere(str(operator).lower(), value)
                    and not _lets_services_through(condition)
                ):
                    yield str(key)


def _keeps_fsx_out(statement: Mapping[str, Any]) -> bool:
    """Whether a denial is of something that FSx does."""
    if "NotAction" in statement:
        spared = _texts(statement.get("NotAction"))
        return any(not any(_matches(pattern, action) for pattern in spared) for action in _FSX_ACTIONS)
    denied = _texts(statement.get("Action"))
    return any(_matches(pattern, action) for pattern in denied for action in _FSX_ACTIONS)


def _holds_elsewhere(operator: str, value: object) -> bool:
    """Whether a condition holds for a request without the caller's VPC: a list of VPCs to keep out does not."""
    if operator.endswith("null"):
        return "true" in [text.lower() for text in _texts(value)]
    return "not" in operator or operator.endswith("ifexists")


def _lets_services_through(condition: Mapping[str, Any]) -> bool:
    """Whether a denial excepts requests by AWS services or by the FSx role."""
    keys = {str(key).lower() for block in condition.values() if isinstance(block, Mapping) for key in block}
    return bool(keys & {"aws:principalisawsservice", "aws:viaawsservice", "aws:principalarn", "aws:userid"})


def _statements(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = document.get("Statement")
    statements = given if isinstance(given, list) else [given]
    return [statement for statement in statements if isinstance(statement, Mapping) and not is_intrinsic(statement)]


def _matches(pattern: str, action: str) -> bool:
    """Whether an action of a policy, which may have wildcards, is or holds `action` (in small letters)."""
    return fnmatchcase(action, pattern.lower().replace("[", "[[]"))


def _texts(value: object) -> list[str]:
    items = value if isinstance(value, list) else [] if value is None else [value]
    return [str(item) if isinstance(item, bool) else symbol(item) for item in items]


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None
