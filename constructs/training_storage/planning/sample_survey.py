"""Counts a data set file by file in bounded memory: millions of files need no more than a few."""

from __future__ import annotations

from dataclasses import dataclass

from training_storage.planning.sample_names import is_hidden, sample_name

#: A tar file is made of such blocks: one for the header of each member, and its data filled up to a whole number.
TAR_BLOCK_BYTES = 512
#: Longer names and those beyond ASCII have an extended header, of at least two blocks.
_NAME_CHARACTERS_MAXIMUM = 100


def member_bytes(path: str, size: int) -> int:
    """Return what a file takes in a tar file, in bytes; names of several hundred characters take a little more."""
    blocks = 1 + -(-size // TAR_BLOCK_BYTES)
    if len(path) > _NAME_CHARACTERS_MAXIMUM or not path.isascii():
        blocks += 3
    return blocks * TAR_BLOCK_BYTES


def unnamed_words(path: str, fault: str | None) -> str:
    """Return a file that can be no sample in words: with `fault`, or alone where it is its name."""
    return f"{path!r} ({fault})" if fault else repr(path)


@dataclass(frozen=True, kw_only=True)
class SizeClass:
    """Files greater than half of `up_to_bytes` and at most that; empty files have the class 0."""

    up_to_bytes: int
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class DataSummary:
    """What a data set is made of.

    Parameters
    ----------
    files, bytes
        Of samples; what is left out does not count.
    samples
        Files with the same key are one sample.
    smallest_bytes, largest_bytes
        Of a file.
    tar_bytes
        What all files take in tar files, without the end of each.
    range_requests
        GET requests that read every file once, in parts.
    distribution
        Files by size; classes without files are left out.
    hidden
        Files left out because they or a folder above begin with a dot, and empty objects that stand for folders.
    unnamed, first_unnamed
        Files that cannot be part of a sample, such as those without an extension; the path of the first, and why.
    """

    files: int
    bytes: int
    samples: int
    smallest_bytes: int
    largest_bytes: int
    tar_bytes: int
    range_requests: int
    distribution: tuple[SizeClass, ...]
    hidden: int = 0
    unnamed: int = 0
    first_unnamed: str | None = None

    @property
    def mean_bytes(self) -> float:
        """Mean size of a file; 0 without files."""
        return self.bytes / self.files if self.files else 0.0

    def size_at(self, share: float) -> int:
        """Return a size in bytes that at least `share` of the files do not exceed: the bound of its class."""
        wanted, seen = share * self.files, 0
        for size_class in self.distribution:
            seen += size_class.files
            if seen >= wanted:
                return min(size_class.up_to_bytes, self.largest_bytes)
        return self.largest_bytes


class Survey:
    """Counts files as they are listed.

    Files of one folder must come in the order of their names, folders may come in between; so do listings of S3 and
    walks that sort each folder. Then files of one sample are neighbours, and nothing but the last key of each open
    folder need be remembered.

    Parameters
    ----------
    part_bytes
        Greater files are read in several requests of this size.
    """

    def __init__(self, *, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._open: list[tuple[str, str]] = []
        self._files = self._bytes = self._samples = self._tar_bytes = self._requests = 0
        self._smallest: int | None = None
        self._largest = 0
        self._classes: dict[int, list[int]] = {}
        self._hidden = self._unnamed = 0
        self._first_unnamed: str | None = None

    def add(self, path: str, size: int, *, fault: str | None = None) -> None:
        """Count the file at `path`, relative to the data set and with ``/``, of `size` bytes.

        `fault` says why it can be no sample whatever its name.
        """
        if is_hidden(path):
            self._hidden += 1
            return
        name = None if fault else sample_name(path)
        if name is None:
            self._unnamed += 1
            if self._first_unnamed is None:
                self._first_unnamed = unnamed_words(path, fault)
            return
        self._samples += self._is_new(path[: path.rfind("/") + 1], name.key)
        self._files += 1
        self._bytes += size
        self._tar_bytes += member_bytes(path, size)
        self._requests += max(1, -(-size // self._part_bytes))
        self._smallest = size if self._smallest is None else min(size, self._smallest)
        self._largest = max(size, self._largest)
        # The class of 1,025 to 2,048 bytes has the number 11, that of one byte 0, and that of empty files -1.
        counted = self._classes.setdefault(max(size - 1, 0).bit_length() if size else -1, [0, 0])
        counted[0] += 1
        counted[1] += size

    def _is_new(self, folder: str, key: str) -> bool:
        while self._open and not folder.startswith(self._open[-1][0]):
            self._open.pop()
        if self._open and self._open[-1][0] == folder:
            if self._open[-1][1] == key:
                return False
            self._open.pop()
        self._open.append((folder, key))
        return True

    def summary(self) -> DataSummary:
        """Return what was counted so far."""
        return DataSummary(
            files=self._files,
            bytes=self._bytes,
            samples=self._samples,
            smallest_bytes=self._smallest or 0,
            largest_bytes=self._largest,
            tar_bytes=self._tar_bytes,
            range_requests=self._requests,
            distribution=tuple(
                SizeClass(up_to_bytes=0 if number < 0 else 2**number, files=files, bytes=size)
                for number, (files, size) in sorted(self._classes.items())
            ),
            hidden=self._hidden,
            unnamed=self._unnamed,
            first_unnamed=self._first_unnamed,
        )
