"""A node in a folder: the kit's scripts run below KIT_ROOT, with stand-ins for what would need root or AWS."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import contract

KIT = Path(__file__).resolve().parents[2] / "constructs" / "training_storage" / "node_kit"
COMMANDS = Path(__file__).parent / "commands"
KERNEL = "6.1.177-224.371.amzn2023.x86_64"
NVME = "Amazon EC2 NVMe Instance Storage"
NVME_BYTES = 3_800_000_000_000
AMAZON_LINUX = 'ID="amzn"\nVERSION_ID="2023"\n'
UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the kit's tests: each starts dozens of shells."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


def unit_file(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return sections, keys and values; a key of systemd may stand more than once."""
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = sections.setdefault(line.strip("[]"), {})
        elif "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            section.setdefault(key, []).append(value)
    return sections


def units_in_order() -> list[tuple[str, str, list[str]]]:
    """Return what training-storage.target starts, after what each unit says it comes after, with what it requires."""
    folder = KIT / "systemd"
    wanted = " ".join(unit_file(folder / "training-storage.target")["Unit"]["Wants"]).split()
    services = {name: unit_file(folder / name) for name in wanted if name.endswith(".service")}
    order: list[tuple[str, str, list[str]]] = []

    def place(name: str) -> None:
        if name in (placed for placed, *_ in order):
            return
        unit = services[name]["Unit"]
        for other in " ".join(unit.get("After", [])).split():
            if other in services:
                place(other)
        order.append((name, services[name]["Service"]["ExecStart"][0], " ".join(unit.get("Requires", [])).split()))

    for name in services:
        place(name)
    return order


