"""What packing and reading shards refuse."""

from __future__ import annotations

from training_storage.planning.errors import InvalidJobError


class ShardInputError(InvalidJobError):
    """The source, the target or an option is wrong; one line that says the way out."""


class ShardError(Exception):
    """Shards could not be packed, published or read; one line that names the file and says what to do."""
