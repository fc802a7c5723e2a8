"""``training-storage archive``: bring the checkpoints worth keeping into the lake."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import sys
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from training_storage.cli.parser import OK, PROGRAM, Verbs, say
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    import argparse

    from training_storage.operations.archive import Archive
    from training_storage.operations.archive_settings import ArchiveSettings
    from training_storage.operations.retention import RetentionRule

_FAILED, _INTERRUPTED = 1, 130
_CONTRACT_ON_NODES = "/etc/training-storage/storage.json"
_AGE = re.compile(r"([1-9][0-9]*)([mhd])")
_AGE_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_OPTIONS = [
    "--contract", "--job", "--region", "--source", "--lake", "--file-system", "--mount",
    "--interval-minutes", "--keep-last", "--every-steps", "--step", "--checkpoint", "--newer-than", "--if-due",
    "--part-size-mib", "--concurrency", "--wait-minutes", "--prune", "--yes", "--dry-run", "--json",
]  # fmt: skip


def add_verb(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "archive",
        help="bring the checkpoints worth keeping into the lake",
        description="Copy complete checkpoints from FSx for Lustre or S3 Express One Zone into the lake, compare them, "
        "and only then say that they are there. May be stopped at any time; the same command goes on. Without options "
        "it archives the newest complete checkpoint and the newest of every durable interval.",
        allow_abbrev=False,
    )
    where = parser.add_argument_group("where")
    where.add_argument("--contract", metavar="FILE", help=f"storage contract; on nodes {_CONTRACT_ON_NODES}")
    where.add_argument("--job", metavar="NAME", help="read the contract of this job from SSM instead")
    where.add_argument("--region", metavar="REGION", help="Region of --job; the caller's if left out")
    where.add_argument("--source", metavar="PLACE", help="s3://bucket--x-s3/prefix/, or a path on the file system")
    where.add_argument("--lake", metavar="URI", help="prefix of the lake, such as s3://lake/checkpoints/default/")
    where.add_argument("--file-system", metavar="ID", help="file system of a --source that is a path")
    where.add_argument("--mount", metavar="PATH", help="where it is mounted (default /fsx)")
    which = parser.add_argument_group("which checkpoints, besides the newest complete one")
    which.add_argument("--interval-minutes", metavar="N", help="the newest of every N minutes (default: the plan's)")
    which.add_argument("--keep-last", metavar="N", help="the newest N")
    which.add_argument("--every-steps", metavar="K", help="each whose step is a multiple of K")
    which.add_argument("--newer-than", metavar="AGE", help="only those finished within 90m, 12h or 7d")
    which.add_argument("--step", metavar="N", action="append", default=[], help="only this step; may be repeated")
    which.add_argument("--checkpoint", metavar="PATH", action="append", default=[], help="only this folder; repeatable")
    which.add_argument("--if-due", action="store_true", help="nothing if one was archived within the interval")
    how = parser.add_argument_group("how")
    how.add_argument("--part-size-mib", metavar="N", help="copy larger objects in parts of N MiB (default 256)")
    how.add_argument("--concurrency", metavar="N", help="copies at once (default 32)")
    how.add_argument("--wait-minutes", metavar="N", help="how long to wait for export tasks (default 360)")
    how.add_argument(
        "--prune", action="store_true", help="show which old ones the lake need not keep; with --yes remove"
    )
    how.add_argument("--yes", action="store_true", help="remove what --prune shows")
    how.add_argument("--dry-run", action="store_true", help="say what would be copied, with bytes and money")
    how.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run, options=_OPTIONS)


def _run(arguments: argparse.Namespace) -> int:
    from training_storage.operations.archive_error import ArchiveError  # noqa: PLC0415 -- boto3 for this verb only

    if arguments.yes and not arguments.prune:
        raise InvalidJobError("--yes belongs to --prune: an archive asks for no confirmation.")
    try:
        return _archive(arguments)
    except ArchiveError as error:
        say(sys.stderr, f"{PROGRAM}: {' '.join(str(error).split())}\n")
        return _FAILED
    except KeyboardInterrupt:
        say(sys.stderr, f"\n{PROGRAM}: interrupted; nothing is half published. The same command goes on.\n")
        return _INTERRUPTED


def _archive(arguments: argparse.Namespace) -> int:
    from training_storage.cli.archive_report import Report  # noqa: PLC0415
    from training_storage.cli.archive_where import settings_from, whole  # noqa: PLC0415
    from training_storage.operations import archive_clients, archive_prune  # noqa: PLC0415
    from training_storage.operations.archive import Archive  # noqa: PLC0415
    from training_storage.operations.archive_settings import LustrePlace  # noqa: PLC0415
    from training_storage.operations.progress import Progress  # noqa: PLC0415

    settings = settings_from(arguments)
    concurrency = whole(arguments.concurrency, "--concurrency", default=None)
    options: dict[str, Any] = {} if concurrency is None else {"concurrency": concurrency}
    if arguments.wait_minutes:
        options["wait_minutes"] = float(whole(arguments.wait_minutes, "--wait-minutes", default=360) or 0)
    if arguments.part_size_mib:
        options["part_mib"] = _part_mib(arguments.part_size_mib)
    s3 = archive_clients.s3_client(settings, concurrency=concurrency or 32)
    fsx = None
    if isinstance(settings.source, LustrePlace):
        from training_storage.operations.aws_calls import clients, region_of  # noqa: PLC0415

        fsx = clients(region_of(settings.region))("fsx")
    archive = Archive(
        settings=settings,
        s3=s3,
        fsx=fsx,
        rule=_rule(arguments, settings),
        if_due=arguments.if_due,
        say=lambda line: say(sys.stderr, line + "\n"),
        **options,
    )
    report = Report(settings=settings, archive=archive, as_json=arguments.json, dry=arguments.dry_run)
    if settings.source != settings.lake:
        archive.names = _names(arguments, archive)
        report.plan = archive.plan()
        if not arguments.dry_run:
            total = sum(choice.found.bytes for choice in report.plan.open)
            with Progress(total=total, shown=total > 0 and not arguments.json) as progress:
                archive.copied = progress.add
                report.result = archive.run(report.plan)
    if arguments.prune:
        listing = archive.list_lake()
        rule = archive_prune.lake_rule(settings)
        rule = dataclasses.replace(
            rule, every_steps=archive.rule.every_steps, keep_last=max(rule.keep_last, archive.rule.keep_last)
        )
        report.pruned = archive_prune.plan_prune(listing, settings, rule)
        if arguments.yes and not arguments.dry_run:
            archive_prune.prune(s3, report.pruned, settings)
            report.removed = True
    report.print()
    return OK


def _rule(arguments: argparse.Namespace, settings: ArchiveSettings) -> RetentionRule:
    from training_storage.cli.archive_where import whole  # noqa: PLC0415
    from training_storage.operations.archive_prune import archive_rule  # noqa: PLC0415

    newer = None
    if arguments.newer_than:
        found = _AGE.fullmatch(arguments.newer_than)
        if found is None:
            raise InvalidJobError(f"--newer-than must be an age such as 90m, 12h or 7d, got: {arguments.newer_than!r}.")
        newer = dt.datetime.now(tz=dt.UTC) - dt.timedelta(minutes=int(found[1]) * _AGE_MINUTES[found[2]])
    return dataclasses.replace(
        archive_rule(settings),
        keep_last=whole(arguments.keep_last, "--keep-last", default=0, least=0) or 0,
        every_steps=whole(arguments.every_steps, "--every-steps"),
        not_before=newer,
    )


def _names(arguments: argparse.Namespace, archive: Archive) -> list[str]:
    """Return the folders that --checkpoint and --step name."""
    from training_storage.cli.archive_where import whole  # noqa: PLC0415

    names = [PurePosixPath(path.rstrip("/")).name for path in arguments.checkpoint]
    if arguments.step:
        listing = archive.list_source()
        for text in arguments.step:
            step = whole(text, "--step", least=0)
            found = [one.name for one in listing.checkpoints.values() if one.step == step]
            if not found:
                there = sorted({one.step for one in listing.complete() if one.step is not None})
                raise InvalidJobError(
                    f"--step must be the step of a checkpoint at {listing.place}, got: {step}; there are: "
                    f"{', '.join(map(str, there)) or 'none'}."
                )
            names += found
    return list(dict.fromkeys(names))


def _part_mib(text: str) -> int:
    from training_storage.cli.archive_where import whole  # noqa: PLC0415
    from training_storage.planning.catalog.s3 import copy_limits  # noqa: PLC0415

    limits = copy_limits()
    value = whole(text, "--part-size-mib") or 0
    if not limits.part_mib_minimum <= value <= limits.part_mib_maximum:
        raise InvalidJobError(
            f"--part-size-mib must be {limits.part_mib_minimum} to {limits.part_mib_maximum}, what S3 takes as a part, "
            f"got: {value}."
        )
    return value
