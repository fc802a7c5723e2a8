"""The server process: ministack with everything of ours in it."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from ministack import app as ministack_app
from ministack.core import responses, router
from ministack.services import ec2, ssm

from training_storage.testing.local_aws import pcs_service
from training_storage.testing.local_aws.ami_parameters import AMI_PARAMETERS
from training_storage.testing.local_aws.fsx.service import TARGET_PREFIX, FsxService
from training_storage.testing.local_aws.ministack_adapter import (
    conditions,
    creation_order,
    custom_resources,
    express,
    resource_types,
    stack_roles,
    stack_rules,
)
from training_storage.testing.local_aws.ministack_adapter.account import MinistackAccount
from training_storage.testing.local_aws.ministack_adapter.names import missing_names
from training_storage.testing.local_aws.pcs_service import PcsService

CONTROL_PATH = "/_training_storage/fsx"
# us-east-1 has six zones, no Region has more.
_ZONE_LETTERS = "abcdef"

Answer = tuple[int, dict[str, str], bytes]


class _FsxModule:
    """FSx in the shape of a ministack service module."""

    def __init__(self, service: FsxService) -> None:
        self._service = service

    async def handle_request(
        self, _method: str, _path: str, headers: dict[str, str], body: bytes, _query: dict[str, Any]
    ) -> Answer:
        answer = self._service.answer(headers.get("x-amz-target", ""), body)
        # States move on by themselves, so that a report lies in the bucket without another call.
        loop = asyncio.get_running_loop()
        seconds = self._service.store().control.transition_seconds
        for step in (1, 2, 3):
            loop.call_later(step * seconds + 0.05, self._service.tick)
        return answer

    def reset(self) -> None:
        self._service.reset()

    def get_state(self) -> None:
        """Nothing of this service outlives the server."""


class _PcsModule:
    """AWS PCS in the shape of a ministack service module."""

    def __init__(self, service: PcsService) -> None:
        self._service = service

    async def handle_request(
        self, _method: str, _path: str, headers: dict[str, str], body: bytes, _query: dict[str, Any]
    ) -> Answer:
        return self._service.answer(headers.get("x-amz-target", ""), body)

    def reset(self) -> None:
        self._service.reset()

    def get_state(self) -> None:
        """Nothing of this service outlives the server."""


def install() -> FsxService:
    """Put our services, types and rules into the imported ministack."""
    missing = missing_names()
    if missing:
        message = (
            f"this ministack lacks {', '.join(missing)}; the local AWS needs ministack 1.5.33 "
            "(pip install 'training-storage[local-aws]')"
        )
        raise RuntimeError(message)
    service = FsxService(MinistackAccount())
    pcs = PcsService(lambda: (str(responses.get_account_id()), str(responses.get_region())))
    resource_types.install(service, pcs)
    stack_rules.install()
    stack_roles.install()
    conditions.install()
    creation_order.install()
    custom_resources.install()
    _serve_fsx(service)
    _serve_pcs(pcs)
    _serve_directory_buckets()
    ec2._zone_name_for_az_id = _zone_name_of
    ssm._PUBLIC_AMI_PARAMETERS.update(AMI_PARAMETERS)
    return service


def main() -> None:
    """Serve until stopped; the environment says where (GATEWAY_PORT, BIND_HOST)."""
    service = install()
    inner = ministack_app.app

    async def app(scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Any) -> None:  # noqa: ANN401
        if scope["type"] == "http" and scope["path"] == CONTROL_PATH:
            await _control(service, scope, receive, send)
            return
        await inner(scope, receive, send)

    ministack_app.app = app
    sys.argv = ["ministack"]
    ministack_app.main()


def _serve_fsx(service: FsxService) -> None:
    module = _FsxModule(service)
    name = "training_storage_fsx"
    ministack_app._loaded_modules[name] = module
    ministack_app.SERVICE_REGISTRY["fsx"] = {"module": name}
    ministack_app.SERVICE_HANDLERS["fsx"] = module.handle_request
    router.SERVICE_PATTERNS["fsx"] = {"target_prefixes": [TARGET_PREFIX], "host_patterns": [r"^fsx\."]}


def _serve_pcs(service: PcsService) -> None:
    module = _PcsModule(service)
    name = "training_storage_pcs"
    ministack_app._loaded_modules[name] = module
    ministack_app.SERVICE_REGISTRY["pcs"] = {"module": name}
    ministack_app.SERVICE_HANDLERS["pcs"] = module.handle_request
    router.SERVICE_PATTERNS["pcs"] = {"target_prefixes": [pcs_service.TARGET_PREFIX], "host_patterns": [r"^pcs\."]}


def _serve_directory_buckets() -> None:
    router.SERVICE_PATTERNS["s3express"] = {"host_patterns": [r"^s3express"]}
    ministack_app.SERVICE_HANDLERS["s3express"] = express.handle_request
    inner = ministack_app.SERVICE_HANDLERS["s3"]

    async def s3_without_directory_buckets(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - ministack may answer with a stream
        status, answer_headers, content = await inner(method, path, headers, body, query)
        if method == "GET" and path == "/" and isinstance(content, bytes):
            content = express.without_directory_buckets(content)
        return status, answer_headers, content

    ministack_app.SERVICE_HANDLERS["s3"] = s3_without_directory_buckets


def _zone_name_of(zone_id: str | None) -> str | None:
    """Return the zone name of a zone id in the request's Region, or None; ministack itself knows three zones."""
    region = str(responses.get_region())
    names = (f"{region}{letter}" for letter in _ZONE_LETTERS)
    return next((name for name in names if ec2._az_id_for_zone_name(name) == zone_id), None)


async def _control(
    service: FsxService,
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Any,  # noqa: ANN401
) -> None:
    query = parse_qs(scope.get("query_string", b"").decode())
    responses.set_request_account_id(query.get("account", ["000000000000"])[0])
    responses.set_request_region(query.get("region", ["us-east-1"])[0])
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    try:
        status, content = 200, service.control(json.loads(body or b"{}"))
    except ValueError as error:
        status, content = 400, {"message": str(error)}
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})


if __name__ == "__main__":
    main()
