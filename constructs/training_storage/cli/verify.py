"""``training-storage verify``: whether each place does what training relies on, and how fast, from this node."""

from __future__ import annotations

import json
import signal
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from training_storage.cli.checkpoint import endpoint_and_region, read_contract
from training_storage.cli.parser import OK, PROGRAM, Verbs, os_reason, say
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from training_storage.training.verify import Target, Verified

_FAILED, _INTERRUPTED = 1, 130
_SCHEMA_VERSION = 1
_WIDTH = 100
_MOST_DIGITS = 9
_OPTIONS = [
    "--contract", "--plan", "--only", "--size-mib", "--seconds", "--region", "--endpoint-url", "--addressing-style",
    "--checksums", "--json",
]  # fmt: skip


def add_verb(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "verify",
        help="try every place of the storage contract from this node: rights, conditional writes, speed",
        description="Try every place of the storage contract from this node: read, conditional write, refusal of a "
        "stale write, delete, and speed with the loader's preset against what the job needs. Touches only objects of "
        "its own and deletes them, also when it is interrupted. Exit code 0: all is well; 1: something is missing or "
        "too slow; 2: bad input.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "places", metavar="PLACE", nargs="*", help="s3://BUCKET/PREFIX/ or a path, instead of the contract's places"
    )
    parser.add_argument("--contract", metavar="FILE", help="storage contract; the node's if left out")
    parser.add_argument("--plan", metavar="FILE", help="plan as JSON: compare the speed of reading with it as well")
    parser.add_argument(
        "--only",
        metavar="ROLE",
        action="append",
        default=[],
        help="lake, s3-express, lustre, scratch or mountpoint; may be repeated",
    )
    parser.add_argument("--size-mib", metavar="N", default="256", help="move at most N MiB each way (default 256)")
    parser.add_argument("--seconds", metavar="N", default="10", help="and for at most N seconds (default 10)")
    parser.add_argument("--region", metavar="REGION", help="of the buckets; the contract's or the caller's if left out")
    parser.add_argument("--endpoint-url", metavar="URL", help="of an S3-compatible store")
    parser.add_argument("--addressing-style", metavar="STYLE", help="auto, path or virtual")
    parser.add_argument("--checksums", metavar="WHEN", help="when_supported or when_required")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=_run, options=_OPTIONS)


class _Interrupted(BaseException):
    """Ctrl-C, or the end of the job: what was written is deleted first."""


def _run(arguments: argparse.Namespace) -> int:
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        found = _verified(arguments)
    except _Interrupted:
        say(sys.stderr, f"{PROGRAM}: interrupted; what was written is deleted\n")
        return _INTERRUPTED
    except OSError as error:
        say(sys.stderr, f"{PROGRAM}: {os_reason(error)}\n")
        return _FAILED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arguments.json:
        sys.stdout.write(json.dumps(_document(found), indent=2) + "\n")
    else:
        say(sys.stdout, "".join(f"{line}\n" for line in _lines(found)))
    sys.stdout.flush()
    return OK if all(one.ok for one in found) else _FAILED


def _interrupt(_number: int, _frame: object) -> NoReturn:
    # A second signal must not stop the cleaning up.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise _Interrupted


def _verified(arguments: argparse.Namespace) -> list[Verified]:
    from training_storage.training.verify import Target, targets_of, verify  # noqa: PLC0415 -- SDKs for this verb only

    endpoint, region = endpoint_and_region(arguments)
    preset: dict[str, int] = {}
    if arguments.places:
        if arguments.plan or arguments.only:
            raise InvalidJobError("--plan and --only belong to the places of a contract, got: PLACE as well.")
        targets = [
            Target(role="place", where=place if "://" in place else str(Path(place).absolute()))
            for place in arguments.places
        ]
    else:
        contract = read_contract(arguments, "PLACE")
        targets = _chosen(targets_of(contract, _plan(arguments.plan)), arguments.only)
        loader = contract.loader
        preset = {
            "part_size_mib": loader.part_size_mib,
            "requests": max(1, loader.workers_per_accelerator * contract.job.accelerators_per_instance),
        }
    return list(
        verify(
            targets,
            endpoint=endpoint,
            region=region,
            size_mib=_whole(arguments.size_mib, "--size-mib"),
            seconds=_whole(arguments.seconds, "--seconds"),
            **preset,
        )
    )


def _chosen(targets: Sequence[Target], roles: Sequence[str]) -> list[Target]:
    known = [target.role for target in targets]
    unknown = [role for role in roles if role not in known]
    if unknown:
        raise InvalidJobError(f"--only must be one of {', '.join(known)} for this contract, got: {unknown[0]!r}.")
    return [target for target in targets if not roles or target.role in roles]


def _plan(path: str | None) -> Any:  # noqa: ANN401 -- JSON
    if path is None:
        return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidJobError(f"--plan must name a plan as JSON, got: {path!r} ({error}).") from None


def _document(found: Sequence[Verified]) -> dict[str, Any]:
    return {
        "schema_version": _SCHEMA_VERSION,
        "ok": all(one.ok for one in found),
        "places": [
            {
                "role": one.target.role,
                "where": one.target.where,
                "ok": one.ok,
                "checks": [
                    {
                        "name": check.name,
                        "result": check.result,
                        "detail": check.detail,
                        "gb_per_s": check.gb_per_s,
                        "needed_gb_per_s": check.needed_gb_per_s,
                    }
                    for check in one.checks
                ],
            }
            for one in found
        ],
    }


def _lines(found: Sequence[Verified]) -> list[str]:
    lines: list[str] = []
    names = max((len(check.name) for one in found for check in one.checks), default=0)
    for one in found:
        lines.append(f"{one.target.role}  {one.target.where}")
        for check in one.checks:
            head = f"  {check.name:<{names}}  {check.result:<7}  "
            lines += textwrap.wrap(
                check.detail,
                _WIDTH,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_long_words=False,
                break_on_hyphens=False,
            ) or [head.rstrip()]
    bad = sum(not one.ok for one in found)
    lines.append(
        f"{bad} of {len(found)} places need attention." if bad else f"All {len(found)} places do what training needs."
    )
    return lines


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text)):
        raise InvalidJobError(
            f"{name} must be a whole number from 1 with at most {_MOST_DIGITS} digits, got: {text!r:.80}."
        )
    return int(text)
