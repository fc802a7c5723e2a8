"""What a node does at its first boot, at the next one, and when something stands in the way."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.node_kit.conftest import KERNEL, UBUNTU, units_in_order

if TYPE_CHECKING:
    from tests.node_kit.conftest import Node

CHANGING = (
    "mount",
    "umount",
    "mount-s3",
    "mkfs.xfs",
    "mdadm",
    "dnf",
    "lnetctl net add",
    "lnetctl net del",
    "lfs setstripe",
)


def test_units_follow_one_another() -> None:
    names = [name.removeprefix("training-storage-").removesuffix(".service") for name, *_ in units_in_order()]
    for earlier, later in (
        ("contract", "lustre-client"),
        ("lustre-client", "lustre-efa"),
        ("lustre-efa", "lustre-mount"),
        ("lustre-mount", "lustre-layout"),
        ("lustre-mount", "lustre-tuning"),
        ("scratch", "mountpoint"),
    ):
        assert names.index(earlier) < names.index(later)
    assert names[-1] == "check"


def test_the_file_system_is_mounted_as_aws_documents_it(healthy: Node) -> None:
    assert "/fsx|10.0.9.9@tcp:/abcdefgh|lustre|rw,relatime,flock,_netdev,checksum,lazystatfs" in healthy.mounts


def test_folders_that_training_writes_to_are_striped_and_every_users(healthy: Node) -> None:
    for folder in ("checkpoints", "logs", "evaluations"):
        path = healthy.root / "fsx" / folder
        assert stat.S_IMODE(path.stat().st_mode) == 0o1777
        assert str(path) in (healthy.fake / "striped").read_text(encoding="utf-8").splitlines()
    # Links of the plan that nothing writes to are left to FSx.
    assert not (healthy.root / "fsx/datasets").exists()


def test_a_folder_that_an_administrator_has_closed_stays_closed(healthy: Node) -> None:
    (healthy.root / "fsx/checkpoints").chmod(0o2770)
    assert healthy.script("lustre-layout").returncode == 0
    assert stat.S_IMODE((healthy.root / "fsx/checkpoints").stat().st_mode) == 0o2770


def test_a_second_run_changes_nothing(healthy: Node) -> None:
    before = healthy.tree()
    again = healthy.install()
    assert again.returncode == 0, again.stderr
    assert healthy.tree() == before
    assert [call for call in healthy.calls() if call.startswith(CHANGING)] == []
    assert healthy.calls("systemctl daemon-reload") == []


def test_every_script_run_again_changes_nothing(healthy: Node) -> None:
    before = healthy.tree()
    for name in ("contract", "lustre-client", "lustre-efa", "scratch", "lustre-mount", "lustre-layout"):
        run = healthy.script(name)
        assert run.returncode == 0, run.stderr
    assert healthy.tree() == before
    assert [call for call in healthy.calls() if call.startswith(CHANGING)] == []


def test_a_newer_kit_replaces_the_older_one_whole(healthy: Node) -> None:
    old = healthy.file("opt/training-storage/checks/99-old.sh", "exit 1\n")
    healthy.file("opt/training-storage/scripts/ready.sh", "exit 1\n")
    assert healthy.install().returncode == 0
    assert not old.exists()
    assert healthy.ready().returncode == 0


def test_a_mount_refused_thrice_succeeds(node: Node) -> None:
    node.state(**{"mount-refusals": "3"})
    run = node.set_up("lustre-mount")
    assert run.returncode == 0, run.stderr
    assert len(node.calls("mount --types")) == 4
    assert run.stderr.count("failed, again in") == 3
    assert len(node.calls("sleep")) == 3


def test_a_mount_refused_for_good_is_given_up_and_drains_the_node(node: Node) -> None:
    node.state(**{"mount-refusals": "1000"})
    run = node.install()
    assert run.returncode == 1
    assert "abcdefgh cannot be mounted on /fsx" in run.stderr
    assert len(node.calls("mount --types")) == 8
    assert node.failed_checks == ["mounted"]
    assert node.slurm[1].startswith("training-storage: mounted: /fsx is not mounted")
    # Nothing was written to the folder under the mount point.
    assert list((node.root / "fsx").iterdir()) == []
    # The lake does not wait for the file system.
    assert any(line.startswith("/mnt/lake|") for line in node.mounts)


def test_pauses_grow_to_a_bound_and_vary(node: Node) -> None:
    node.state(**{"mount-refusals": "1000"})
    node.set_up("lustre-mount")
    pauses = [int(call.split()[1]) for call in node.calls("sleep")]
    for pause, limit in zip(pauses, (2, 4, 8, 16, 32, 60, 60), strict=True):
        assert 1 <= pause <= limit


def test_something_else_on_the_mount_point_is_not_mounted_over(node: Node) -> None:
    node.state(mounts=f"{node.root}/fsx|10.0.1.1@tcp:/othersys|lustre|rw,relatime,flock")
    run = node.install()
    assert "something else is mounted on /fsx: 10.0.1.1@tcp:/othersys" in run.stderr
    assert node.calls("mount --types") == []
    assert node.failed_checks == ["mounted"]


@pytest.mark.parametrize("system", ["amazon", "ubuntu"])
def test_no_lustre_module_for_the_kernel_is_named_with_kernel_and_distribution(node: Node, system: str) -> None:
    node.state(modules="")
    (node.fake / "no-packages").touch()
    if system == "ubuntu":
        node.file("etc/os-release", UBUNTU)
    run = node.install()
    assert run.returncode == 1
    name = "ubuntu 24.04" if system == "ubuntu" else "amzn 2023"
    assert f"there is no Lustre client for kernel {KERNEL} on {name}" in run.stderr
    assert node.failed_checks == ["lustre-client"]
    assert f"no Lustre module for kernel {KERNEL} on {name}" in node.slurm[1]


def test_amazon_linux_installs_the_client_and_holds_the_kernel_not_its_headers(node: Node) -> None:
    node.state(modules="", **{"modules-in-repository": f"{KERNEL} lustre 2.15.6"})
    assert node.set_up("lustre-client").returncode == 0
    assert node.calls("dnf") == ["dnf install --assumeyes --quiet lustre-client"]
    text = (node.root / "etc/dnf/dnf.conf").read_text(encoding="utf-8")
    assert text == "[main]\nexcludepkgs=kernel,kernel6.?,kernel6.??\ngpgcheck=1\n"


def test_an_exclusion_of_somebody_else_is_not_overwritten(node: Node) -> None:
    node.file("etc/dnf/dnf.conf", "[main]\nexcludepkgs=docker\n")
    run = node.set_up("lustre-client")
    assert "has an excludepkgs line of its own: add kernel,kernel6.?,kernel6.?? to it" in run.stderr
    assert (node.root / "etc/dnf/dnf.conf").read_text(encoding="utf-8") == "[main]\nexcludepkgs=docker\n"


@pytest.mark.parametrize("text", ["gpgcheck=1\n", "[other]\nexcludepkgs=kernel,kernel6.?,kernel6.??\n[main]\n", ""])
def test_a_kernel_that_is_not_held_is_never_said_to_be(node: Node, text: str) -> None:
    node.file("etc/dnf/dnf.conf", text)
    run = node.set_up("lustre-client")
    assert run.returncode == 1
    assert "[main]" in run.stderr
    assert "held the kernel" not in run.stderr


def test_a_dnf_without_settings_gets_them(node: Node) -> None:
    (node.root / "etc/dnf/dnf.conf").unlink()
    assert node.set_up("lustre-client").returncode == 0
    text = (node.root / "etc/dnf/dnf.conf").read_text(encoding="utf-8")
    assert text == "[main]\nexcludepkgs=kernel,kernel6.?,kernel6.??\n"


def test_a_hold_that_ubuntu_does_not_show_is_a_failure(node: Node) -> None:
    node.file("etc/os-release", UBUNTU)
    node.stand_in("apt-mark", "exit 0")
    run = node.set_up("lustre-client")
    assert run.returncode == 1
    assert "the kernel could not be held: apt-mark does not show linux-aws as held" in run.stderr


@pytest.mark.parametrize("missing", ["lctl", "lfs", "lnetctl", "mount.lustre"])
def test_a_client_that_lacks_one_of_its_commands_is_installed(node: Node, missing: str) -> None:
    (node.bin / missing).unlink()
    run = node.set_up("lustre-client")
    assert node.calls("dnf") == ["dnf install --assumeyes --quiet lustre-client"]
    assert "there is no Lustre client for kernel" in run.stderr


def test_a_key_that_the_image_brings_is_not_replaced_by_a_download(node: Node) -> None:
    node.file("etc/os-release", UBUNTU)
    key = node.file("usr/share/keyrings/fsx-ubuntu-public-key.gpg", "trusted")
    node.state(modules="", **{"modules-in-repository": f"{KERNEL} lustre 2.15.6"})
    assert node.set_up("lustre-client").returncode == 0
    assert node.calls("curl") == []
    assert key.read_text(encoding="utf-8") == "trusted"


def test_ubuntu_installs_the_module_of_the_running_kernel_and_holds_it(node: Node) -> None:
    kernel = "6.8.0-1063-aws"
    node.file("etc/os-release", UBUNTU)
    node.state(kernel=kernel, modules="", **{"modules-in-repository": f"{kernel} lustre 2.15.6"})
    run = node.set_up("lustre-client")
    assert run.returncode == 0, run.stderr
    installed = [call for call in node.calls("apt-get") if " install " in call]
    assert [call.split()[-1] for call in installed] == [f"lustre-client-modules-{kernel}"]
    assert (node.fake / "held").read_text(encoding="utf-8").split() == [
        "linux-aws",
        "linux-image-aws",
        "linux-headers-aws",
        f"linux-image-{kernel}",
    ]
    calls = node.calls()
    hold = next(index for index, call in enumerate(calls) if call.startswith("apt-mark hold"))
    assert hold < next(index for index, call in enumerate(calls) if call.startswith("apt-get install"))
    source = (node.root / "etc/apt/sources.list.d/fsxlustreclientrepo.list").read_text(encoding="utf-8")
    assert source.startswith("deb [signed-by=/usr/share/keyrings/fsx-ubuntu-public-key.gpg] ")
    assert source.endswith("/ubuntu noble main\n")


def test_another_distribution_is_refused_by_name(node: Node) -> None:
    node.file("etc/os-release", "ID=debian\nVERSION_ID=12\n")
    assert "Ubuntu 22.04 and 24.04, got: debian 12" in node.set_up("lustre-client").stderr


def test_module_options_come_before_the_modules_and_only_to_large_clients(node: Node) -> None:
    node.set_up("lustre-client")
    options = node.root / "etc/modprobe.d/training-storage-lustre.conf"
    assert (
        options.read_text(encoding="utf-8") == "options ptlrpc ptlrpcd_per_cpt_max=32\noptions ksocklnd credits=2560\n"
    )


def test_a_small_client_gets_the_parameters_for_all_only(node: Node) -> None:
    node.state(cpus="8")
    node.file("proc/meminfo", "MemTotal:       33554432 kB\n")
    assert node.set_up("lustre-client", "lustre-mount", "lustre-tuning").returncode == 0
    assert not (node.root / "etc/modprobe.d/training-storage-lustre.conf").exists()
    assert (node.fake / "parameters").read_text(encoding="utf-8").split() == [
        "llite.*.statahead_max=512",
        "llite.*.statahead_agl=1",
        "llite.*.statahead_xattr=1",
    ]


@pytest.mark.parametrize(
    ("planned", "devices", "chosen"),
    [
        (8, 32, [0, 4, 8, 12, 16, 20, 24, 28]),
        (4, 32, [0, 8, 16, 24]),
        (16, 16, list(range(16))),
        (2, 4, [0, 3]),
        (1, 1, [0]),
    ],
)
def test_the_planned_number_of_efa_interfaces_is_spread_over_the_devices(
    node: Node, planned: int, devices: int, chosen: list[int]
) -> None:
    node.plan_efa(planned, devices)
    run = node.set_up("lustre-efa")
    assert run.returncode == 0, run.stderr
    assert [call for call in node.calls("lnetctl net add") if " efa " in call] == [
        f"lnetctl net add --net efa --if rdmap{number}s0 --peer-credits 32" for number in chosen
    ]
    calls = node.calls()
    for earlier, later in (
        ("modprobe lnet", "modprobe kefalnd ipif_name=ens5"),
        ("modprobe kefalnd ipif_name=ens5", "lnetctl lnet configure"),
        ("lnetctl net add --net tcp --if ens5", "lnetctl set discovery 1"),
        ("lnetctl udsp add --src efa --priority 0", "modprobe lustre"),
    ):
        assert calls.index(earlier) < calls.index(later)


def test_fewer_efa_devices_than_planned_mounts_nothing_over_tcp(node: Node) -> None:
    node.plan_efa(8, 4)
    run = node.install()
    assert "the plan has 8 EFA interfaces for Lustre, this node has 4 EFA devices" in run.stderr
    assert node.calls("mount --types") == []
    assert node.failed_checks == ["efa-interfaces"]


def test_a_client_without_the_efa_driver_is_named(node: Node) -> None:
    node.plan_efa()
    node.state(modules=f"{KERNEL} lustre 2.15.6")
    assert "has no EFA driver (kefalnd)" in node.set_up("lustre-client").stderr


def test_interfaces_beyond_the_plan_are_taken_away(node: Node) -> None:
    node.plan_efa(2, 4)
    node.state(lnet="tcp ens5\nefa rdmap0s0\nefa rdmap1s0")
    assert node.set_up("lustre-efa").returncode == 0
    assert (node.fake / "lnet").read_text(encoding="utf-8").split("\n")[:3] == [
        "tcp ens5",
        "efa rdmap0s0",
        "efa rdmap3s0",
    ]


def test_lnet_is_not_changed_under_a_mounted_file_system(healthy: Node) -> None:
    healthy.state(lnet="tcp ens5")
    run = healthy.script("lustre-efa")
    assert run.returncode == 1
    assert "unmount /fsx first" in run.stderr
    assert healthy.calls("lnetctl net add") == []


def test_scratch_is_raid_0_of_the_instance_store_never_ebs(node: Node) -> None:
    node.set_up("scratch")
    (made,) = node.calls("mdadm")
    assert "--level=0" in made
    assert [word for word in made.split() if word.startswith("/dev/nvme")] == [f"/dev/nvme{n}n1" for n in range(1, 9)]
    assert "/scratch|/dev/md/training-storage|xfs|rw,noatime" in node.mounts


def test_one_device_needs_no_raid(node: Node) -> None:
    node.nvme(1)
    node.set_up("scratch")
    assert node.calls("mdadm") == []
    assert "/scratch|/dev/nvme1n1|xfs|rw,noatime" in node.mounts


def test_without_nvme_scratch_is_a_folder_of_the_root_volume(node: Node) -> None:
    node.nvme(0)
    assert node.set_up("scratch").returncode == 0
    assert stat.S_IMODE((node.root / "scratch").stat().st_mode) == 0o1777
    assert node.calls("mkfs.xfs") == []
    assert node.calls("mount --options") == []


def test_after_a_reboot_scratch_is_assembled_not_formatted(node: Node) -> None:
    node.nvme(8, holds="linux_raid_member")
    node.state(**{"labelled-after-assembly": "/dev/md127"})
    assert node.set_up("scratch").returncode == 0
    assert node.calls("mdadm") == ["mdadm --assemble --scan"]
    assert node.calls("mkfs.xfs") == []
    assert "/scratch|/dev/md127|xfs|rw,noatime" in node.mounts


def test_devices_that_the_image_has_mounted_are_used_where_they_are(node: Node) -> None:
    node.nvme(8, holds="LVM2_member", mounted_on="/opt/dlami/nvme")
    run = node.set_up("scratch")
    assert run.returncode == 0, run.stderr
    assert any(line.startswith("/scratch|/dev/mapper/vg.01-lv_ephemeral[") for line in node.mounts)
    assert node.calls("mkfs.xfs") == []


def test_a_device_that_holds_something_is_never_formatted(node: Node) -> None:
    node.nvme(8, holds="ext4")
    run = node.install()
    assert "these instance-store devices hold something: /dev/nvme1n1 (ext4)" in run.stderr
    assert node.calls("mkfs.xfs") == []
    assert node.calls("mdadm") == []
    assert node.failed_checks == ["nvme"]


def test_the_lake_is_mounted_read_only_with_a_bounded_cache(node: Node) -> None:
    node.set_up("mountpoint")
    (call,) = node.calls("mount-s3")
    assert call.replace(str(node.root), "") == (
        "mount-s3 training-data-lake-111122223333-us-east-1 /mnt/lake --read-only --allow-other --region us-east-1"
        f" --cache /scratch/mountpoint --max-cache-size {node.contract['mountpoint']['cache_gib'] * 1024}"
    )


def test_the_directory_bucket_of_the_plan_is_the_shared_cache(node: Node) -> None:
    node.contract["mountpoint"]["express_cache_bucket"] = "hot--use1-az4--x-s3"
    node.set_up("mountpoint")
    assert "--cache-xz hot--use1-az4--x-s3" in node.calls("mount-s3")[0]


def test_another_endpoint_and_path_style_reach_mountpoint(node: Node) -> None:
    node.contract["endpoint"] |= {"url": "https://storage.example:9000", "addressing_style": "path"}
    node.set_up("mountpoint")
    assert node.calls("mount-s3")[0].endswith("--endpoint-url https://storage.example:9000 --force-path-style")


def test_an_old_cache_is_emptied_before_the_mount(healthy: Node) -> None:
    old = healthy.file("scratch/mountpoint/mountpoint-cache/block", "x")
    kept = healthy.file("scratch/kept", "x")
    assert healthy.script("mountpoint").returncode == 0
    assert not old.exists()
    assert kept.exists()


def test_a_dead_mountpoint_is_taken_away_before_the_next_one(healthy: Node) -> None:
    assert healthy.script("mountpoint").returncode == 0
    assert len(healthy.calls("umount --lazy")) == 1
    assert len([line for line in healthy.mounts if line.startswith("/mnt/lake|")]) == 1


def test_mountpoint_is_tried_again(node: Node) -> None:
    node.state(**{"mount-s3-refusals": "2"})
    assert node.set_up("mountpoint").returncode == 0
    assert len(node.calls("mount-s3")) == 3


def test_mountpoint_is_bounded_in_memory_and_restarted(node: Node) -> None:
    folder = node.root / "etc/systemd/system"
    # 5 % of 2,048 GiB
    text = (folder / "training-storage-mountpoint.service.d/memory.conf").read_text(encoding="utf-8")
    assert text == "[Service]\nMemoryMax=104857M\n"
    unit = (folder / "training-storage-mountpoint.service").read_text(encoding="utf-8")
    assert "Restart=on-failure" in unit


def test_amazon_linux_has_mountpoint_in_its_repository(node: Node) -> None:
    (node.bin / "mount-s3").unlink()
    assert node.set_up("mountpoint").returncode == 0
    assert node.calls("dnf") == ["dnf install --assumeyes --quiet mount-s3"]


@pytest.mark.parametrize(("key", "passes"), [("673FE4061506BB469A0EF857BE397A52B086DA5A", True), ("0" * 40, False)])
def test_ubuntu_installs_mountpoint_only_with_its_signature(node: Node, key: str, passes: bool) -> None:
    (node.bin / "mount-s3").unlink()
    node.file("etc/os-release", UBUNTU)
    node.state(**{"signed-by": key})
    run = node.set_up("mountpoint")
    assert (run.returncode == 0) == passes
    assert ("is not signed by Mountpoint's key" in run.stderr) != passes
    assert bool(node.calls("apt-get install")) == passes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema_version": 2}, "schema_version must be 1, got: 2"),
        ({"scratch": {}}, "the contract lacks: scratch.path"),
        ({"scratch": {"path": "/"}}, "scratch.path must be a folder at or below /fsx or /scratch, or below /mnt"),
    ],
)
def test_a_contract_that_cannot_be_used_says_why_and_drains(node: Node, change: dict[str, object], reason: str) -> None:
    node.contract |= change
    run = node.install()
    assert run.returncode == 1
    assert node.failed_checks == ["contract"]
    assert reason in node.slurm[1]
    assert node.calls("mount") == []


@pytest.mark.parametrize("section", ["lustre", "mountpoint"])
def test_a_tier_that_the_plan_does_not_have_is_no_failure(node: Node, section: str) -> None:
    node.contract[section] = None
    if section == "lustre":
        node.contract["checkpoints"] |= {"path": None, "uri": "s3://lake/checkpoints/default/"}
    run = node.install()
    assert run.returncode == 0, run.stderr
    assert node.calls("mount --types" if section == "lustre" else "mount-s3") == []
    said = "the contract has no file system" if section == "lustre" else "the contract has no lake to mount"
    assert said in run.stderr


def test_a_contract_that_is_gone_is_not_replaced_by_the_old_copy(healthy: Node) -> None:
    (healthy.fake / "contract").unlink()
    assert healthy.script("contract").returncode == 1
    assert healthy.check("--quick").returncode == 1
    assert healthy.failed_checks == ["contract"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"role": "head"}, "--role must be compute or login, got: head"),
        ({"engine": "slurm"}, "--engine must be one of ec2 pcs , got: slurm"),
        ({"region": ""}, "an option is missing"),
        ({"colour": "red"}, "unknown option --colour"),
    ],
)
def test_options_that_are_none_are_refused(node: Node, options: dict[str, str], message: str) -> None:
    run = node.install(**options)
    assert run.returncode == 1
    assert message in run.stderr


def test_an_image_without_the_aws_cli_is_refused(node: Node) -> None:
    (node.bin / "aws").unlink()
    assert "this image has no aws, which the kit needs" in node.install().stderr


BLOCKS = {"capacity_reservations": "cr-0123456789abcdef0", "block_end_minutes": "30"}


def install_in_block(node: Node, end: datetime, **options: str) -> None:
    node.state(units="")
    node.install(purchase="capacity-block", **(BLOCKS | options))
    lines = [f"{id}\t{end.isoformat()}" for id in (BLOCKS | options)["capacity_reservations"].split()]
    node.state(**{"block-ends": "\n".join(lines)})


@pytest.mark.parametrize("before_end", [30, 60])
@pytest.mark.parametrize(("minutes", "told"), [(31, False), (29, True), (-5, True)])
def test_everybody_is_told_half_an_hour_before_ec2_terminates_once(
    node: Node, before_end: int, minutes: int, told: bool
) -> None:
    end = datetime.now(tz=UTC) + timedelta(minutes=before_end + minutes)
    install_in_block(node, end, block_end_minutes=str(before_end))
    assert "systemctl enable --quiet --now training-storage-capacity-block.timer" in node.calls("systemctl")
    for _ in range(2):
        run = node.script("capacity-block")
        assert run.returncode == 0, run.stderr
    assert len(node.calls("wall")) == told
    termination = (end - timedelta(minutes=before_end)).strftime("%H:%M UTC")
    message = (
        f"The Capacity Block cr-0123456789abcdef0 ends at {end:%Y-%m-%d %H:%M} UTC. EC2 terminates its instances from"
        f" {termination} on: write the last checkpoint before that."
    )
    assert node.calls("wall") == [f"wall {message}"] * told
    assert (node.fake / "comment").read_text(encoding="utf-8").strip() == (message if told else "")
    # A job learns it at any time.
    assert f"training-storage: {message}\n" in node.ready().stderr
    (asked,) = {call for call in node.calls("aws ec2") if "describe" in call}
    assert "--capacity-reservation-ids cr-0123456789abcdef0 --query" in asked


def test_a_login_node_tells_its_users_of_every_block(node: Node) -> None:
    end = datetime.now(tz=UTC) + timedelta(minutes=45)
    ids = "cr-0123456789abcdef0 cr-0fedcba9876543210"
    install_in_block(node, end, capacity_reservations=ids, role="login")
    assert node.script("capacity-block").returncode == 0
    assert [call.split()[4] for call in node.calls("wall")] == ids.split()
    assert f"--capacity-reservation-ids {ids} --query" in node.calls("aws ec2")[0]
    assert node.calls("scontrol") == []


def test_a_block_that_has_ended_leaves_no_notice(node: Node) -> None:
    install_in_block(node, datetime.now(tz=UTC) + timedelta(minutes=45))
    assert node.script("capacity-block").returncode == 0
    node.state(**{"block-ends": ""})
    assert node.script("capacity-block").returncode == 0
    assert "Capacity Block" not in node.ready().stderr


def test_users_are_told_even_if_slurm_is_not_there(node: Node) -> None:
    install_in_block(node, datetime.now(tz=UTC) + timedelta(minutes=45))
    node.stop_slurmd()
    run = node.script("capacity-block")
    assert run.returncode == 0
    assert "the engine could not be told" in run.stderr
    assert len(node.calls("wall")) == 1
    assert "Capacity Block" in node.ready().stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_end_minutes": "30"}, "--capacity-reservations must name the Capacity Blocks"),
        ({"capacity_reservations": "cr-0123456789abcdef0"}, "--block-end-minutes must be a whole number from 1, got: "),
    ],
)
def test_a_capacity_block_needs_its_id_and_its_minutes(node: Node, options: dict[str, str], message: str) -> None:
    run = node.install(purchase="capacity-block", **options)
    assert run.returncode == 1
    assert message in run.stderr


def test_other_purchases_ask_for_no_capacity_block(healthy: Node) -> None:
    assert healthy.script("capacity-block").returncode == 0
    assert healthy.calls("aws ec2") == []
