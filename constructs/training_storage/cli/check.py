"""``training-storage check``: what AWS would refuse of a template, and what data an update would lose."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.cli.deployed import read_deployed
from training_storage.cli.nested import files_reader, nested_file, nested_stacks
from training_storage.cli.parser import OK, Verbs, say
from training_storage.cli.sarif import sarif
from training_storage.cli.template_files import Source, read_source, read_sources
from training_storage.planning import StoragePlan, catalog
from training_storage.planning.codec import decode
from training_storage.planning.errors import InvalidJobError, InvalidPlanError
from training_storage.planning.guard import Effect, compare
from training_storage.planning.legality import check_plan, check_template, rules
from training_storage.planning.plan import SCHEMA_VERSION

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

_FINDINGS = 1
_OPTIONS = ["--region", "--json", "--sarif", "--deployed", "--against", "--accept"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the answer."""

    path: str
    rule: str
    logical_id: str
    location: str
    message: str
    source: str


def add_verb(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "check", help="check templates, cloud assemblies and plans against what AWS accepts", allow_abbrev=False
    )
    parser.add_argument("file", metavar="FILE", help="a template in JSON or YAML, a cdk.out folder, or a plan")
    parser.add_argument("--region", metavar="REGION", help="where it will be deployed; a cdk.out may name it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the findings as a JSON list")
    form.add_argument("--sarif", action="store_true", help="print the findings as SARIF 2.1.0")
    standing = parser.add_mutually_exclusive_group()
    standing.add_argument("--deployed", metavar="STACK", help="also say what data an update of STACK would lose")
    standing.add_argument("--against", metavar="FILE", help="the same against the template in FILE")
    parser.add_argument(
        "--accept", metavar="LOGICAL_ID", action="append", default=[], help="accept the loss of this resource"
    )
    parser.set_defaults(run=_run, options=_OPTIONS)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.region is not None:
        catalog.region(arguments.region)
    path = Path(arguments.file)
    sources = _with_nested(read_sources(path)) if path.is_dir() else read_sources(path)
    if not path.is_dir():
        _require_template(sources[0])
    entries: list[Entry] = []
    notes: list[str] = []
    files = {source.path.resolve() for source in sources}
    for source in sources:
        notes += [f"{source.path}: {note}" for note in source.notes]
        if _is_plan(source.document):
            entries += _plan_entries(source)
            continue
        report = check_template(
            source.document,
            region=arguments.region or source.region,
            nested_elsewhere=[
                logical_id
                for logical_id, resource in nested_stacks(source.document)
                if nested_file(source.path.parent, resource) in files
            ],
        )
        notes += [f"{source.path}: {note}" for note in report.skipped]
        entries += [
            Entry(
                path=str(source.path),
                rule=found.finding.rule,
                logical_id=found.logical_id,
                location=found.finding.location,
                message=found.finding.message,
                source=found.finding.source,
            )
            for found in report.findings
        ]
    losses, guard_notes = _losses(arguments, sources)
    entries += losses
    notes += guard_notes
    _write(arguments, entries, notes, count=len(sources))
    return _FINDINGS if entries else OK


def _with_nested(sources: Sequence[Source]) -> list[Source]:
    """Return `sources` with the nested templates that lie beside them, each once and marked."""
    found = {source.path.resolve(): source for source in sources}
    pending = list(sources)
    while pending:
        source = pending.pop()
        for _, resource in nested_stacks(source.document):
            file = nested_file(source.path.parent, resource)
            if file is not None and not (file in found and found[file].nested):
                path = found[file].path if file in found else file
                found[file] = replace(read_source(path, region=source.region), nested=True)
                pending.append(found[file])
    return list(found.values())


def _require_template(source: Source) -> None:
    """Refuse what is neither a template nor a plan: nothing illegal in it would mean nothing."""
    resources = source.document.get("Resources")
    if _is_plan(source.document):
        return
    plain = resources.items() if isinstance(resources, dict) else ()
    # A loop or a macro among the resources makes some, though none is seen.
    readable = any(str(name).startswith("Fn::") or isinstance(item, dict) for name, item in plain)
    if not isinstance(resources, dict) or (resources and not readable):
        raise InvalidJobError(
            f"check must be given a template with Resources that can be read, got: '{source.path}', which has none."
        )


def _is_plan(document: Mapping[str, Any]) -> bool:
    return "schema_version" in document and "Resources" not in document


