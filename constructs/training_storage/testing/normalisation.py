"""Makes templates comparable: what changes with every release of CDK, or with the machine, is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from training_storage.testing.sources import Source, SynthesizedTemplate, read_template

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["normalise", "normalised"]

_ASSET = "ASSET"
_NESTED_STACK, _VERSION, _ANALYTICS = "AWS::CloudFormation::Stack", "AWS::Lambda::Version", "AWS::CDK::Metadata"
_URL = "TemplateURL"
_HASH = re.compile(r"[0-9a-f]{64}")
# A hash is an asset's where it is a whole key, with or without folder and suffix, or the tag of an image of CDK's
# repository. Others, such as the checksum of a download in user data, are somebody's values and stay.
_KEY = re.compile(r"(?:^|/)([0-9a-f]{64})(?:\.[A-Za-z0-9]+)?(?=$|[\s\"'])")
_TAG = re.compile(r"container-assets[^\s:]*:([0-9a-f]{64})\b")
_LEGACY = re.compile(r"AssetParameters([0-9a-f]{64})(S3Bucket|S3VersionKey|ArtifactHash)[0-9A-F]{8}")
_VERSION_ID = re.compile(r"(.+?)[0-9a-f]{32}")
_METADATA = ("aws:cdk:", "aws:asset:")
_BOOTSTRAP_PARAMETER, _BOOTSTRAP_RULE, _ANALYTICS_CONDITION = (
    "BootstrapVersion",
    "CheckBootstrapVersion",
    "CDKMetadataAvailable",
)


def normalised(source: Source) -> dict[str, Any]:
    """Return the template of `source` as snapshots hold it.

    Left out are the check of the bootstrap version, CDK's analytics, and the metadata that only CDK's tools read.
    The hash of every asset becomes ``ASSET``, also where it is part of the name of a Lambda version or of a parameter.
    The template of a nested stack stands in place of its ``TemplateURL``, if `source` is more than a parsed template.
    Keys are sorted. Doing it twice changes nothing.

    Parameters
    ----------
    source
        A stack, a template, or anything else that holds exactly one template.

    Raises
    ------
    TypeError, ValueError
        If it does not; one line.
    """
    return normalise(read_template(source))


def normalise(template: SynthesizedTemplate) -> dict[str, Any]:
    """Return a template as snapshots hold it."""
    hashes = _listed_hashes(template.path.parent) if template.path else frozenset[str]()
    return _Normaliser(hashes=hashes, path=template.path).run(template.document)


class _Normaliser:
    def __init__(self, *, hashes: frozenset[str], path: Path | None) -> None:
        self._listed = hashes
        self._path = path

    def run(self, template: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: content for name, content in _kept_sections(template).items() if content not in ({}, None)}
        renamed = _renamed(kept)
        hashes = self._listed or frozenset(_evident_hashes(kept))
        words = [*sorted(renamed, key=len, reverse=True), *sorted(hashes)]
        pattern = re.compile("|".join(map(re.escape, words))) if words else None

        def write(text: str) -> str:
            return pattern.sub(lambda found: renamed.get(found[0], _ASSET), text) if pattern else text

        nested = {
            logical_id: self._nested(resource)
            for logical_id, resource in _mapping(kept.get("Resources")).items()
            if _type(resource) == _NESTED_STACK
        }
        result: dict[str, Any] = _rewritten(kept, write)
        for logical_id, inner in nested.items():
            if inner is not None:
                result["Resources"][write(logical_id)].setdefault("Properties", {})[_URL] = inner
        return result

    def _nested(self, resource: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the template of a nested stack, normalised; None where it is not at hand."""
        url = _mapping(resource.get("Properties")).get(_URL)
        if isinstance(url, Mapping) and "Resources" in url:
            return _Normaliser(hashes=frozenset(), path=None).run(url)
        if self._path is None:
            return None
        from training_storage.cli.nested import nested_file  # noqa: PLC0415 -- rare, and it loads the command's parts

        file = nested_file(self._path.parent, resource)
        if file is None or file == self._path.resolve():
            return None
        inner = json.loads(file.read_text(encoding="utf-8"))
        return _Normaliser(hashes=self._listed, path=file).run(inner)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _type(resource: object) -> object:
    return _mapping(resource).get("Type")


def _kept_sections(template: Mapping[str, Any]) -> dict[str, Any]:
    sections = dict(template)
    for section, name in (
        ("Parameters", _BOOTSTRAP_PARAMETER),
        ("Rules", _BOOTSTRAP_RULE),
        ("Conditions", _ANALYTICS_CONDITION),
    ):
        sections[section] = {key: value for key, value in _mapping(sections.get(section)).items() if key != name}
    if "Resources" in template:
        sections["Resources"] = {
            logical_id: _without_metadata(resource)
            for logical_id, resource in _mapping(template["Resources"]).items()
            if _type(resource) != _ANALYTICS
        }
    return sections


def _without_metadata(resource: Any) -> Any:  # noqa: ANN401 -- a resource, or what somebody wrote in its place
    if not isinstance(resource, Mapping) or "Metadata" not in resource:
        return resource
    metadata = {
        key: value for key, value in _mapping(resource["Metadata"]).items() if not str(key).startswith(_METADATA)
    }
    rest = {key: value for key, value in resource.items() if key != "Metadata"}
    return {**rest, "Metadata": metadata} if metadata else rest


def _listed_hashes(folder: Path) -> frozenset[str]:
    """Return the hashes of the assets that CDK listed beside a template."""
    return frozenset(
        found
        for path in folder.glob("*.assets.json")
        for found in _HASH.findall(path.read_text(encoding="utf-8", errors="replace"))
    )


def _evident_hashes(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield the hashes of assets that a template by itself gives away, those of nested templates not among them."""
    for logical_id in _mapping(template.get("Parameters")):
        yield from (found[1] for found in [_LEGACY.fullmatch(logical_id)] if found)
    resources = {
        logical_id: resource
        for logical_id, resource in _mapping(template.get("Resources")).items()
        if _type(resource) != _NESTED_STACK
    }
    for text in _texts({**template, "Resources": resources}):
        for pattern in (_KEY, _TAG):
            yield from pattern.findall(text)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _renamed(template: Mapping[str, Any]) -> dict[str, str]:
    """Return logical ids that hold the hash of an asset, and what they become."""
    renamed: dict[str, str] = {}
    for logical_id in _mapping(template.get("Parameters")):
        found = _LEGACY.fullmatch(logical_id)
        if found:
            renamed[logical_id] = _free(f"AssetParameters{_ASSET}{found[2]}", renamed)
    for logical_id, resource in _mapping(template.get("Resources")).items():
        found = _VERSION_ID.fullmatch(logical_id) if _type(resource) == _VERSION else None
        if found:
            renamed[logical_id] = _free(f"{found[1]}{_ASSET}", renamed)
    return renamed


def _free(name: str, taken: Mapping[str, str]) -> str:
    number, free = 1, name
    while free in taken.values():
        number += 1
        free = f"{name}{number}"
    return free


def _rewritten(value: Any, write: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return JSON with every text written anew and keys sorted."""
    if isinstance(value, str):
        return write(value)
    if isinstance(value, Mapping):
        return {write(str(key)): _rewritten(value[key], write) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [_rewritten(item, write) for item in value]
    return value
