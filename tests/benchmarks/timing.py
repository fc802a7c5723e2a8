"""Times things: medians of several runs, always beside a yardstick of the same run."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.planning import TrainingJob, plan_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
_LOOP_STEPS = 1_000_000


def medians(commands: Mapping[str, Sequence[str]], *, runs: int, environment: dict[str, str]) -> dict[str, float]:
    """Return the median seconds of each command; they take turns, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for run in range(runs + 1):
        for name, command in commands.items():
            start = time.perf_counter()
            subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=environment, cwd=ROOT
            )
            # The first round writes bytecode and fills caches.
            if run:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def cold_plan(*, runs: int = 15) -> dict[str, float]:
    """Return median seconds of an empty Python and of a plan with alternatives, each a process of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    plan = "import sys; from training_storage.cli import main; sys.exit(main(['plan', '--instances', '256']))"
    commands = {"python -c pass": [sys.executable, "-c", "pass"], "plan": [sys.executable, "-c", plan]}
    return medians(commands, runs=runs, environment=environment)


def plans_per_second(jobs: Sequence[TrainingJob], *, rounds: int = 9) -> tuple[float, float]:
    """Return plans per second without alternatives, and seconds of the fixed loop; medians of rounds in turns."""
    rates, loops = [], []
    for _ in range(rounds):
        loops.append(_seconds(_fixed_loop))
        rates.append(len(jobs) / _seconds(lambda: [plan_storage(job, alternatives=False) for job in jobs]))
    return statistics.median(rates), statistics.median(loops)


def synth(*, runs: int = 5) -> dict[str, float]:
    """Return median seconds to synthesize the app, an empty CDK app, and the app's resources as bare L1."""
    context = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "CDK_CONTEXT_JSON": json.dumps({**context, "instances": "256"}),
            "CDK_OUTDIR": f"{folder}/out",
            "CDK_DEFAULT_REGION": "us-east-1",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'constructs'}",
        }
        subprocess.run([sys.executable, "app.py"], check=True, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
        templates = Path(folder, "templates")
        templates.mkdir()
        for path in Path(folder, "out").glob("*.template.json"):
            (templates / path.name).write_bytes(path.read_bytes())
        bare = [sys.executable, "-m", "tests.benchmarks.bare_app"]
        return medians(
            {"app": [sys.executable, "app.py"], "empty": bare, "bare L1": [*bare, str(templates)]},
            runs=runs,
            environment=environment,
        )


def _fixed_loop() -> int:
    total = 0
    for number in range(_LOOP_STEPS):
        total += number * number % 7
    return total


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
