"""The server: starts fast, listens on loopback only, stands beside others, stops by itself."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from training_storage.testing.local_aws import LocalAws, LocalAwsError
from training_storage.testing.local_aws.__main__ import main
from training_storage.testing.local_aws.ministack_adapter import names

pytestmark = pytest.mark.local_aws

_MODULE = "training_storage.testing.local_aws"
_PACKAGE = Path(sys.modules[_MODULE].__file__ or "").parent
_LISTEN = "0A"


def _family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        found += _family(int(child))
    return found


def _listening(pid: int) -> set[str]:
    """Local addresses (hexadecimal, as the kernel writes them) on which a process accepts connections."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    addresses = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            columns = line.split()
            if columns[9] in inodes and (columns[3] == _LISTEN or table.startswith("udp")):
                addresses.add(columns[1].split(":")[0])
    return addresses


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="reads the kernel's socket tables (Linux)")
def test_every_socket_of_the_server_listens_on_loopback(local_aws: LocalAws, stacks: Any) -> None:
    # IoT and Transfer would open ports of their own when they are used.
    local_aws.client("iot").describe_endpoint()
    pid = local_aws.pid
    assert pid is not None
    addresses = set().union(*(_listening(process) for process in _family(pid)))
    assert addresses == {"0100007F"}


@pytest.mark.parametrize(
    "endpoint", ["http://10.0.0.1:4566", "https://fsx.us-east-1.amazonaws.com", "http://0.0.0.0:1", "nonsense"]
)
def test_endpoint_off_loopback_is_refused(endpoint: Any) -> None:
    with pytest.raises(LocalAwsError, match="over loopback only"):
        LocalAws(endpoint_url=endpoint, region="us-east-1")


def test_endpoint_changed_afterwards_is_refused(local_aws: LocalAws) -> None:
    other = LocalAws(endpoint_url=local_aws.endpoint_url, region="us-east-1")
    other.endpoint_url = "https://fsx.us-east-1.amazonaws.com"
    for use in (lambda: other.client("fsx"), other.environment, other.reset):
        with pytest.raises(LocalAwsError, match="over loopback only"):
            use()


def test_two_servers_stand_side_by_side_and_stop(local_aws: LocalAws) -> None:
    began = time.monotonic()
    with LocalAws.start(region="eu-north-1") as other:
        assert time.monotonic() - began < 4
        pid = other.pid
        assert pid is not None
        other.client("s3").create_bucket(
            Bucket="only-in-the-other", CreateBucketConfiguration={"LocationConstraint": "eu-north-1"}
        )
        names = {bucket["Name"] for bucket in local_aws.client("s3").list_buckets()["Buckets"]}
        assert "only-in-the-other" not in names
        assert other.environment()["AWS_REGION"] == "eu-north-1"
        other.reset()
        assert other.client("s3").list_buckets()["Buckets"] == []
    assert not Path(f"/proc/{pid}").exists()


def test_environment_reads_nothing_of_the_user(local_aws: LocalAws, monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    environment = local_aws.environment()
    assert environment["AWS_ENDPOINT_URL"] == local_aws.endpoint_url
    assert environment["AWS_CONFIG_FILE"] == environment["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & set(environment)


def test_port_in_use_is_one_line(capsys: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error == f"local AWS: port {port} of 127.0.0.1 is in use; choose another one, or none for a free one\n"


def test_missing_ministack_says_what_to_install(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert main([]) == 2
    assert "pip install 'training-storage[local-aws]'" in capsys.readouterr().err


def test_command_runs_with_the_environment_and_gives_back_its_exit_code(tmp_path: Any) -> None:
    script = (
        "import boto3, os, pathlib, sys\n"
        "boto3.client('fsx').describe_file_systems()\n"
        "pathlib.Path('endpoint').write_text(os.environ['AWS_ENDPOINT_URL'])\n"
        "sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", _MODULE, "--", sys.executable, "-c", script], cwd=tmp_path, check=False
    )
    assert done.returncode == 7
    port = int((tmp_path / "endpoint").read_text(encoding="ascii").rsplit(":", 1)[1])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_command_that_does_not_exist_is_one_line(capsys: Any) -> None:
    assert main(["--", "no-such-command-here"]) == 2
    assert capsys.readouterr().err == "local AWS: cannot run no-such-command-here: No such file or directory\n"


def test_serving_prints_exports_and_stops_when_terminated() -> None:
    process = subprocess.Popen([sys.executable, "-m", _MODULE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("#"):
            break
    exports = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines if line.startswith("export"))
    assert exports["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 143
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(exports["AWS_ENDPOINT_URL"].rsplit(":", 1)[1]))) != 0


# ---- the adapter ----


def test_every_name_inside_ministack_is_still_there() -> None:
    assert names.missing_names() == []


def test_moved_name_is_noticed(monkeypatch: Any) -> None:
    monkeypatch.setitem(names.NAMES, "ministack.app", ("app", "_gone"))
    assert names.missing_names() == ["ministack.app._gone"]


def test_only_the_adapter_imports_ministack() -> None:
    for file in _PACKAGE.rglob("*.py"):
        if file.parent.name != "ministack_adapter":
            text = file.read_text(encoding="utf-8")
            assert re.search(r"^\s*(import|from) ministack", text, re.MULTILINE) is None, file


def test_names_used_are_names_listed() -> None:
    listed = {name for inside in names.NAMES.values() for name in inside}
    modules = (
        "ec2|s3|ssm|stacks|handlers|engine|provisioners|cloudformation|changesets|"
        "lambda_svc|custom_resource|ministack_app|router|responses"
    )
    for file in (_PACKAGE / "ministack_adapter").glob("*.py"):
        used: Any = re.findall(rf"\b(?:{modules})\.(_[a-z]\w+)", file.read_text(encoding="utf-8"))
        assert set(used) <= listed, file
