# ruff: noqa: INP001 -- a program for the node, beside the shell scripts; the folder is no package
"""Write a file of root's into a folder that every user may write to: probe.py FOLDER MOUNT NAMES [COMMAND...].

FOLDER must lie on the file system of MOUNT. The file has a name that nobody can guess and is created, never opened:
what others put into the folder is neither in the way nor followed. COMMAND is run with the open file as its last
argument (/dev/fd/N); without one a byte is written. The file is removed afterwards. NAMES, a file of root's, remembers
its name, so that the next run removes what a crash has left: without looking through the folder, which others can fill.

Runs with the system's Python, which is 3.9 on Amazon Linux 2023, and the standard library.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import subprocess
import sys

PREFIX = ".training-storage-check"


def remove_left(folder: int, names: str) -> None:
    """Remove what earlier runs have left, if it is still theirs: a regular file of this user."""
    try:
        with open(names, encoding="utf-8") as file:  # noqa: PTH123 -- less to load
            left = file.read().split()
    except FileNotFoundError:
        return
    for name in left:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            os.unlink(name, dir_fd=folder)


def main(path: str, mount: str, names: str, *command: str) -> int:
    """Return 0 if the file could be made, written and removed."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    if os.fstat(folder).st_dev != os.stat(mount).st_dev:  # noqa: PTH116 -- less to load
        sys.stderr.write(f"{path} is not on the file system of {mount}\n")
        return 1
    remove_left(folder, names)
    name = f"{PREFIX}.{socket.gethostname().split('.')[0]}.{secrets.token_hex(16)}"
    with open(names, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{name}\n")
    made = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        if command:
            # The command opens the file by its descriptor: whatever bears the name by now.
            ran = subprocess.run([*command, f"/dev/fd/{made}"], pass_fds=[made], check=False)
            return min(ran.returncode, 1) if ran.returncode >= 0 else 1
        os.write(made, b"\n")
        os.fsync(made)
    finally:
        os.unlink(name, dir_fd=folder)
        os.unlink(names)  # noqa: PTH108 -- less to load
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
