"""What the functions of this package take as a template: constructs, assemblies, files and parsed templates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from training_storage.testing.assembly import StackArtifact, is_assembly, read_assembly, read_json

if TYPE_CHECKING:
    from aws_cdk import Stack, Stage
    from aws_cdk.assertions import Template
    from aws_cdk.cx_api import CloudAssembly

__all__ = [
    "Source",
    "SynthesizedTemplate",
    "holds_several",
    "read_some_templates",
    "read_template",
    "read_templates",
    "synthesized_folder",
]

#: A parsed template, a `Template` of CDK's assertions, a stack, a stage or app, a cloud assembly, or the path of a
#: template or of a folder that CDK wrote (``cdk.out``).
Source: TypeAlias = Union[
    "Mapping[str, Any]", "Template", "Stack", "Stage", "CloudAssembly", "os.PathLike[str]", str
]  # a string of types, so that CDK is loaded only by those who use it

_ALLOWED = "a template, a Template, Stack, Stage, App or CloudAssembly of CDK, or the path of a template or a cdk.out"


@dataclass(frozen=True, kw_only=True)
class SynthesizedTemplate:
    """A template and where it comes from.

    Parameters
    ----------
    label
        What to call it: the stack's path in its app, or the file; empty for a parsed template.
    document
        The template, parsed.
    path
        The file that CDK wrote; None where there is none. Nested templates and lists of assets lie beside it.
    region
        Where it is deployed, if that is known.
    """

    label: str
    document: Mapping[str, Any]
    path: Path | None = None
    region: str | None = None


def read_template(source: Source) -> SynthesizedTemplate:
    """Return the one template of `source`.

    Raises
    ------
    TypeError, ValueError
        If it is no template, or more than one; one line.
    """
    found = read_templates(source)
    if len(found) != 1:
        names = ", ".join(one.label for one in found) or "none"
        raise ValueError(f"source must hold one template, got: {len(found)} ({names}); give one of its stacks")
    return found[0]


def read_templates(source: Source) -> tuple[SynthesizedTemplate, ...]:
    """Return the templates of `source`, those of a stage or an assembly in the order of their deployment.

    A stack, stage or app is synthesized, unless it already is. An app without stacks has none.

    Raises
    ------
    TypeError, ValueError
        If it is nothing that could hold one; one line.
    """
    if isinstance(source, Mapping):
        if not isinstance(source.get("Resources"), Mapping):
            # A misspelt or empty one would be found clean.
            keys = ", ".join(map(repr, source)) or "none"
            raise ValueError(f"a template must have Resources, got one with the keys: {keys}")  # noqa: TRY004 -- its content
        return (SynthesizedTemplate(label="", document=source),)
    if isinstance(source, (str, os.PathLike)):
        return _read_path(Path(source))
    document = _document(source)
    if document is not None:
        return (SynthesizedTemplate(label="", document=document),)
    folder, artifact_id, nested_file = _synthesized(source)
    if nested_file is not None:
        path = folder / nested_file
        return (SynthesizedTemplate(label=path.name.split(".")[0], document=read_json(path), path=path),)
    stacks = [stack for stack in read_assembly(folder) if artifact_id in (None, stack.artifact_id)]
    return tuple(_read_stack(stack) for stack in stacks)


def read_some_templates(source: Source) -> tuple[SynthesizedTemplate, ...]:
    """Return what `read_templates` does, and refuse to find nothing.

    Raises
    ------
    TypeError, ValueError
        If it holds no template, as an app without stacks does; one line.
    """
    found = read_templates(source)
    if not found:
        raise ValueError("source must hold a template, got: none; nothing was checked")
    return found


def holds_several(source: Source) -> bool:
    """Whether `source` is made to hold several templates, as an app is, even if today it holds one."""
    if isinstance(source, (str, os.PathLike)):
        return Path(source).is_dir()
    if isinstance(source, Mapping):
        return False
    from aws_cdk import Stage  # noqa: PLC0415 -- whoever gets here has an object of CDK
    from aws_cdk.cx_api import CloudAssembly  # noqa: PLC0415

    return isinstance(source, (Stage, CloudAssembly))


def synthesized_folder(source: Source) -> tuple[Path, str | None]:
    """Return the cloud assembly of `source`, and the artifact id of the stack in it that is meant (None for all).

    Raises
    ------
    TypeError, ValueError
        If it has none, as a parsed template has; one line.
    """
    if isinstance(source, (str, os.PathLike)):
        folder = Path(source)
        if not is_assembly(folder):
            raise ValueError(f"source must be a cloud assembly, got: '{folder}', a path without manifest.json")
        return folder, None
    if isinstance(source, Mapping) or _document(source) is not None:
        raise TypeError(
            f"source must be a Stack, Stage, App or CloudAssembly of CDK or the path of a cdk.out,"
            f" got: {type(source).__name__}, whose assets are not known"
        )
    folder, artifact_id, nested_file = _synthesized(source)
    if nested_file is not None:
        raise ValueError(f"source must be a stack that is deployed by itself, got: the nested stack {nested_file}")
    return folder, artifact_id


def _document(source: object) -> dict[str, Any] | None:
    """Return the template of a `Template`; None if it is something else."""
    from aws_cdk.assertions import Template  # noqa: PLC0415 -- whoever gets here has an object of CDK, or an error

    return dict(source.to_json()) if isinstance(source, Template) else None


def _synthesized(source: object) -> tuple[Path, str | None, str | None]:
    """Return the assembly's folder, the artifact id of a stack, and the file of a nested one."""
    from aws_cdk import Stack, Stage  # noqa: PLC0415 -- as above
    from aws_cdk.cx_api import CloudAssembly  # noqa: PLC0415

    if isinstance(source, CloudAssembly):
        return Path(source.directory), None, None
    if isinstance(source, Stage):
        return Path(source.synth().directory), None, None
    if not isinstance(source, Stack):
        raise TypeError(f"source must be {_ALLOWED}, got: {type(source).__name__}")
    stage = Stage.of(source)
    if stage is None:
        raise ValueError(f"a stack must be in an App or a Stage, got: {source.node.path!r} without one")
    folder = Path(stage.synth().directory)
    if source.nested_stack_parent is not None:
        return folder, None, source.template_file
    return folder, source.artifact_id, None


def _read_stack(stack: StackArtifact) -> SynthesizedTemplate:
    return SynthesizedTemplate(
        label=stack.label, document=read_json(stack.template_file), path=stack.template_file, region=stack.region
    )


def _read_path(path: Path) -> tuple[SynthesizedTemplate, ...]:
    if path.is_dir():
        if not is_assembly(path):
            raise ValueError(f"source must be {_ALLOWED}, got: '{path}', a folder without manifest.json")
        return tuple(_read_stack(stack) for stack in read_assembly(path))
    return (SynthesizedTemplate(label=str(path), document=_read_file(path), path=path),)


def _read_file(path: Path) -> Mapping[str, Any]:
    from training_storage.cli.template_files import parse_text  # noqa: PLC0415 -- only files need its parsers
    from training_storage.planning.errors import InvalidJobError  # noqa: PLC0415

    try:
        document: Mapping[str, Any] = parse_text(path.read_text(encoding="utf-8-sig"), name=str(path)).document
    except OSError as error:
        raise ValueError(f"a template must be a file that can be read, got: '{path}' ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"a template must be UTF-8, got: '{path}', which is not") from None
    except InvalidJobError as error:
        raise ValueError(str(error).replace("check must be given", "source must be", 1)) from None
    return document
