"""``training-storage checkpoint publish|restore|list``: finished checkpoints, there and back."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_storage.cli.parser import OK, PROGRAM, Parser, Verbs, os_reason, say, shown
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Sequence
    from typing import TypeAlias

    from training_storage.training.checkpoint_place import Content, Place
    from training_storage.training.checkpoint_scan import Found
    from training_storage.training.contract import Endpoint, StorageContract
    from training_storage.training.publish import Published
    from training_storage.training.restore import Restored

    #: Writes the answer and returns the exit code.
    Tell: TypeAlias = Callable[[], int]

_FAILED, _NONE, _INTERRUPTED = 1, 3, 130
_MOST_DIGITS = 18
_SCHEMA_VERSION = 1
_PLACE = "s3://BUCKET/PREFIX/ or an absolute path"
_ENDPOINT_OPTIONS = ["--contract", "--region", "--endpoint-url", "--addressing-style", "--checksums", "--json"]


def add_verb(verbs: Verbs) -> None:
    """Add the verb with its three actions."""
    parser = verbs.add_parser("checkpoint", help="publish, restore and list finished checkpoints", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    _add_publish(actions)
    _add_restore(actions)
    _add_list(actions)


def _add_publish(actions: Verbs) -> None:
    parser = actions.add_parser(
        "publish",
        help="upload a finished checkpoint folder",
        description="Upload a finished checkpoint folder: each file once and create-only, then the marker that makes "
        "it complete, then the pointer latest.json. May be killed at any time; the same command goes on. Exit code 0: "
        "published; 1: not, which the error says; 2: bad input.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="FOLDER", help="the checkpoint; its name ends in the step")
    parser.add_argument("--to", metavar="PLACE", help=f"{_PLACE}; the contract's durable place if left out")
    parser.add_argument("--step", metavar="N", help="training step, where the folder's name does not end in it")
    parser.add_argument("--rank", metavar="N", default="0", help="which of --ranks publishes here (default 0)")
    parser.add_argument("--ranks", metavar="N", default="1", help="how many publish this checkpoint (default 1)")
    parser.add_argument("--files", metavar="PATTERN", action="append", default=[], help="only these; may be repeated")
    parser.add_argument("--timeout-minutes", metavar="N", default="30", help="give up after N minutes (default 30)")
    parser.add_argument("--concurrency", metavar="N", default="16", help="requests at once (default 16)")
    parser.add_argument("--part-size-mib", metavar="N", help="upload larger files in parts of N MiB (default 32)")
    parser.add_argument(
        "--accept-weaker",
        action="store_true",
        help="publish to a store without conditional writes too, with the weaker guarantee that the refusal names",
    )
    _add_endpoint(parser)
    own = [
        "--to", "--step", "--rank", "--ranks", "--files", "--timeout-minutes", "--concurrency", "--part-size-mib",
        "--accept-weaker",
    ]  # fmt: skip
    parser.set_defaults(run=_guarded(_publish), options=[*own, *_ENDPOINT_OPTIONS])


def _add_restore(actions: Verbs) -> None:
    parser = actions.add_parser(
        "restore",
        help="bring the newest complete checkpoint into a local folder",
        description="Bring the newest complete checkpoint into a local folder, checked while it is read, and print the "
        "folder. Incomplete and damaged ones are passed over, which is said. Exit code 0: restored; 1: not, which the "
        "error says; 2: bad input; 3: there is no complete checkpoint, so start from the beginning.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="PLACE",
        action="append",
        default=[],
        help=f"{_PLACE}; may be repeated, the newest of all wins; the contract's places if left out",
    )
    parser.add_argument("--into", metavar="FOLDER", help="the contract's local path if left out")
    parser.add_argument("--in-place", action="store_true", help="check files where they are instead: for Lustre")
    parser.add_argument("--name", metavar="NAME", help="this checkpoint, and no other will do")
    parser.add_argument("--files", metavar="PATTERN", action="append", default=[], help="only these; may be repeated")
    parser.add_argument("--concurrency", metavar="N", default="16", help="requests at once (default 16)")
    _add_endpoint(parser)
    own = ["--from", "--into", "--in-place", "--name", "--files", "--concurrency"]
    parser.set_defaults(run=_guarded(_restore), options=[*own, *_ENDPOINT_OPTIONS])


def _add_list(actions: Verbs) -> None:
    parser = actions.add_parser(
        "list",
        help="list checkpoints and which of them are complete",
        description="List checkpoints, the newest first: complete, incomplete (being written, or its writer was "
        "killed), damaged, or of a newer version. Exit code 0; 1: one is damaged or cannot be judged, latest.json is "
        "wrong, or a place cannot be read; 2: bad input.",
        allow_abbrev=False,
    )
    parser.add_argument("places", metavar="PLACE", nargs="*", help=f"{_PLACE}; the contract's places if left out")
    parser.add_argument(
        "--verify", action="store_true", help="read every byte of complete ones and compare the checksums"
    )
    _add_endpoint(parser)
    parser.set_defaults(run=_guarded(_list), options=["--verify", *_ENDPOINT_OPTIONS])


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--contract", metavar="FILE", help="storage contract; the node's if left out")
    parser.add_argument("--region", metavar="REGION", help="of the bucket; the contract's or the caller's if left out")
    parser.add_argument("--endpoint-url", metavar="URL", help="of an S3-compatible store")
    parser.add_argument("--addressing-style", metavar="STYLE", help="auto, path or virtual")
    parser.add_argument("--checksums", metavar="WHEN", help="when_supported or when_required")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _guarded(run: Callable[[argparse.Namespace], Tell]) -> Callable[[argparse.Namespace], int]:
    """Return `run` with its errors as one line and an exit code; what it returns tells the answer afterwards."""

    def call(arguments: argparse.Namespace) -> int:
        from training_storage.training.checkpoint_errors import CheckpointError, NoCheckpointError  # noqa: PLC0415

        try:
            tell = run(arguments)
        except NoCheckpointError as error:
            return _fail(error, _NONE)
        except CheckpointError as error:
            return _fail(error, _FAILED)
        except KeyboardInterrupt:
            return _fail("interrupted; the same command goes on", _INTERRUPTED)
        except OSError as error:
            return _fail(os_reason(error), _FAILED)
        # Outside: an answer that cannot be written is another error.
        return tell()

    return call


def _publish(arguments: argparse.Namespace) -> Tell:
    from training_storage.training.publish import publish  # noqa: PLC0415

    part_size_mib = None if arguments.part_size_mib is None else _whole(arguments.part_size_mib, "--part-size-mib")
    target = arguments.to
    if target is None:
        target = read_contract(arguments, "--to PLACE").checkpoints.durable_uri
    published = publish(
        arguments.folder,
        _open(arguments, target, accept_weaker=arguments.accept_weaker, part_size_mib=part_size_mib),
        step=None if arguments.step is None else _whole(arguments.step, "--step"),
        rank=_whole(arguments.rank, "--rank"),
        ranks=_whole(arguments.ranks, "--ranks"),
        files=arguments.files,
        timeout_seconds=_whole(arguments.timeout_minutes, "--timeout-minutes", least=1) * 60,
        concurrency=_whole(arguments.concurrency, "--concurrency", least=1),
    )
    return lambda: _tell_published(published, as_json=arguments.json)


def _tell_published(published: Published, *, as_json: bool) -> int:
    if as_json:
        _print_json(vars_of(published))
        return OK
    state = "complete" if published.complete else "this rank's files are there; rank 0 completes the checkpoint"
    latest = "; latest.json names it" if published.latest_moved else ""
    again = f", {published.already_there} of them there before" if published.already_there else ""
    say(
        sys.stdout,
        f"{published.place}{published.name}/  {state}{latest}\n"
        f"{published.files} files{again}, {size_text(published.bytes)} in {published.seconds:.1f} s\n",
    )
    return OK


def _restore(arguments: argparse.Namespace) -> Tell:
    from training_storage.training.checkpoint_errors import CheckpointError, NoCheckpointError  # noqa: PLC0415
    from training_storage.training.restore import restore  # noqa: PLC0415

    if arguments.in_place and arguments.into:
        raise InvalidJobError("--in-place copies nothing, got: --into as well. Leave one of them out.")
    sources = arguments.sources or _contract_places(arguments, "--from PLACE")
    into = arguments.into
    if into is None and not arguments.in_place:
        into = read_contract(arguments, "--into FOLDER").checkpoints.local_path
    concurrency = _whole(arguments.concurrency, "--concurrency", least=1)
    try:
        restored = restore(
            [_open(arguments, source) for source in sources],
            into,
            name=arguments.name,
            files=arguments.files,
            concurrency=concurrency,
        )
    except NoCheckpointError as error:
        if arguments.name is None:
            raise
        # A name that is not there is a mistake: it must not end like a place where training may begin.
        raise CheckpointError(f"{error}. See `{PROGRAM} checkpoint list`") from None
    return lambda: _tell_restored(restored, as_json=arguments.json)


def _tell_restored(restored: Restored, *, as_json: bool) -> int:
    for passed in restored.passed_over:
        say(sys.stderr, f"{PROGRAM}: passed over {passed.place}{passed.name}: {shown(passed.why)}\n")
    if as_json:
        _print_json(vars_of(restored))
        return OK
    say(sys.stderr, _restored_text(restored))
    # On standard output stands the folder alone: scripts take it.
    say(sys.stdout, f"{restored.folder}\n")
    return OK


def _restored_text(restored: Restored) -> str:
    checked = "sizes and checksums are true" if restored.checked else "sizes are true; it has no checksums"
    there = "" if restored.read_bytes else ", all there before"
    return (
        f"{PROGRAM}: {restored.name} of {restored.place}: {restored.files} files, {size_text(restored.bytes)}"
        f"{there}, in {restored.seconds:.1f} s; {checked}\n"
    )


def _list(arguments: argparse.Namespace) -> Tell:
    from training_storage.checkpoint_format import POINTER_NAME  # noqa: PLC0415
    from training_storage.training.checkpoint_scan import State, newest_first, verify_stored  # noqa: PLC0415

    now = dt.datetime.now(tz=dt.UTC)
    documents, bad = [], False
    for where in arguments.places or _contract_places(arguments, "PLACE"):
        place = _open(arguments, where)
        # Read first: what it names was there before it, and so before the list.
        pointer = place.read(POINTER_NAME)
        rows = []
        for found in newest_first(place):
            row = _row(found, now=now)
            if arguments.verify and found.state == State.COMPLETE:
                why = verify_stored(place, found, concurrency=16)
                row |= {"verified": why is None} | ({} if why is None else {"state": State.DAMAGED, "why": why})
            bad = bad or row["state"] in (State.DAMAGED, State.NEWER)
            rows.append(row)
        latest, why = _latest(pointer, {row["name"] for row in rows})
        bad = bad or why is not None
        documents.append({"place": place.uri, "latest": latest, "latest_why": why, "checkpoints": rows})
    return lambda: _tell_list(documents, bad=bad, as_json=arguments.json)


def _latest(found: Content | None, names: Collection[str]) -> tuple[str | None, str | None]:
    """Return what the pointer names, and what is wrong with it: a list is wanted most when something is."""
    from training_storage.checkpoint_format import POINTER_NAME, CheckpointFormatError, read_pointer  # noqa: PLC0415

    if found is None:
        return None, None
    try:
        named = read_pointer(found.data).checkpoint
    except CheckpointFormatError as error:
        return None, str(error)
    return named, None if named in names else f"{POINTER_NAME} names {named}, which is not there"


def _tell_list(documents: Sequence[dict[str, Any]], *, bad: bool, as_json: bool) -> int:
    if as_json:
        _print_json({"places": documents})
    else:
        say(sys.stdout, "".join(f"{line}\n" for line in _listed(documents)))
    return _FAILED if bad else OK


def _row(found: Found, *, now: dt.datetime) -> dict[str, Any]:
    return {
        "name": found.name,
        "step": found.step,
        "state": found.state,
        "why": found.why,
        "files": len(found.files),
        "bytes": found.stored_bytes,
        "modified": None if found.modified is None else found.modified.isoformat(timespec="seconds"),
        "age_seconds": found.age_seconds(now=now),
        "checksums": bool(found.files) and all(file.checksum for file in found.files),
    }


def _listed(documents: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for document in documents:
        latest = shown(document["latest_why"] or "") or f"latest.json: {document['latest'] or 'none'}"
        lines.append(f"{document['place']}  {latest}")
        rows = [
            (
                row["name"],
                "-" if row["step"] is None else f"{row['step']:,}",
                row["state"] + (" (verified)" if row.get("verified") else ""),
                size_text(row["bytes"]),
                _age_text(row["age_seconds"]),
                shown(row["why"] or ""),
            )
            for row in document["checkpoints"]
        ]
        if not rows:
            lines.append("  no checkpoints")
            continue
        table = [("checkpoint", "step", "state", "size", "age", ""), *rows]
        widths = [max(len(row[column]) for row in table) for column in range(5)]
        for name, step, state, size, age, why in table:
            line = (
                f"  {name:<{widths[0]}}  {step:>{widths[1]}}  {state:<{widths[2]}}  {size:>{widths[3]}}"
                f"  {age:>{widths[4]}}  {why}"
            )
            lines.append(line.rstrip())
    return lines


def size_text(count: float) -> str:
    """Return a number of bytes as people write it, decimal."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004 -- decimal units
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _age_text(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def vars_of(result: object) -> dict[str, Any]:
    """Return the fields of a result as JSON values."""
    import dataclasses  # noqa: PLC0415 -- for --json only

    values = dataclasses.asdict(result)  # type: ignore[call-overload] # a frozen dataclass
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def _open(arguments: argparse.Namespace, target: str, **options: Any) -> Place:  # noqa: ANN401
    from training_storage.training.checkpoint_place import open_place  # noqa: PLC0415
    from training_storage.training.place_text import S3_SCHEME, is_no_place  # noqa: PLC0415

    if is_no_place(target):
        raise InvalidJobError(f"a place must be s3://BUCKET/PREFIX/, in small letters, or a path, got: {target!r}.")
    if not target.startswith((S3_SCHEME, "/")):
        target = str(Path(target).absolute())
    if not target.startswith(S3_SCHEME):
        return open_place(target)
    endpoint, region = endpoint_and_region(arguments)
    return open_place(target, endpoint=endpoint, region=region, **options)


def endpoint_and_region(arguments: argparse.Namespace) -> tuple[Endpoint, str | None]:
    """Return where S3 requests go: what the options say, else the contract where there is one, else AWS."""
    from training_storage.training.contract import DEFAULT_PATH, PATH_VARIABLE  # noqa: PLC0415
    from training_storage.training.endpoint import endpoint_of, endpoint_of_contract  # noqa: PLC0415

    given = {
        "url": arguments.endpoint_url,
        "addressing_style": arguments.addressing_style,
        "checksums": arguments.checksums,
    }
    named = arguments.contract or os.environ.get(PATH_VARIABLE)
    if not any(given.values()) and (named or Path(DEFAULT_PATH).exists()):
        contract = read_contract(arguments, "--endpoint-url")
        return endpoint_of_contract(contract.endpoint), arguments.region or contract.region
    return endpoint_of(**given), arguments.region


def read_contract(arguments: argparse.Namespace, instead: str) -> StorageContract:
    """Return the contract that the options or the node name; `instead` is what can be given in its place."""
    from training_storage.training.contract import ContractError, StorageContract  # noqa: PLC0415

    try:
        return StorageContract.read(arguments.contract)
    except ContractError as error:
        raise InvalidJobError(f"{error}. Or give {instead}.") from None


def _contract_places(arguments: argparse.Namespace, instead: str) -> list[str]:
    checkpoints = read_contract(arguments, instead).checkpoints
    return list(dict.fromkeys([checkpoints.write_to, checkpoints.durable_uri]))


def _whole(text: str, name: str, *, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) >= least):
        raise InvalidJobError(
            f"{name} must be a whole number from {least} with at most {_MOST_DIGITS} digits, got: {text!r:.80}."
        )
    return int(text)


def _print_json(values: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"schema_version": _SCHEMA_VERSION, **values}, indent=2) + "\n")
    sys.stdout.flush()


def _fail(error: object, code: int) -> int:
    say(sys.stderr, f"{PROGRAM}: {shown(' '.join(str(error).split()))}\n")
    return code
