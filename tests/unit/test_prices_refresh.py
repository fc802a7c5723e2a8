"""`prices refresh`: products of the Price List, in its shape, become a file that plans read."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import NoCredentialsError
from botocore.stub import ANY, Stubber

from training_storage import cli
from training_storage.operations import price_list
from training_storage.operations.price_list import PriceListError, RefreshedPrices, refreshed_prices
from training_storage.operations.price_products import lustre_price, read_product, s3_price, unanimous
from training_storage.planning import InvalidJobError, TrainingJob, catalog, plan_storage
from training_storage.planning.catalog.price_files import read_prices

if TYPE_CHECKING:
    from collections.abc import Iterator

TODAY = dt.date(2027, 2, 1)
#: Entries in the shape of GetProducts, where each is a JSON text; the amounts are made up, so that none is a default.
RECORDED = json.loads((Path(__file__).parent / "price_list" / "us-east-2.json").read_text(encoding="utf-8"))


@pytest.fixture
def client() -> Iterator[Any]:
    made = boto3.client(
        "pricing",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106
    )
    with Stubber(made) as stubber:
        made.stubber = stubber
        yield made


def answer(
    client: Any,
    *,
    drop: str | None = None,
    instances: tuple[str, ...] = ("p5.48xlarge",),
    swap: tuple[str, str] = ("", ""),
) -> None:
    """Queue the answers to every question of a refresh; the S3 products come in two pages."""

    def texts(service: str) -> list[str]:
        rows = [json.dumps(row) for row in RECORDED[service]]
        return [row.replace(*swap) if swap[0] else row for row in rows if drop is None or drop not in row]

    def expect(service: str, entries: list[str], token: str | None = None, after: str | None = None) -> None:
        response: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": entries}
        expected: dict[str, Any] = {"ServiceCode": service, "Filters": ANY}
        if token is not None:
            response["NextToken"] = token
        if after is not None:
            expected["NextToken"] = after
        client.stubber.add_response("get_products", response, expected)

    s3 = texts("AmazonS3")
    expect("AmazonS3", s3[:3], token="more")  # noqa: S106
    expect("AmazonS3", s3[3:], after="more")
    expect("AmazonFSx", texts("AmazonFSx"))
    for name in catalog.instance_types():
        rows = [json.dumps(row) for row in RECORDED["AmazonEC2"]] if name in instances else []
        expect("AmazonEC2", rows)


def refresh(client: Any, region: str = "us-east-2") -> RefreshedPrices:
    return refreshed_prices(region=catalog.region(region), today=TODAY, client=client)


def test_every_price_of_the_region_comes_from_the_list(client: Any, tmp_path: Path) -> None:
    answer(client)
    path = tmp_path / "prices.toml"
    path.write_text(refresh(client).text, encoding="utf-8")
    client.stubber.assert_no_pending_responses()
    prices = read_prices(str(path))

    def usd(*where: str) -> float | None:
        return prices.item(region="us-east-2", path=where)

    assert prices.as_of == "2027-02-01"
    assert [usd("s3", item) for item in ("storage_per_gib_month", "put_per_1000", "get_per_1000")] == [
        0.031,
        0.006,
        0.0005,
    ]
    assert [
        usd("s3-express", item)
        for item in ("storage_per_gib_month", "put_per_1000", "get_per_1000", "upload_per_gib", "retrieval_per_gib")
    ] == [0.12, 0.00114, 0.00004, 0.0033, 0.0007]
    storage = ("fsx-lustre", "storage_per_gib_month")
    assert [usd(*storage, "PERSISTENT_2", unit) for unit in ("125", "250", "500", "1000")] == [0.15, 0.22, 0.35, 0.61]
    assert [usd(*storage, "PERSISTENT_1", unit) for unit in ("50", "100", "200")] == [0.141, 0.191, 0.291]
    assert usd(*storage, "SCRATCH_2", "200") == 0.142
    assert usd("fsx-lustre", "metadata_iops_month") == 0.056
    assert usd("instances", "p5.48xlarge", "per_hour") == 56.5


def test_a_plan_takes_the_file_and_prints_its_date(client: Any, tmp_path: Path) -> None:
    answer(client)
    path = tmp_path / "prices.toml"
    path.write_text(refresh(client).text, encoding="utf-8")
    plan = plan_storage(TrainingJob(instances=64, region="us-east-2", prices=str(path)))
    assert plan.cost.prices_as_of == "2027-02-01"
    assert plan.fsx_lustre is not None
    assert plan.fsx_lustre.per_unit_storage_throughput == 1000
    assert plan.cost.per_month_usd["fsx-lustre"] == pytest.approx(plan.fsx_lustre.storage_capacity_gib * 0.61)
    assert plan.cost.per_month_usd["cluster"] == pytest.approx(64 * 56.5 * 730)


def test_a_price_that_is_not_in_the_list_stays_null_with_a_note(client: Any, tmp_path: Path) -> None:
    answer(client, drop="1000 MB/s/TiB")
    found = refresh(client)
    assert [note for note in found.notes if "PERSISTENT_2.1000 in us-east-2: no product is that price" in note]
    path = tmp_path / "prices.toml"
    path.write_text(found.text, encoding="utf-8")
    plan = plan_storage(TrainingJob(instances=64, region="us-east-2", prices=str(path)))
    assert plan.cost.per_month_usd["fsx-lustre"] is None
    assert any("ranked with the prices of us-east-1" in warning for warning in plan.warnings)


def test_types_that_the_region_has_and_the_list_lacks_are_noted(client: Any) -> None:
    answer(client)
    notes = refresh(client).notes
    assert any(note.startswith("instances.p5en.48xlarge.per_hour in us-east-2") for note in notes)
    assert not any("p5.48xlarge" in note for note in notes)


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "-Infinity", "-0.15", "sNaN", "words", ""])
def test_an_amount_that_is_no_price_is_left_out_with_a_note(client: Any, tmp_path: Path, amount: str) -> None:
    answer(client, swap=('"USD": "0.6100000000"', f'"USD": "{amount}"'))
    found = refresh(client)
    assert any("PERSISTENT_2.1000 in us-east-2: no product is that price" in note for note in found.notes)
    path = tmp_path / "prices.toml"
    path.write_text(found.text, encoding="utf-8")
    storage = ("fsx-lustre", "storage_per_gib_month", "PERSISTENT_2")
    assert read_prices(str(path)).item(region="us-east-2", path=(*storage, "1000")) is None
    assert read_prices(str(path)).item(region="us-east-2", path=(*storage, "500")) == 0.35


def test_products_that_disagree_give_no_price() -> None:
    row = json.dumps(RECORDED["AmazonFSx"][0])
    one, other = read_product(row), read_product(row.replace('"0.1500000000"', '"0.9900000000"'))
    assert one is not None
    assert other is not None
    found = dict(unanimous([lustre_price(one), lustre_price(other)]))
    assert list(found.values()) == [None]


def test_other_products_are_left_alone() -> None:
    others = [read_product(json.dumps(row)) for row in RECORDED["others"]]
    assert [s3_price(product) or lustre_price(product) for product in others if product is not None] == (
        [None] * (len(others) - 1)
    )


def test_china_is_refused_before_anything_is_asked(client: Any) -> None:
    with pytest.raises(InvalidJobError, match="got: 'cn-north-1' of aws-cn, whose prices are in another list"):
        refresh(client, "cn-north-1")


def test_a_refusal_names_its_code_and_the_way_out(client: Any) -> None:
    client.stubber.add_client_error("get_products", "AccessDeniedException", "not authorized")
    with pytest.raises(PriceListError, match=r"refused \(AccessDeniedException: not authorized\)"):
        refresh(client)


def test_a_list_without_any_price_is_an_error(client: Any) -> None:
    for service in ("AmazonS3", "AmazonFSx", *["AmazonEC2"] * len(catalog.instance_types())):
        client.stubber.add_response("get_products", {"PriceList": []}, {"ServiceCode": service, "Filters": ANY})
    with pytest.raises(PriceListError, match="no price for us-east-2 that a plan uses"):
        refresh(client)


def test_without_credentials_the_command_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Nobody:
        def get_paginator(self, _: str) -> None:
            raise NoCredentialsError

    monkeypatch.setattr(price_list, "_client", Nobody)
    assert cli.main(["prices", "refresh", "--region", "us-east-2"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("training-storage: No AWS credentials were found")
    assert captured.err.count("\n") == 1


def test_the_command_writes_the_file_once(
    client: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(price_list, "_client", lambda: client)
    path = tmp_path / "prices.toml"
    answer(client)
    assert cli.main(["prices", "refresh", "--region", "us-east-2", "--out", str(path)]) == 0
    assert "instances.p5en.48xlarge" in capsys.readouterr().err
    assert read_prices(str(path)).as_of == str(dt.datetime.now(tz=dt.UTC).date())
    answer(client)
    assert cli.main(["prices", "refresh", "--region", "us-east-2", "--out", str(path)]) == 2
    assert "Add --force to replace it" in capsys.readouterr().err


def test_only_the_refresh_loads_boto3() -> None:
    script = (
        "import sys, training_storage.cli as cli, training_storage.planning; cli.main(['plan', '--instances', '8']); "
        "print('boto3' in sys.modules or 'botocore' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"
