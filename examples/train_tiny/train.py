"""Train a tiny model on packed shards, save in the background, and resume exactly after a kill.

The same script runs at 2 processes, at 8 and on the cluster; see README.md beside it. Everything it needs to know about
storage comes from the storage contract.
"""

# ruff: noqa: INP001, T201 -- a script that prints

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

from training_storage import InvalidJobError
from training_storage.training import (
    CheckpointError,
    NoCheckpointError,
    ShardLoader,
    StorageContract,
    attempt_of_environment,
    shard_loader,
)
from training_storage.training.loader_settings import loader_settings
from training_storage.training.recipes.torch_dcp import DcpCheckpoints

BATCH = 8
FEATURES = 63


def features_of(sample: dict[str, Any]) -> tuple[str, torch.Tensor, torch.Tensor]:
    """Return the key, features and target of a sample: its file `bin` holds 64 bytes, the last is the target."""
    values = torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 255
    return sample["__key__"], values[:FEATURES], values[FEATURES:]


def batch_of(samples: list[tuple[str, torch.Tensor, torch.Tensor]]) -> tuple[list[str], torch.Tensor, torch.Tensor]:
    """Return the keys, features and targets of a batch."""
    keys, features, targets = zip(*samples, strict=True)
    return list(keys), torch.stack(features), torch.stack(targets)


class ModelState:
    """Model and optimizer as one thing to save: `get_state_dict` also makes the optimizer's state before a load."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        """Return what is saved."""
        model, optimizer = get_state_dict(self._model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what was saved."""
        set_state_dict(
            self._model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )


class LoaderState:
    """Where every rank is in its data: the batches that it has trained on by the step of the checkpoint.

    Each rank holds the places of all under one name, for a run with another number of ranks asks for the same names.
    """

    def __init__(self, loader: ShardLoader) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, str]:
        """Return the places of all ranks, as text."""
        return {"places": json.dumps(of_all_ranks(self._loader.state_dict()))}

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Go on at this rank's place. At an epoch's end all have the same one, and more or fewer ranks may go on."""
        places = json.loads(state["places"])
        self._loader.load_state_dict(places[min(dist.get_rank(), len(places) - 1)])


def main() -> None:
    """Train until the epochs are done, from the newest complete checkpoint if there is one."""
    options = arguments()
    contract = StorageContract.read()
    if options.name is not None:
        contract = with_run(contract, options.name)
    start_process_group()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(mode=True)

    data = f"{contract.location('datasets').rstrip('/')}/{options.data}/"
    loader = shard_loader(
        data, settings=loader_settings(contract), batch_size=BATCH, transform=features_of, collate=batch_of
    )
    layers = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    checkpoints = DcpCheckpoints.from_contract(contract)
    progress = {"step": 0}
    state = {"training": ModelState(model, optimizer), "loader": LoaderState(loader), "progress": progress}
    resume(checkpoints, state)
    if loader.epoch >= options.epochs:
        say(f"all {options.epochs} epochs are done: --epochs {loader.epoch + 2} trains on, --name NAME starts anew")

    log = KeyLog(options.log_keys)
    saved_step, saved_at = progress["step"], time.monotonic()
    while loader.epoch < options.epochs:
        epoch = loader.epoch
        for keys, features, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(features), targets)
            torch.autograd.backward(loss)
            optimizer.step()
            time.sleep(options.step_seconds)
            progress["step"] += 1
            log.write(epoch, progress["step"], keys)
            checkpoints.check()  # what failed in the background is raised here
            if is_due(progress["step"] - saved_step, saved_at, contract, options.checkpoint_every_steps):
                checkpoints.save(progress["step"], state)
                saved_step, saved_at = progress["step"], time.monotonic()
        say(f"epoch {epoch}: step {progress['step']}, loading took {loader.loading_share:.0%} of the time")
    if saved_step != progress["step"]:
        checkpoints.save(progress["step"], state)
    checkpoints.close()
    say(json.dumps({"steps": progress["step"], "weights": digest_of(layers)}))
    dist.destroy_process_group()


def resume(checkpoints: DcpCheckpoints, state: dict[str, Any]) -> None:
    """Load the newest complete checkpoint, if there is one that this run can go on from."""
    problem = None
    try:
        loaded = checkpoints.load(state)
        say(f"resumed from {loaded.place}{loaded.name}")
    except NoCheckpointError:
        say("nothing to resume from: starting at step 0")
    except (CheckpointError, InvalidJobError) as error:
        # Damaged, or not of this run: nobody starts anew for that without being told to.
        problem = str(error)
    # What is wrong on one rank ends all, in one line.
    problems = [one for one in of_all_ranks(problem) if one is not None]
    if problems:
        say(f"cannot resume: {problems[0].rstrip('.')}. To start anew: --name NAME.")
        dist.barrier()
        raise SystemExit(1)


def of_all_ranks(mine: object) -> list[Any]:
    """Return what each rank hands in, in their order, on every rank."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    return every


