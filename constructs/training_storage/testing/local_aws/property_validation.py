"""Check resolved properties against a registry schema, in the words CloudFormation uses."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import regex  # type: ignore[import-untyped]
from jsonschema import Draft7Validator, TypeChecker, ValidationError, validators

from training_storage.testing.local_aws.registry_schema import RegistrySchema

_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")


def property_errors(*, schema: RegistrySchema, properties: Mapping[str, Any]) -> list[str]:
    """Return what CloudFormation would refuse about the properties, an empty list when it accepts them.

    Parameters
    ----------
    schema
        The registry schema of the resource type.
    properties
        The properties with every intrinsic function resolved.

    Notes
    -----
    CloudFormation converts scalars: ``"30"`` serves as an integer, ``"true"`` as a boolean and ``30`` as a string.
    """
    settable = _without_system_tags(schema, properties)
    errors = [
        f"#: extraneous key [{path[0]}] is not permitted"
        for path in schema.read_only
        if len(path) == 1 and path[0] in settable and path not in schema.create_only
    ]
    for error in _validator(schema).iter_errors(settable):
        errors.extend(_worded(error))
    return sorted(set(errors))


def validation_failure(*, logical_id: str, errors: list[str]) -> str:
    """Return the reason that CloudFormation gives the failed resource."""
    return f"Properties validation failed for resource {logical_id} with message:\n" + "\n".join(errors)


def _without_system_tags(schema: RegistrySchema, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the aws:cloudformation: tags, which CloudFormation itself adds after it has validated."""
    kept = dict(properties)
    tags = kept.get(schema.tag_property) if schema.tag_property else None
    if isinstance(tags, list):
        own: Any = [tag for tag in tags if not _is_system_tag(tag)]
    elif isinstance(tags, dict):
        own = {key: value for key, value in tags.items() if not key.startswith("aws:cloudformation:")}
    else:
        return kept
    if own or own == tags:
        kept[str(schema.tag_property)] = own
    else:
        del kept[str(schema.tag_property)]
    return kept


def _is_system_tag(tag: object) -> bool:
    return isinstance(tag, dict) and str(tag.get("Key", "")).startswith("aws:cloudformation:")


_VALIDATORS: dict[str, Any] = {}


def _validator(schema: RegistrySchema) -> Any:  # noqa: ANN401 - jsonschema's validators have no public type
    key = str(id(schema.document))
    if key not in _VALIDATORS:
        _VALIDATORS[key] = _CloudFormationValidator(schema.document)
    return _VALIDATORS[key]


# ---- the dialect --------------------------------------------------------------------------------------------------


def _is_integer(_checker: TypeChecker, value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, str) and _INTEGER.fullmatch(value) is not None)


