"""Compares two templates: which resources with data would be replaced or removed, and by which property."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from training_storage.planning.catalog import lustre
from training_storage.planning.catalog.stateful import ResourceType, resource_types
from training_storage.planning.guard.evaluation import Evaluator, parameter_values, plain
from training_storage.planning.legality import MetadataConfiguration, read_file_system
from training_storage.planning.legality.finding import MESSAGE_MAXIMUM_CHARACTERS, shorten
from training_storage.planning.legality.intrinsics import canonical, is_intrinsic, referenced
from training_storage.planning.legality.template import NESTED_STACK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SOURCE = "CloudFormation registry schemas (createOnlyProperties)"
_DOCUMENTED = "CloudFormation user guide, AWS::FSx::FileSystem (update requires replacement); docs/decisions/0005"
_REFUSED = "FSx API, UpdateFileSystemRequest"
_DELETION = "CloudFormation user guide, DeletionPolicy"
_CAUSE_CHARACTERS = 90
_PARTS_COMPARED = 20_000
_LEFT_OUT = " (left out of one template)"
_IF = "Fn::If"
_IF_PARTS = 3  # the condition and its two branches; anything else is no Fn::If that could be read
_KEEPS = ("Retain", "RetainExceptOnCreate")
_FILE_SYSTEM = "AWS::FSx::FileSystem"

#: Types that take a snapshot when CloudFormation deletes them.
_SNAPSHOT = ("AWS::EC2::Volume",)


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
    possible
        Whether only AWS knows: a property that was left out is written out with its default, or the other way round.
        CloudFormation compares templates, so it may take that for a change.
    """

    logical_id: str
    type_name: str
    effect: Effect
    properties: tuple[str, ...]
    data: str
    source: str
    possible: bool = False

    @property
    def rule(self) -> str:
        """Id of the rule, for example ``guard-replaced``."""
        return f"guard-{self.effect.value}"

    @property
    def message(self) -> str:
        """One line of at most 200 characters."""
        what = {
            Effect.REPLACED: f"{'may' if self.possible else 'would'} be replaced because of",
            Effect.REMOVED: "would be removed",
            Effect.REFUSED: "may not be updated: the service may refuse to be told"
            if self.possible
            else "cannot be updated: the service refuses a change of",
        }[self.effect]
        cause = f" {', '.join(self.properties)}" if self.properties else ""
        kind = self.type_name.removeprefix("AWS::")
        brief = f" {shorten(cause, _CAUSE_CHARACTERS)}" if cause else ""
        return shorten(f"{kind} {what}{brief}; {self.data}", MESSAGE_MAXIMUM_CHARACTERS)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What an update would lose, and what could not be compared (one line each)."""

    losses: tuple[Loss, ...]
    unchecked: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Nested:
    """The template of a nested stack, and the parameters that it has, where they are known."""

    template: Mapping[str, Any]
    parameters: Mapping[str, Any] | None = None
    reader: NestedReader | None = None


#: Finds the template of a nested stack by its logical id and resource; None where it is not at hand.
NestedReader = Callable[[str, Mapping[str, Any]], "Nested | None"]


@dataclass(frozen=True, kw_only=True)
class _Causes:
    """What replaces a resource; not `certain` where only AWS knows whether it does."""

    properties: tuple[str, ...]
    certain: bool


_NO_CAUSES = _Causes(properties=(), certain=False)


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One of the two templates, evaluated: the resources that are there for certain or may be."""

    resources: Mapping[str, Mapping[str, Any]]
    doubtful: Mapping[str, str]
    evaluator: Evaluator

    def properties(self, logical_id: str) -> Mapping[str, Any]:
        properties = self.evaluator.value(self.resources[logical_id].get("Properties"))
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

    `compare` also says what could not be compared.

    Parameters
    ----------
    before, after
        Parsed templates: what stands and what is to come.
    accept
        Logical ids whose loss is accepted; they are left out. Those of a nested stack are named ``Stack/Resource``.
    parameters_before, parameters_after
        Values of parameters, where they are known; defaults of the templates otherwise. A parameter of the stack that
        is not given anew keeps its value.
    """
    return compare(
        before,
        after,
        accept=accept,
        parameters_before=parameters_before,
        parameters_after=parameters_after,
        keep_parameters=parameters_before is not None,
    ).losses


def compare(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    accept: Collection[str] = (),
    parameters_before: Mapping[str, Any] | None = None,
    parameters_after: Mapping[str, Any] | None = None,
    keep_parameters: bool = False,
    nested_before: NestedReader | None = None,
    nested_after: NestedReader | None = None,
) -> Comparison:
    """Return what an update from `before` to `after` would lose, and what could not be compared.

    Parameters
    ----------
    before, after, accept, parameters_before, parameters_after
        As for `compare_templates`.
    keep_parameters
        Whether a parameter that is not given anew keeps its value, as in the update of a stack.
    nested_before, nested_after
        Find the templates of nested stacks; without them nested stacks are named as not compared.
    """
    old, new = _sides(before, after, parameters_before, parameters_after, keep=keep_parameters)
    replaced = _replaced(old, new)
    losses = [
        *_removals(old, new),
        *(_replacement(old, new, logical_id, found) for logical_id, found in replaced.items()),
        *_refusals(old, new, replaced),
    ]
    order = {logical_id: number for number, logical_id in enumerate(old.resources)}
    types = resource_types()
    stateful = [
        loss for loss in sorted(losses, key=lambda loss: order[loss.logical_id]) if types[loss.type_name].stateful
    ]
    within = _nested(old, new, nested_before, nested_after, replaced=set(replaced))
    return Comparison(
        losses=tuple(loss for loss in (*stateful, *within.losses) if loss.logical_id not in accept),
        unchecked=(*_doubts(old, new), *within.unchecked),
    )


def _sides(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    parameters_before: Mapping[str, Any] | None,
    parameters_after: Mapping[str, Any] | None,
    *,
    keep: bool,
) -> tuple[_Side, _Side]:
    declared_before, declared_after = (_members(template.get("Parameters")) for template in (before, after))
    one = parameter_values(before, parameters_before)
    kept = {name: value for name, value in one.items() if name in declared_after}
    given = {**(kept if keep else {}), **(parameters_after or {})}
    other = parameter_values(after, given)
    # A parameter of both whose value is known of one only is taken as kept.
    for name in declared_before.keys() & declared_after.keys():
        if (name in one) != (name in other):
            one.pop(name, None)
            other.pop(name, None)
    return _side(before, one), _side(after, other)


def _side(template: Mapping[str, Any], parameters: Mapping[str, Any]) -> _Side:
    evaluator = Evaluator(template, parameters)
    resources: dict[str, Mapping[str, Any]] = {}
    doubtful: dict[str, str] = {}
    for logical_id, resource in _members(template.get("Resources")).items():
        if not isinstance(resource, Mapping):
            continue
        condition = resource.get("Condition")
        holds = True if condition is None else evaluator.condition(condition)
        if holds is None:
            doubtful[str(logical_id)] = str(condition)
        if holds is not False:
            resources[str(logical_id)] = resource
    return _Side(resources=resources, doubtful=doubtful, evaluator=evaluator)


def _members(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _doubts(old: _Side, new: _Side) -> Iterator[str]:
    """Yield what depends on conditions and mappings that changed and are known only at deployment."""
    for name in sorted(old.evaluator.unknown | new.evaluator.unknown):
        if _changed(old, new, name):
            yield f"{name}: changed and known only at deployment, so what depends on it is not compared"
    for logical_id, condition in new.doubtful.items():
        kind = resource_types().get(str(new.resources[logical_id].get("Type")))
        if kind is None or not kind.stateful or logical_id not in old.resources:
            continue
        if old.doubtful.get(logical_id) != condition or _changed(old, new, condition):
            yield f"{logical_id}: removed unless condition {condition} holds, which is known only at deployment"


def _changed(old: _Side, new: _Side, name: str) -> bool:
    return _canonical(old.evaluator.definition(name)) != _canonical(new.evaluator.definition(name))


def _nested(
    old: _Side,
    new: _Side,
    nested_before: NestedReader | None,
    nested_after: NestedReader | None,
    *,
    replaced: set[str],
) -> Comparison:
    """Compare the nested stacks of both sides, as far as their templates are at hand."""
    losses: list[Loss] = []
    unchecked: list[str] = []
    for logical_id, resource in old.resources.items():
        if resource.get("Type") != NESTED_STACK:
            continue
        stays = new.resources.get(logical_id, {}).get("Type") == NESTED_STACK
        before = nested_before(logical_id, resource) if nested_before else None
        if not stays:
            policy = str(resource.get("DeletionPolicy") or "Delete")
            if policy in _KEEPS:
                continue
            if before is None:
                losses.append(_removed_stack(logical_id))
                continue
            after: Nested | None = Nested(template={})
        else:
            after = nested_after(logical_id, new.resources[logical_id]) if nested_after else None
        if before is None or after is None:
            unchecked.append(f"{logical_id}: nested stack whose template is not at hand, so it is not compared")
            continue
        standing = _passed(old, logical_id) | dict(before.parameters or {})
        found = compare(
            before.template,
            after.template,
            parameters_before=standing,
            parameters_after=_passed_anew(old, new, logical_id, standing, replaced) if stays else None,
            nested_before=before.reader,
            nested_after=after.reader,
        )
        losses += [replace(loss, logical_id=f"{logical_id}/{loss.logical_id}") for loss in found.losses]
        unchecked += [f"{logical_id}/{note}" for note in found.unchecked]
    return Comparison(losses=tuple(losses), unchecked=tuple(unchecked))


def _passed(side: _Side, logical_id: str) -> dict[str, Any]:
    """Return the parameters that a nested stack is given; what is not known of them stays a function."""
    return {**side.evaluator.pseudo_parameters, **_members(side.properties(logical_id).get("Parameters"))}


def _passed_anew(
    old: _Side, new: _Side, logical_id: str, standing: Mapping[str, Any], replaced: set[str]
) -> dict[str, Any]:
    """Return the parameters after the update: given alike they keep their values, unless what they name is replaced."""
    before, values = _passed(old, logical_id), _passed(new, logical_id)
    for name, value in values.items():
        behind = sorted(referenced(value) & replaced)
        if behind:
            values[name] = {"Fn::Sub": f"${{the new {behind[0]}}}"}
        elif name in before and not _differ(before[name], value):
            values[name] = standing[name]
    return values


def _removed_stack(logical_id: str) -> Loss:
    return Loss(
        logical_id=logical_id,
        type_name=NESTED_STACK,
        effect=Effect.REMOVED,
        properties=(),
        data="what it holds is deleted unless a DeletionPolicy within retains it; its template is not at hand",
        source=_DELETION,
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
            source=_DELETION,
        )


def _replacement(old: _Side, new: _Side, logical_id: str, found: _Causes) -> Loss:
    kind = resource_types()[str(old.resources[logical_id]["Type"])]
    documented = any(cause.removesuffix(_LEFT_OUT) in kind.replaced for cause in found.properties)
    return Loss(
        logical_id=logical_id,
        type_name=kind.name,
        effect=Effect.REPLACED,
        properties=found.properties,
        data=_fate(kind, new.resources[logical_id].get("UpdateReplacePolicy"), policy="UpdateReplacePolicy"),
        source=_DOCUMENTED if documented else _SOURCE,
        possible=not found.certain,
    )


def _fate(kind: ResourceType, policy_value: object, *, policy: str) -> str:
    """Return what happens to the data, given a policy of the template."""
    value = str(policy_value or "Delete")
    if value in _KEEPS:
        new = "the new one is empty, and " if policy == "UpdateReplacePolicy" else ""
        return f"{new}the old one stays outside the stack ({policy} {value})"
    if value == "Snapshot" and kind.name in _SNAPSHOT:
        return "the old one is deleted after a snapshot"
    without = f" ({policy} Snapshot is not supported here)" if value == "Snapshot" else ""
    return f"lost{without}: {kind.data}"


def _replaced(old: _Side, new: _Side) -> dict[str, _Causes]:
    """Return the replaced resources with the properties that cause it; a replacement changes what refers to it."""
    both = [
        logical_id
        for logical_id, resource in old.resources.items()
        if logical_id in new.resources
        and new.resources[logical_id].get("Type") == resource.get("Type")
        and str(resource.get("Type")) in resource_types()
    ]
    replaced: dict[str, _Causes] = {}
    changed = True
    while changed:
        changed = False
        for logical_id in both:
            if logical_id in replaced and replaced[logical_id].certain:
                continue
            found = _causes(old, new, logical_id, replaced)
            if found != replaced.get(logical_id, _NO_CAUSES):
                replaced[logical_id] = found
                changed = True
    return replaced


def _causes(old: _Side, new: _Side, logical_id: str, replaced: Mapping[str, _Causes]) -> _Causes:
    kind = resource_types()[str(old.resources[logical_id]["Type"])]
    before, after = old.properties(logical_id), new.properties(logical_id)
    causes: list[str] = []
    possible: list[str] = []
    for path in (*kind.create_only, *kind.replaced):
        one, other = _meant(kind, before, path), _meant(kind, after, path)
        if _differ(one, other):
            causes.append(_cause(path, before, after))
        else:
            behind = sorted(referenced(other) & replaced.keys(), key=lambda name: (not replaced[name].certain, name))
            if behind and replaced[behind[0]].certain:
                causes.append(f"{path} ({behind[0]} is replaced)")
            elif behind:
                possible.append(f"{path} ({behind[0]} may be replaced)")
            elif _left_out(before, after, path):
                possible.append(f"{path}{_LEFT_OUT}")
    # What is certain needs no guesses beside it.
    return _Causes(properties=tuple(dict.fromkeys(causes or possible)), certain=bool(causes))


def _cause(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the property that is named as the cause: the whole of what is a function, once."""
    names = path.split(".")
    for length in range(1, len(names)):
        parent = ".".join(names[:length])
        if any(
            is_intrinsic(value) and _IF not in _members(value) for value in (_at(before, parent), _at(after, parent))
        ):
            return parent
    return path


