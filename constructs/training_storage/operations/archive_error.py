"""What goes wrong while checkpoints are archived."""

from __future__ import annotations


class ArchiveError(Exception):
    """The archive failed; one line with what, why and the way out. Running it again goes on where it stopped."""
