"""Start, use and stop one local AWS."""

import atexit
import importlib.util
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from training_storage.testing.local_aws.server_settings import METRICS_AHEAD

if TYPE_CHECKING:
    from aws_cdk import App, Stack, Stage
    from aws_cdk.cx_api import CloudAssembly

    from training_storage.testing.deployment import Deployment

ACCOUNT = "000000000000"
_CREDENTIALS = {"aws_access_key_id": ACCOUNT, "aws_secret_access_key": "local"}
_HOST = "127.0.0.1"
_SERVER = "training_storage.testing.local_aws.ministack_adapter.server"
_START_SECONDS = 30.0
_STOP_SECONDS = 3.0
_HIGHEST_PORT = 65535


class LocalAwsError(Exception):
    """The local AWS cannot be started or used; the message is one line that says why and what to do."""


class LocalAwsMissingError(LocalAwsError):
    """A package of the extra `local-aws` is not installed."""


class LocalAws:
    """A running local AWS, reached over loopback only.

    Make one with :meth:`start`, as a context manager or with :meth:`stop` at the end. It also stops when the
    interpreter exits. Several run side by side on ports of their own; each keeps its state in a folder of its own that
    goes with it.

    Examples
    --------
    >>> with LocalAws.start() as aws:  # doctest: +SKIP
    ...     aws.client("fsx").describe_file_systems()["FileSystems"]
    []
    """

    def __init__(
        self,
        *,
        endpoint_url: str,
        region: str,
        process: subprocess.Popen[bytes] | None = None,
        folder: Path | None = None,
    ) -> None:
        check_loopback(endpoint_url)
        self.endpoint_url = endpoint_url
        self.region = region
        self._process = process
        self._folder = folder
        self._clients: dict[tuple[str, str], Any] = {}
        self._sessions: dict[str, boto3.Session] = {}
        self._making = threading.Lock()

    @classmethod
    def start(cls, *, port: int | None = None, region: str = "us-east-1", quick: bool = False) -> Self:
        """Start a server and wait until it answers.

        Parameters
        ----------
        port
            A TCP port of 127.0.0.1; a free one by default.
        region
            The Region of clients and environments that name none.
        quick
            Let state machines wait a twentieth of what they ask for, and FSx report the minute that has just begun as
            if it were over. The gates of a stack look every half minute and wait for whole minutes of metrics, which
            a demonstration need not sit through.

        Raises
        ------
        LocalAwsError
            If ministack is missing (`LocalAwsMissingError`), the port is taken or the server does not come up.
        """
        for package in ("ministack", "cfnlint", "jsonschema"):
            if importlib.util.find_spec(package) is None:
                message = f"the local AWS needs {package}: pip install 'training-storage[local-aws]'"
                raise LocalAwsMissingError(message)
        port = _free_port() if port is None else _checked_port(port)
        folder = Path(tempfile.mkdtemp(prefix=f"local-aws-{port}-"))
        log = (folder / "server.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", _SERVER],
            env=_server_environment(port=port, region=region, folder=folder, quick=quick),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        log.close()
        aws = cls(endpoint_url=f"http://{_HOST}:{port}", region=region, process=process, folder=folder)
        atexit.register(aws.stop)
        try:
            aws._wait()
        except BaseException:
            aws.stop()
            raise
        return aws

    @property
    def pid(self) -> int | None:
        """The process id of the server."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """What the server has written so far."""
        return "" if self._folder is None else (self._folder / "server.log").read_text(errors="replace")

    def wait_until_stopped(self) -> None:
        """Block until the server ends."""
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Stop the server and remove its folder; a second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                # A custom resource that never answers keeps the server from ending by itself.
                pass
            finally:
                process.kill()
                process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        atexit.unregister(self.stop)

    def client(self, service: str, *, region_name: str | None = None) -> Any:  # noqa: ANN401 - boto3 clients have no static type
        """Return the boto3 client of a service of this server: the same one each time.

        Parameters
        ----------
        service
            As boto3 spells it: ``fsx``, ``s3``, ``cloudformation`` …
        region_name
            A Region other than the server's.
        """
        check_loopback(self.endpoint_url)
        region = region_name or self.region
        # Making a client takes longer than most of its requests. Threads may share clients, but not the making of one.
        with self._making:
            # A session keeps the service models it has read; a new one for each client reads them again.
            if region not in self._sessions:
                self._sessions[region] = boto3.Session(**_CREDENTIALS, region_name=region)
            if (service, region) not in self._clients:
                self._clients[service, region] = self._sessions[region].client(
                    service,
                    endpoint_url=self.endpoint_url,
                    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
                )
            return self._clients[service, region]

    def deploy(
        self,
        source: "App | Stage | Stack | CloudAssembly | os.PathLike[str] | str",
        *,
        parameters: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_seconds: float = 300.0,
    ) -> "Deployment":
        """Deploy stacks with their assets, through the CloudFormation API and in this process.

        Parameters
        ----------
        source
            An app, a stage, one of their stacks (with those that it depends on), a cloud assembly or its folder.
        parameters
            Values of CloudFormation parameters by ``Name`` or ``Stack:Name``.
        check
            Raise if a stack does not end in ``CREATE_COMPLETE`` or ``UPDATE_COMPLETE``.
        timeout_seconds
            How long one stack may take.

        Raises
        ------
        DeploymentError
            Naming every resource that failed, with the reason.

        Examples
        --------
        >>> with aws.deploy(stack) as deployment:  # doctest: +SKIP
        ...     deployment.outputs()["BucketName"]
        """
        from training_storage.testing.deployment import deploy  # noqa: PLC0415 -- it imports this package's names

        return deploy(source, aws=self, parameters=parameters, check=check, timeout_seconds=timeout_seconds)

    def environment(self, *, region_name: str | None = None) -> dict[str, str]:
        """Return this process's environment with the AWS settings of this server.

        For a subprocess: the CDK CLI, boto3, the AWS CLI. No profile or configuration file of the user is read.
        """
        check_loopback(self.endpoint_url)
        region = region_name or self.region
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**inherited, **self.settings(region_name=region)}

    def settings(self, *, region_name: str | None = None) -> dict[str, str]:
        """Return only the variables that point a tool at this server."""
        region = region_name or self.region
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "CDK_DEFAULT_ACCOUNT": ACCOUNT,
            "CDK_DEFAULT_REGION": region,
            "CDK_DISABLE_VERSION_CHECK": "1",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
        }

    def fsx_control(self, *, region_name: str | None = None, **controls: Any) -> dict[str, Any]:  # noqa: ANN401 - one type a control
        """Tell FSx how tasks shall end, how long states last, which files exist; see docs/local-aws.md.

        Parameters
        ----------
        region_name
            The Region whose FSx is meant; the server's by default.
        **controls
            task_outcome, failed_files, transition_seconds, quotas, files; none to read them.

        Raises
        ------
        ValueError
            For an unknown control or value.
        """
        region = region_name or self.region
        try:
            answer = self._post(
                f"/_training_storage/fsx?region={region}&account={ACCOUNT}", json.dumps(controls).encode()
            )
        except urllib.error.HTTPError as error:
            raise ValueError(json.loads(error.read())["message"]) from None
        result: dict[str, Any] = json.loads(answer)
        return result

    def reset(self) -> None:
        """Forget every resource of every account and Region."""
        self._post("/_ministack/reset", b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _post(self, path: str, body: bytes) -> bytes:
        check_loopback(self.endpoint_url)
        request = urllib.request.Request(self.endpoint_url + path, data=body, method="POST")  # noqa: S310 - loopback only
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback only
            content: bytes = answer.read()
        return content

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                last = (self.log.strip().splitlines() or ["no output"])[-1]
                message = f"the local AWS did not start: {last}"
                raise LocalAwsError(message)
            try:
                with urllib.request.urlopen(f"{self.endpoint_url}/_ministack/health", timeout=2):  # noqa: S310 - loopback
                    return
            except OSError:
                time.sleep(0.05)
        message = f"the local AWS did not answer on {self.endpoint_url} within {_START_SECONDS:.0f} s"
        raise LocalAwsError(message)


def check_loopback(endpoint_url: str) -> None:
    """Refuse an endpoint that another machine could answer.

    Raises
    ------
    LocalAwsError
        If the host is not a loopback address or ``localhost``.
    """
    host = urlsplit(endpoint_url).hostname or ""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        message = (
            f"the local AWS is reached over loopback only, got the endpoint {endpoint_url}; use http://127.0.0.1:PORT"
        )
        raise LocalAwsError(message)


def _server_environment(*, port: int, region: str, folder: Path, quick: bool) -> Mapping[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    temporary = folder / "tmp"
    temporary.mkdir()
    source_root = str(Path(__file__).parents[3])
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(filter(None, [source_root, inherited.get("PYTHONPATH", "")])),
        # AWS's Node.js runtime brings the SDK; here handlers find the packages of the folder that the caller is in.
        "NODE_PATH": os.pathsep.join(filter(None, [inherited.get("NODE_PATH", ""), str(Path.cwd() / "node_modules")])),
        "BIND_HOST": _HOST,
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": _HOST,
        "MINISTACK_REGION": region,
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        # Both listen on every interface otherwise.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        **({"SFN_WAIT_SCALE": "0.05", METRICS_AHEAD: "1"} if quick else {}),
        "PERSIST_STATE": "0",
        "STATE_DIR": str(folder / "state"),
        "S3_DATA_DIR": str(folder / "s3"),
        "TMPDIR": str(temporary),
        # No Docker: nothing here needs it, and its containers would listen elsewhere.
        "DOCKER_HOST": f"unix://{folder}/no-docker.sock",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "LOG_LEVEL": "WARNING",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _checked_port(port: int) -> int:
    if not 1 <= port <= _HIGHEST_PORT:
        message = f"port must be between 1 and {_HIGHEST_PORT}, got: {port}"
        raise LocalAwsError(message)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            message = f"port {port} of {_HOST} is in use; choose another one, or none for a free one"
            raise LocalAwsError(message) from None
    return port
