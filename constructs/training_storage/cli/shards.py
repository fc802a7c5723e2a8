"""``training-storage shards``: plan, pack and verify packed data sets."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training_storage.cli.parser import OK, PROGRAM, Parser, Verbs, os_reason, say, shown
from training_storage.planning.errors import InvalidJobError
from training_storage.planning.field_kinds import Whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from training_storage.planning.shards import Readers
    from training_storage.training.contract import StorageContract
    from training_storage.training.shard_pack import PackProgress
    from training_storage.training.shard_s3 import S3Access

_FAILED, _INTERRUPTED = 1, 130
_WIDTH = 100
_READERS = {
    "nodes": "nodes of the job",
    "accelerators": "accelerators of a node",
    "workers": "loader processes of an accelerator",
}
_COUNT = Whole(minimum=1, maximum=10_000_000, example=8)
_SEED = Whole(minimum=0, maximum=2**64 - 1, example=7)


def add_verb(verbs: Verbs) -> None:
    """Add the verb `shards` with its three actions."""
    parser = verbs.add_parser("shards", help="pack small files into large shards", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    plan = actions.add_parser(
        "plan",
        help="say how many shards, how large, and what they save",
        description="Count the files of SOURCE, a folder or s3://BUCKET/PREFIX/, and say how many shards to pack them"
        " into for the loaders that will read them. Writes nothing.",
        allow_abbrev=False,
    )
    plan.add_argument("source", metavar="SOURCE", help="a folder or s3://BUCKET/PREFIX/")
    _finish(plan, _plan, [*_add_readers(plan), *_add_access(plan), *_add_json(plan)])
    pack = actions.add_parser(
        "pack",
        help="pack files into WebDataset shards",
        description="Pack the files of SOURCE into WebDataset shards in TARGET, shuffled. Files whose paths agree up to"
        " the first dot of the name are one sample. The same command again goes on where a killed one was.",
        allow_abbrev=False,
    )
    pack.add_argument("source", metavar="SOURCE", help="a folder or s3://BUCKET/PREFIX/")
    pack.add_argument("target", metavar="TARGET", help="an empty folder or s3://BUCKET/PREFIX/")
    pack.add_argument("--seed", metavar="NUMBER", default="0", help="of the shuffle (default: 0)")
    pack.add_argument("--processes", metavar="NUMBER", help="shards written at once (default: one a core)")
    pack.add_argument(
        "--work",
        metavar="FOLDER",
        help="where the listing is kept and shards wait on their way to S3 (default: temporary files)",
    )
    pack.add_argument(
        "--skip-unnamed",
        action="store_true",
        help="leave out files without an extension, and links that lead nowhere, instead of refusing them",
    )
    pack.add_argument(
        "--accept-weaker",
        action="store_true",
        help="pack into a store too that replaces objects although it is asked not to; from one place at a time",
    )
    options = ["--seed", "--processes", "--work", "--skip-unnamed", "--accept-weaker"]
    _finish(pack, _pack, [*options, *_add_readers(pack), *_add_access(pack)])
    verify = actions.add_parser(
        "verify",
        help="find truncated, altered, missing and extra shards",
        description="Compare the shards at PLACE with their index. Exits with 1 if any is not what the index says.",
        allow_abbrev=False,
    )
    verify.add_argument("place", metavar="PLACE", help="a folder or s3://BUCKET/PREFIX/ that was packed")
    verify.add_argument(
        "--sizes-only", action="store_true", help="compare names and sizes alone: one listing, nothing is read"
    )
    _finish(verify, _verify, ["--sizes-only", *_add_access(verify), *_add_json(verify)])


def _add_readers(parser: argparse.ArgumentParser) -> list[str]:
    for name, words in _READERS.items():
        parser.add_argument(f"--{name}", metavar="NUMBER", help=f"{words} (default: the contract's)")
    parser.add_argument("--shards", metavar="NUMBER", help="use so many shards; a multiple of all loader processes")
    return [*(f"--{name}" for name in _READERS), "--shards"]


def _add_access(parser: argparse.ArgumentParser) -> list[str]:
    parser.add_argument("--contract", metavar="FILE", help="storage contract (default: this node's, where it has one)")
    parser.add_argument("--region", metavar="REGION", help="Region of the bucket (default: the surroundings')")
    parser.add_argument("--endpoint-url", metavar="URL", help="an S3-compatible store instead of AWS")
    return ["--contract", "--region", "--endpoint-url"]


def _add_json(parser: argparse.ArgumentParser) -> list[str]:
    parser.add_argument("--json", action="store_true", help="print JSON")
    return ["--json"]


def _finish(parser: argparse.ArgumentParser, action: Callable[[argparse.Namespace], int], options: list[str]) -> None:
    parser.set_defaults(run=lambda arguments: _guarded(action, arguments), options=options)


def _guarded(action: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run `action`; what it could not do is one line and exit code 1."""
    # Loaded here, as everything of the training side: other verbs start without it.
    from training_storage.training.shard_errors import ShardError  # noqa: PLC0415

    try:
        return action(arguments)
    except ShardError as error:
        say(sys.stderr, f"{PROGRAM}: {shown(' '.join(str(error).split()))}\n")
        return _FAILED
    except OSError as error:
        # Of a file; without a name it is the answer that cannot be written, which `main` says.
        if error.filename is None:
            raise
        say(sys.stderr, f"{PROGRAM}: {' '.join(os_reason(error).split())}.\n")
        return _FAILED
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{PROGRAM}: interrupted; the same command again goes on where this one was.\n")
        return _INTERRUPTED


