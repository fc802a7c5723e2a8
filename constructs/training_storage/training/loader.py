"""Reads shards in a training loop: each process its own, from the cache from the second epoch on, resumable exactly.

Every process reads the same shards in every epoch, in another order each time, so that its node's disks hold what it
needs. Mixing across processes was done when the shards were packed, which shuffles the whole data set. Within a shard
samples are shuffled again in each epoch.
"""

from __future__ import annotations

import io
import logging
import os
import random
import time
import warnings
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tarfile import TarError
from typing import TYPE_CHECKING, Any, BinaryIO

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
    from torchdata.stateful_dataloader import StatefulDataLoader
    from webdataset.tariterators import group_by_keys, tar_file_expander
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"loading shards needs {error.name}: pip install 'training-storage[training]'", name=error.name
    ) from None

from training_storage.planning.errors import InvalidJobError
from training_storage.training.contract import Endpoint
from training_storage.training.loader_cache import VERIFY_WORDS, CheckedStream, ShardCache
from training_storage.training.loader_settings import LoaderSettings, loader_processes
from training_storage.training.loader_stream import ShardStore
from training_storage.training.shard_errors import ShardError
from training_storage.training.shard_s3 import S3Access, aws_variables, is_uri, split_uri
from training_storage.training.shard_verify import read_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from training_storage.training.shard_index import ShardIndex, ShardRecord

Sample = dict[str, Any]
_LOG = logging.getLogger("training_storage.loader")
_STATE_VERSION = 1
_BUFFER_BYTES = 2**20


def shard_loader(
    place: str,
    *,
    settings: LoaderSettings,
    batch_size: int,
    transform: Callable[[Sample], Any] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    seed: int = 0,
    shuffle_samples: int = 1000,
    drop_last: bool = False,
    rank: int | None = None,
    ranks: int | None = None,
    **data_loader: Any,  # noqa: ANN401 - DataLoader's own arguments
) -> ShardLoader:
    """Return a loader of the shards at `place` for this rank.

    Parameters
    ----------
    place
        A folder or ``s3://bucket/prefix/`` that was packed.
    settings
        See `loader_settings`.
    batch_size
        Samples of a batch.
    transform
        From a sample to what the loop takes. A sample has its key as ``__key__`` and the bytes of each file by its
        extension. It travels to other processes, so it must be a function of a module.
    collate
        From a list of transformed samples to a batch; torch's usual one by default.
    seed
        Of the order.
    shuffle_samples
        Samples held to shuffle within a shard; 0 for the order of the shard.
    drop_last
        Leave out each process's last batch if it is not full.
    rank, ranks
        Of the job; by default what torchrun says in RANK and WORLD_SIZE, else the only one.
    **data_loader
        Arguments of ``torch.utils.data.DataLoader`` that win over the settings.

    Raises
    ------
    InvalidJobError
        If the ranks cannot read as many shards each, or a number is not allowed.
    ShardError
        If the index cannot be read, or the cache's folder cannot be used.
    """
    rank = _of_launcher("RANK", 0) if rank is None else rank
    ranks = _of_launcher("WORLD_SIZE", 1) if ranks is None else ranks
    if not 0 <= rank < ranks:
        raise InvalidJobError(f"rank must be from 0 to {ranks - 1}, got: {rank}.")
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InvalidJobError(f"batch_size must be a whole number from 1, for example 32, got: {batch_size!r}.")
    index = read_index(place, access=_access(settings))
    if is_uri(place):
        # Here and not in a loader process, where an error is a page of tracebacks.
        _cache(settings, index).prepare()
    arguments = {**settings.data_loader_arguments(), **data_loader}
    # Without processes of its own the training process reads, as one.
    wanted = arguments["num_workers"]
    workers = loader_processes(shards=len(index.shards), ranks=ranks, workers=max(1, wanted))
    arguments["num_workers"] = min(wanted, workers)
    each = len(index.shards) // ranks
    if rank == 0 and each < wanted:
        _LOG.warning(
            "%s has %d shards: each of %d ranks reads %d, so it has %d loader processes and not %d. Pack again with"
            " --shards %d for all.",
            place,
            len(index.shards),
            ranks,
            each,
            workers,
            wanted,
            ranks * wanted,
        )
    # What a state of processes says, the training process itself cannot go on with, and the other way round.
    layout = Layout(
        ranks=ranks,
        workers=workers,
        batch_size=batch_size,
        drop_last=drop_last,
        in_processes=arguments["num_workers"] > 0,
    )
    dataset = ShardDataset(
        place=place,
        index=index,
        settings=settings,
        layout=layout,
        rank=rank,
        seed=seed,
        shuffle_samples=shuffle_samples,
        transform=transform,
    )
    return ShardLoader(dataset=dataset, collate=collate, arguments=arguments)


