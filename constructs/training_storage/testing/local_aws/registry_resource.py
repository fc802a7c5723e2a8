"""One handler that serves every CloudFormation type from its registry schema.

A type with behaviour of its own (a file system, an address) brings a :class:`Behaviour`; for every other type the
handler records the properties and makes the read-only attributes in their real formats.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training_storage.testing.local_aws.property_validation import property_errors, validation_failure
from training_storage.testing.local_aws.registry_schema import PropertyPath, RegistrySchema, schema_for
from training_storage.testing.local_aws.resource_attributes import generated_name, new_id, read_only_attributes

# Unique in its VPC although it is not the identifier.
_NAMES_BESIDE_IDENTIFIERS = {"AWS::EC2::SecurityGroup": "GroupName"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a resource is made: the account, Region and stack."""

    account: str
    region: str
    stack_name: str
    logical_id: str
    seed: str = ""


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a behaviour made: the value of Ref and attributes that replace the generic ones."""

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What making, changing and deleting a resource of one type does beyond recording it."""

    create: Callable[[Mapping[str, Any], Place], Made]
    delete: Callable[[str, Mapping[str, Any]], None]
    update: Callable[[str, Mapping[str, Any], Mapping[str, Any]], None] | None = None
    replacing: tuple[PropertyPath, ...] = ()


class PropertyValidationError(ValueError):
    """The properties break the registry schema."""


def validate(*, type_name: str, properties: Mapping[str, Any], region: str, logical_id: str) -> None:
    """Refuse properties that the registry schema forbids.

    Raises
    ------
    PropertyValidationError
        With the property's name, in CloudFormation's words.
    """
    schema = schema_for(type_name=type_name, region=region)
    if schema is None:
        return
    errors = property_errors(schema=schema, properties=properties)
    if errors:
        raise PropertyValidationError(validation_failure(logical_id=logical_id, errors=errors))


def create(
    *, schema: RegistrySchema, behaviour: Behaviour | None, properties: Mapping[str, Any], place: Place
) -> tuple[str, dict[str, Any]]:
    """Make a resource; return its physical id (what Ref gives) and its attributes."""
    if behaviour is not None:
        made = behaviour.create(properties, place)
        generic = _attributes(schema=schema, identifier=made.physical_id, properties=properties, place=place)
        return made.physical_id, {**generic, **made.attributes}
    identifier = _identifier(schema=schema, properties=properties, place=place)
    attributes = _attributes(schema=schema, identifier=identifier, properties=properties, place=place)
    known = {**attributes, **properties}
    parts = [str(known.get(".".join(path), identifier)) for path in schema.primary_identifier]
    return "|".join(parts) or identifier, attributes


def update(*, behaviour: Behaviour | None, physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Change a resource in place."""
    if behaviour is not None and behaviour.update is not None:
        behaviour.update(physical_id, old, new)


def replaces(
    *, schema: RegistrySchema, behaviour: Behaviour | None, old: Mapping[str, Any], new: Mapping[str, Any]
) -> bool:
    """Whether the change makes a new resource: a createOnly property differs, nested ones included."""
    paths = (*schema.create_only, *(behaviour.replacing if behaviour else ()))
    return any(_at(old, path) != _at(new, path) for path in paths)


def kept_custom_name(*, schema: RegistrySchema, old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return the user's own name of a resource when a replacement would need that name twice."""
    name = _NAMES_BESIDE_IDENTIFIERS.get(schema.type_name)
    if name is None:
        if len(schema.primary_identifier) != 1 or len(schema.primary_identifier[0]) != 1:
            return None
        name = schema.primary_identifier[0][0]
    return str(old[name]) if name in old and old.get(name) == new.get(name) else None


def _identifier(*, schema: RegistrySchema, properties: Mapping[str, Any], place: Place) -> str:
    """Return the id in ARNs: the user's name, a generated name, or an id in the service's format."""
    for path in schema.primary_identifier:
        if path in schema.read_only or len(path) != 1:
            continue
        given = properties.get(path[0])
        return str(
            given
            if given is not None
            else generated_name(
                schema=schema, path=path, stack_name=place.stack_name, logical_id=place.logical_id, seed=place.seed
            )
        )
    return new_id(schema.type_name)


def _attributes(
    *, schema: RegistrySchema, identifier: str, properties: Mapping[str, Any], place: Place
) -> dict[str, Any]:
    return read_only_attributes(
        schema=schema, identifier=identifier, account=place.account, region=place.region, properties=properties
    )


def _at(value: Any, path: PropertyPath) -> Any:  # noqa: ANN401 - walks JSON
    for index, part in enumerate(path):
        if part == "*":
            rest = path[index + 1 :]
            return [_at(item, rest) for item in value] if isinstance(value, list) else None
        value = value.get(part) if isinstance(value, dict) else None
    return value
