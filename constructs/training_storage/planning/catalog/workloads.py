"""Readers and checkpoints that MLPerf Storage describes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training_storage.planning.catalog._data import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILE = "workloads.toml"
_GIB = 2**30


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class StepTime:
    """Seconds of a training step, and whether they were measured on that accelerator or on the nearest one."""

    seconds: float
    column: str
    measured: bool


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Workload:
    """How a reader reads: bytes of a sample, samples of a step and of a file, and the accelerator use it must keep."""

    name: str
    sample_bytes: float
    samples_per_step: int
    samples_per_file: int
    accelerator_use: float
    step_seconds: Mapping[str, float]

    @property
    def file_bytes(self) -> float:
        """Size of one file in bytes."""
        return self.sample_bytes * self.samples_per_file

    def step_time(self, accelerator_name: str) -> StepTime | None:
        """Return the step time on `accelerator_name`, or None where none was published."""
        row = load(_FILE)["accelerators"].get(accelerator_name)
        if row is None or row["column"] not in self.step_seconds:
            return None
        return StepTime(seconds=self.step_seconds[row["column"]], column=row["column"], measured=row["measured"])


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class CheckpointModel:
    """A named checkpoint: parameters, ranks, ZeRO stage and its parts in GiB."""

    name: str
    parameters: int
    ranks: int
    zero_stage: int
    model_gib: float
    optimizer_gib: float
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    @property
    def checkpoint_bytes(self) -> float:
        """Size of the whole checkpoint in bytes."""
        return (self.model_gib + self.optimizer_gib) * _GIB

    @property
    def slowest_rank_gib(self) -> float:
        """Largest share of one rank in GiB.

        ZeRO-3 shards everything evenly. ZeRO-1 shards the optimizer; the weights are written by the first
        tensor-parallel x pipeline-parallel ranks only, which therefore write the most.
        """
        if self.zero_stage == 3:  # noqa: PLR2004 - the stage's own name
            return (self.model_gib + self.optimizer_gib) / self.ranks
        return self.optimizer_gib / self.ranks + self.model_gib / (self.tensor_parallel * self.pipeline_parallel)


def _fields(row: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in ("source", "as_of")}


@functools.cache
def workloads() -> Mapping[str, Workload]:
    """Return every workload of the catalog by name."""
    return {name: Workload(name=name, **_fields(row)) for name, row in load(_FILE)["workloads"].items()}  # type: ignore[arg-type]


@functools.cache
def models() -> Mapping[str, CheckpointModel]:
    """Return every named checkpoint of the catalog by name."""
    return {name: CheckpointModel(name=name, **_fields(row)) for name, row in load(_FILE)["models"].items()}  # type: ignore[arg-type]
