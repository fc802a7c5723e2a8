"""The catalog's Regions agree with the CloudFormation registry, as cfn-lint ships it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import botocore.session
import cfnlint
import pytest

from training_storage.planning import catalog

PROVIDERS = Path(cfnlint.__file__).parent / "data" / "schemas" / "providers"
EXTENSIONS = PROVIDERS.parent / "extensions"
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


def test_sizes_of_pcs_clusters_and_versions_of_slurm_are_those_of_the_api() -> None:
    limits = catalog.pcs()
    shapes = botocore.session.get_session().get_service_model("pcs")
    sizes = shapes.shape_for("Size")
    assert tuple(sizes.enum) == tuple(limits.sizes)
    words = shapes.shape_for("CreateClusterRequest").members["size"].documentation
    for size, nodes in limits.sizes.items():
        assert re.search(rf"{size}</code>: {nodes} compute nodes", words), size
    versions = shapes.shape_for("SchedulerRequest").members["version"].documentation
    assert re.findall(r"[0-9]{2}\.[0-9]{2}", versions) == list(limits.slurm_versions)
    name = shapes.shape_for("ComputeNodeGroupName").metadata
    assert (name["min"], name["max"]) == (limits.name_characters_minimum, limits.name_characters_maximum)


@pytest.mark.parametrize("region", [region for region in KNOWN if region.pcs], ids=lambda region: region.name)
def test_the_login_nodes_type_is_offered_wherever_pcs_is(region: catalog.Region) -> None:
    offered = json.loads((EXTENSIONS / "aws_ec2_instance" / "instancetype_enum.json").read_text(encoding="utf-8"))
    assert set(catalog.pcs().login_instance_types.values()) <= set(offered[region.name]["enum"])