def _plan_entries(source: Source) -> list[Entry]:
    try:
        plan = StoragePlan.from_dict(source.document)
    except InvalidPlanError:
        # A plan that only the rules refuse is readable: its findings are said like a template's, all of them.
        if source.document.get("schema_version") != SCHEMA_VERSION:
            raise
        plan = decode(StoragePlan, source.document, "plan")
        if not check_plan(plan):
            raise
    return [
        Entry(
            path=str(source.path),
            rule=finding.rule,
            logical_id="plan",
            location="",
            message=finding.message,
            source=finding.source,
        )
        for finding in check_plan(plan)
    ]


def _losses(arguments: argparse.Namespace, sources: Sequence[Source]) -> tuple[list[Entry], list[str]]:
    """Return what data an update would lose, where one is asked about."""
    if arguments.deployed is None and arguments.against is None:
        if arguments.accept:
            raise InvalidJobError("--accept must stand beside --deployed STACK or --against FILE, got: neither.")
        return [], []
    parameters: dict[str, str] | None = None
    if arguments.deployed is not None:
        new = _template_of(arguments.deployed, sources)
        deployed = read_deployed(arguments.deployed, region=arguments.region or new.region)
        before, notes, parameters = deployed.template, list(deployed.notes), deployed.parameters
        nested_before = deployed.nested
    else:
        old = read_source(Path(arguments.against))
        _require_template(old)
        before, notes = old.document, [f"{old.path}: {note}" for note in old.notes]
        nested_before = files_reader(old.path)
        new = _only(sources)
    region = arguments.region or new.region
    place = {"AWS::Region": region} if region else {}
    compared = compare(
        before,
        new.document,
        parameters_before=place if parameters is None else {**place, **parameters},
        parameters_after=place,
        keep_parameters=parameters is not None,
        nested_before=nested_before,
        nested_after=files_reader(new.path),
    )
    standing = {*(before.get("Resources") or {}), *(loss.logical_id for loss in compared.losses)}
    unknown = [name for name in arguments.accept if name not in standing]
    if unknown:
        raise InvalidJobError(f"--accept must name a resource that stands, got: {unknown[0]!r}.")
    found = [loss for loss in compared.losses if loss.logical_id not in arguments.accept]
    notes += [f"{new.path}: {note}" for note in compared.unchecked]
    return [
        Entry(
            path=str(new.path),
            rule=loss.rule,
            logical_id=loss.logical_id,
            location="",
            message=loss.message,
            source=loss.source,
        )
        for loss in found
    ], notes


def _template_of(stack_name: str, sources: Sequence[Source]) -> Source:
    """Return the template that would become the stack: of that name in an assembly, or the only one."""
    named = [source for source in sources if source.stack_name == stack_name]
    if named:
        return named[0]
    names = [source.stack_name for source in sources if source.stack_name is not None]
    if names:
        raise InvalidJobError(
            f"--deployed must name a stack of the cloud assembly ({', '.join(names)}), got: {stack_name!r}."
        )
    return _only(sources)


def _only(sources: Sequence[Source]) -> Source:
    own = [source for source in sources if not source.nested]
    if len(own) != 1:
        raise InvalidJobError(f"FILE must be one template to compare, got: {len(own)}. Name the file itself.")
    return own[0]


def _write(arguments: argparse.Namespace, entries: Sequence[Entry], notes: Sequence[str], *, count: int) -> None:
    if arguments.json:
        answer = [
            {"rule": entry.rule, "logical_id": entry.logical_id, "message": entry.message, "source": entry.source}
            for entry in entries
        ]
        say(sys.stdout, json.dumps(answer, indent=2) + "\n")
    elif arguments.sarif:
        say(sys.stdout, json.dumps(sarif(entries, promises=_promises(), notes=notes), indent=2) + "\n")
    else:
        lines = [
            f"{entry.path}: {'.'.join(filter(None, (entry.logical_id, entry.location)))}: {entry.message}"
            f" [{entry.rule}; {entry.source}]"
            for entry in entries
        ]
        say(
            sys.stdout,
            "\n".join(lines or [f"Nothing illegal in {count} {'file' if count == 1 else 'files'}."]) + "\n",
        )
        if any(entry.rule.startswith("guard-") for entry in entries):
            say(sys.stdout, "Data would be lost. Accept it by name with --accept LOGICAL_ID.\n")
    sys.stdout.flush()
    if not arguments.sarif:
        say(sys.stderr, "".join(f"not checked: {note}\n" for note in notes))


def _promises() -> dict[str, str]:
    guards = {
        Effect.REPLACED: "No resource with data is replaced",
        Effect.REMOVED: "No resource with data is removed",
        Effect.REFUSED: "No update fails on a resource with data",
    }
    return {
        **{name: rule.promise for name, rule in rules().items()},
        **{f"guard-{effect.value}": promise for effect, promise in guards.items()},
    }
