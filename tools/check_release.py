#!/usr/bin/env python3
"""Refuse a tag that is not the version of pyproject.toml, or that the changelog says nothing about."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_VERSION = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


def refusal(*, tag: str, version: str, changelog: str) -> str | None:
    """Return why the tag is no release, in one line; None if it is one.

    Parameters
    ----------
    tag
        The tag's name, such as v0.2.0.
    version
        What pyproject.toml says.
    changelog
        CHANGELOG.md.
    """
    if not re.fullmatch(_VERSION, version):
        return f"version must be X.Y.Z, or X.Y.ZrcN, in pyproject.toml, got: {version!r}"
    if tag != f"v{version}":
        return f"the tag must be v{version}, as pyproject.toml says, got: {tag!r}; tag anew, or change the version"
    heading = re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$", changelog, re.MULTILINE)
    if heading is None:
        return f"CHANGELOG.md must have a section '## [{version}] - YYYY-MM-DD', got: none; rename [Unreleased]"
    section = re.split(r"^## ", changelog[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    if not re.search(r"^- ", section, re.MULTILINE):
        return f"the section [{version}] of CHANGELOG.md must list what changed, got: nothing"
    return None


def main(arguments: list[str]) -> int:
    """Check the one tag given; 2 if it is no release."""
    if len(arguments) != 1:
        sys.stderr.write("check_release: give one tag, for example v0.2.0\n")
        return 2
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    why = refusal(tag=arguments[0], version=project["version"], changelog=changelog)
    if why:
        sys.stderr.write(f"check_release: {why}\n")
    return 2 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
