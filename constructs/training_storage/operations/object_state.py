"""What S3 knows of an object, and whether two objects hold the same bytes."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from training_storage.checkpoint_format import CHECKSUM_DIGITS, Checksum
from training_storage.operations.archive_manifest import COMPARED_FULL_OBJECT, COMPARED_PARTS, COMPARED_SIZE

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

FULL_OBJECT: Final = "FULL_OBJECT"
COMPOSITE: Final = "COMPOSITE"
#: Algorithms as S3 writes them, those of a marker first.
ALGORITHMS: Final = ("CRC64NVME", "CRC32C", "CRC32", "SHA256", "SHA1")
#: Metadata of an object that was copied in parts: the ETag of its source, which such a copy does not keep otherwise.
SOURCE_ETAG: Final = "training-storage-source-etag"

#: What a copy in parts does not take over by itself.
_CARRIED = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType")


@dataclass(frozen=True, kw_only=True)
class ObjectState:
    """An object as HeadObject describes it.

    Parameters
    ----------
    bytes, etag, modified_at
        Size, ETag without quotes, and when it was written.
    algorithm, checksum, checksum_type
        Checksum in base64; None where S3 has none. A composite one is of the parts' checksums and ends with their
        number.
    metadata, headers
        User metadata, and headers that a copy in parts must be given.
    """

    bytes: int
    etag: str
    modified_at: dt.datetime
    algorithm: str | None = None
    checksum: str | None = None
    checksum_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the checksum is of the whole object."""
        return self.checksum is not None and self.checksum_type == FULL_OBJECT


def state_of(answer: Mapping[str, Any]) -> ObjectState:
    """Return the object that an answer of HeadObject describes."""
    algorithm = next((name for name in ALGORITHMS if answer.get(f"Checksum{name}")), None)
    checksum = str(answer[f"Checksum{algorithm}"]) if algorithm else None
    # Stores that know no checksum types mark composite ones by the number of parts alone.
    told = answer.get("ChecksumType") or (COMPOSITE if checksum and "-" in checksum else FULL_OBJECT)
    return ObjectState(
        bytes=answer["ContentLength"],
        etag=str(answer["ETag"]).strip('"'),
        modified_at=answer["LastModified"],
        algorithm=algorithm,
        checksum=checksum,
        checksum_type=told if checksum else None,
        metadata=dict(answer.get("Metadata") or {}),
        headers={name: answer[name] for name in _CARRIED if answer.get(name)},
    )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What two objects were compared by, and how they differ; `problem` is None for the same bytes."""

    compared: str
    problem: str | None = None


def compare(source: ObjectState, there: ObjectState, *, claimed: Checksum | None = None) -> Comparison:
    """Compare an object with its copy by the strongest that both sides have.

    Parameters
    ----------
    claimed
        What the checkpoint's marker says of the file: counts where S3 has the same algorithm for the whole copy.
    """
    if source.bytes != there.bytes:
        return Comparison(
            compared=COMPARED_SIZE, problem=f"the copy has {there.bytes:,} bytes, the source {source.bytes:,}"
        )
    compared = COMPARED_SIZE
    if claimed is not None and there.is_whole and claimed.algorithm == _lower(there.algorithm):
        if claimed.value != hexadecimal(there.checksum):
            return Comparison(
                compared=COMPARED_FULL_OBJECT,
                problem=f"its {there.algorithm} is {hexadecimal(there.checksum)}, the marker says {claimed.value}",
            )
        compared = COMPARED_FULL_OBJECT
    if (source.algorithm, source.checksum_type) == (there.algorithm, there.checksum_type) and source.algorithm:
        compared = COMPARED_FULL_OBJECT if source.is_whole else COMPARED_PARTS
        if source.checksum != there.checksum:
            return Comparison(
                compared=compared,
                problem=f"its {there.algorithm} is {there.checksum}, that of the source {source.checksum}",
            )
    return Comparison(compared=compared)


def is_copy(source: ObjectState, there: ObjectState, *, claimed: Checksum | None = None) -> Comparison | None:
    """Return the comparison if `there` is a finished copy of `source` and no copy of something older; else None."""
    comparison = compare(source, there, claimed=claimed)
    if comparison.problem is not None:
        return None
    if SOURCE_ETAG in there.metadata:
        return comparison if there.metadata[SOURCE_ETAG] == source.etag else None
    # The same size alone is what two checkpoints of one model have: then the copy must also be younger.
    if comparison.compared != COMPARED_SIZE or there.modified_at > source.modified_at:
        return comparison
    return None


def marker_checksum(algorithm: str | None, checksum: str | None) -> Checksum | None:
    """Return a checksum of a whole object as a marker writes it; None where markers know no such one."""
    if algorithm is None or checksum is None or "-" in checksum or _lower(algorithm) not in CHECKSUM_DIGITS:
        return None
    value = hexadecimal(checksum)
    return None if value is None else Checksum(algorithm=algorithm.lower(), value=value)


def hexadecimal(checksum: str | None) -> str | None:
    """Return a base64 checksum in hexadecimal digits; None if it is none."""
    try:
        return None if checksum is None else base64.b64decode(checksum, validate=True).hex()
    except binascii.Error:
        return None


def _lower(algorithm: str | None) -> str:
    return (algorithm or "").lower()
