"""The CloudFormation registry schemas that cfn-lint ships, one typed view for each resource type."""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PropertyPath = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RegistrySchema:
    """What the registry says about one resource type.

    Property paths are tuples of property names; ``*`` stands for the items of a list.
    """

    type_name: str
    document: Mapping[str, Any]
    create_only: tuple[PropertyPath, ...]
    read_only: tuple[PropertyPath, ...]
    primary_identifier: tuple[PropertyPath, ...]
    tag_property: str | None
    tags_are_a_map: bool

    @property
    def replacing_properties(self) -> tuple[str, ...]:
        """Top-level properties whose change always makes a new resource."""
        return tuple(path[0] for path in self.create_only if len(path) == 1)

    def definition_of(self, path: PropertyPath) -> Mapping[str, Any]:
        """Return the schema of the property at ``path``; an empty one where the registry says nothing."""
        node: Mapping[str, Any] = self.document
        for name in path:
            node = self.dereferenced(node.get("items", {}) if name == "*" else node.get("properties", {}).get(name, {}))
        return node

    def dereferenced(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow the local references of a schema node."""
        while "$ref" in node:
            target: Any = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node


def schema_for(*, type_name: str, region: str) -> RegistrySchema | None:
    """Return the schema of a resource type in a Region, or None where the Region does not offer the type."""
    file_name = _types_of(region).get(type_name)
    return None if file_name is None else _load(file_name)


def known_types() -> frozenset[str]:
    """Every resource type that some Region offers."""
    return frozenset(type_name for file in (_root() / "providers").glob("*.json") for type_name in _types_of(file.stem))


@cache
def _root() -> Path:
    # Located without importing cfn-lint: its import costs more than a second.
    spec = importlib.util.find_spec("cfnlint")
    if spec is None or not spec.submodule_search_locations:
        message = "cfn-lint must be installed for its registry schemas: pip install 'training-storage[local-aws]'"
        raise ModuleNotFoundError(message)
    return Path(spec.submodule_search_locations[0]) / "data" / "schemas"


@cache
def _types_of(region: str) -> Mapping[str, str]:
    file = _root() / "providers" / f"{region}.json"
    # A Region that cfn-lint does not know gets the largest catalogue.
    if not file.exists():
        file = _root() / "providers" / "us-east-1.json"
    types: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return types


@cache
def _load(file_name: str) -> RegistrySchema:
    document = json.loads((_root() / "resources" / f"{file_name}.json").read_text(encoding="utf-8"))
    tag_path = _path((document.get("tagging") or {}).get("tagProperty") or "/properties/Tags")
    schema = RegistrySchema(
        type_name=document["typeName"],
        document=document,
        create_only=_paths(document, "createOnlyProperties"),
        read_only=_paths(document, "readOnlyProperties"),
        primary_identifier=_paths(document, "primaryIdentifier"),
        tag_property=tag_path[0] if len(tag_path) == 1 and tag_path[0] in document["properties"] else None,
        tags_are_a_map=False,
    )
    if schema.tag_property is None:
        return schema
    is_map = schema.definition_of((schema.tag_property,)).get("type") == "object"
    return RegistrySchema(**{**vars(schema), "tags_are_a_map": is_map})


def _paths(document: Mapping[str, Any], key: str) -> tuple[PropertyPath, ...]:
    return tuple(_path(pointer) for pointer in document.get(key, ()))


def _path(pointer: str) -> PropertyPath:
    return tuple(part for part in pointer.removeprefix("/properties/").split("/") if part != "properties")
