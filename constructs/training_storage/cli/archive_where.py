"""From which place to which an archive goes: the contract's, changed by options."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from training_storage.operations.archive_clients import read_contract_of_job
from training_storage.operations.archive_settings import (
    ArchiveSettings,
    LustrePlace,
    S3Place,
    place_of,
    read_contract_file,
    settings_of,
)
from training_storage.operations.aws_calls import region_of
from training_storage.planning.defaults import number
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    import argparse

_VARIABLE = "TRAINING_STORAGE_CONTRACT"
_ON_NODES = Path("/etc/training-storage/storage.json")
_MOUNT = "/fsx"


def settings_from(arguments: argparse.Namespace) -> ArchiveSettings:
    """Return where the archive that was asked for reads and writes.

    Raises
    ------
    InvalidJobError
        If that is not known, or an option does not fit.
    """
    settings = _of_contract(arguments) or _of_options(arguments)
    return dataclasses.replace(
        settings,
        region=arguments.region or settings.region,
        lake=place_of(arguments.lake, what="--lake") if arguments.lake else settings.lake,
        source=_source(arguments, settings) if arguments.source else settings.source,
        durable_interval_minutes=float(
            whole(arguments.interval_minutes, "--interval-minutes") or settings.durable_interval_minutes
        ),
    )


def whole(text: str | None, option: str, *, default: int | None = None, least: int = 1) -> int | None:
    """Return the whole number that an option gives.

    Raises
    ------
    InvalidJobError
        If it is none, or below `least`.
    """
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise InvalidJobError(f"{option} must be a whole number from {least}, got: {text!r}.")
    return int(text)


def _of_contract(arguments: argparse.Namespace) -> ArchiveSettings | None:
    """Return the settings of the contract that is meant; None where none is named and this is no node."""
    if arguments.contract and arguments.job:
        raise InvalidJobError("--contract and --job name a contract each, got: both. Leave one out.")
    if arguments.job:
        return settings_of(read_contract_of_job(arguments.job, region=region_of(arguments.region)))
    named = arguments.contract or os.environ.get(_VARIABLE)
    if named:
        return settings_of(read_contract_file(Path(named)))
    return settings_of(read_contract_file(_ON_NODES)) if _ON_NODES.is_file() else None


def _of_options(arguments: argparse.Namespace) -> ArchiveSettings:
    if not (arguments.source and arguments.lake):
        raise InvalidJobError(
            "--contract FILE or --job NAME must say which job is meant (or --source and --lake), got: none of them."
        )
    lake = place_of(arguments.lake, what="--lake")
    return ArchiveSettings(
        job=PurePosixPath(lake.prefix).name,
        region=arguments.region,
        source=lake,
        lake=lake,
        durable_interval_minutes=number("durable_interval_minutes"),
        durable_kept=int(number("durable_checkpoints_kept")),
    )


def _source(arguments: argparse.Namespace, settings: ArchiveSettings) -> S3Place | LustrePlace:
    if arguments.source.startswith("s3://"):
        return place_of(arguments.source, what="--source")
    known = settings.source if isinstance(settings.source, LustrePlace) else None
    system = arguments.file_system or (known.file_system_id if known else None)
    mount = arguments.mount or (known.mount_path if known else _MOUNT)
    if system is None:
        raise InvalidJobError(f"--file-system must name the file system of --source {arguments.source!r}, got: none.")
    if not PurePosixPath(arguments.source).is_relative_to(mount):
        raise InvalidJobError(f"--source must be below the mount {mount}, got: {arguments.source!r}.")
    return LustrePlace(file_system_id=system, mount_path=mount, path=arguments.source)
