"""The catalog's Regions agree with the CloudFormation registry, as cfn-lint ships it."""

from __future__ import annotations

import json
from pathlib import Path

import cfnlint
import pytest

from training_storage.planning import catalog

PROVIDERS = Path(cfnlint.__file__).parent / "data" / "schemas" / "providers"
KNOWN = [region for region in catalog.regions().values() if (PROVIDERS / f"{region.name}.json").exists()]


def types(region: catalog.Region) -> set[str]:
    return set(json.loads((PROVIDERS / f"{region.name}.json").read_text(encoding="utf-8")))


def test_nearly_every_region_of_the_catalog_has_a_registry_file() -> None:
    assert {region.name for region in catalog.regions().values()} - {region.name for region in KNOWN} == {"me-south-1"}


@pytest.mark.parametrize("region", KNOWN, ids=lambda region: region.name)
def test_pcs_is_said_to_exist_exactly_where_the_registry_has_its_type(region: catalog.Region) -> None:
    assert region.pcs == ("AWS::PCS::Cluster" in types(region))


@pytest.mark.parametrize("region", KNOWN, ids=lambda region: region.name)
def test_a_tier_is_offered_only_where_its_type_exists(region: catalog.Region) -> None:
    if region.lustre_deployment_types:
        assert {"AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation"} <= types(region)
    if region.express_zone_ids:
        assert "AWS::S3Express::DirectoryBucket" in types(region)