def _of_launcher(name: str, otherwise: int) -> int:
    value = os.environ.get(name, str(otherwise))
    if not (value.isascii() and value.isdigit()):
        raise InvalidJobError(f"the variable {name} must be a whole number, got: {value!r:.80}. Start with torchrun.")
    return int(value)


def _access(settings: LoaderSettings) -> S3Access:
    endpoint = Endpoint(settings.endpoint_url, settings.addressing_style, settings.checksums)
    return S3Access(region=settings.region, endpoint=endpoint)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Who reads what: a state of one layout cannot be gone on with in another.

    Parameters
    ----------
    ranks
        Of the job.
    workers
        Processes of each rank.
    batch_size, drop_last
        Of each process's batches.
    in_processes
        Whether processes of their own read, and not the training process.
    """

    ranks: int
    workers: int
    batch_size: int
    drop_last: bool
    in_processes: bool = True

    def shards(self, index: ShardIndex, *, rank: int, worker: int) -> tuple[ShardRecord, ...]:
        """Return the shards of a process, the same in every epoch; all ranks have as many."""
        return index.shards[rank :: self.ranks][worker :: self.workers]

    def batches(self, index: ShardIndex, *, rank: int) -> int:
        """Return how many batches the shards of `rank` make in an epoch."""
        total = 0
        for worker in range(self.workers):
            samples = sum(shard.samples for shard in self.shards(index, rank=rank, worker=worker))
            total += samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)
        return total


class ShardDataset(IterableDataset[Any]):
    """The samples of one rank; each of its loader processes reads its own shards.

    See `shard_loader` for the parameters.
    """

    def __init__(
        self,
        *,
        place: str,
        index: ShardIndex,
        settings: LoaderSettings,
        layout: Layout,
        rank: int,
        seed: int,
        shuffle_samples: int,
        transform: Callable[[Sample], Any] | None,
    ) -> None:
        self.place = place
        self.index = index
        self.settings = settings
        self.layout = layout
        self.rank = rank
        self.seed = seed
        self.shuffle_samples = shuffle_samples
        self.transform = transform
        # Shared with the loader processes, which outlive an epoch.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call] # torch has no types here
        self._opener: _Opener | None = None

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch.fill_(value)

    def __iter__(self) -> ShardIterator:
        """Return this process's samples of the epoch."""
        info = get_worker_info()
        worker = 0 if info is None else info.id
        shards = self.layout.shards(self.index, rank=self.rank, worker=worker)
        if self._opener is None:
            # Made in the process that reads: clients and connections must not be shared.
            self._opener = _Opener(self.place, self.index, shards, self.settings, rank=self.rank)
        return ShardIterator(self, shards, self._opener)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process; take along how it reaches AWS.

        A fork server keeps the variables of the moment when it was started, which credentials may be newer than.
        """
        return {**self.__dict__, "_opener": None, "_surroundings": aws_variables()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over in a loader process."""
        os.environ.update(state.pop("_surroundings"))
        self.__dict__.update(state)


class ShardIterator:
    """The samples of one process in one epoch, from where its state says.

    A state says how many shards are done and how many samples of the current one. To go on, that shard is read and
    shuffled again, in the same order, and what was given out is passed over.
    """

    def __init__(self, dataset: ShardDataset, shards: Sequence[ShardRecord], opener: _Opener) -> None:
        self._dataset = dataset
        self._shards = shards
        self._opener = opener
        self._epoch = dataset.epoch
        self._done = self._given = 0
        self._samples: Iterator[Any] | None = None

    def __iter__(self) -> ShardIterator:
        """Return itself."""
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - what `transform` returns
        """Return the next sample."""
        if self._samples is None:
            self._samples = self._read()
        sample = next(self._samples)
        transform = self._dataset.transform
        return sample if transform is None else transform(sample)

    def state_dict(self) -> dict[str, int]:
        """Return where this process is."""
        return {"epoch": self._epoch, "done": self._done, "given": self._given}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where `state` was taken."""
        self._epoch, self._done, self._given = state["epoch"], state["done"], state["given"]
        self._samples = None

    def _read(self) -> Iterator[Sample]:
        order = list(self._shards)
        self._random("order", self._shards[0].name).shuffle(order)
        while self._done < len(order):
            record = order[self._done]
            passed = self._given
            for number, sample in enumerate(self._shuffled(record)):
                if number >= passed:
                    self._given = number + 1
                    yield sample
            self._done, self._given = self._done + 1, 0

    def _shuffled(self, record: ShardRecord) -> Iterator[Sample]:
        """Yield the samples of a shard in this epoch's order: each takes the place of a random one held."""
        chance = self._random("samples", record.name)
        held: list[Sample] = []
        for sample in self._opener.samples(record):
            if len(held) < self._dataset.shuffle_samples:
                held.append(sample)
            elif held:
                place = chance.randrange(len(held))
                held[place], sample = sample, held[place]  # noqa: PLW2901 - the one that leaves
                yield sample
            else:
                yield sample
        chance.shuffle(held)
        yield from held

    def _random(self, what: str, name: str) -> random.Random:
        return random.Random(f"{self._dataset.seed}/{self._epoch}/{what}/{name}")  # noqa: S311 - an order, no secret


