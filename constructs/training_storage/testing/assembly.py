"""Reads a cloud assembly, the folder that CDK writes, from its manifest alone: no CDK is loaded for it."""

from __future__ import annotations

import graphlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MANIFEST = "manifest.json"
_STACK, _ASSEMBLY, _ASSETS = "aws:cloudformation:stack", "cdk:cloud-assembly", "cdk:asset-manifest"
_UNKNOWN_REGION = "unknown-region"


@dataclass(frozen=True, kw_only=True)
class StackArtifact:
    """A stack of a cloud assembly.

    Parameters
    ----------
    artifact_id
        What the manifest calls it.
    name
        The stack's name.
    label
        Its path in the app, for example ``Prod/Storage``.
    template_file, asset_manifest
        Its template, and the list of its assets if it has one.
    region
        Where it is deployed; None where the app leaves that open.
    dependencies
        Artifact ids of the stacks of the same assembly that come before it.
    termination_protection
        Whether it is protected once it stands.
    parameters, tags
        What the app itself states.
    bootstrap_version
        Version of the bootstrap stack that it asks for.
    """

    artifact_id: str
    name: str
    label: str
    template_file: Path
    asset_manifest: Path | None
    region: str | None
    dependencies: tuple[str, ...]
    termination_protection: bool
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    bootstrap_version: int


def is_assembly(folder: Path) -> bool:
    """Whether `folder` is a cloud assembly."""
    return (folder / _MANIFEST).is_file()


def read_assembly(folder: Path) -> tuple[StackArtifact, ...]:
    """Return the stacks of a cloud assembly, those of its stages last, in an order in which they can be deployed.

    Raises
    ------
    ValueError
        If the folder has no manifest that can be read; one line.
    """
    artifacts = _artifacts(folder)
    stacks = {
        name: _stack(folder, name, artifact, artifacts)
        for name, artifact in artifacts.items()
        if artifact.get("type") == _STACK
    }
    order = graphlib.TopologicalSorter({name: stack.dependencies for name, stack in stacks.items()}).static_order()
    nested = [
        stack
        for artifact in artifacts.values()
        if artifact.get("type") == _ASSEMBLY
        for stack in read_assembly(folder / artifact["properties"]["directoryName"])
    ]
    return (*(stacks[name] for name in order), *nested)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON mapping in a file that CDK wrote.

    Raises
    ------
    ValueError
        If there is none; one line.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"a cloud assembly must hold {path.name}, got: '{path}' ({error.strerror})") from None
    except ValueError as error:
        raise ValueError(f"{path.name} of a cloud assembly must be JSON, got: '{path}' ({error})") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} of a cloud assembly must be a mapping, got: '{path}'")  # noqa: TRY004 -- a value in a file
    return document


def _artifacts(folder: Path) -> dict[str, dict[str, Any]]:
    artifacts: dict[str, dict[str, Any]] = read_json(folder / _MANIFEST).get("artifacts", {})
    return artifacts


def _stack(folder: Path, name: str, artifact: dict[str, Any], artifacts: Mapping[str, dict[str, Any]]) -> StackArtifact:
    properties = artifact["properties"]
    region = str(artifact.get("environment", "")).rsplit("/", 1)[-1]
    before = artifact.get("dependencies", [])
    lists = [artifacts[one]["properties"]["file"] for one in before if artifacts[one].get("type") == _ASSETS]
    return StackArtifact(
        artifact_id=name,
        name=str(properties.get("stackName", name)),
        label=str(artifact.get("displayName", name)).split(" (")[0],
        template_file=folder / properties["templateFile"],
        asset_manifest=folder / lists[0] if lists else None,
        region=None if region in ("", _UNKNOWN_REGION) else region,
        dependencies=tuple(one for one in before if artifacts[one].get("type") == _STACK),
        termination_protection=bool(properties.get("terminationProtection")),
        parameters=properties.get("parameters", {}),
        tags=properties.get("tags", {}),
        bootstrap_version=int(properties.get("requiresBootstrapStackVersion", 0)),
    )
