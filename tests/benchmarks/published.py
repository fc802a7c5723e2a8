"""What AWS's own guides chose, and what public templates create, beside the plan: feasibility and cost.

Both sides are weighed by the brute force's arithmetic. The guides do not publish failures or intervals, so that the
planner's defaults stand for them on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.benchmarks import brute_force
from tests.benchmarks.agreement import configuration
from training_storage.planning import TrainingJob, plan_storage

TIERS = ("s3", "fsx-lustre")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A published choice: its source, the job as far as it is published, and the file system.

    `fitted` says which fields were not published and were set to what the choice gives.
    """

    source: str
    job: dict[str, Any]
    per_unit: int
    gib: int
    path: str = "ena"
    fitted: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A case with the run's USD of both sides; `advised_meets` is whether the advice has capacity and rates."""

    case: Case
    advised_meets: bool
    advised_usd: float | None
    plan_shape: str
    plan_usd: float


_TOKENS = {"region": "us-east-1", "interface": "posix"}
CASES = (
    Case(
        source="AWS AI blog 2026-06-01: p5en, Llama 3.1 405B, 20 servers of 4,800 GiB at 1000, EFA",
        job={
            **_TOKENS,
            "instances": 64,
            "instance_type": "p5en.48xlarge",
            "model": "llama3-405b",
            "checkpoint_mode": "sync",
            "checkpoint_stall_budget_seconds": 61.0,
            "network_path": "efa",
        },
        per_unit=1000,
        gib=96_000,
        path="efa",
        fitted="`checkpoint_stall_budget_seconds=61` is what the published file system gives, 5,678 GB at 93.75 GB/s.",
    ),
    Case(
        source="HyperPod planning guide: 250 MB/s per TB, 50 TB",
        job={**_TOKENS, "instances": 64, "dataset_gib": 40_000.0, "model": "llama3-70b"},
        per_unit=250,
        gib=50_400,
        fitted="`dataset_gib=40000` is the data that fills 50,400 GiB beside the checkpoints.",
    ),
    Case(
        source="NeMo on EKS: 2 nodes, 1,200 GiB at 250",
        job={**_TOKENS, "instances": 2, "model": "llama3-8b", "restore_budget_seconds": 385.0},
        per_unit=250,
        gib=1200,
        fitted="`restore_budget_seconds=385` is the restore that the published file system gives, 113 GB at 293 MB/s.",
    ),
    *(
        Case(
            source=f"Public templates: 1,200 GiB at 250, {nodes} nodes",
            job={**_TOKENS, "instances": nodes},
            per_unit=250,
            gib=1200,
        )
        for nodes in (17, 64, 256, 512, 1000)
    ),
)


def comparisons() -> list[Comparison]:
    """Return every case with both sides weighed."""
    return [_compare(case) for case in CASES]


def _compare(case: Case) -> Comparison:
    need = brute_force.demand(case.job)
    advised = brute_force.Candidate("fsx-lustre", "fsx-lustre", case.path, "PERSISTENT_2", case.per_unit, case.gib)
    plan = plan_storage(TrainingJob(**case.job, tiers=TIERS), alternatives=False)
    planned = brute_force.total(need, configuration(plan), TIERS)
    if planned is None or plan.fsx_lustre is None:
        raise AssertionError(f"no plan for {case.source}")
    system = plan.fsx_lustre
    return Comparison(
        case=case,
        advised_meets=brute_force.meets(need, advised, targets=False),
        advised_usd=brute_force.total(need, advised, TIERS),
        plan_shape=f"{system.storage_capacity_gib:,} GiB at {system.per_unit_storage_throughput}",
        plan_usd=planned,
    )