def _plan(arguments: argparse.Namespace) -> int:
    from training_storage.planning import DEFAULT_REGION  # noqa: PLC0415 - see _guarded
    from training_storage.planning.shard_report import shard_report_lines  # noqa: PLC0415
    from training_storage.planning.shards import plan_shards  # noqa: PLC0415
    from training_storage.planning.units import MIB  # noqa: PLC0415
    from training_storage.training.shard_s3 import region_of  # noqa: PLC0415
    from training_storage.training.shard_source import S3Prefix, open_source  # noqa: PLC0415
    from training_storage.training.shard_survey import survey  # noqa: PLC0415

    contract = _contract(arguments)
    readers, access = _readers(arguments, contract), _access(arguments, contract)
    part_bytes = (contract.loader.part_size_mib if contract else _default_part_mib()) * MIB
    source = open_source(arguments.source, access=access)
    with _counter("files listed") as listed:
        data = survey(source, part_bytes=part_bytes, listed=listed)
    plan = plan_shards(
        data=data,
        readers=readers,
        shards=_count(arguments, "shards"),
        part_bytes=part_bytes,
        region=region_of(access) or DEFAULT_REGION,
        express=isinstance(source, S3Prefix) and source.is_express,
        stored=isinstance(source, S3Prefix),
    )
    if arguments.json:
        text = json.dumps({"source": source.name, **plan.values()}, indent=2) + "\n"
    else:
        text = "\n".join(shard_report_lines(plan, source=source.name, width=_WIDTH)) + "\n"
    say(sys.stdout, text)
    sys.stdout.flush()
    return OK


def _pack(arguments: argparse.Namespace) -> int:
    from training_storage.planning.size_words import decimal_size  # noqa: PLC0415 - see _guarded
    from training_storage.training.shard_pack import pack_shards  # noqa: PLC0415

    contract = _contract(arguments)
    wanted = any(getattr(arguments, name) is not None for name in _READERS) or contract is not None
    shards = _count(arguments, "shards")
    with _bar() as progress:
        index = pack_shards(
            source=arguments.source,
            target=arguments.target,
            shards=shards,
            readers=_readers(arguments, contract) if wanted or shards is None else None,
            seed=_SEED.parse("--seed", arguments.seed),
            processes=_count(arguments, "processes"),
            access=_access(arguments, contract),
            skip_unnamed=arguments.skip_unnamed,
            work=arguments.work,
            accept_weaker=arguments.accept_weaker,
            progress=progress,
        )
    left_out = "".join(
        f"; {kind} left out: {count}"
        for kind, count in (("hidden files", index.hidden), ("files that can be no sample", index.unnamed))
        if count
    )
    say(
        sys.stdout,
        f"{index.samples:,} samples in {len(index.shards):,} shards, {decimal_size(index.bytes)}, in"
        f" {arguments.target}{left_out}\n",
    )
    return OK