class Node:
    """One node. Its faults are attributes and files of `fake`; what it did is in `calls`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.fake = folder / "fake"
        self.bin = folder / "bin"
        for made in (self.root, self.bin, self.fake / "active"):
            made.mkdir(parents=True)
        for command in COMMANDS.iterdir():
            if command.name != "scontrol":
                (self.bin / command.name).symlink_to(command)
        # As the kit asks whether the image has it.
        (self.bin / "mount.lustre").symlink_to(COMMANDS / "wall")
        (self.bin / "python3").symlink_to(Path(sys.executable).resolve())
        (self.fake / "python").symlink_to(Path(sys.executable).resolve())
        self.contract = contract(instances=256)
        self.install_options = {"engine": "pcs", "role": "compute", "purchase": "on-demand"}
        self.state(
            cpus="192",
            kernel=KERNEL,
            mounts="",
            lnet="",
            udsp="",
            striped="",
            labelled="",
            parameters="",
            full="",
            held="",
            metrics="",
            calls="",
            modules=f"{KERNEL} lustre 2.15.6\n{KERNEL} kefalnd 2.15.6",
            slurm="IDLE+CLOUD\n",
            comment="",
        )
        self.state(
            **{
                "client-version": "2.15.6",
                "data-goes-over": "efa",
                "messages-efa": "5",
                "messages-tcp": "5",
                "mount-refusals": "0",
                "mount-s3-refusals": "0",
                "instance-id": "i-0123456789abcdef0",
                "read-only": "",
                "modules-in-repository": "",
                "signed-by": "8AEFE705EBE329C0948C75A66F1C3B3AEF4B030B",
            }
        )
        self.nvme(8)
        self.state(units="\n".join("|".join((name, run, " ".join(needs))) for name, run, needs in units_in_order()))
        self.file("etc/os-release", AMAZON_LINUX)
        self.file("etc/dnf/dnf.conf", "[main]\ngpgcheck=1\n")
        self.file("proc/meminfo", f"MemTotal:       {2048 * 1024 * 1024} kB\nMemFree: 1 kB\n")
        # PCS keeps Slurm outside PATH, here in two versions; slurmd is of the first.
        for version in ("slurm-25.05", "slurm-25.11"):
            folder = self.root / "opt/aws/pcs/scheduler" / version / "bin"
            folder.mkdir(parents=True, mode=0o755)
        scontrol = self.root / "opt/aws/pcs/scheduler/slurm-25.05/bin/scontrol"
        shutil.copyfile(COMMANDS / "scontrol", scontrol)
        scontrol.chmod(0o755)
        self.start_slurmd()

    @classmethod
    def copy_of(cls, other: Node, folder: Path) -> Node:
        """Return a node in the same state in another folder: setting one up takes half a second."""
        node = cls.__new__(cls)
        node.root, node.fake, node.bin = (folder / name for name in ("root", "fake", "bin"))
        for name in ("root", "fake", "bin"):
            shutil.copytree(getattr(other, name), folder / name, symlinks=True)
        # The process of slurmd names its program with the node's folder.
        for process in (node.root / "proc").glob("[0-9]*"):
            exe = process / "exe"
            target = str(exe.readlink())
            exe.unlink()
            exe.symlink_to(target.replace(str(other.root), str(node.root)))
        for file in ("mounts", "striped"):
            text = (node.fake / file).read_text(encoding="utf-8")
            (node.fake / file).write_text(text.replace(str(other.root), str(node.root)), encoding="utf-8")
        node.contract = copy.deepcopy(other.contract)
        node.install_options = dict(other.install_options)
        return node

    def state(self, **files: str) -> None:
        for name, text in files.items():
            (self.fake / name).write_text(f"{text}\n" if text else "", encoding="utf-8")

    def file(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def nvme(self, count: int, *, holds: str = "", mounted_on: str = "") -> None:
        """Give the node an EBS root volume and `count` instance-store devices."""
        lines = ["/dev/nvme0n1|Amazon Elastic Block Store|200000000000|ext4|/"]
        lines += [f"/dev/nvme{n}n1|{NVME}|{NVME_BYTES}|{holds}|{mounted_on}" for n in range(1, count + 1)]
        self.state(devices="\n".join(lines))

    def efa(self, devices: int) -> None:
        """Give the node EFA devices, and one that is none."""
        for number in range(devices):
            device = self.root / f"sys/class/infiniband/rdmap{number}s0/device"
            device.mkdir(parents=True)
            (self.root / "sys/drivers/efa").mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(self.root / "sys/drivers/efa")
        other = self.root / "sys/class/infiniband/mlx5_0/device"
        other.mkdir(parents=True)
        (self.root / "sys/drivers/mlx5_core").mkdir(parents=True)
        (other / "driver").symlink_to(self.root / "sys/drivers/mlx5_core")

    def plan_efa(self, interfaces: int = 8, devices: int = 32) -> None:
        self.contract["lustre"] |= {"efa_enabled": True, "efa_interfaces": interfaces}
        self.efa(devices)

    def start_slurmd(self) -> None:
        self.process(4242, "/opt/aws/pcs/scheduler/slurm-25.05/sbin/slurmd")

    def process(self, number: int, executable: str) -> None:
        process = self.root / f"proc/{number}"
        process.mkdir(parents=True)
        (process / "exe").symlink_to(f"{self.root}{executable}")

    def stand_in(self, command: str, script: str) -> None:
        """Replace a command of this node alone."""
        file = self.bin / command
        file.unlink(missing_ok=True)
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def stop_slurmd(self) -> None:
        (self.root / "proc/4242/exe").unlink()
        (self.root / "proc/4242").rmdir()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.bin}:/usr/bin:/bin:/usr/sbin:/sbin",
            "KIT_ROOT": str(self.root),
            "FAKE": str(self.fake),
            "COMMANDS": str(COMMANDS),
            "LC_ALL": "C",
        }

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", *command],
            env=self.environment | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def install(self, **options: str) -> subprocess.CompletedProcess[str]:
        """Run install.sh as user data does; the stand-in for systemctl runs the units in their order."""
        if self.contract:
            self.state(contract=json.dumps(self.contract))
        arguments = {"parameter": "/training-storage/default/contract", "region": "us-east-1", "job": "default"}
        arguments |= self.install_options | options
        words = [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", value)]
        return self.run(str(KIT / "install.sh"), *words)

    def set_up(self, *scripts: str) -> subprocess.CompletedProcess[str]:
        """Run the scripts after the contract's, none of the others and no checks; the last one's outcome."""
        self.state(contract=json.dumps(self.contract))
        outcomes = [self.script(name) for name in ("contract", *scripts)]
        assert outcomes[0].returncode == 0, outcomes[0].stderr
        return outcomes[-1]

    def script(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.root / "opt/training-storage/scripts" / f"{name}.sh"), *arguments)

    def check(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.script("check", *arguments)

    def ready(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.root / "usr/local/bin/training-storage-ready"), **variables)

    def calls(self, command: str = "") -> list[str]:
        lines = (self.fake / "calls").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if not command or line == command or line.startswith(f"{command} ")]

    def forget_calls(self) -> None:
        self.state(calls="")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The last metrics that were sent."""
        sent: list[dict[str, Any]] = json.loads((self.fake / "metrics").read_text(encoding="utf-8").splitlines()[-1])
        return sent

    @property
    def failed_checks(self) -> list[str]:
        """The checks that the last metrics say failed."""
        names = [{item["Name"]: item["Value"] for item in metric["Dimensions"]} for metric in self.metrics]
        return [
            name["Check"]
            for name, metric in zip(names, self.metrics, strict=True)
            if "Check" in name and metric["Value"] == 1
        ]

    @property
    def slurm(self) -> tuple[str, str]:
        """State and reason of the node in Slurm."""
        state, _, reason = (self.fake / "slurm").read_text(encoding="utf-8").partition("\n")
        return state, reason.strip()

    @property
    def mounts(self) -> list[str]:
        lines = (self.fake / "mounts").read_text(encoding="utf-8").splitlines()
        return [line.replace(str(self.root), "") for line in lines]

    def unmount(self, path: str) -> None:
        lines = (self.fake / "mounts").read_text(encoding="utf-8").splitlines()
        self.state(mounts="\n".join(line for line in lines if not line.startswith(f"{self.root}{path}|")))

    def tree(self) -> dict[str, tuple[int, str]]:
        """Every file of the node with the time of its last change and its text, /run aside."""
        return {
            str(path.relative_to(self.root)): (path.stat().st_mtime_ns, path.read_text(encoding="utf-8"))
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not path.is_relative_to(self.root / "run") and not path.name.endswith(".lock")
        }


@pytest.fixture(scope="session")
def installed_template(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node with the kit on it, before any of its units has run."""
    node = Node(tmp_path_factory.mktemp("installed"))
    units = (node.fake / "units").read_text(encoding="utf-8")
    node.state(units="")
    node.install()
    node.state(units=units.rstrip())
    node.forget_calls()
    return node


@pytest.fixture
def node(installed_template: Node, tmp_path: Path) -> Node:
    """A p5.48xlarge of a job with a file system and no EFA, with the kit, not yet set up."""
    return Node.copy_of(installed_template, tmp_path / "node")


@pytest.fixture(scope="session")
def healthy_template(tmp_path_factory: pytest.TempPathFactory) -> Node:
    node = Node(tmp_path_factory.mktemp("healthy"))
    node.plan_efa()
    installed = node.install()
    assert installed.returncode == 0, installed.stderr
    node.forget_calls()
    return node


@pytest.fixture
def healthy(healthy_template: Node, tmp_path: Path) -> Node:
    """The same with 8 of 32 EFA interfaces for Lustre, set up, and all well."""
    return Node.copy_of(healthy_template, tmp_path / "node")
