"""Rule: how many file systems one key may serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog.limits import lustre_limits
from training_storage.planning.legality.finding import Problem, Words, rule

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class SharedKey:
    """A key and the number of file systems that it encrypts."""

    key: str
    file_systems: int


@rule("lustre-key-shared", source="FSx guide, limits (file systems per KMS key)")
def shared(given: SharedKey) -> Iterator[Problem]:
    """Require that a key encrypts at most 125 file systems."""
    most = lustre_limits().file_systems_per_key_maximum
    if given.file_systems > most:
        yield Problem(
            what="encryption_key",
            allowed=f"serve at most {most} file systems",
            got=Words(f"{given.file_systems} with {given.key}"),
            remedy="use a second key",
            location="KmsKeyId",
        )


RULES = (shared,)
