"""What goes wrong with checkpoints, each in one line that says what, where and what to do."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint cannot be published, restored or listed."""


class DifferentContentError(CheckpointError):
    """Another content stands where a file was to be published; nothing was overwritten."""


class SourceChangedError(CheckpointError):
    """A local file changed while it was published, or is not what its own marker says."""


class DeniedError(CheckpointError):
    """The caller lacks a permission."""


class FileSystemError(CheckpointError):
    """A file system failed: no space, an I/O error, a folder in the way. Trying again at once cannot help."""


class DeadlineError(CheckpointError):
    """Something was not finished in the time given; the message names the rank and the key."""


class DamagedError(CheckpointError):
    """A stored file is missing, shorter or longer than its marker says, or has another checksum."""


class NoCheckpointError(CheckpointError):
    """There is no complete checkpoint."""


class WeakerGuaranteeError(CheckpointError):
    """The store cannot give a guarantee that publishing relies on, and the weaker one was not accepted."""


class CapabilityError(CheckpointError):
    """The store refuses what no weaker way replaces."""