def _cache(settings: LoaderSettings, index: ShardIndex) -> ShardCache:
    return ShardCache(
        path=settings.cache_path,
        limit_bytes=settings.cache_bytes,
        keep=frozenset(shard.sha256 for shard in index.shards),
    )


class _Opener:
    """Opens the shards of one process."""

    def __init__(
        self, place: str, index: ShardIndex, shards: Sequence[ShardRecord], settings: LoaderSettings, *, rank: int
    ) -> None:
        self._remote = is_uri(place)
        self._checked: set[str] = set()
        if self._remote:
            bucket, prefix = split_uri(place)
            self._place = f"s3://{bucket}/{prefix}"
            self._store = ShardStore([self._place + shard.name for shard in shards], settings, rank=rank)
            self._cache = _cache(settings, index)
        else:
            self._place = f"{place.rstrip('/')}/"

    def samples(self, record: ShardRecord) -> Iterator[Sample]:
        """Yield the samples of a shard; one that is not what the index says raises ShardError."""
        place, count = self._place + record.name, 0
        stream = self._open(record, place)
        try:
            files = tar_file_expander([{"url": place, "stream": stream}])
            for sample in group_by_keys(files):
                del sample["__url__"]
                count += 1
                yield sample
            # A tar file ends before its padding does; only at the very end is it whole and true.
            while stream.read(_BUFFER_BYTES):
                pass
        except ShardError as error:
            # webdataset adds the stream to what an error says.
            raise ShardError(str(error.args[0]).partition(" @ <")[0]) from None
        except (TarError, ValueError) as error:
            raise ShardError(f"the shard {place} is no whole tar file ({error.args[0]}). {VERIFY_WORDS}") from error
        finally:
            stream.close()
        if count != record.samples:
            raise ShardError(f"the shard {place} must have {record.samples} samples, has {count}.")

    def _open(self, record: ShardRecord, place: str) -> BinaryIO:
        if self._remote:
            return self._cache.open(record, place=place, fetch=lambda: self._store.open(place))
        if record.name in self._checked:
            return Path(place).open("rb")
        self._checked.add(record.name)
        return io.BufferedReader(CheckedStream(Path(place).open("rb"), record, place=place), _BUFFER_BYTES)