def with_run(contract: StorageContract, name: str) -> StorageContract:
    """Return the contract with checkpoints below a name of their own."""
    given = contract.checkpoints
    below = dataclasses.replace(
        given,
        path=given.path and f"{given.path.rstrip('/')}/{name}/",
        uri=given.uri and f"{given.uri.rstrip('/')}/{name}/",
        durable_uri=f"{given.durable_uri.rstrip('/')}/{name}/",
    )
    return dataclasses.replace(contract, checkpoints=below)


def is_due(steps: int, saved_at: float, contract: StorageContract, every_steps: int | None) -> bool:
    """Whether to save now; rank 0's clock decides for all."""
    if every_steps is not None:
        return steps >= every_steps
    elapsed_minutes = (time.monotonic() - saved_at) / 60
    due = torch.tensor(elapsed_minutes >= contract.checkpoints.interval_minutes)
    dist.broadcast(due, src=0)
    return bool(due)


def start_process_group() -> None:
    """Meet the other ranks: on one machine in a file, without any port; on several as torchrun says."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        raise SystemExit("start this with run.sh, train.sbatch or torchrun: each process must know its rank")
    torch.set_num_threads(1)
    if int(os.environ["GROUP_WORLD_SIZE"]) > 1:
        dist.init_process_group("gloo")
        return
    attempt = f"{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    meeting = Path(tempfile.gettempdir(), f"train-tiny-{attempt}")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)


class KeyLog:
    """Which samples each step was trained on, a file for each attempt and rank: what the proof compares."""

    def __init__(self, folder: str | None) -> None:
        self._file = None
        if folder is not None:
            attempt = attempt_of_environment() or "run"
            # Unbuffered: a kill loses no line of a step that was taken.
            self._file = Path(folder, f"{attempt}-rank-{dist.get_rank()}.jsonl").open("ab", buffering=0)  # noqa: SIM115

    def write(self, epoch: int, step: int, keys: list[str]) -> None:
        """Take down a step."""
        if self._file is not None:
            self._file.write(json.dumps({"epoch": epoch, "step": step, "keys": keys}).encode() + b"\n")


def digest_of(model: torch.nn.Module) -> str:
    """Return a checksum of all weights: equal only if they are, bit for bit."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def say(text: str) -> None:
    """Print once, not on every rank."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def arguments() -> argparse.Namespace:
    """Return what the command line says: how long to train, never where storage is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--data", default="train-tiny", help="data set below the contract's datasets (%(default)s)")
    parser.add_argument(
        "--name", metavar="NAME", help="start anew: checkpoints are below this name, and only those count"
    )
    parser.add_argument("--step-seconds", type=float, default=0.0, help="rest after each step, as a larger model would")
    parser.add_argument("--checkpoint-every-steps", type=int, help="instead of the contract's minutes")
    parser.add_argument("--log-keys", metavar="FOLDER", help="write the keys of each step's samples there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
