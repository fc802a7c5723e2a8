"""Each check fails for its own fault, and for no other."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.node_kit.conftest import Node

CHECKS = [
    "contract",
    "kernel",
    "lustre-client",
    "efa-interfaces",
    "mounted",
    "writable",
    "free-space",
    "efa-used",
    "nvme",
    "mountpoint",
    "cache",
    "tuning",
]


def remount(node: Node, path: str, old: str, new: str) -> None:
    lines = (node.fake / "mounts").read_text(encoding="utf-8").splitlines()
    node.state(mounts="\n".join(line.replace(old, new) if f"{path}|" in line else line for line in lines))


def fewer_efa(node: Node) -> None:
    lines = (node.fake / "lnet").read_text(encoding="utf-8").splitlines()
    node.state(lnet="\n".join(lines[:-3]))


def unreadable_contract(node: Node) -> None:
    (node.fake / "contract").unlink()
    assert node.script("contract").returncode == 1


def read_only(node: Node) -> None:
    # The checks write through a program of the kit's, as whoever runs the tests may write everywhere.
    node.stand_in(
        "python3",
        'while read -r path; do if [[ -n "$path" && "$3" != /*/fsx && "$*" == *probe.py*"$path"* ]]; then\n'
        """  printf "[Errno 30] Read-only file system: '%s'\\n" "$3" >&2; exit 1\n"""
        'fi; done <"$FAKE/read-only"\nexec "$FAKE/python" "$@"',
    )
    node.state(**{"read-only": "/fsx/"})


def lost_lake(node: Node) -> None:
    (node.root / "mnt/lake").rmdir()


FAULTS: dict[str, tuple[Callable[[Node], object], str, str]] = {
    "contract unreadable": (unreadable_contract, "contract", "cannot be read in us-east-1: An error occurred (Param"),
    "kernel upgraded": (
        lambda node: node.state(kernel="6.1.180-1.amzn2023.x86_64"),
        "kernel",
        "kernel 6.1.180-1.amzn2023.x86_64 runs, the Lustre client was installed for 6.1.177",
    ),
    "no module": (
        lambda node: node.state(modules=""),
        "lustre-client",
        "no Lustre module for kernel 6.1.177-224.371.amzn2023.x86_64 on amzn 2023",
    ),
    "old client": (
        lambda node: node.state(**{"client-version": "lustre: 2.12.8"}),
        "lustre-client",
        "the Lustre client is 2.12.8, the file system is 2.15",
    ),
    "fewer EFA interfaces": (fewer_efa, "efa-interfaces", "LNet has 5 EFA interfaces, the plan has 8"),
    "not mounted": (lambda node: node.unmount("/fsx"), "mounted", "/fsx is not mounted"),
    "another file system": (
        lambda node: remount(node, "/fsx", ":/abcdefgh", ":/zyxwvuts"),
        "mounted",
        "not the file system fs-0123456789abcdef0",
    ),
    "an option is missing": (
        lambda node: remount(node, "/fsx", ",flock", ""),
        "mounted",
        "/fsx is mounted without flock",
    ),
    "read-only": (read_only, "writable", "/fsx/checkpoints is not writable"),
    "file system full": (lambda node: node.state(full="/fsx"), "free-space", "/fsx is full: 99 % of its bytes"),
    "EFA counters flat": (
        lambda node: node.state(**{"data-goes-over": "tcp"}),
        "efa-used",
        "64 MiB written and read moved 4 messages over EFA and 200 over TCP: the data does not use EFA",
    ),
    "an NVMe device is gone": (
        lambda node: node.nvme(7),
        "nvme",
        "26600 GB of local NVMe in 7 devices, the instance type has 30400",
    ),
    "scratch not mounted": (lambda node: node.unmount("/scratch"), "nvme", "/scratch is not mounted"),
    "lake not mounted": (lambda node: node.unmount("/mnt/lake"), "mountpoint", "/mnt/lake is not mounted"),
    "lake writable": (lambda node: remount(node, "/mnt/lake", "|ro,", "|rw,"), "mountpoint", "is not read-only"),
    "lake unreadable": (lost_lake, "mountpoint", "/mnt/lake cannot be listed"),
    "parameters lost": (
        lambda node: node.state(parameters="osc.*OST*.max_rpcs_in_flight=8"),
        "tuning",
        "max_rpcs_in_flight is 8 , set is 32",
    ),
}


def test_all_is_well(healthy: Node) -> None:
    run = healthy.check()
    assert run.returncode == 0, run.stderr
    assert healthy.failed_checks == []
    assert [metric["Value"] for metric in healthy.metrics] == [0] * (1 + len(CHECKS))
    assert healthy.ready().returncode == 0
    assert healthy.calls("scontrol") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check_only_and_drains_the_node_with_the_reason(healthy: Node, fault: str) -> None:
    make, check, reason = FAULTS[fault]
    make(healthy)
    run = healthy.check()
    assert run.returncode == 1
    assert healthy.failed_checks == [check]
    assert f"{check}: FAILED: " in run.stderr
    state, said = healthy.slurm
    assert "DRAIN" in state
    assert said.startswith(f"training-storage: {check}: ")
    assert reason in said
    ready = healthy.ready()
    assert ready.returncode == 1
    assert reason in ready.stderr


def test_every_check_has_a_fault_here() -> None:
    assert {check for _, check, _ in FAULTS.values()} == set(CHECKS) - {"cache"}


def test_a_full_scratch_is_said_and_sent_but_drains_no_node(healthy: Node) -> None:
    # One user can fill it.
    healthy.state(full="/scratch")
    run = healthy.check()
    assert run.returncode == 0
    assert "cache: FAILED, which drains no node: the disk under /scratch/mountpoint is full: 99 %" in run.stderr
    assert healthy.failed_checks == ["cache"]
    assert healthy.metrics[0]["Value"] == 0
    assert healthy.calls("scontrol") == []
    ready = healthy.ready()
    assert ready.returncode == 0
    assert "ready all the same: cache: the disk under /scratch/mountpoint is full" in ready.stderr
    healthy.state(full="")
    assert healthy.check("--quick").returncode == 0
    assert healthy.ready().stderr == ""


@pytest.mark.parametrize("fault", ["not mounted", "read-only", "file system full"])
def test_a_passing_run_after_the_repair_undrains(healthy: Node, fault: str) -> None:
    before = {name: (healthy.fake / name).read_text(encoding="utf-8") for name in ("mounts", "read-only", "full")}
    FAULTS[fault][0](healthy)
    assert healthy.check("--quick").returncode == 1
    for name, text in before.items():
        (healthy.fake / name).write_text(text, encoding="utf-8")
    assert healthy.check("--quick").returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD", "")
    assert healthy.metrics[0]["Value"] == 0
    assert healthy.ready().returncode == 0


def test_metrics_have_the_dimensions_that_alarms_watch(healthy: Node) -> None:
    healthy.unmount("/mnt/lake")
    healthy.check()
    job, *checks = healthy.metrics
    assert job == {
        "MetricName": "NodeCheckFailed",
        "Value": 1,
        "Dimensions": [{"Name": "Job", "Value": "default"}],
    }
    assert {
        "MetricName": "NodeCheckFailed",
        "Value": 0,
        "Dimensions": [{"Name": "Job", "Value": "default"}, {"Name": "Check", "Value": "mounted"}],
    } in checks
    sent = healthy.calls("aws cloudwatch put-metric-data")
    assert len(sent) == 1
    assert "--region us-east-1 --namespace TrainingStorage" in sent[0]


def test_the_timer_moves_no_data(healthy: Node) -> None:
    assert healthy.check("--quick").returncode == 0
    assert healthy.calls("dd") == []


def test_only_a_full_run_clears_what_a_full_run_found(healthy: Node) -> None:
    healthy.state(**{"data-goes-over": "tcp"})
    assert healthy.check().returncode == 1
    healthy.state(**{"data-goes-over": "efa"})
    for _ in range(2):
        run = healthy.check("--quick")
        assert run.returncode == 1
        assert "efa-used: FAILED: 64 MiB written and read moved 4 messages over EFA" in run.stderr
        assert healthy.failed_checks == ["efa-used"]
        assert healthy.metrics[0]["Value"] == 1
        assert healthy.slurm[1].startswith("training-storage: efa-used: ")
        assert "efa-used" in healthy.ready().stderr
    assert len(healthy.calls("dd")) == 2
    assert healthy.check().returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD", "")
    assert healthy.ready().returncode == 0
    assert healthy.check("--quick").returncode == 0


def test_a_failure_outlives_another_one_that_hides_it(healthy: Node) -> None:
    mounts = (healthy.fake / "mounts").read_text(encoding="utf-8").rstrip()
    healthy.state(**{"data-goes-over": "tcp"})
    healthy.check()
    healthy.unmount("/fsx")
    healthy.check("--quick")
    assert healthy.failed_checks == ["mounted"]
    healthy.state(mounts=mounts)
    assert healthy.check("--quick").returncode == 1
    assert healthy.failed_checks == ["efa-used"]


def test_what_a_full_run_could_not_check_is_checked_before_the_node_is_ready(healthy: Node) -> None:
    mounts = (healthy.fake / "mounts").read_text(encoding="utf-8").rstrip()
    healthy.unmount("/fsx")
    healthy.check()
    healthy.state(mounts=mounts, **{"data-goes-over": "tcp"})
    assert healthy.check("--quick").returncode == 1
    assert healthy.failed_checks == ["efa-used"]


def probes(node: Node) -> list[Path]:
    return [path for path in (node.root / "fsx").rglob(".training-storage-check*") if path.is_file()]


def test_what_others_put_into_an_open_folder_neither_fails_a_check_nor_is_followed(healthy: Node) -> None:
    folder = healthy.root / "fsx/checkpoints"
    victim = healthy.file("etc/victim", "precious")
    # All that others can know: the names of the past, and of the node.
    for name in (".training-storage-check.ip-10-0-0-7", ".training-storage-check", ".training-storage-check.new"):
        (folder / name).mkdir()
        (folder.parent / name).symlink_to(victim)
    assert healthy.check().returncode == 0
    assert victim.read_text(encoding="utf-8") == "precious"
    assert probes(healthy) == [path for path in probes(healthy) if path.is_symlink()]


def test_names_of_probe_files_are_never_the_same(healthy: Node) -> None:
    healthy.stand_in("dd", f'ls -A {healthy.root}/fsx >>"$FAKE/seen"; exit 1')
    for _ in range(2):
        healthy.check()
    names = {
        name for name in (healthy.fake / "seen").read_text(encoding="utf-8").split() if name.startswith(".training")
    }
    assert len(names) == 2


@pytest.mark.parametrize("kind", ["file", "symlink", "directory", "gone"])
def test_what_a_crash_left_is_removed_if_it_is_still_ours(healthy: Node, kind: str) -> None:
    victim = healthy.file("etc/victim", "precious")
    left = healthy.root / "fsx/checkpoints/.training-storage-check.ip-10-0-0-7.0123"
    healthy.file("var/lib/training-storage/probe-writable", f"{left.name}\n")
    if kind == "file":
        left.touch()
    elif kind == "symlink":
        left.symlink_to(victim)
    elif kind == "directory":
        left.mkdir()
    assert healthy.check("--quick").returncode == 0
    assert os.path.lexists(left) == (kind in {"symlink", "directory"})
    assert victim.read_text(encoding="utf-8") == "precious"
    assert not (healthy.root / "var/lib/training-storage/probe-writable").exists()


def test_the_probe_file_goes_even_if_the_check_fails(healthy: Node) -> None:
    healthy.state(**{"data-goes-over": "tcp"})
    healthy.check()
    assert [file.name for file in (healthy.root / "fsx").rglob("*") if file.is_file()] == []


def test_a_node_that_slurm_does_not_know_yet_is_drained_as_soon_as_it_does(healthy: Node) -> None:
    # AWS PCS runs user data before it starts slurmd.
    healthy.stop_slurmd()
    healthy.unmount("/fsx")
    run = healthy.check()
    assert run.returncode == 1
    assert "slurmd does not run yet" in run.stderr
    assert healthy.calls("systemctl") == ["systemctl restart --no-block training-storage-drain.service"]
    assert healthy.script("drain").returncode == 75
    healthy.start_slurmd()
    assert healthy.script("drain").returncode == 0
    assert "DRAIN" in healthy.slurm[0]


def test_a_drain_of_somebody_else_stays_as_it_is(healthy: Node) -> None:
    healthy.state(slurm="IDLE+CLOUD+DRAIN\nfan is broken")
    healthy.unmount("/mnt/lake")
    healthy.check()
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "fan is broken")
    (healthy.fake / "mounts").write_text(
        (healthy.fake / "mounts").read_text(encoding="utf-8") + f"{healthy.root}/mnt/lake|m|fuse|ro,nosuid\n",
        encoding="utf-8",
    )
    assert healthy.check().returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "fan is broken")


def test_a_drain_that_somebody_took_over_stays(healthy: Node) -> None:
    healthy.state(full="/fsx")
    healthy.check()
    healthy.state(slurm="IDLE+CLOUD+DRAIN\nkeep for the post-mortem", full="")
    assert healthy.check().returncode == 0
    assert healthy.slurm == ("IDLE+CLOUD+DRAIN", "keep for the post-mortem")


def test_a_second_failing_run_does_not_drain_again(healthy: Node) -> None:
    healthy.state(full="/fsx")
    healthy.check()
    healthy.forget_calls()
    healthy.check()
    assert [call for call in healthy.calls("scontrol") if "update" in call] == []


def test_another_fault_gives_another_reason(healthy: Node) -> None:
    healthy.state(parameters="osc.*OST*.max_rpcs_in_flight=8")
    healthy.check()
    healthy.state(full="/fsx")
    healthy.check()
    assert healthy.slurm[1].startswith("training-storage: free-space: ")


def test_a_check_that_breaks_counts_as_failed(healthy: Node) -> None:
    (healthy.bin / "df").unlink()
    (healthy.bin / "df").write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    (healthy.bin / "df").chmod(0o755)
    run = healthy.check()
    assert run.returncode == 1
    assert healthy.failed_checks == ["free-space", "cache"]
    assert "free-space: FAILED: the check itself broke (exit 9)" in run.stderr


def test_metrics_that_do_not_arrive_fail_the_run_but_leave_the_node_in_service(healthy: Node) -> None:
    (healthy.fake / "no-cloudwatch").touch()
    run = healthy.check()
    assert run.returncode == 1
    assert "the results did not reach CloudWatch" in run.stderr
    assert "DRAIN" not in healthy.slurm[0]
    assert healthy.ready().returncode == 0


def test_a_node_is_not_ready_when_its_checks_have_stopped(healthy: Node) -> None:
    old = time.time() - 3600
    os.utime(healthy.root / "run/training-storage/ready", (old, old))
    ready = healthy.ready()
    assert ready.returncode == 1
    assert "training-storage-recheck.timer" in ready.stderr


def test_a_node_is_not_ready_when_a_mount_has_gone_since_the_last_check(healthy: Node) -> None:
    healthy.unmount("/fsx")
    ready = healthy.ready()
    assert ready.returncode == 1
    assert "/fsx is not mounted" in ready.stderr


def test_a_job_without_a_file_system_is_checked_for_what_it_has(node: Node) -> None:
    node.contract["lustre"] = None
    node.contract["checkpoints"] |= {"path": None, "uri": "s3://lake/checkpoints/default/"}
    installed = node.install()
    assert installed.returncode == 0, installed.stderr
    checked = {item["Dimensions"][-1]["Value"] for item in node.metrics[1:]}
    assert checked == {"contract", "nvme", "mountpoint", "cache"}
    assert node.calls("dnf") == []
    assert node.calls("modprobe") == []


def test_a_login_node_uses_no_efa_and_is_never_drained(node: Node) -> None:
    node.plan_efa(devices=0)
    node.nvme(0)
    installed = node.install(role="login")
    assert installed.returncode == 0, installed.stderr
    node.unmount("/fsx")
    assert node.check().returncode == 1
    assert node.failed_checks == ["mounted"]
    assert node.calls("scontrol") == []
    assert "DRAIN" not in node.slurm[0]


@pytest.mark.parametrize(("devices", "passes"), [(8, True), (7, False), (0, False)])
def test_a_device_that_is_missing_from_the_start_is_seen(node: Node, devices: int, passes: bool) -> None:
    node.nvme(devices)
    assert (node.install().returncode == 0) == passes
    assert node.failed_checks == ([] if passes else ["nvme"])


def test_a_device_that_goes_is_seen_on_an_instance_type_that_the_contract_says_nothing_of(node: Node) -> None:
    node.contract["scratch"]["local_nvme_gb"] = 0
    assert node.install().returncode == 0
    node.nvme(7)
    assert node.check("--quick").returncode == 1
    assert "7 instance-store devices, this node started with 8" in node.slurm[1]


def test_hooks_of_an_own_scheduler_hear_of_faults_and_repairs(node: Node) -> None:
    said = node.root / "said"
    for name, body in (("10-ours", f'printf "%s|" "$@" >>{said}'), ("20-not-executable", "exit 1")):
        hook = node.file(f"etc/training-storage/drain.d/{name}", f"#!/bin/sh\n{body}\n")
        if name == "10-ours":
            hook.chmod(0o755)
    assert node.install(engine="ec2").returncode == 0
    assert not said.exists()
    node.state(full="/fsx")
    assert node.check().returncode == 1
    unhealthy = node.root / "run/training-storage/unhealthy"
    assert unhealthy.read_text(encoding="utf-8").startswith("free-space: /fsx is full")
    assert said.read_text(encoding="utf-8").startswith("drain|training-storage: free-space: /fsx")
    node.state(full="")
    assert node.check().returncode == 0
    assert said.read_text(encoding="utf-8").endswith("undrain|")
    assert not unhealthy.exists()
    assert node.calls("scontrol") == []


def test_a_hook_that_fails_is_a_failed_run(node: Node) -> None:
    hook = node.file("etc/training-storage/drain.d/hook", "#!/bin/sh\nexit 3\n")
    hook.chmod(0o755)
    node.install(engine="ec2")
    node.state(full="/fsx")
    run = node.check()
    assert "the node could not be drained or undrained" in run.stderr
    assert "drain.d/hook drain failed" in run.stderr


def test_every_reason_is_kept_though_slurm_gets_the_first(healthy: Node) -> None:
    healthy.unmount("/mnt/lake")
    healthy.state(full="/fsx")
    healthy.check()
    assert healthy.failed_checks == ["free-space", "mountpoint"]
    assert healthy.slurm[1].startswith("training-storage: free-space: ")
    assert len((healthy.root / "run/training-storage/unhealthy").read_text(encoding="utf-8").splitlines()) == 2
    assert json.loads(json.dumps(healthy.metrics))[0]["Value"] == 1
