"""Clients of one Region, and AWS's refusals in words."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Variables that name the caller's Region, the first that is set wins; after them the profile's.
_REGION_VARIABLES = ("CDK_DEFAULT_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
#: What the services say to a caller without a permission, each in its own way.
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError")

#: What calls to AWS raise.
AWS_ERRORS = (BotoCoreError, ClientError)


def clients(region: str) -> Callable[[str], Any]:
    """Return a function from a service's name to its client in `region`; each is made once.

    Raises
    ------
    InvalidJobError
        If the profile that the surroundings name does not exist.
    """
    try:
        session = boto3.Session(region_name=region)
    except ProfileNotFound as error:
        raise InvalidJobError(f"AWS_PROFILE must name a profile that exists ({error}).") from None
    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "max_attempts": 4})
    made: dict[str, Any] = {}

    def client(service: str) -> Any:  # noqa: ANN401 - boto3 clients have no type
        if service not in made:
            made[service] = session.client(service, config=config)
        return made[service]

    return client


def region_of(given: str | None) -> str:
    """Return the Region that is meant: the given one, the surroundings' or the profile's.

    Raises
    ------
    InvalidJobError
        If none is known.
    """
    named = given or next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    try:
        region = named or boto3.Session().region_name
    except ProfileNotFound as error:
        raise InvalidJobError(f"AWS_PROFILE must name a profile that exists ({error}).") from None
    if not region:
        raise InvalidJobError("--region must be given: neither the environment nor the profile names a Region.")
    return str(region)


def code_of(error: Exception) -> str:
    """Return AWS's code of an error; empty where AWS did not answer."""
    return str(error.response["Error"].get("Code", "")) if isinstance(error, ClientError) else ""


def is_denied(error: Exception) -> bool:
    """Whether the caller lacks a permission."""
    return code_of(error) in _DENIED


def no_credentials(error: Exception) -> bool:
    """Whether nothing can be asked at all, because there are no credentials or they are not accepted."""
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        return True
    return code_of(error) in (
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
    )


def why(error: Exception, *, action: str) -> str:
    """Return why a call of `action` (``fsx:DescribeFileSystems``) gave nothing, in a few words."""
    if is_denied(error):
        return f"the caller is not allowed {action}"
    if isinstance(error, EndpointConnectionError):
        return f"{action.split(':', maxsplit=1)[0]} cannot be reached in this Region"
    if isinstance(error, ClientError):
        answer = error.response["Error"]
        text = " ".join(str(answer.get("Message", "")).split()).rstrip(".")
        return f"{action} answered {answer.get('Code')}{f': {text}' if text else ''}"
    return f"{action} could not be called ({' '.join(str(error).split())})"
