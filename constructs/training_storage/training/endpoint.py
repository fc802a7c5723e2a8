"""From the contract's endpoint to the settings of boto3 and obstore, for AWS and for S3-compatible stores."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from training_storage.planning.errors import InvalidJobError
from training_storage.training.contract import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDRESSING_STYLES: Final = ("auto", "path", "virtual")
CHECKSUMS: Final = ("when_supported", "when_required")
#: AWS's own words for another endpoint than the Region's; the first that is set wins.
_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_AWS_SUFFIXES: Final = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def endpoint_of(
    *, url: str | None = None, addressing_style: str | None = None, checksums: str | None = None
) -> Endpoint:
    """Return an endpoint, checked; what is left out follows from the `url`.

    Parameters
    ----------
    url
        Of an S3-compatible store; by default what AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL names, else AWS.
    addressing_style
        ``path`` (``https://host/bucket/key``), ``virtual`` (``https://bucket.host/key``) or ``auto``: virtual on AWS,
        path elsewhere.
    checksums
        ``when_supported`` lets SDKs send their trailing checksums; ``when_required`` does not. By default the latter
        for stores that are not AWS: OSS, COS and others reject them.

    Raises
    ------
    InvalidJobError
        For a value that is not allowed.
    """
    url = url or next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), None)
    if url is not None:
        try:
            parts = urlsplit(url)
            is_address = bool(parts.hostname) and parts.port != 0 and not re.search(r"[\s\x00]", url)
        except ValueError:
            # A bracket without its other half; a port above 65535.
            parts, is_address = urlsplit(""), False
        if not is_address or parts.scheme not in ("http", "https") or parts.path.strip("/") or parts.query:
            raise InvalidJobError(
                f"endpoint url must be http:// or https://, a host and perhaps a port, got: {_without_secret(url)!r}."
                " Leave out the bucket and the path."
            )
        if parts.username or parts.password:
            raise InvalidJobError(
                "endpoint url must not hold a user or password. Credentials come from the environment, a profile or the"
                " node's role."
            )
        url = url.rstrip("/")
    for name, value, allowed in (
        ("addressing_style", addressing_style, ADDRESSING_STYLES),
        ("checksums", checksums, CHECKSUMS),
    ):
        if value is not None and value not in allowed:
            raise InvalidJobError(f"endpoint {name} must be one of {', '.join(allowed)}, got: {value!r}.")
    compatible = url is not None and not _is_aws_host(url)
    return Endpoint(
        url=url,
        addressing_style=addressing_style or "auto",
        checksums=checksums or ("when_required" if compatible else "when_supported"),
    )


def endpoint_of_contract(endpoint: Endpoint) -> Endpoint:
    """Return the contract's endpoint; where that is AWS, the surroundings may name another, as for every AWS tool."""
    return endpoint if endpoint.url is not None else endpoint_of(addressing_style=endpoint.addressing_style)


def is_aws(endpoint: Endpoint) -> bool:
    """Whether requests go to AWS, whose S3 keeps what its documentation says; anything else is probed."""
    return endpoint.url is None or _is_aws_host(endpoint.url)


def boto3_settings(endpoint: Endpoint, *, connections: int, timeout_seconds: float) -> Mapping[str, Any]:
    """Return the arguments of ``boto3.Session().client("s3", …)``.

    Parameters
    ----------
    endpoint
        Where requests go.
    connections
        Most connections at once.
    timeout_seconds
        Of one attempt. Throttling (503 SlowDown) and broken connections are tried again, with growing pauses.
    """
    from botocore.config import Config  # noqa: PLC0415 -- a path needs no SDK

    return {
        "endpoint_url": endpoint.url,
        "config": Config(
            # boto3 takes auto for path where an endpoint is given, like the store of obstore_settings.
            s3={"addressing_style": endpoint.addressing_style},
            request_checksum_calculation=endpoint.checksums,
            response_checksum_validation=endpoint.checksums,
            max_pool_connections=connections,
            connect_timeout=min(10.0, timeout_seconds),
            read_timeout=timeout_seconds,
            retries={"mode": "standard", "total_max_attempts": 10},
        ),
    }


def obstore_settings(
    endpoint: Endpoint, *, bucket: str, region: str | None, express: bool, timeout_seconds: float
) -> Mapping[str, Any]:
    """Return the arguments of ``obstore.store.S3Store(bucket, …)`` without credentials.

    obstore sends no trailing checksum unless told so: a signed payload is its check, and every store knows that.
    """
    import datetime as dt  # noqa: PLC0415

    # Said, so that no variable says otherwise.
    config: dict[str, Any] = {"conditional_put": "etag"}
    if region:
        config["region"] = region
    if endpoint.url is not None:
        virtual = endpoint.addressing_style == "virtual" or (
            endpoint.addressing_style == "auto" and _is_aws_host(endpoint.url)
        )
        scheme, _, host = endpoint.url.partition("://")
        # Under this name: under the plain one obstore lets the variable AWS_ENDPOINT_URL_S3 win.
        config["aws_endpoint_url_s3"] = f"{scheme}://{bucket}.{host}" if virtual else endpoint.url
        config["virtual_hosted_style_request"] = virtual
    else:
        config["virtual_hosted_style_request"] = endpoint.addressing_style != "path"
    if express:
        config["s3_express"] = True
    return {
        "config": config,
        "client_options": {
            "allow_http": endpoint.url is not None and endpoint.url.startswith("http://"),
            "timeout": dt.timedelta(seconds=timeout_seconds),
            "connect_timeout": dt.timedelta(seconds=min(10.0, timeout_seconds)),
        },
        "retry_config": {
            "max_retries": 10,
            "retry_timeout": dt.timedelta(seconds=timeout_seconds * 2),
            "backoff": {
                "init_backoff": dt.timedelta(milliseconds=100),
                "max_backoff": dt.timedelta(seconds=15),
                "base": 2,
            },
        },
    }


def _is_aws_host(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith(_AWS_SUFFIXES)


def _without_secret(url: str) -> str:
    """Return what may be repeated of an address: not what stands before an @."""
    return url.rpartition("@")[2]
