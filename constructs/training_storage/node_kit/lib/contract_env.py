# ruff: noqa: INP001 -- a program for the node, beside the shell scripts; the folder is no package
"""Check the storage contract and write it as an environment file: contract_env.py CONTRACT.

Runs on the node with the system's Python, which is 3.9 on Amazon Linux 2023, and the standard library.
"""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any, Dict, Iterator, Tuple  # noqa: UP035 -- Python 3.9

SCHEMA_VERSION = 1
PREFIX = "TRAINING_STORAGE"

# What the scripts of the kit cannot do without; the schema of the contract lies in the training package.
REQUIRED = ("job", "region", "s3", "lustre", "mountpoint", "scratch", "checkpoints", "cluster")
REQUIRED_OF = {
    "lustre": ("file_system_id", "dns_name", "mount_name", "mount_path", "version", "efa_enabled", "efa_interfaces"),
    "mountpoint": ("path", "bucket", "cache_path", "cache_gib"),
    "scratch": ("path",),
}
PATHS = (("lustre", "mount_path"), ("mountpoint", "path"), ("mountpoint", "cache_path"), ("scratch", "path"))


class ContractError(ValueError):
    """The contract cannot be used; the message says what is wrong with it."""


def check(contract: Any) -> None:  # noqa: ANN401 -- JSON
    """Refuse a contract that the kit cannot use.

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
    missing = [key for key in REQUIRED if key not in contract]
    for section, keys in REQUIRED_OF.items():
        # A tier that the plan does not have is null.
        if contract.get(section) is not None:
            missing += [f"{section}.{key}" for key in keys if key not in contract[section]]
    if missing:
        raise ContractError(f"the contract lacks: {', '.join(missing)}")
    for section, key in PATHS:
        path = contract[section][key] if contract[section] else "/none"
        # The kit mounts on these and empties the cache: the root of the node is never one of them.
        if not path.startswith("/") or ".." in path or path.strip("/") == "":
            raise ContractError(f"{section}.{key} must be an absolute folder, got: {path}")


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


def main(path: str) -> int:
    """Write the environment file to standard output; 1 and one line on standard error if it cannot be."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 -- less to load at boot
            contract = json.load(file)
        check(contract)
        sys.stdout.write(render(contract))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
