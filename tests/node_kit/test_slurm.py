"""Slurm's state of a node: who drained it, which instance bears its name, and whose scontrol is called."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.node_kit.conftest import Node

PROLOG = {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}
ASKED = "systemctl restart --no-block training-storage-drain.service training-storage-recheck.service"


def lines_of_mounts(node: Node) -> str:
    return (node.fake / "mounts").read_text(encoding="utf-8").rstrip()


@pytest.mark.parametrize("slurm_is_first", [True, False])
def test_a_node_whose_prolog_failed_gets_the_reason_and_comes_back_when_repaired(
    healthy: Node, slurm_is_first: bool
) -> None:
    mounts = lines_of_mounts(healthy)
    healthy.unmount("/fsx")
    assert healthy.ready(**PROLOG).returncode == 1
    assert healthy.calls("systemctl") == [ASKED]
    # Slurm does not give another reason to a node that is drained.
    if slurm_is_first:
        healthy.state(slurm="IDLE+CLOUD+DRAIN\nProlog error")
    assert healthy.script("drain").returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "training-storage: /fsx is not mounted")
    assert healthy.check("--quick").returncode == 1
    assert healthy.slurm[1].startswith("training-storage: mounted: /fsx is not mounted")
    healthy.state(mounts=mounts)
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD", "")


def test_slurm_may_drain_after_the_repair(healthy: Node) -> None:
    healthy.unmount("/mnt/lake")
    healthy.ready(**PROLOG)
    assert healthy.script("mountpoint").returncode == 0
    assert healthy.check("--quick").returncode == 0
    healthy.state(slurm="IDLE+CLOUD+DRAIN\nProlog error")
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD", "")


def test_a_prolog_that_was_another_ones_stays_drained(healthy: Node) -> None:
    mounts = lines_of_mounts(healthy)
    healthy.unmount("/fsx")
    # A user or a batch script asks: Slurm drains nothing for that.
    assert healthy.ready().returncode == 1
    healthy.state(slurm="IDLE+CLOUD+DRAIN\nProlog error")
    assert healthy.check("--quick").returncode == 1
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "Prolog error")
    healthy.state(mounts=mounts)
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "Prolog error")


def test_a_prolog_of_long_ago_explains_no_drain_of_today(healthy: Node) -> None:
    old = time.time() - 3600
    marker = healthy.file("var/lib/training-storage/prolog-failed", "/fsx is not mounted\n")
    os.utime(marker, (old, old))
    assert healthy.check("--quick").returncode == 0
    healthy.state(slurm="IDLE+CLOUD+DRAIN\nProlog error")
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "Prolog error")


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("training-storage: nvme: 7 devices", "IDLE+CLOUD"),
        ("fan is broken", "IDLE+CLOUD+DRAIN"),
        ("Prolog error", "IDLE+CLOUD+DRAIN"),
    ],
)
def test_a_new_instance_lifts_the_drain_that_the_kit_gave_to_its_name(node: Node, reason: str, state: str) -> None:
    node.state(slurm=f"IDLE+CLOUD+DRAIN\n{reason}")
    assert node.install().returncode == 0
    assert node.slurm[0] == state


def test_a_new_instance_that_fails_its_checks_stays_drained(node: Node) -> None:
    node.state(slurm="IDLE+CLOUD+DRAIN\ntraining-storage: nvme: 7 devices")
    node.nvme(7)
    assert node.install().returncode == 1
    assert node.slurm[0] == "IDLE+CLOUD+DRAIN"


def test_an_instance_joins_once_and_an_image_of_it_joins_again(healthy: Node) -> None:
    drained = "IDLE+CLOUD+DRAIN\ntraining-storage: by hand"
    healthy.state(slurm=drained)
    assert healthy.check("--quick").returncode == 0
    assert healthy.calls("scontrol") == []
    (healthy.root / "run/training-storage/joined").unlink()
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm[0] == "IDLE+CLOUD+DRAIN"
    (healthy.root / "run/training-storage/joined").unlink()
    healthy.state(**{"instance-id": "i-0fedcba9876543210"})
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm[0] == "IDLE+CLOUD"


def test_a_node_that_is_well_before_slurmd_runs_is_no_failure_and_joins_later(node: Node) -> None:
    node.state(slurm="IDLE+CLOUD+DRAIN\ntraining-storage: nvme: 7 devices")
    node.stop_slurmd()
    installed = node.install()
    assert installed.returncode == 0, installed.stderr
    assert "systemctl restart --no-block training-storage-drain.service" in node.calls("systemctl")
    assert node.script("drain").returncode == 75
    node.start_slurmd()
    assert node.script("drain").returncode == 0
    assert node.slurm[0] == "IDLE+CLOUD"


def make_impostor(node: Node, prefix: str) -> str:
    """Put a scontrol below `prefix` that writes down that it ran; the program of a process that is called slurmd."""
    evil = node.file(f"{prefix}/bin/scontrol", f"#!/bin/sh\n: >{node.root}/evil\n")
    evil.chmod(0o755)
    return f"/{prefix}/sbin/slurmd"


def drain(node: Node) -> str:
    node.state(full="/fsx")
    run = node.check("--quick")
    assert not (node.root / "evil").exists()
    return run.stderr


@pytest.mark.parametrize(
    "prefix", ["tmp/x", "home/u/opt/aws/pcs/scheduler/slurm-25.05", "opt/aws/pcs/scheduler/x/slurm-1"]
)
def test_a_program_called_slurmd_outside_the_folder_of_pcs_is_ignored(healthy: Node, prefix: str) -> None:
    healthy.process(17, make_impostor(healthy, prefix))
    drain(healthy)
    assert "DRAIN" in healthy.slurm[0]


def test_a_slurmd_of_another_user_is_ignored(healthy: Node) -> None:
    healthy.process(17, make_impostor(healthy, "opt/aws/pcs/scheduler/slurm-1"))
    healthy.stand_in(
        "stat", 'if [[ "$*" == "--format %u "*/proc/17 ]]; then echo $((EUID + 1000)); else exec /usr/bin/stat "$@"; fi'
    )
    assert "it runs slurmd and is not root's" in drain(healthy)
    assert "DRAIN" in healthy.slurm[0]


@pytest.mark.parametrize("what", ["opt/aws/pcs/scheduler/slurm-1/bin/scontrol", "opt/aws/pcs/scheduler/slurm-1/bin"])
@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_scontrol_that_others_may_write_to_is_not_called(healthy: Node, what: str, mode: int) -> None:
    healthy.process(17, make_impostor(healthy, "opt/aws/pcs/scheduler/slurm-1"))
    (healthy.root / what).chmod(mode)
    assert "and be writable by nobody else" in drain(healthy)


def test_a_scontrol_that_leads_out_of_the_folder_is_not_called(healthy: Node) -> None:
    make_impostor(healthy, "tmp/x")
    folder = healthy.root / "opt/aws/pcs/scheduler/slurm-1"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/scontrol").symlink_to(healthy.root / "tmp/x/bin/scontrol")
    healthy.process(17, "/opt/aws/pcs/scheduler/slurm-1/sbin/slurmd")
    assert "and be writable by nobody else" in drain(healthy)


def test_a_cluster_of_two_thousand_nodes_is_read_to_its_end(healthy: Node) -> None:
    # A reader that ends early ends scontrol with SIGPIPE, which is a failure under pipefail.
    healthy.state(full="/fsx")
    scontrol = healthy.root / "opt/aws/pcs/scheduler/slurm-25.05/bin/scontrol"
    text = scontrol.read_text(encoding="utf-8").replace("${SLURM_NODES:-0}", "2000")
    scontrol.write_text(text, encoding="utf-8")
    run = healthy.check("--quick")
    assert "drained compute-1" in run.stderr


@pytest.mark.parametrize("script", ["check", "ready"])
def test_a_run_of_the_checks_that_does_not_end_makes_the_node_not_ready(healthy: Node, script: str) -> None:
    running = healthy.root / "run/training-storage/check-running"
    running.touch()
    assert healthy.ready().returncode == 0
    old = time.time() - 700
    os.utime(running, (old, old))
    if script == "check":
        # The next run hangs as well, and does not make it younger.
        healthy.stand_in("modinfo", 'kill -KILL "$(ps -o ppid= -p $PPID | tr -d " ")"')
        assert healthy.check("--quick").returncode == -9
    ready = healthy.ready()
    assert ready.returncode == 1
    assert "and do not end: storage may hang" in ready.stderr
    if script == "ready":
        assert healthy.check("--quick").returncode == 0
        assert healthy.ready().returncode == 0


@pytest.mark.parametrize(("outcome", "told"), [("timeout", True), ("success", False), ("exit-code", False)])
def test_a_run_that_systemd_had_to_end_is_told_with_the_check_that_hung(
    healthy: Node, outcome: str, told: bool
) -> None:
    healthy.file("run/training-storage/check-now", "mountpoint\n")
    run = healthy.run(str(healthy.root / "opt/training-storage/scripts/not-ended.sh"), SERVICE_RESULT=outcome)
    assert (run.returncode == 1) == told
    assert (healthy.ready().returncode == 1) == told
    if told:
        assert healthy.failed_checks == ["mountpoint"]
        assert healthy.script("drain").returncode == 0
        assert healthy.slurm[1].startswith("training-storage: mountpoint: the check did not end in time")
        assert healthy.check("--quick").returncode == 0
        assert healthy.slurm == ("IDLE+CLOUD", "")
