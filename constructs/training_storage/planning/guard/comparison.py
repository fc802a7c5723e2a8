"""Compares two templates: which resources with data would be replaced or removed, and by which property."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.planning.catalog.stateful import ResourceType, resource_types
from training_storage.planning.legality import MetadataConfiguration, read_file_system
from training_storage.planning.legality.finding import MESSAGE_MAXIMUM_CHARACTERS, shorten
from training_storage.planning.legality.intrinsics import canonical, is_absent, is_intrinsic, referenced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SOURCE = "CloudFormation registry schemas (createOnlyProperties)"
_DOCUMENTED = "CloudFormation user guide, AWS::FSx::FileSystem (update requires replacement); docs/decisions/0005"
_REFUSED = "FSx API, UpdateFileSystemRequest"
_CAUSE_CHARACTERS = 90
_PARTS_COMPARED = 20_000
_KEEPS = ("Retain", "RetainExceptOnCreate")
_FILE_SYSTEM = "AWS::FSx::FileSystem"


class Effect(enum.Enum):
    """What an update would do to a resource."""

    REPLACED = "replaced"
    REMOVED = "removed"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A resource with data that an update would replace, remove, or fail on.

    Parameters
    ----------
    logical_id, type_name
        The resource.
    effect
        What happens to it.
    properties
        What causes it; empty for a removal.
    data
        What happens to its data.
    source
        Where that is written.
    """

    logical_id: str
    type_name: str
    effect: Effect
    properties: tuple[str, ...]
    data: str
    source: str

    @property
    def rule(self) -> str:
        """Id of the rule, for example ``guard-replaced``."""
        return f"guard-{self.effect.value}"

    @property
    def message(self) -> str:
        """One line of at most 200 characters."""
        what = {
            Effect.REPLACED: "would be replaced because of",
            Effect.REMOVED: "would be removed",
            Effect.REFUSED: "cannot be updated: the service refuses a change of",
        }[self.effect]
        cause = f" {', '.join(self.properties)}" if self.properties else ""
        kind = self.type_name.removeprefix("AWS::")
        brief = f" {shorten(cause, _CAUSE_CHARACTERS)}" if cause else ""
        return shorten(f"{kind} {what}{brief}; {self.data}", MESSAGE_MAXIMUM_CHARACTERS)


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One of the two templates with the values of its parameters."""

    resources: Mapping[str, Mapping[str, Any]]
    parameters: Mapping[str, Any]

    def properties(self, logical_id: str) -> Mapping[str, Any]:
        properties = self.resources[logical_id].get("Properties")
        return properties if isinstance(properties, Mapping) else {}


def compare_templates(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    accept: Collection[str] = (),
    parameters_before: Mapping[str, Any] | None = None,
    parameters_after: Mapping[str, Any] | None = None,
) -> tuple[Loss, ...]:
    """Return every resource with data that an update from `before` to `after` would replace, remove or fail on.

    Parameters
    ----------
    before, after
        Parsed templates: what stands and what is to come.
    accept
        Logical ids whose loss is accepted; they are left out.
    parameters_before, parameters_after
        Values of parameters, where they are known; defaults of the templates otherwise. A parameter of the stack that
        is not given anew keeps its value.
    """
    old = _side(before, parameters_before)
    kept = {name: value for name, value in old.parameters.items() if name in (after.get("Parameters") or {})}
    new = _side(after, {**(kept if parameters_before is not None else {}), **(parameters_after or {})})
    replaced = _replaced(old, new)
    losses = [
        *_removals(old, new),
        *(_replacement(old, new, logical_id, causes) for logical_id, causes in replaced.items()),
        *_refusals(old, new, replaced),
    ]
    order = {logical_id: number for number, logical_id in enumerate(old.resources)}
    types = resource_types()
    return tuple(
        loss
        for loss in sorted(losses, key=lambda loss: order[loss.logical_id])
        if loss.logical_id not in accept and types[loss.type_name].stateful
    )


def _side(template: Mapping[str, Any], values: Mapping[str, Any] | None) -> _Side:
    given = template.get("Resources")
    declared = template.get("Parameters")
    defaults = {
        name: declaration.get("Default")
        for name, declaration in (declared.items() if isinstance(declared, Mapping) else ())
        if isinstance(declaration, Mapping)
    }
    return _Side(
        resources={
            str(logical_id): resource
            for logical_id, resource in (given.items() if isinstance(given, Mapping) else ())
            if isinstance(resource, Mapping)
        },
        parameters={**defaults, **(values or {})},
    )


def _removals(old: _Side, new: _Side) -> Iterator[Loss]:
    for logical_id, resource in old.resources.items():
        kind = resource_types().get(str(resource.get("Type")))
        if kind is None:
            continue
        if logical_id in new.resources and new.resources[logical_id].get("Type") == resource.get("Type"):
            continue
        renamed = next(
            (
                other
                for other, candidate in new.resources.items()
                if other not in old.resources and candidate.get("Type") == kind.name
            ),
            None,
        )
        way = f" ({renamed} is a new one, not the same renamed)" if renamed else ""
        fate = _fate(kind, resource.get("DeletionPolicy"), policy="DeletionPolicy")
        yield Loss(
            logical_id=logical_id,
            type_name=kind.name,
            effect=Effect.REMOVED,
            properties=(),
            data=fate + way,
            source="CloudFormation user guide, DeletionPolicy",
        )


def _replacement(old: _Side, new: _Side, logical_id: str, causes: tuple[str, ...]) -> Loss:
    kind = resource_types()[str(old.resources[logical_id]["Type"])]
    documented = any(cause in kind.replaced for cause in causes)
    return Loss(
        logical_id=logical_id,
        type_name=kind.name,
        effect=Effect.REPLACED,
        properties=causes,
        data=_fate(kind, new.resources[logical_id].get("UpdateReplacePolicy"), policy="UpdateReplacePolicy"),
        source=_DOCUMENTED if documented else _SOURCE,
    )


def _fate(kind: ResourceType, policy_value: object, *, policy: str) -> str:
    """Return what happens to the data, given a policy of the template."""
    value = str(policy_value or "Delete")
    if value in _KEEPS:
        new = "the new one is empty, and " if policy == "UpdateReplacePolicy" else ""
        return f"{new}the old one stays outside the stack ({policy} {value})"
    if value == "Snapshot":
        return "the old one is deleted after a snapshot"
    return f"lost: {kind.data}"


def _replaced(old: _Side, new: _Side) -> dict[str, tuple[str, ...]]:
    """Return the replaced resources with the properties that cause it; a replacement changes what refers to it."""
    both = [
        logical_id
        for logical_id, resource in old.resources.items()
        if logical_id in new.resources
        and new.resources[logical_id].get("Type") == resource.get("Type")
        and resource.get("Type") in resource_types()
    ]
    replaced: dict[str, tuple[str, ...]] = {}
    changed = True
    while changed:
        changed = False
        for logical_id in both:
            if logical_id in replaced:
                continue
            causes = _causes(old, new, logical_id, set(replaced))
            if causes:
                replaced[logical_id] = causes
                changed = True
    return replaced


def _causes(old: _Side, new: _Side, logical_id: str, replaced: set[str]) -> tuple[str, ...]:
    kind = resource_types()[str(old.resources[logical_id]["Type"])]
    before, after = old.properties(logical_id), new.properties(logical_id)
    causes = []
    for path in (*kind.create_only, *kind.replaced):
        one, other = _at(before, path), _at(after, path)
        if _differ(one, other, old, new):
            causes.append(path)
        else:
            behind = sorted(referenced(other) & replaced)
            if behind:
                causes.append(f"{path} ({behind[0]} is replaced)")
    return tuple(causes)


def _refusals(old: _Side, new: _Side, replaced: Mapping[str, tuple[str, ...]]) -> Iterator[Loss]:
    """Yield updates that the service refuses: what changes neither in place nor by replacement."""
    for logical_id, resource in old.resources.items():
        kind = resource_types().get(str(resource.get("Type")))
        if kind is None or logical_id in replaced or logical_id not in new.resources:
            continue
        if new.resources[logical_id].get("Type") != kind.name:
            continue
        before, after = old.properties(logical_id), new.properties(logical_id)
        causes = [path for path in kind.refused if _differ(_at(before, path), _at(after, path), old, new)]
        if kind.name == _FILE_SYSTEM:
            causes += _shrunk(before, after)
        if causes:
            yield Loss(
                logical_id=logical_id,
                type_name=kind.name,
                effect=Effect.REFUSED,
                properties=tuple(causes),
                data="the update fails and is rolled back, the data stays",
                source=_REFUSED,
            )


def _shrunk(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield what of a file system would shrink, or grow where it cannot, or begin where it must have begun."""
    old, new = read_file_system(before), read_file_system(after)
    one, other = old.storage_capacity_gib, new.storage_capacity_gib
    if isinstance(one, int) and isinstance(other, int):
        if other < one:
            yield f"StorageCapacity ({one} to {other}; it only grows)"
        elif other > one and old.deployment_type == "SCRATCH_1":
            yield "StorageCapacity (SCRATCH_1 does not grow)"
    throughput, target = old.throughput_capacity, new.throughput_capacity
    if isinstance(throughput, int) and isinstance(target, int) and target < throughput:
        yield f"ThroughputCapacity ({throughput} to {target}; it only grows)"
    if old.metadata is None and isinstance(new.metadata, MetadataConfiguration):
        yield "MetadataConfiguration (only at creation)"
    if isinstance(old.metadata, MetadataConfiguration) and isinstance(new.metadata, MetadataConfiguration):
        less, more = new.metadata.iops, old.metadata.iops
        if isinstance(less, int) and isinstance(more, int) and less < more:
            yield f"MetadataConfiguration.Iops ({more} to {less}; they only grow)"


def _at(properties: Mapping[str, Any], path: str) -> object:
    value: object = properties
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        if is_intrinsic(value):
            # What is within is known only at deployment: the whole of it is compared.
            return value
        value = value.get(name)
    return None if is_absent(value) else value


def _differ(one: object, other: object, old: _Side, new: _Side) -> bool:
    if _canonical(one) != _canonical(other):
        return True
    # The same reference to a parameter whose value changes is a change; one that is not known is taken as kept.
    return any(
        name in old.parameters
        and name in new.parameters
        and _canonical(old.parameters[name]) != _canonical(new.parameters[name])
        for name in referenced(one)
    )


def _canonical(value: object) -> str:
    """Return a value for comparison; CloudFormation takes ``"1200"`` for 1200 and ``"true"`` for true."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    return canonical(value, most=_PARTS_COMPARED)
