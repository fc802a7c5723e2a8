"""Reads a template as it was in a revision of git: what the main branch last reviewed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

__all__ = ["find_at", "template_at"]


def template_at(revision: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON template that a file held in a revision.

    Parameters
    ----------
    revision
        As git spells it: ``origin/main``, ``v1.2.0``, ``HEAD~1``.
    path
        The file, a snapshot for example. It need not be there today.

    Raises
    ------
    ValueError
        If git does not know the revision, or the file was not there; one line.
    """
    found = find_at(revision, path)
    if found is None:
        raise ValueError(f"path must be a file of revision {revision}, got: '{path}', which it does not hold")
    return found


def find_at(revision: str, path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the JSON template that a file held in a revision; None if the revision does not hold the file.

    Raises
    ------
    ValueError
        If git does not know the revision, or the file is no JSON mapping; one line.
    """
    file = Path(path).absolute()
    folder = next(parent for parent in file.parents if parent.is_dir())
    _require_revision(revision, folder)
    # Not "show": of a file that the revision lacks it takes the name for a pattern, and prints nothing.
    text = _git(folder, "cat-file", "blob", f"{revision}:./{file.relative_to(folder).as_posix()}")
    if text is None:
        return None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"a template must be JSON, got: '{path}' of {revision} ({error})") from None
    if not isinstance(document, dict):
        raise ValueError(f"a template must be a mapping, got: '{path}' of {revision}")  # noqa: TRY004 -- a value in a file
    return document


def files_at(revision: str, folder: Path) -> tuple[Path, ...]:
    """Return every file below `folder` that a revision holds, as they would lie there today.

    Raises
    ------
    ValueError
        If git does not know the revision; one line.
    """
    _require_revision(revision, folder)
    listed = _git(folder, "ls-tree", "-r", "-z", "--name-only", revision)
    return tuple(folder / name for name in (listed or "").split("\0") if name)


def _require_revision(revision: str, folder: Path) -> None:
    if _git(folder, "rev-parse", "--is-inside-work-tree") is None:
        raise ValueError(f"path must be in a checkout of git, got: '{folder}', which is not")
    if revision.startswith("-") or _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") is None:
        raise ValueError(
            f"revision must be one that git knows here, got: {revision!r}; fetch it first"
            " (git fetch, or fetch-depth: 0 of actions/checkout)"
        )


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it refuses."""
    git = shutil.which("git")
    if git is None:
        raise ValueError("a revision can be read only where git is installed, got: no git on the PATH")
    done = subprocess.run([git, "-C", str(folder), *arguments], check=False, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None
