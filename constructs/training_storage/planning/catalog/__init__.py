"""Dated facts about AWS, read from data files; each row names its source (``sources.toml``)."""

from training_storage.planning.catalog import images, lustre, prices, quotas, s3, workloads
from training_storage.planning.catalog.instances import (
    InstanceType,
    NetworkInterface,
    instance_type,
    instance_type_names,
    instance_types,
)
from training_storage.planning.catalog.lustre import lustre_servers
from training_storage.planning.catalog.pcs import pcs
from training_storage.planning.catalog.regions import Region, region, regions

__all__ = [
    "InstanceType",
    "NetworkInterface",
    "Region",
    "images",
    "instance_type",
    "instance_type_names",
    "instance_types",
    "lustre",
    "lustre_servers",
    "pcs",
    "prices",
    "quotas",
    "region",
    "regions",
    "s3",
    "workloads",
]