def _verify(arguments: argparse.Namespace) -> int:
    from training_storage.planning.size_words import decimal_size  # noqa: PLC0415 - see _guarded
    from training_storage.training.shard_verify import verify_shards  # noqa: PLC0415

    access = _access(arguments, _contract(arguments))
    with _byte_counter() as progress:
        index, findings = verify_shards(
            arguments.place, access=access, sizes_only=arguments.sizes_only, progress=progress
        )
    if arguments.json:
        values = {
            "schema_version": 1,
            "shards": len(index.shards),
            "samples": index.samples,
            "bytes": index.bytes,
            "sizes_only": arguments.sizes_only,
            "findings": [{"name": wrong.name, "kind": wrong.kind, "words": wrong.words} for wrong in findings],
        }
        text = json.dumps(values, indent=2) + "\n"
    else:
        agree = "names and sizes agree" if arguments.sizes_only else "all as the index says"
        whole = f"{len(index.shards):,} shards, {index.samples:,} samples, {decimal_size(index.bytes)}"
        lines = [shown(f"{wrong.name}  {wrong.kind}: {wrong.words}") for wrong in findings]
        lines.append(f"{whole}: {f'{len(findings)} not as the index says' if findings else agree}")
        text = "\n".join(lines) + "\n"
    say(sys.stdout, text)
    sys.stdout.flush()
    return _FAILED if findings else OK


def _contract(arguments: argparse.Namespace) -> StorageContract | None:
    """Return the contract that was named, or this node's; None where there is none."""
    from training_storage.training.contract import (  # noqa: PLC0415 - see _guarded
        DEFAULT_PATH,
        PATH_VARIABLE,
        ContractError,
        StorageContract,
    )

    if arguments.contract is None and not os.environ.get(PATH_VARIABLE) and not Path(DEFAULT_PATH).exists():
        return None
    try:
        return StorageContract.read(arguments.contract)
    except ContractError as error:
        raise InvalidJobError(str(error)) from None


def _access(arguments: argparse.Namespace, contract: StorageContract | None) -> S3Access:
    from training_storage.training.endpoint import endpoint_of  # noqa: PLC0415 - see _guarded
    from training_storage.training.shard_s3 import S3Access  # noqa: PLC0415

    access = S3Access() if contract is None else S3Access.of(contract)
    if arguments.region is not None:
        access = dataclasses.replace(access, region=arguments.region)
    if arguments.endpoint_url is not None:
        access = dataclasses.replace(access, endpoint=endpoint_of(url=arguments.endpoint_url))
    return access


def _readers(arguments: argparse.Namespace, contract: StorageContract | None) -> Readers:
    from training_storage.planning.shards import Readers  # noqa: PLC0415 - see _guarded

    known = (
        {
            "nodes": contract.job.instances,
            "accelerators": contract.job.accelerators_per_instance,
            "workers": contract.loader.workers_per_accelerator,
        }
        if contract
        else {}
    )
    counts: dict[str, int] = {}
    for name, words in _READERS.items():
        count = _count(arguments, name) or known.get(name)
        if count is None:
            raise InvalidJobError(
                f"--{name} is missing: say how many {words} will read the shards, for example --nodes 4 --accelerators"
                " 8 --workers 8, or name a storage contract with --contract FILE."
            )
        counts[name] = count
    return Readers(
        nodes=counts["nodes"],
        accelerators_per_node=counts["accelerators"],
        workers_per_accelerator=counts["workers"],
    )


def _count(arguments: argparse.Namespace, name: str) -> int | None:
    given = getattr(arguments, name)
    return None if given is None else _COUNT.parse(f"--{name}", given)


def _default_part_mib() -> int:
    from training_storage.planning import defaults  # noqa: PLC0415 - see _guarded

    return int(defaults.number("part_size_mib"))


def _tqdm(**options: Any) -> Any:  # noqa: ANN401 - tqdm takes what it takes
    """Return a progress bar on a terminal; None elsewhere, and where tqdm is not installed."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm  # noqa: PLC0415 - of the extra `training`
    except ImportError:
        return None
    return tqdm(**options, file=sys.stderr, leave=False, dynamic_ncols=True)


@contextmanager
def _counter(words: str) -> Iterator[Callable[[int], None] | None]:
    bar = _tqdm(unit=" files", desc=words, unit_scale=True)
    try:
        yield None if bar is None else lambda files: bar.update(files - bar.n)
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def _byte_counter() -> Iterator[Callable[[int], None] | None]:
    bar = _tqdm(unit="B", desc="read", unit_scale=True)
    try:
        yield None if bar is None else bar.update
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def _bar() -> Iterator[Callable[[PackProgress], None] | None]:
    bar = _tqdm(unit=" files", desc="listing", unit_scale=True)

    def show(progress: PackProgress) -> None:
        if progress.of_files is not None and bar.total != progress.of_files:
            bar.reset(total=progress.of_files)
            bar.set_description("packing")
        bar.set_postfix_str(f"{progress.bytes / 1e9:.2f} GB" if progress.bytes else "", refresh=False)
        bar.update(progress.files - bar.n)

    try:
        yield None if bar is None else show
    finally:
        if bar is not None:
            bar.close()
