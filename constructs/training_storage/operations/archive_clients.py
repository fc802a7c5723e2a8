"""Clients of an archive, as the job's endpoint wants them, and the job's contract in SSM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import ProfileNotFound

from training_storage.operations.archive_settings import read_contract
from training_storage.operations.aws_calls import AWS_ERRORS, code_of, why
from training_storage.planning.contract import parameter_name
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from training_storage.operations.archive_settings import ArchiveSettings

#: A copy of several GiB answers when it is done.
_READ_SECONDS: Final = 300
_ATTEMPTS: Final = 10


def s3_client(settings: ArchiveSettings, *, concurrency: int) -> Any:  # noqa: ANN401 -- boto3 clients have no type
    """Return an S3 client that holds the connections of an archive."""
    endpoint = settings.endpoint
    return _session(settings.region).client(
        "s3",
        endpoint_url=endpoint.url,
        config=Config(
            # Parts and objects are worked on in pools of the same size.
            max_pool_connections=2 * concurrency,
            connect_timeout=10,
            read_timeout=_READ_SECONDS,
            retries={"mode": "adaptive", "max_attempts": _ATTEMPTS},
            request_checksum_calculation=endpoint.checksums,
            response_checksum_validation=endpoint.checksums,
            **({} if endpoint.addressing_style == "auto" else {"s3": {"addressing_style": endpoint.addressing_style}}),
        ),
    )


def read_contract_of_job(job: str, *, region: str) -> dict[str, Any]:
    """Return the storage contract of a job that stands in `region`.

    Raises
    ------
    InvalidJobError
        If it cannot be read.
    """
    name = parameter_name(job)
    try:
        value = _session(region).client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    except AWS_ERRORS as error:
        reason = "there is none" if code_of(error) == "ParameterNotFound" else why(error, action="ssm:GetParameter")
        raise InvalidJobError(
            f"--job must name a job that stands in {region}, got: {job!r}, whose contract {name} cannot be read: "
            f"{reason}"
        ) from None
    return read_contract(value, source=name)


def _session(region: str | None) -> Any:  # noqa: ANN401
    try:
        return boto3.Session(region_name=region)
    except ProfileNotFound as error:
        raise InvalidJobError(f"AWS_PROFILE must name a profile that exists ({error}).") from None
