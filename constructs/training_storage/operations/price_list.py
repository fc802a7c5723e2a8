"""Asks the AWS Price List for the prices of a Region and writes them in the layout that plans read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from training_storage.operations.price_products import (
    S3_USAGE_TYPES,
    Product,
    lustre_price,
    read_product,
    s3_price,
    unanimous,
)
from training_storage.operations.prices_file import prices_text
from training_storage.planning import catalog, tariff
from training_storage.planning.errors import InvalidJobError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator
    from decimal import Decimal

    from training_storage.planning.catalog.prices import PricePath

#: The API stands in few Regions; it answers for all of the partitions aws and aws-us-gov.
_API_REGION = "us-east-1"
_PARTITIONS = ("aws", "aws-us-gov")
#: What a node is: Linux, shared tenancy, no licence, on demand.
_NODE = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}


class PriceListError(Exception):
    """The Price List cannot be read; one line with the way out."""


@dataclass(frozen=True, kw_only=True)
class RefreshedPrices:
    """The text of a prices file, and a note for each price that was not found."""

    text: str
    notes: tuple[str, ...]


def refreshed_prices(*, region: catalog.Region, today: dt.date, client: Any = None) -> RefreshedPrices:  # noqa: ANN401 - boto3 clients have no type
    """Return the prices of `region` as the Price List has them.

    Parameters
    ----------
    today
        Day that the file is dated with.
    client
        The ``pricing`` client; one of the caller's surroundings if None.

    Raises
    ------
    InvalidJobError
        If `region` is in a partition whose prices are not in that list.
    PriceListError
        If there are no credentials, no permission or no connection, or the list has no price at all.
    """
    if region.partition not in _PARTITIONS:
        raise InvalidJobError(
            f"region must be one of the partitions {', '.join(_PARTITIONS)}, got: {region.name!r} of "
            f"{region.partition}, whose prices are in another list and currency. Write a prices file by hand."
        )
    try:
        found = dict(_prices(client or _client(), region))
    except (NoCredentialsError, PartialCredentialsError):
        raise PriceListError(
            "No AWS credentials were found, and the Price List asks for them: configure a profile that may call "
            "pricing:GetProducts, or keep the prices of the catalog."
        ) from None
    except ClientError as error:
        code, message = error.response["Error"].get("Code"), error.response["Error"].get("Message")
        raise PriceListError(
            f"The Price List refused ({code}: {message}). The caller needs pricing:GetProducts."
        ) from None
    except BotoCoreError as error:
        raise PriceListError(f"The Price List could not be reached: {error}") from None
    known = {path: usd for path, usd in found.items() if usd is not None}
    if not known:
        raise PriceListError(f"The Price List has no price for {region.name} that a plan uses.")
    return RefreshedPrices(
        text=prices_text(region=region.name, found=known, today=today), notes=tuple(_notes(region, found))
    )


def _client() -> Any:  # noqa: ANN401 - boto3 clients have no type
    config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "max_attempts": 3})
    return boto3.client("pricing", region_name=_API_REGION, config=config)


def _prices(client: Any, region: catalog.Region) -> Iterator[tuple[PricePath, Decimal | None]]:  # noqa: ANN401
    yield from unanimous(map(s3_price, _products(client, "AmazonS3", regionCode=region.name)))
    yield from unanimous(map(lustre_price, _products(client, "AmazonFSx", regionCode=region.name)))
    for name in catalog.instance_types():
        path = tariff.node_hour(name)
        products = _products(client, "AmazonEC2", regionCode=region.name, instanceType=name, **_NODE)
        yield from unanimous((path, product.usd) for product in products if product.unit == "Hrs" and product.usd > 0)


def _products(client: Any, service: str, **fields: str) -> Iterator[Product]:  # noqa: ANN401
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    for page in client.get_paginator("get_products").paginate(ServiceCode=service, Filters=filters):
        for text in page["PriceList"]:
            product = read_product(text)
            if product is not None:
                yield product


def _notes(region: catalog.Region, found: dict[PricePath, Decimal | None]) -> Iterator[str]:
    """Yield a note for each price that the Region should have."""
    expected: list[PricePath] = [
        path for path, _ in S3_USAGE_TYPES.values() if path[0] == "s3" or region.express_zone_ids
    ]
    for kind in region.lustre_deployment_types:
        expected += [
            tariff.lustre_storage(deployment_type=kind, per_unit=per_unit)
            for per_unit in catalog.lustre.deployment_types()[kind].throughputs
            if kind != "PERSISTENT_2" or per_unit in region.persistent_2_throughputs
        ]
    if "PERSISTENT_2" in region.lustre_deployment_types:
        expected.append(tariff.METADATA_IOPS)
    expected += [tariff.node_hour(name) for name in region.instance_types]
    for path in expected:
        if found.get(path) is None:
            why = "products disagree on" if path in found else "no product is"
            yield f"{'.'.join(path)} in {region.name}: {why} that price in the list, so plans print null for it."