def _refusals(old: _Side, new: _Side, replaced: Mapping[str, _Causes]) -> Iterator[Loss]:
    """Yield updates that the service refuses: what changes neither in place nor by replacement."""
    for logical_id, resource in old.resources.items():
        kind = resource_types().get(str(resource.get("Type")))
        if kind is None or logical_id in replaced or logical_id not in new.resources:
            continue
        if new.resources[logical_id].get("Type") != kind.name:
            continue
        before, after = old.properties(logical_id), new.properties(logical_id)
        causes = [path for path in kind.refused if _differ(_meant(kind, before, path), _meant(kind, after, path))]
        if kind.name == _FILE_SYSTEM:
            causes += _shrunk(before, after)
        possible = [] if causes else [f"{path}{_LEFT_OUT}" for path in kind.refused if _left_out(before, after, path)]
        if causes or possible:
            yield Loss(
                logical_id=logical_id,
                type_name=kind.name,
                effect=Effect.REFUSED,
                properties=tuple(causes or possible),
                data="the update fails and is rolled back, the data stays",
                source=_REFUSED,
                possible=not causes,
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
        if new.metadata.mode == "AUTOMATIC" and isinstance(more, int) and isinstance(other, int):
            automatic = lustre.automatic_metadata_iops(other)
            if automatic < more:
                yield f"MetadataConfiguration.Mode ({more} IOPS to AUTOMATIC's {automatic}; they only grow)"


def _meant(kind: ResourceType, properties: Mapping[str, Any], path: str) -> object:
    """Return the value at a path, or what it means where it is left out."""
    value = _at(properties, path)
    return kind.defaults.get(path) if value is None else value


def _left_out(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> bool:
    """Whether only one side names the property; both mean the same."""
    return (_at(before, path) is None) != (_at(after, path) is None)


def _at(properties: object, path: str) -> object:
    """Return the value at a path; where a condition decides that is not known, the value by each branch."""
    value = properties
    names = path.split(".")
    for number, name in enumerate(names):
        if not isinstance(value, Mapping):
            return None
        if is_intrinsic(value) and isinstance(value.get(_IF), list) and len(value[_IF]) == _IF_PARTS:
            condition, *branches = value[_IF]
            found = [_at(branch, ".".join(names[number:])) for branch in branches]
            same = _canonical(found[0]) == _canonical(found[1])
            return found[0] if same else {_IF: [condition, *found]}
        if is_intrinsic(value):
            # What is within is known only at deployment: the whole of it is compared.
            return value
        value = value.get(name)
    return value


def _differ(one: object, other: object) -> bool:
    return _canonical(one) != _canonical(other)


def _canonical(value: object) -> str:
    """Return a value for comparison; CloudFormation takes ``"1200"`` for 1200 and ``"true"`` for true."""
    text = plain(value)
    return canonical(value, most=_PARTS_COMPARED) if text is None else text
