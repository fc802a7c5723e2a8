"""How long the shipped example takes at two processes, killed and resumed; and what a save in the background costs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A minute for a whole run, one that is killed and one that resumes, with all that each of them starts anew.
TRAIN_MOST_S: Final = 60.0
ROUNDS: Final = 5
STATE_BYTES: Final = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class TrainTiny:
    """Seconds, and whether the resumed run was the same as the whole one.

    Parameters
    ----------
    import_s
        A Python that loads torch and ends: the yardstick, because every process of the example does that first.
    whole_s, killed_s, resumed_s
        Of the three runs.
    same
        Whether samples, steps and weights are the same.
    save_call_s, saved_s
        Medians of saves of 256 MiB to the local disk: until the call returns, and until the checkpoint is complete.
    """

    import_s: float
    whole_s: float
    killed_s: float
    resumed_s: float
    same: bool
    save_call_s: float
    saved_s: float

    @property
    def total_s(self) -> float:
        """Of the three runs."""
        return self.whole_s + self.killed_s + self.resumed_s


def train_tiny_times() -> TrainTiny:
    """Measure."""
    # Loaded here, after everything that starts processes anew.
    from tests.training.train_tiny import EXAMPLE, SAMPLES, SHARDS, Example, lustre_contract  # noqa: PLC0415
    from training_storage.training.shard_pack import pack_shards  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, EXAMPLE / "make_data.py", folder / "small", str(SAMPLES)], check=True)
        examples = []
        for which in ("whole", "interrupted"):
            values = lustre_contract(folder / which)
            place = f"{values['lustre']['paths']['datasets']}train-tiny"
            pack_shards(source=str(folder / "small"), target=place, shards=SHARDS, processes=1)
            examples.append(Example(folder / which, values, environment=os.environ))
        whole, interrupted = examples
        marks = [time.perf_counter()]
        expected = whole.run()
        marks.append(time.perf_counter())
        interrupted.run_and_kill()
        newest, killed = interrupted.newest(), interrupted.steps()
        marks.append(time.perf_counter())
        resumed = interrupted.run()
        marks.append(time.perf_counter())
        counted = [step for step in killed if step.step <= newest] + interrupted.steps()[len(killed) :]
        same = resumed.weights == expected.weights and Counter(counted) == Counter(whole.steps())
        save_call_s, saved_s = _save_times(folder)
    return TrainTiny(
        import_s=_import_s(),
        whole_s=marks[1] - marks[0],
        killed_s=marks[2] - marks[1],
        resumed_s=marks[3] - marks[2],
        same=same,
        save_call_s=save_call_s,
        saved_s=saved_s,
    )


def claims(found: TrainTiny) -> Iterator[tuple[str, str, str, bool]]:
    """Yield what is claimed: the words, what was measured, the limit, and whether it holds."""
    yield (
        "the example at 2 processes: a whole run, a killed and a resumed one",
        f"{found.total_s:.0f} s",
        f"at most {TRAIN_MOST_S:.0f} s",
        found.total_s <= TRAIN_MOST_S,
    )
    yield (
        "the resumed run's samples, steps and weights are the whole one's",
        "yes" if found.same else "no",
        "all",
        found.same,
    )


def lines(found: TrainTiny) -> Iterator[str]:
    """Yield the section of the document."""
    yield from ("", "## The example, and background saves of torch's distributed checkpoint", "")
    yield f"Each run of the example once, with all that it starts; saves are medians of {ROUNDS}."
    yield from ("", "| | |", "|---|---|")
    yield f"| a Python that loads torch | {found.import_s:.1f} s |"
    yield f"| `examples/train_tiny` at 2 processes, a whole run | {found.whole_s:.1f} s |"
    yield f"| the same until it is killed in the middle of an epoch | {found.killed_s:.1f} s |"
    yield f"| the same, resumed, to the end | {found.resumed_s:.1f} s |"
    yield f"| a save of 256 MiB to the local disk: the loop stands still | {found.save_call_s:.2f} s |"
    yield f"| the same, until it is complete, hashed and synced | {found.saved_s:.2f} s |"


def _import_s() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - started


def _save_times(folder: Path) -> tuple[float, float]:
    import torch  # noqa: PLC0415

    from training_storage.training.recipes.torch_dcp import DcpCheckpoints  # noqa: PLC0415

    checkpoints = DcpCheckpoints(str(folder / "saves"), kept=1)
    state = {"weights": [torch.rand(STATE_BYTES // 4 // 8) for _ in range(8)]}
    calls, saves = [], []
    with warnings.catch_warnings():
        # torch says that there is one process; there is.
        warnings.simplefilter("ignore")
        for step in range(ROUNDS + 1):
            started = time.perf_counter()
            checkpoints.save(step, state)
            called = time.perf_counter()
            checkpoints.wait()
            # The first one makes threads and folders.
            if step:
                calls.append(called - started)
                saves.append(time.perf_counter() - started)
    checkpoints.close()
    return statistics.median(calls), statistics.median(saves)


if __name__ == "__main__":
    measured = train_tiny_times()
    sys.stdout.write("\n".join([*lines(measured), *map(str, claims(measured))]) + "\n")