class ShardLoader:
    """Gives out the batches of an epoch at a time, as many on every rank, and goes on where its state says.

    Examples
    --------
    >>> loader = shard_loader(uri, settings=settings, batch_size=32)  # doctest: +SKIP
    >>> while loader.epoch < epochs:  # doctest: +SKIP
    ...     for batch in loader:
    ...         train(batch)
    ...         checkpoint["loader"] = loader.state_dict()

    Parameters
    ----------
    dataset
        Of this rank.
    collate
        From a list of samples to a batch; torch's usual one if None.
    arguments
        Of DataLoader.

    Attributes
    ----------
    batches
        Of an epoch, the same on every rank, so that none waits for others at its end.
    left_over
        Batches that this rank's shards hold beyond that; other ones in every epoch.
    """

    def __init__(
        self,
        *,
        dataset: ShardDataset,
        collate: Callable[[list[Any]], Any] | None,
        arguments: Mapping[str, Any],
    ) -> None:
        layout, index = dataset.layout, dataset.index
        self._dataset = dataset
        with warnings.catch_warnings():
            # torchdata calls what torch has no use for any more; nobody but them can change that.
            warnings.filterwarnings("ignore", message="'set_vital' is deprecated")
            self._loader: StatefulDataLoader[Any] = StatefulDataLoader(
                dataset,
                batch_size=layout.batch_size,
                drop_last=layout.drop_last,
                collate_fn=collate,
                **_without_processes(arguments),
            )
        own = layout.batches(index, rank=dataset.rank)
        self.batches = min(layout.batches(index, rank=rank) for rank in range(layout.ranks))
        self.left_over = own - self.batches
        self._taken = 0
        self._epoch = 0
        # Kept when a loop is left, so that the next one goes on behind its last batch.
        self._batches: Iterator[Any] | None = None
        self._failed = False
        self._waited = self._began = 0.0

    @property
    def epoch(self) -> int:
        """The epoch that is being read, from 0; it grows when its last batch was taken."""
        return self._epoch

    @property
    def loading_share(self) -> float:
        """Share of this epoch's time that the loop waited for batches, the first one left out."""
        lasted = time.monotonic() - self._began
        return self._waited / lasted if self._began and lasted > 0 else 0.0

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        """Yield the rest of the epoch; after a `break`, the batches that follow the last one that was given out.

        Raises
        ------
        ShardError
            If a shard cannot be read. What other processes had read by then is lost: a loader that has failed only goes
            on from a state.
        """
        if self._failed:
            raise ShardError(
                "this loader has failed and lost its place. Make a new one and load the state of the last checkpoint."
            )
        self._waited = self._began = 0.0
        while self._taken < self.batches:
            asked = time.monotonic()
            batch = self._next()
            now = time.monotonic()
            if self._began:
                self._waited += now - asked
            else:
                self._began = now
            self._taken += 1
            yield batch
        self._epoch, self._taken, self._batches = self._epoch + 1, 0, None

    def _next(self) -> Any:  # noqa: ANN401 - a batch is what `collate` returns
        if self._batches is None:
            self._dataset.epoch = self._epoch
            self._batches = iter(self._loader)
        # Until it has answered: whatever is raised, an interruption included, may have taken a batch along.
        self._failed = True
        try:
            batch = next(self._batches)
        except RuntimeError as error:
            # Torch's words for a process that was killed.
            if "exited unexpectedly" not in str(error):
                raise
            raise ShardError(
                f"a loader process of rank {self._dataset.rank} was killed, perhaps for want of memory ({error})."
                " Resume from the last checkpoint, with fewer workers or smaller batches."
            ) from error
        except StopIteration:
            raise ShardError(
                f"{self.batches} batches were expected in epoch {self._epoch}, got: {self._taken}."
            ) from None
        self._failed = False
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop is, after the batch that it was given last."""
        epoch, taken = self._epoch, self._taken
        if taken == self.batches:
            epoch, taken = epoch + 1, 0
        return {
            "version": _STATE_VERSION,
            "identity": self._identity(),
            "epoch": epoch,
            "taken": taken,
            "loader": self._loader.state_dict() if taken else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken: no sample is lost, none comes twice.

        A state of an epoch's end holds no place in any shard, so that the next epoch may begin with other ranks,
        processes, batches or shards; what is different is logged. Within an epoch it is refused.

        Raises
        ------
        InvalidJobError
            For a state of the middle of an epoch of other shards, of another number of ranks or processes, or of other
            batches.
        """
        if state.get("version") != _STATE_VERSION:
            raise InvalidJobError(f"state version must be {_STATE_VERSION}, got: {state.get('version')!r}.")
        others = {name: state["identity"].get(name) for name in self._identity()}
        differing = [(name, value, others[name]) for name, value in self._identity().items() if others[name] != value]
        if differing and state["taken"]:
            name, value, other = differing[0]
            raise InvalidJobError(
                f"the state was taken in the middle of epoch {state['epoch']} by a loader with {name} {other!r}, got:"
                f" {name} {value!r}. Finish the epoch with {name} {other!r}, whose end any other can go on from, or"
                " start anew with checkpoints at another place."
            )
        if differing and self._dataset.rank == 0:
            _LOG.warning(
                "epoch %d begins anew at its start with %s",
                state["epoch"],
                ", ".join(f"{name} {value!r} (was {other!r})" for name, value, other in differing if name != "rank"),
            )
        self._epoch, self._taken = state["epoch"], state["taken"]
        self._batches, self._failed = None, False
        self._dataset.epoch = self._epoch
        if state["loader"] is not None:
            self._loader.load_state_dict(state["loader"])

    def _identity(self) -> dict[str, Any]:
        layout = self._dataset.layout
        return {
            "packing": self._dataset.index.run,
            "ranks": layout.ranks,
            "rank": self._dataset.rank,
            "workers": layout.workers if layout.in_processes else 0,
            "batch_size": layout.batch_size,
            "drop_last": layout.drop_last,
            "seed": self._dataset.seed,
            "shuffle_samples": self._dataset.shuffle_samples,
        }


def _without_processes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return `arguments` with the fork server prepared, or without what only processes need."""
    given = dict(arguments)
    if given["num_workers"] == 0:
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
            given.pop(name, None)
    elif given.get("multiprocessing_context") == "forkserver":
        context = get_context("forkserver")
        # Loaded once in the server instead of once in every process.
        context.set_forkserver_preload([__name__])
        given["multiprocessing_context"] = context
    return given