def _is_number(_checker: TypeChecker, value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


def _is_boolean(_checker: TypeChecker, value: object) -> bool:
    return isinstance(value, bool) or (isinstance(value, str) and value.lower() in {"true", "false"})


def _is_string(_checker: TypeChecker, value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _pattern(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    # The registry's patterns use \p{L}, which the standard library lacks.
    if isinstance(value, str) and regex.search(pattern, value) is None:
        yield ValidationError(f"string [{value}] does not match pattern {pattern}")


def _pattern_properties(
    validator: Any,  # noqa: ANN401
    patterns: Mapping[str, Any],
    value: object,
    _schema: object,
) -> Iterator[ValidationError]:
    for name, item in value.items() if isinstance(value, dict) else ():
        for pattern, schema in patterns.items():
            if regex.search(pattern, name):
                yield from validator.descend(item, schema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any,  # noqa: ANN401
    allowed: object,
    value: object,
    schema: Mapping[str, Any],
) -> Iterator[ValidationError]:
    extra = _extraneous(value, schema) if isinstance(value, dict) else []
    if isinstance(allowed, dict):
        for name in extra:
            yield from validator.descend(value[name], allowed, path=name)  # type: ignore[index]
    elif not allowed and extra:
        yield ValidationError("extraneous keys")


def _enum(_validator: object, allowed: list[Any], value: object, _schema: object) -> Iterator[ValidationError]:
    if _scalar(value) not in {_scalar(item) for item in allowed if not isinstance(item, dict | list)}:
        yield ValidationError(f"{_scalar(value)} is not a valid enum value")


def _enum_any_case(_validator: object, allowed: list[Any], value: object, _schema: object) -> Iterator[ValidationError]:
    if str(value).lower() not in {str(item).lower() for item in allowed}:
        yield ValidationError(f"{value} is not a valid enum value")


def _minimum(_validator: object, least: float, value: object, _schema: object) -> Iterator[ValidationError]:
    if _is_number(_TYPES, value) and float(str(value)) < least:
        yield ValidationError(f"{value} is not greater or equal to {least}")


def _maximum(_validator: object, most: float, value: object, _schema: object) -> Iterator[ValidationError]:
    if _is_number(_TYPES, value) and float(str(value)) > most:
        yield ValidationError(f"{value} is not less or equal to {most}")


def _one_of(validator: Any, options: list[Any], value: object, _schema: object) -> Iterator[ValidationError]:  # noqa: ANN401
    # "30" is a string and an integer here, so one value may match several options; none at all is the fault.
    if not any(validator.evolve(schema=option).is_valid(value) for option in options):
        yield ValidationError("0 subschemas matched instead of one")


def _required_xor(_validator: object, names: list[str], value: object, _schema: object) -> Iterator[ValidationError]:
    given = [name for name in names if isinstance(value, dict) and name in value]
    if isinstance(value, dict) and len(given) != 1:
        found = f"found: [{', '.join(given)}]" if given else "found none"
        yield ValidationError(f"exactly one of [{', '.join(names)}] is required, {found}")


def _required_or(_validator: object, names: list[str], value: object, _schema: object) -> Iterator[ValidationError]:
    if isinstance(value, dict) and not any(name in value for name in names):
        yield ValidationError(f"at least one of [{', '.join(names)}] is required")


def _excluded(
    _validator: object, rules: Mapping[str, list[str]], value: object, _schema: object
) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for name, others in rules.items():
        for other in others:
            if name in value and other in value:
                yield ValidationError(f"property [{name}] is not permitted together with [{other}]")


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_TYPES: TypeChecker = Draft7Validator.TYPE_CHECKER.redefine_many(
    {"integer": _is_integer, "number": _is_number, "boolean": _is_boolean, "string": _is_string}
)
_CloudFormationValidator = validators.extend(
    Draft7Validator,
    validators={
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "enum": _enum,
        "enumCaseInsensitive": _enum_any_case,
        "minimum": _minimum,
        "maximum": _maximum,
        "oneOf": _one_of,
        "requiredXor": _required_xor,
        "requiredOr": _required_or,
        "dependentExcluded": _excluded,
    },
    type_checker=_TYPES,
)


# ---- the words ----------------------------------------------------------------------------------------------------

_FOUND = {dict: "JSONObject", list: "JSONArray", str: "String", bool: "Boolean", int: "Integer", float: "Number"}


_SIZES = {
    "minLength": "expected minLength: {limit}, actual: {size}",
    "maxLength": "expected maxLength: {limit}, actual: {size}",
    "minItems": "expected minimum item count: {limit}, found: {size}",
    "maxItems": "expected maximum item count: {limit}, found: {size}",
    "uniqueItems": "array items are not unique",
}


def _worded(error: ValidationError) -> list[str]:
    where = "/".join(["#", *(str(part) for part in error.absolute_path)])
    limit, found = error.validator_value, error.instance
    match error.validator:
        case "additionalProperties":
            texts = [f"extraneous key [{name}] is not permitted" for name in _extraneous(found, error.schema)]
        case "required":
            texts = [f"required key [{name}] not found" for name in limit if name not in found]
        case "type":
            expected = " or ".join(name.title() for name in ([limit] if isinstance(limit, str) else limit))
            texts = [f"expected type: {expected}, found: {_FOUND.get(type(found), 'Null')}"]
        case str() as keyword if keyword in _SIZES:
            texts = [_SIZES[keyword].format(limit=limit, size=len(found))]
        case _:
            texts = [error.message]
    return [f"{where}: {text}" for text in texts]


def _extraneous(value: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    return [
        name for name in value if name not in known and not any(regex.search(pattern, name) for pattern in patterns)
    ]
