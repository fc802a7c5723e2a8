# ruff: noqa: INP001 -- a program for the node, beside the shell scripts; the folder is no package
"""Check the storage contract and write it as an environment file: contract_env.py CONTRACT REGION JOB.

Runs on the node with the system's Python, which is 3.9 on Amazon Linux 2023, and the standard library.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import Any, Dict, Iterator, Tuple  # noqa: UP035 -- Python 3.9

SCHEMA_VERSION = 1
PREFIX = "TRAINING_STORAGE"

# What the scripts of the kit cannot do without; the schema of the contract lies in the training package.
REQUIRED = ("job", "region", "s3", "lustre", "mountpoint", "scratch", "checkpoints", "cluster")
REQUIRED_OF = {
    "job": ("name",),
    "lustre": ("file_system_id", "dns_name", "mount_name", "mount_path", "version", "efa_enabled", "efa_interfaces"),
    "mountpoint": ("path", "bucket", "cache_path", "cache_gib"),
    "scratch": ("path",),
}
# Tiers that a plan may lack.
MAY_BE_NULL = ("lustre", "mountpoint")

# The kit formats, mounts over, empties and opens these folders as root, so it is told where they may lie: at or below
# /fsx and /scratch, below /mnt and /local. Never a folder of the system's.
FOLDER = r"/(fsx|scratch|mnt(?=/)|local(?=/))(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*"
MOUNTS = (("lustre", "mount_path"), ("mountpoint", "path"), ("scratch", "path"))
FOLDERS = (
    *MOUNTS,
    ("mountpoint", "cache_path"),
    ("checkpoints", "path"),
    ("lustre", "paths", "checkpoints"),
    ("lustre", "paths", "logs"),
    ("lustre", "paths", "evaluations"),
)
# What becomes a word of a command line, with the patterns of the schema.
WORDS = {
    ("lustre", "file_system_id"): r"^fs-[0-9a-f]{1,17}$",
    ("lustre", "dns_name"): r"^fs-[0-9a-f]{17}\.fsx\.[a-z0-9-]{1,20}\.[a-z0-9.]{3,20}$",
    ("lustre", "mount_name"): r"^[A-Za-z0-9_-]{1,8}$",
    ("lustre", "version"): r"^2\.[0-9]{2}$",
    ("mountpoint", "bucket"): r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$",
    ("mountpoint", "express_cache_bucket"): r"^[a-z0-9-]{3,63}--x-s3$",
    ("endpoint", "url"): r"^https?://[a-z0-9.-]+(:[0-9]{1,5})?$",
}
# The shell would take another text for an expression.
WHOLE_NUMBERS = (("lustre", "efa_interfaces"), ("mountpoint", "cache_gib"), ("scratch", "local_nvme_gb"))


class ContractError(ValueError):
    """The contract cannot be used; the message says what is wrong with it."""


def look_up(contract: Dict[str, Any], *keys: str) -> Any:  # noqa: ANN401, UP006 -- JSON; Python 3.9
    """Return a value of the contract; None where it or what holds it is null or missing."""
    value: Any = contract
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def check(contract: Any, *, region: str, job: str) -> None:  # noqa: ANN401 -- JSON
    """Refuse a contract that the kit cannot use, or that is another job's.

    Raises
    ------
    ContractError
        With what is wrong.
    """
    if not isinstance(contract, dict):
        raise ContractError(f"the contract must be a JSON object, got: {type(contract).__name__}")
    version = contract.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ContractError(f"schema_version must be {SCHEMA_VERSION}, got: {version}; node kit and stack differ")
    missing = [key for key in REQUIRED if contract.get(key) is None and not (key in contract and key in MAY_BE_NULL)]
    for section, keys in REQUIRED_OF.items():
        if contract.get(section) is not None:
            missing += [f"{section}.{key}" for key in keys if look_up(contract, section, key) is None]
    if missing:
        raise ContractError(f"the contract lacks: {', '.join(missing)}")
    for keys, own in ((("region",), region), (("job", "name"), job)):
        if look_up(contract, *keys) != own:
            raise ContractError(f"{'.'.join(keys)} must be this node's, {own}, got: {look_up(contract, *keys)}")
    check_folders(contract)
    check_values(contract)


def check_folders(contract: Dict[str, Any]) -> None:  # noqa: UP006 -- Python 3.9
    """Refuse folders that are not the kit's to mount on, or that would hide one another."""
    for keys in FOLDERS:
        path = look_up(contract, *keys)
        if path is not None and not (isinstance(path, str) and re.fullmatch(FOLDER, path.rstrip("/"))):
            raise ContractError(
                f"{'.'.join(keys)} must be a folder at or below /fsx or /scratch, or below /mnt or /local,"
                f" without spaces and dots at the start of a name, got: {path}"
            )
    mounts = [(keys, look_up(contract, *keys).rstrip("/") + "/") for keys in MOUNTS if look_up(contract, *keys)]
    for keys, path in mounts:
        for others, other in mounts:
            if keys != others and path.startswith(other):
                raise ContractError(f"{'.'.join(keys)} must not lie in {'.'.join(others)}, got: {path} in {other}")


def check_values(contract: Dict[str, Any]) -> None:  # noqa: UP006 -- Python 3.9
    """Refuse values that a command would take for something else."""
    for keys, pattern in WORDS.items():
        value = look_up(contract, *keys)
        if value is not None and not (isinstance(value, str) and re.fullmatch(pattern, value)):
            raise ContractError(f"{'.'.join(keys)} must match {pattern}, got: {value}")
    for keys in WHOLE_NUMBERS:
        value = look_up(contract, *keys)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ContractError(f"{'.'.join(keys)} must be a whole number from 0, got: {value}")


def variables(value: Any, name: str = PREFIX) -> Iterator[Tuple[str, str]]:  # noqa: ANN401, UP006 -- JSON; Python 3.9
    """Yield the name and the value of each variable: the path in upper snake case; null is empty."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from variables(item, f"{name}_{key.upper()}")
    elif isinstance(value, bool):
        yield name, "true" if value else "false"
    elif value is None:
        yield name, ""
    elif isinstance(value, list):
        yield name, " ".join(str(item) for item in value)
    else:
        yield name, str(value)


def render(contract: Dict[str, Any]) -> str:  # noqa: UP006 -- Python 3.9
    """Return the text that a shell sources and that systemd reads as an EnvironmentFile."""
    lines = []
    for name, value in variables(contract):
        if not name.replace("_", "").isalnum() or not name.isascii():
            raise ContractError(f"a key of the contract cannot be the name of a variable: {name}")
        if any(character in value for character in "\n\r'\\"):
            raise ContractError(f"{name} holds a quote, a backslash or a line break, got: {value!r}")
        lines.append(f"{name}={shlex.quote(value)}\n")
    return "".join(lines)


def main(path: str, region: str, job: str) -> int:
    """Write the environment file to standard output; 1 and one line on standard error if it cannot be."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- less to load at boot
            contract = json.load(file)
        check(contract, region=region, job=job)
        sys.stdout.write(render(contract))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
