"""Finds the templates of nested stacks: in a cloud assembly, beside a template, or of a deployed stack."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from training_storage.cli.template_files import read_source
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.guard import NESTED_STACK, Nested, NestedReader
from training_storage.planning.legality.intrinsics import is_intrinsic, symbol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What CDK writes beside a nested stack: the file that becomes its TemplateURL.
_ASSET_PATH, _ASSET_PROPERTY, _URL = "aws:asset:path", "aws:asset:property", "TemplateURL"


def nested_stacks(template: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield logical id and resource of the nested stacks of a template."""
    resources = template.get("Resources")
    for logical_id, resource in resources.items() if isinstance(resources, Mapping) else ():
        if isinstance(resource, Mapping) and resource.get("Type") == NESTED_STACK:
            yield str(logical_id), resource


def nested_file(folder: Path, resource: Mapping[str, Any]) -> Path | None:
    """Return the file of a nested stack's template, or None where there is none in or below `folder`'s reach."""
    metadata, properties = resource.get("Metadata"), resource.get("Properties")
    name = None
    if isinstance(metadata, Mapping) and metadata.get(_ASSET_PROPERTY) == _URL:
        name = metadata.get(_ASSET_PATH)
    elif isinstance(properties, Mapping):
        name = properties.get(_URL)
        if is_intrinsic(name):
            name = _asset(folder, symbol(name))
    if not isinstance(name, str) or "://" in name or "\0" in name:
        return None
    path = folder / name
    try:
        return path.resolve() if path.is_file() else None
    except OSError:
        return None


def _asset(folder: Path, url: str) -> str | None:
    """Return the file that an assembly uploads to `url`, by the list of assets that CDK writes for every stack."""
    for path in sorted(folder.glob("*.assets.json")):
        try:
            files = json.loads(path.read_text(encoding="utf-8"))["files"]
            for asset in files.values():
                keys = [place["objectKey"] for place in asset["destinations"].values()]
                if any(url.endswith(f"/{key}") for key in keys):
                    return str(asset["source"]["path"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # No list of assets: it names nothing.
            continue
    return None


def files_reader(path: Path, above: frozenset[Path] = frozenset()) -> NestedReader:
    """Return what reads the nested templates of the template at `path`; `above` are those that it is nested in."""
    seen = above | {path.resolve()}

    def read(_: str, resource: Mapping[str, Any]) -> Nested | None:
        file = nested_file(path.parent, resource)
        if file is None or file in seen:
            return None
        try:
            source = read_source(file)
        except InvalidJobError:
            return None
        return Nested(template=source.document, reader=files_reader(file, seen))

    return read
