"""Seeded random jobs that reach every part of the model."""

from __future__ import annotations

import random
from typing import Any

SEED, COUNT = 20261130, 300


def random_jobs(count: int = COUNT, seed: int = SEED) -> list[dict[str, Any]]:
    """Return `count` jobs as fields; the same for the same seed."""
    source = random.Random(seed)  # noqa: S311 - nothing secret
    return [_job(source) for _ in range(count)]


def _job(source: random.Random) -> dict[str, Any]:
    def perhaps(share: float) -> bool:
        return source.random() < share

    def log(low: float, high: float) -> float:
        return float(f"{low * (high / low) ** source.random():.4g}")

    job: dict[str, Any] = {"instances": round(log(1, 3000)), "region": "us-east-1"}
    job["instance_type"] = source.choice(
        ["p5.48xlarge"] * 4 + ["p5en.48xlarge", "p5e.48xlarge", "p4d.24xlarge", "p5.4xlarge"]
    )
    job["interface"] = source.choice(["posix", "posix", "object"])
    sizes: list[dict[str, Any]] = [
        {"checkpoint_size_gib": log(1, 20_000)},
        {"model": source.choice(["llama3-8b", "llama3-70b", "llama3-405b"])},
        {"model_parameters": int(log(1e9, 1e12))},
        {},
    ]
    reads: list[dict[str, Any]] = [
        {"workload": source.choice(["unet3d", "resnet50", "cosmoflow"])},
        {"read_gb_per_s_per_accelerator": log(0.0005, 1.5)},
        {},
    ]
    job |= source.choices(sizes, [25, 15, 10, 50])[0] | source.choices(reads, [25, 45, 30])[0]
    optional: list[tuple[float, str, Any]] = [
        (0.15, "checkpoint_interface", lambda: source.choice(["posix", "object"])),
        (0.1, "fine_tuning", lambda: "lora"),
        (0.4, "checkpoint_mode", lambda: source.choice(["sync", "async"])),
        (0.3, "checkpoint_interval_minutes", lambda: log(0.5, 600)),
        (0.25, "checkpoint_stall_budget_seconds", lambda: log(0.5, 900)),
        (0.25, "restore_budget_seconds", lambda: log(60, 3600)),
        (0.2, "checkpoints_kept", lambda: source.randint(1, 5)),
        (0.2, "durable_interval_minutes", lambda: log(30, 1440)),
        (0.2, "durable_checkpoints_kept", lambda: source.randint(0, 20)),
        (0.3, "dataset_gib", lambda: log(10, 300_000)),
        (0.2, "run_hours", lambda: log(10, 2000)),
        (0.15, "mtbf_hours", lambda: log(1, 500)),
        (0.15, "failures_per_1000_node_days", lambda: log(1, 30)),
        (0.1, "lustre_deployment_type", lambda: "SCRATCH_2"),
        (0.15, "mean_file_size_mib", lambda: log(0.05, 2000)),
    ]
    for share, name, draw in optional:
        if perhaps(share):
            job[name] = draw()
    if "dataset_gib" in job and perhaps(0.3):
        job["hot_dataset_gib"] = float(f"{job['dataset_gib'] * source.random():.3g}")
    if perhaps(0.15):
        paths = ["ena", "ena-multi-ip"]
        if job["instances"] <= 1024 and job["instance_type"] != "p4d.24xlarge" and "lustre_deployment_type" not in job:
            paths += ["efa", "efa-gds"]
        job["network_path"] = source.choice(paths)
    return job
