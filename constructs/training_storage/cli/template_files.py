"""Finds and reads what `check` is given: a template, a cloud assembly, a plan."""

from __future__ import annotations

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from training_storage.cli.json_text import Parsed, parse_json
from training_storage.cli.yaml_text import YamlMissingError, parse_yaml
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STACK, _ASSEMBLY = "aws:cloudformation:stack", "cdk:cloud-assembly"
_MANIFEST = "manifest.json"
_UNKNOWN_REGION = "unknown-region"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that was read.

    Parameters
    ----------
    path
        Where it is.
    document
        What it holds.
    notes
        What of it was not read as written.
    region
        Region that a cloud assembly names for it.
    stack_name
        Stack that a cloud assembly names for it.
    nested
        Whether another template nests it.
    """

    path: Path
    document: dict[str, Any]
    notes: tuple[str, ...] = ()
    region: str | None = None
    stack_name: str | None = None
    nested: bool = False


def read_sources(path: Path) -> list[Source]:
    """Return the templates of a file or a folder.

    Raises
    ------
    InvalidJobError
        If there is none that can be read; one line.
    """
    if not path.is_dir():
        return [read_source(path)]
    sources = list(_assembly(path, set())) if (path / _MANIFEST).is_file() else []
    known = {source.path for source in sources}
    region = next(iter({source.region for source in sources}), None) if len({s.region for s in sources}) == 1 else None
    for template in sorted(path.glob("*.template.json")):
        if template not in known:
            sources.append(read_source(template, region=region))
    if not sources:
        raise InvalidJobError(
            f"check must be given a template or a cloud assembly, got: '{path}', a folder without either."
            " Run 'cdk synth' first."
        )
    return sources


def read_source(path: Path, *, region: str | None = None, stack_name: str | None = None) -> Source:
    """Return the template in a file.

    Raises
    ------
    InvalidJobError
        If it cannot be read; one line.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise InvalidJobError(
            f"check must be given a file that can be read, got: '{path}' ({error.strerror})."
        ) from None
    except UnicodeDecodeError:
        wide = " but UTF-16: save it as UTF-8" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else ""
        raise InvalidJobError(
            f"check must be given a file that can be read, got: '{path}' (not UTF-8{wide})."
        ) from None
    except ValueError:
        raise _no_name(path) from None
    parsed = parse_text(text, name=str(path))
    return Source(path=path, document=parsed.document, notes=parsed.notes, region=region, stack_name=stack_name)


def parse_text(text: str, *, name: str) -> Parsed:
    """Parse JSON, or YAML where it is no JSON; the document is a mapping.

    Raises
    ------
    InvalidJobError
        If it is neither; one line.
    """
    try:
        parsed = parse_json(text)
    except ValueError as error:
        if name.endswith(".json"):
            raise _unreadable(name, f"no JSON: {error}") from None
        try:
            parsed = parse_yaml(text)
        except YamlMissingError:
            raise _unreadable(name, "YAML needs PyYAML: pip install pyyaml, or convert it to JSON") from None
        except ValueError as problem:
            raise _unreadable(name, f"neither JSON nor YAML: {problem}") from None
    if not isinstance(parsed.document, dict):
        raise _unreadable(name, "no mapping at its top")
    return parsed


def _unreadable(name: str, reason: str) -> InvalidJobError:
    return InvalidJobError(f"check must be given a CloudFormation template in JSON or YAML, got: '{name}' ({reason}).")


def _no_name(path: Path) -> InvalidJobError:
    return InvalidJobError(f"check must be given names of files and folders, got: {str(path)!a}.")


def _assembly(folder: Path, seen: set[Path]) -> Iterator[Source]:
    """Yield the stacks of a cloud assembly and of those within it; one that names itself is read once."""
    try:
        here = folder.resolve()
    except (OSError, ValueError):
        raise _no_name(folder) from None
    if here in seen:
        return
    seen.add(here)
    manifest = read_source(folder / _MANIFEST).document
    artifacts = manifest.get("artifacts")
    for name, artifact in artifacts.items() if isinstance(artifacts, dict) else ():
        properties = artifact.get("properties") if isinstance(artifact, dict) else None
        if not isinstance(properties, dict):
            continue
        if artifact.get("type") == _ASSEMBLY and isinstance(properties.get("directoryName"), str):
            yield from _assembly(folder / properties["directoryName"], seen)
        if artifact.get("type") == _STACK and isinstance(properties.get("templateFile"), str):
            region = str(artifact.get("environment", "")).rsplit("/", 1)[-1]
            yield read_source(
                folder / properties["templateFile"],
                region=None if region in ("", _UNKNOWN_REGION) else region,
                stack_name=str(properties.get("stackName", name)),
            )
