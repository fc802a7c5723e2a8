"""Every limit of FSx for Lustre, links and S3 Express: legal values pass, their neighbours are refused in one line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from training_storage.planning import catalog
from training_storage.planning.legality import (
    UNKNOWN,
    AccessPoint,
    DirectoryBucket,
    EfaClients,
    ExpressPolicy,
    FileSystem,
    Finding,
    LegacyLink,
    Link,
    LinkedBucket,
    Logging,
    MetadataConfiguration,
    ReadCache,
    RootSquash,
    check_access_point,
    check_directory_bucket,
    check_efa_clients,
    check_express_policy,
    check_file_system,
    check_link,
    check_link_beside,
    check_linked_bucket,
    lacks,
    rules,
)

US = catalog.region("us-east-1")
AUTOMATIC = MetadataConfiguration(mode="AUTOMATIC")
PROVISIONED = MetadataConfiguration(mode="USER_PROVISIONED", iops=6000)

P2: dict[str, Any] = {
    "deployment_type": "PERSISTENT_2",
    "storage_capacity_gib": 1200,
    "per_unit_storage_throughput": 125,
    "file_system_type_version": "2.15",
    "metadata": AUTOMATIC,
}
P1: dict[str, Any] = {
    "deployment_type": "PERSISTENT_1",
    "storage_capacity_gib": 1200,
    "per_unit_storage_throughput": 50,
}
HDD: dict[str, Any] = {
    "deployment_type": "PERSISTENT_1",
    "storage_type": "HDD",
    "storage_capacity_gib": 6000,
    "per_unit_storage_throughput": 12,
    "drive_cache_type": "NONE",
}
SCRATCH: dict[str, Any] = {"deployment_type": "SCRATCH_2", "storage_capacity_gib": 1200}
EFA = P2 | {"storage_capacity_gib": 38400, "efa_enabled": True}
TIERING: dict[str, Any] = {
    "deployment_type": "PERSISTENT_2",
    "storage_type": "INTELLIGENT_TIERING",
    "throughput_capacity": 4000,
    "metadata": PROVISIONED,
    "read_cache": ReadCache(sizing_mode="PROPORTIONAL_TO_THROUGHPUT_CAPACITY"),
}


def cache(size: Any = None, mode: str = "USER_PROVISIONED") -> ReadCache:
    return ReadCache(sizing_mode=mode, size_gib=size)


def iops(value: Any, mode: str = "USER_PROVISIONED") -> MetadataConfiguration:
    return MetadataConfiguration(mode=mode, iops=value)


# (row of the facts, what is legal, field, legal values, refused values, rule)
ROWS: list[tuple[str, dict[str, Any], str, list[Any], list[Any], str]] = [
    ("A.1 types", SCRATCH, "deployment_type", ["SCRATCH_2"], ["SCRATCH_3", "", "persistent_2"],
     "lustre-deployment-type"),
    ("A.1 SCRATCH_1", SCRATCH | {"deployment_type": "SCRATCH_1"}, "storage_capacity_gib",
     [1200, 2400, 3600, 7200], [0, -1200, 1199, 1201, 2399, 3599, 4800], "lustre-capacity"),
    ("A.1 SCRATCH_2", SCRATCH, "storage_capacity_gib",
     [1200, 2400, 4800, 100800], [600, 1199, 1201, 3600, 2399, True, 2400.0, None, "many"], "lustre-capacity"),
    ("A.1 scratch throughput", SCRATCH, "per_unit_storage_throughput", [None], [50, 200], "lustre-throughput"),
    ("A.1 P1 SSD", P1, "storage_capacity_gib", [1200, 2400, 4800], [1800, 3600, 6000], "lustre-capacity"),
    ("A.1 P1 SSD throughput", P1, "per_unit_storage_throughput", [50, 100, 200], [None, 12, 40, 49, 125, 250],
     "lustre-throughput"),
    ("A.1 P1 HDD 12", HDD, "storage_capacity_gib", [6000, 12000, 102000], [1200, 1800, 5999, 6001, 9000],
     "lustre-capacity"),
    ("A.1 P1 HDD 40", HDD | {"per_unit_storage_throughput": 40}, "storage_capacity_gib", [1800, 3600, 5400],
     [1200, 1799, 2400, 6000], "lustre-capacity"),
    ("A.1 HDD throughput", HDD, "per_unit_storage_throughput", [12], [None, 50, 13], "lustre-throughput"),
    ("A.1 HDD drive cache", HDD, "drive_cache_type", ["NONE", "READ"], [None, "WRITE"], "lustre-drive-cache"),
    ("A.1 SSD drive cache", P1, "drive_cache_type", [None], ["NONE", "READ"], "lustre-drive-cache"),
    ("A.1 storage of P1", P1, "storage_type", ["SSD"], ["INTELLIGENT_TIERING", "NVME"], "lustre-storage-type"),
    ("A.1 storage of scratch", SCRATCH, "storage_type", ["SSD"], ["HDD", "INTELLIGENT_TIERING"], "lustre-storage-type"),
    ("A.1 storage of P2", P2, "storage_type", ["SSD"], ["HDD"], "lustre-storage-type"),
    ("A.1 P2 capacity", P2, "storage_capacity_gib", [1200, 2400, 4800], [600, 1300, 3600], "lustre-capacity"),
    ("A.1 P2 throughput", P2, "per_unit_storage_throughput", [125, 250, 500, 1000], [None, 50, 200, 300, 1001],
     "lustre-throughput"),
    ("A.1 versions of P1", P1, "file_system_type_version", [None, "2.10", "2.12", "2.15"], ["2.11", "2.16", ""],
     "lustre-version"),
    ("A.1 versions of P2", P2 | {"metadata": None}, "file_system_type_version", [None, "2.12", "2.15"], ["2.10", "3"],
     "lustre-version"),
    ("A.1 EFA 125", EFA, "storage_capacity_gib", [38400, 76800], [2400, 4800, 19200, 40800], "lustre-capacity"),
    ("A.1 EFA 250", EFA | {"per_unit_storage_throughput": 250}, "storage_capacity_gib", [19200, 38400], [9600, 21600],
     "lustre-capacity"),
    ("A.1 EFA 500", EFA | {"per_unit_storage_throughput": 500}, "storage_capacity_gib", [9600, 19200], [4800, 12000],
     "lustre-capacity"),
    ("A.1 EFA 1000", EFA | {"per_unit_storage_throughput": 1000}, "storage_capacity_gib", [4800, 9600], [2400, 7200],
     "lustre-capacity"),
    ("A.1 IT capacity", TIERING, "storage_capacity_gib", [None], [1200], "lustre-capacity-elastic"),
    ("A.1 IT throughput per TiB", TIERING, "per_unit_storage_throughput", [None], [125], "lustre-throughput"),
    ("A.1 IT version", TIERING, "file_system_type_version", [None, "2.15"], ["2.12"], "lustre-version-features"),
    ("A.2 one subnet", P2, "subnets", [1], [0, 2], "lustre-subnets"),
    ("A.4 P2 only", P1, "metadata", [None], [AUTOMATIC, PROVISIONED], "lustre-metadata-type"),
    ("A.4 P2 only, scratch", SCRATCH, "metadata", [None], [AUTOMATIC], "lustre-metadata-type"),
    ("A.4 mode", P2, "metadata", [AUTOMATIC], [iops(None, "MANUAL"), MetadataConfiguration()], "lustre-metadata-mode"),
    ("A.4 IOPS", P2, "metadata", [iops(v) for v in (1500, 3000, 6000, 12000, 24000, 180000, 192000)],
     [iops(v) for v in (0, 1499, 1501, 5000, 9000, 13000, 192001, 204000, None, True)], "lustre-metadata-iops"),
    ("A.4 IOPS and AUTOMATIC", P2, "metadata", [AUTOMATIC], [iops(6000, "AUTOMATIC")], "lustre-metadata-iops"),
    ("A.4 IOPS of IT", TIERING, "metadata", [iops(6000), iops(12000), AUTOMATIC], [iops(5000)], "lustre-metadata-iops"),
    *[(f"A.4 not below AUTOMATIC at {capacity}", P2 | {"storage_capacity_gib": capacity}, "metadata",
       [iops(least), iops(192_000), AUTOMATIC], [iops(v) for v in less], "lustre-metadata-iops-minimum")
      for capacity, least, less in [
          (1200, 1500, ()), (2400, 3000, (1500,)), (4800, 6000, (1500, 3000)), (9600, 6000, (3000,)),
          (12000, 12000, (6000,)), (45600, 12000, (6000,)), (48000, 24000, (12000,)), (72000, 36000, (24000,)),
          (1_200_000, 192_000, (180_000,))]],
    ("A.4 no minimum known for IT", TIERING, "metadata", [iops(1500)], [], "lustre-metadata-iops-minimum"),
    ("A.8 from backup", P2, "from_backup", [False, True], [], "lustre-from-backup"),
    ("A.8 scratch from backup", SCRATCH, "from_backup", [False], [True], "lustre-from-backup"),
    ("B.4 export path", P1, "legacy_link", [LegacyLink(import_path="s3://b/p", export_path="s3://b/e")],
     [LegacyLink(import_path="s3://b/p", export_path=v) for v in ("s3://c/e", "b/e")], "lustre-export-path"),
    ("B.4 import bucket", P1, "legacy_link", [LegacyLink(import_path="s3://b.a-1")],
     [LegacyLink(import_path=v) for v in ("s3://Bucket/p", "s3://a_b")], "lustre-import-path-form"),
    ("A.8 log partition", P2 | {"region": US}, "logging",
     [Logging(level="WARN_ONLY", group="/aws/fsx/a", region="us-east-1", partition=v) for v in ("aws", None)],
     [Logging(level="WARN_ONLY", group="/aws/fsx/a", region="us-east-1", partition="aws-cn")], "lustre-log-group"),
    ("A.4 needs 2.15", P2, "file_system_type_version", ["2.15"], ["2.12"], "lustre-version-features"),
    ("A.5 EFA of P1", P1, "efa_enabled", [None, False], [True], "lustre-efa-type"),
    ("A.5 EFA of scratch", SCRATCH, "efa_enabled", [False], [True], "lustre-efa-type"),
    ("A.5 EFA and metadata", EFA, "metadata", [AUTOMATIC, iops(12000)], [None], "lustre-efa-metadata"),
    ("A.5 EFA and IT", TIERING | {"efa_enabled": True, "small_tiering_throughput": True}, "throughput_capacity",
     [4000, 8000], [1000, 2000], "lustre-efa-throughput"),
    ("A.5 EFA switch", P2, "efa_enabled", [False], ["yes"], "lustre-efa-flag"),
    ("A.6 throughput", TIERING, "throughput_capacity", [4000, 8000, 2_000_000],
     [None, 0, 1000, 2000, 3999, 4001, 6000, 2_004_000], "lustre-throughput-capacity"),
    ("A.6 throughput elsewhere", P2, "throughput_capacity", [None], [4000], "lustre-throughput-capacity"),
    ("A.6 throughput, opted in", TIERING | {"small_tiering_throughput": True}, "throughput_capacity",
     [1000, 2000, 4000], [3000, 1500], "lustre-throughput-capacity"),
    ("A.6 read cache", TIERING, "read_cache", [cache(mode="NO_CACHE")], [None, cache(mode="SMALL"), ReadCache()],
     "lustre-read-cache"),
    ("A.6 read cache elsewhere", P2, "read_cache", [None], [cache(mode="NO_CACHE")], "lustre-read-cache"),
    ("A.6 cache size", TIERING, "read_cache", [cache(32), cache(131_072), cache(1000)],
     [cache(31), cache(131_073), cache(None), cache(100, "NO_CACHE")], "lustre-read-cache-size"),
    ("A.6 metadata", TIERING, "metadata", [PROVISIONED], [None], "lustre-tiering-metadata"),
    ("A.8 root squash", P2, "root_squash", [RootSquash(root_squash="0:4294967294")],
     [RootSquash(root_squash=v) for v in ("0", "0:4294967295", "-1:0", "a:b")], "lustre-root-squash"),
    ("A.8 squash exceptions", P2, "root_squash", [RootSquash(no_squash_nids=("x",) * 64)],
     [RootSquash(no_squash_nids=("x",) * 65)], "lustre-root-squash"),
    ("A.8 compression", P2, "data_compression", [None, "NONE", "LZ4"], ["GZIP", "lz4"], "lustre-compression"),
    ("A.8 log level", P2, "logging", [Logging(level=v) for v in ("DISABLED", "WARN_ONLY", "ERROR_ONLY", "WARN_ERROR")],
     [Logging(level="ALL"), Logging()], "lustre-log-level"),
    ("A.8 log group", P2, "logging", [Logging(level="WARN_ONLY", group="/aws/fsx/a")],
     [Logging(level="WARN_ONLY", group="/logs/a"), Logging(level="DISABLED", group="/aws/fsx/a")], "lustre-log-group"),
    ("A.8 log Region", P2 | {"region": US}, "logging",
     [Logging(level="WARN_ONLY", group="/aws/fsx/a", region="us-east-1")],
     [Logging(level="WARN_ONLY", group="/aws/fsx/a", region="us-west-2")], "lustre-log-group"),
    ("A.8 backup days", P2, "backup_retention_days", [None, 0, 1, 90], [-1, 91, 1.5], "lustre-backup-days"),
    ("A.8 backups of scratch", SCRATCH, "backup_retention_days", [None, 0], [1, 90], "lustre-backups"),
    ("A.8 backups of linked", P2 | {"linked": True}, "backup_retention_days", [0], [1], "lustre-backups"),
    ("A.8 tags to backups", P2 | {"linked": True}, "copy_tags_to_backups", [None, False], [True], "lustre-backup-tags"),
    ("A.8 key of scratch", SCRATCH, "encryption_key", [None], ["arn:aws:kms:us-east-1:111122223333:key/a"],
     "lustre-key"),
    ("A.8 network type", P2, "network_type", [None], ["DUAL", "IPV4"], "lustre-network-type"),
    ("A.8 P2 and import path", P2, "legacy_link", [LegacyLink(), LegacyLink(auto_import_policy="NONE")],
     [LegacyLink(import_path="s3://b")], "lustre-import-path"),
    ("A.8 maintenance", P2, "weekly_maintenance_start_time", ["1:00:00", "7:23:59"], ["0:00:00", "8:00:00", "1:24:00"],
     "lustre-maintenance-time"),
    ("A.10 tags", P2, "tags", [0, 50], [51], "lustre-tags"),
    ("B.4 import path form", P1, "legacy_link", [LegacyLink(import_path="s3://b/p", export_path="s3://b/p/e")],
     [LegacyLink(import_path="b/p"), LegacyLink(export_path="s3://b/e")], "lustre-import-path-form"),
    ("B.4 import chunk", P1, "legacy_link", [LegacyLink(import_path="s3://b", imported_file_chunk_size_mib=512_000)],
     [LegacyLink(import_path="s3://b", imported_file_chunk_size_mib=v) for v in (0, 512_001)],
     "lustre-import-chunk-size"),
    ("B.4 import policy", P1, "legacy_link", [LegacyLink(import_path="s3://b", auto_import_policy="NEW")],
     [LegacyLink(import_path="s3://b", auto_import_policy="ALL")], "lustre-import-policy"),
    ("B.4 link and import path", P1 | {"linked": True}, "legacy_link", [LegacyLink()],
     [LegacyLink(import_path="s3://b")], "lustre-two-links"),
]  # fmt: skip

LINKABLE = FileSystem(**P2)

LINK_ROWS: list[tuple[str, dict[str, Any], str, list[Any], list[Any], str]] = [
    ("B path", {}, "file_system_path", ["/", "/ns1", "/ns1/", "/ns1/sub/"],
     ["", "ns1/", "//", "/a//b", "/a\0", "/" + "a" * 4096], "link-path"),
    ("B repository", {}, "data_repository_path", ["s3://b", "s3://b/", "s3://b/p", "s3://b/p/q/"],
     ["", "b/p", "s3:/b", "s3://", "s3://b//p", "s3://data--use1-az4--x-s3/p", "s3://Bucket/p", "s3://a_b/p"],
     "link-prefix"),
    ("B chunk", {}, "chunk_size_mib", [None, 1, 1024, 512_000], [0, -1, 512_001, True, "x"], "link-chunk-size"),
    ("B import events", {}, "import_events", [(), ("NEW",), ("NEW", "CHANGED", "DELETED")],
     [("new",), ("RENAMED",), ("NEW", "NEW")], "link-events"),
    ("B export events", {}, "export_events", [(), ("DELETED",)], [("ALL",)], "link-events"),
    ("B file systems", {}, "file_system",
     [LINKABLE, FileSystem(**HDD | {"file_system_type_version": "2.12"}),
      FileSystem(**SCRATCH | {"file_system_type_version": "2.15"})],
     [FileSystem(deployment_type="SCRATCH_1", storage_capacity_gib=1200, file_system_type_version="2.15"),
      FileSystem(**SCRATCH), FileSystem(**P1), FileSystem(**P1 | {"file_system_type_version": "2.10"}),
      FileSystem(**TIERING)], "link-file-system"),
    ("B.1 Region of import", {"import_events": ("NEW",), "file_system_region": "us-east-1"}, "bucket_region",
     [None, "us-east-1"], ["us-west-2"], "link-import-region"),
    ("B.1 Region of export", {"export_events": ("NEW",), "file_system_region": "us-east-1"}, "bucket_region",
     ["us-west-2"], [], "link-import-region"),
]  # fmt: skip

BUCKET_ROWS: list[tuple[str, dict[str, Any], str, list[Any], list[Any], str]] = [
    ("C suffix", {"zone_id": "use1-az4"}, "name", [None, "data--use1-az4--x-s3"],
     ["mybucket", "data--x-s3", "data-use1-az4-x-s3"], "express-name-suffix"),
    ("C suffix with an unknown zone", {}, "name",
     ["data--${Zone}--x-s3", "${Name}--use1-az4--x-s3", "${Name}--${AWS::Region}-az4--x-s3"],
     ["data-${Zone}--x-s3", "${Name}-data"], "express-name-suffix"),
    ("C characters beside unknown parts", {}, "name", ["a-${Name}--use1-az4--x-s3", "${Name}--use1-az4--x-s3"],
     ["DATA-${Name}--use1-az4--x-s3", "a_${Name}--${Zone}--x-s3", "-${Name}--use1-az4--x-s3"], "express-name"),
    ("C zone in the name", {"zone_id": "use1-az4"}, "name", ["data--use1-az4--x-s3"], ["data--use1-az5--x-s3"],
     "express-name-zone"),
    ("C characters", {"zone_id": "use1-az4"}, "name", ["a--use1-az4--x-s3", "a-1--use1-az4--x-s3"],
     ["A--use1-az4--x-s3", "a.b--use1-az4--x-s3", "-a--use1-az4--x-s3", "xn--a--use1-az4--x-s3"], "express-name"),
    ("C length", {"zone_id": "use1-az4"}, "name", ["a" * 47 + "--use1-az4--x-s3"],
     ["a" * 48 + "--use1-az4--x-s3", "a" * 300 + "--use1-az4--x-s3"], "express-name-length"),
    ("C base length", {"zone_id": "use1-az4", "base_only": True}, "name", ["a" * 47], ["a" * 48],
     "express-name-length"),
    ("C zone id", {}, "zone_id", ["use1-az4", "apne1-az1", "usw2-lax1-az1"], ["us-east-1a", "use1", "USE1-AZ4", ""],
     "express-zone"),
    *[(f"C zones of {region}", {"region": catalog.region(region)}, "zone_id",
       [f"{prefix}-az{n}" for n in offered], [f"{prefix}-az{n}" for n in range(1, 8) if n not in offered],
       "express-zone-region")
      for region, prefix, offered in [
          ("us-east-1", "use1", (4, 5, 6)), ("us-east-2", "use2", (1, 2)), ("us-west-2", "usw2", (1, 3, 4)),
          ("ap-south-1", "aps1", (1, 3)), ("ap-northeast-1", "apne1", (1, 4)), ("eu-west-1", "euw1", (1, 3)),
          ("eu-north-1", "eun1", (1, 2, 3))]],
    *[(f"C no Express in {region}", {"region": catalog.region(region)}, "zone_id", [None], [zone],
     "express-zone-region")
      for region, zone in [("eu-central-1", "euc1-az1"), ("cn-north-1", "cnn1-az1"), ("us-gov-west-1", "usgw1-az1")]],
    ("C redundancy", {"zone_id": "use1-az4"}, "redundancy", ["SingleAvailabilityZone"], ["SingleLocalZone", "None"],
     "express-redundancy"),
    ("C Local Zone", {"zone_id": "usw2-lax1-az1"}, "redundancy", ["SingleLocalZone"], ["SingleAvailabilityZone"],
     "express-redundancy"),
    ("C algorithm", {"kms_key": "k"}, "algorithm", [None, "AES256", "aws:kms"], ["aws:kms:dsse", "none"],
     "express-encryption"),
    ("C customer key", {"algorithm": "aws:kms"}, "kms_key", ["1234abcd-12ab-34cd-56ef-1234567890ab"], [None],
     "express-encryption"),
    ("C bucket key", {"algorithm": "aws:kms", "kms_key": "k"}, "bucket_key", [True, None], [False],
     "express-encryption"),
    ("C key form", {"algorithm": "aws:kms"}, "kms_key", ["arn:aws:kms:us-east-1:111122223333:key/a"],
     ["alias/a", "arn:aws:kms:us-east-1:111122223333:alias/a"], "express-kms-key"),
    ("C lifecycle grant", {"expires": True}, "lifecycle_granted", [True, None], [False], "express-lifecycle-grant"),
    ("C lifecycle", {}, "extra_lifecycle", [()], [("Transitions",), ("TagFilters",)], "express-lifecycle"),
    ("C expiration", {}, "expiration_days", [None, 1, 365], [0, -1, True, 1.5], "express-lifecycle"),
    ("C features", {}, "extra_properties", [()], [("VersioningConfiguration", "WebsiteConfiguration")],
     "express-features"),
]  # fmt: skip

CLIENT_ROWS: list[tuple[str, dict[str, Any], str, list[Any], list[Any], str]] = [
    ("A.5 clients", {"instance_type": "p5.48xlarge"}, "instance_type", ["p5.48xlarge", "p5en.48xlarge",
     "p6-b200.48xlarge"],
     ["p4d.24xlarge", "p4de.24xlarge", "trn2.48xlarge"], "client-generation"),
    ("A.5 GDS clients", {"instance_type": "p5.48xlarge", "gds": True}, "instance_type",
     ["p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge"], ["p4d.24xlarge", "trn2.48xlarge"],
     "client-generation"),
    ("A.5 and M connections", {"instance_type": "p5.48xlarge", "interfaces_per_client": 8}, "instances", [1, 128],
     [129, 256, 2000], "client-connections"),
    ("M script's interfaces", {"instance_type": "p5.48xlarge"}, "instances", [128], [129], "client-connections"),
    ("A.5 zone", {"instance_type": "p5.48xlarge", "file_system_zone_id": "use1-az4"}, "zone_id", [None, "use1-az4"],
     ["use1-az5"], "client-zone"),
    ("A.5 /16", {"instance_type": "p5.48xlarge", "file_system_subnet_cidr": "10.1.0.0/20"}, "subnet_cidr",
     [None, "10.1.240.0/20"], ["10.2.0.0/20", "10.0.255.0/24"], "client-network"),
]  # fmt: skip

CHECKS = [(FileSystem, check_file_system, row) for row in ROWS]
CHECKS += [(Link, check_link, row) for row in LINK_ROWS]  # type: ignore[misc]
CHECKS += [(DirectoryBucket, check_directory_bucket, row) for row in BUCKET_ROWS]  # type: ignore[misc]
CHECKS += [(EfaClients, check_efa_clients, row) for row in CLIENT_ROWS]  # type: ignore[misc]


def assert_well_said(finding: Finding) -> None:
    assert finding.got in finding.message or finding.got[:8] in finding.message
    assert finding.allowed in finding.message
    assert finding.remedy in finding.message
    assert finding.remedy
    assert len(finding.message) <= 200, finding.message
    assert "\n" not in finding.message
    assert re.search(r"[A-Za-z]{3}", finding.source)
    assert finding.rule in rules()


@pytest.mark.parametrize(("kind", "check", "row"), CHECKS, ids=[row[0] for _, _, row in CHECKS])
def test_legal_values_pass(kind: Any, check: Any, row: Any) -> None:
    _, given, name, legal, _, rule = row
    for value in legal:
        findings = check(kind(**given | {name: value}))
        assert [f.message for f in findings if kind is FileSystem or f.rule == rule] == [], value


@pytest.mark.parametrize(("kind", "check", "row"), CHECKS, ids=[row[0] for _, _, row in CHECKS])
def test_their_neighbours_are_refused_with_got_allowed_remedy_and_source(kind: Any, check: Any, row: Any) -> None:
    _, given, name, _, illegal, rule = row
    for value in illegal:
        findings = check(kind(**given | {name: value}))
        assert rule in {f.rule for f in findings}, value
        for finding in findings:
            assert_well_said(finding)


def links(*paths: str) -> list[Link]:
    return [Link(file_system_path=path, data_repository_path=f"s3://bucket{i}/") for i, path in enumerate(paths)]


def beside(link: Link, others: list[Link]) -> list[str]:
    found = check_link_beside(link, others)
    for finding in found:
        assert_well_said(finding)
    return [finding.rule for finding in found]


def test_eight_links_are_legal_and_a_ninth_is_not() -> None:
    made = links(*[f"/{n}" for n in range(8)])
    ninth = Link(file_system_path="/8", data_repository_path="s3://other/")
    assert beside(ninth, made[:7]) == []
    assert beside(ninth, made) == ["link-count"]


@pytest.mark.parametrize(
    ("path", "other", "rule"),
    [
        ("/a", "/b", None),
        ("/a", "/ab", None),
        ("/a/b", "/a/bc", None),
        ("/a", "/a", "link-path-overlap"),
        ("/a", "/a/", "link-path-overlap"),
        ("/a/b", "/a", "link-path-overlap"),
        ("/a", "/a/b/c", "link-path-overlap"),
        ("/", "/a", "link-root"),
        ("/a", "/", "link-root"),
        ("/", "/", "link-root"),
    ],
)
def test_linked_directories_do_not_overlap_and_the_root_is_alone(path: str, other: str, rule: str | None) -> None:
    found = beside(
        Link(file_system_path=path, data_repository_path="s3://one/"),
        [Link(file_system_path=other, data_repository_path="s3://two/")],
    )
    assert found == ([rule] if rule else [])


@pytest.mark.parametrize(
    ("repository", "other", "overlap"),
    [
        ("s3://b/a/", "s3://b/c/", False),
        ("s3://b/a", "s3://b/ab", False),
        ("s3://b/a/", "s3://c/a/", False),
        ("s3://b/a", "s3://b/a/", True),
        ("s3://b", "s3://b/a/", True),
        ("s3://b/a/b/", "s3://b/a", True),
        ("s3://${Bucket}/a/", "s3://${Bucket}/a/b/", True),
        ("s3://${Bucket}/a/", "s3://${Other}/a/", False),
    ],
)
def test_linked_prefixes_do_not_overlap(repository: str, other: str, overlap: bool) -> None:
    found = beside(
        Link(file_system_path="/x", data_repository_path=repository),
        [Link(file_system_path="/y", data_repository_path=other)],
    )
    assert found == (["link-prefix-overlap"] if overlap else [])


@pytest.mark.parametrize(
    ("storage_class", "prefix", "refused"),
    [
        ("GLACIER", "datasets/", True),
        ("DEEP_ARCHIVE", "", True),
        ("GLACIER", "datasets/old/", True),
        ("GLACIER", "archive/", False),
        ("GLACIER_IR", "datasets/", False),
        ("INTELLIGENT_TIERING", "", False),
    ],
)
def test_linked_objects_stay_in_classes_that_can_be_read(storage_class: str, prefix: str, refused: bool) -> None:
    found = check_linked_bucket(
        LinkedBucket(name="lake", prefixes=("datasets/",), transitions=((storage_class, prefix),))
    )
    assert [finding.rule for finding in found] == (["link-glacier"] if refused else [])
    for finding in found:
        assert_well_said(finding)


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"source_vpc_conditions": ("aws:SourceVpce",)}, "link-source-vpc"),
        ({"notifications": "NotificationConfiguration"}, "link-notifications"),
    ],
)
def test_policies_and_notifications_leave_links_alone(facts: dict[str, Any], rule: str) -> None:
    [finding] = check_linked_bucket(LinkedBucket(name="lake", prefixes=(), **facts))
    assert finding.rule == rule
    assert_well_said(finding)
    assert check_linked_bucket(LinkedBucket(name="lake", prefixes=("a/",))) == ()


def test_policies_of_directory_buckets_name_sessions_and_the_bucket() -> None:
    arn = "arn:aws:s3express:us-east-1:111122223333:bucket/data--use1-az4--x-s3"
    assert check_express_policy(ExpressPolicy(actions=("s3express:CreateSession",), resources=(arn,))) == ()
    found = check_express_policy(
        ExpressPolicy(actions=("s3:GetObject",), resources=(f"{arn}/*", "arn:aws:s3:::data--use1-az4--x-s3"))
    )
    assert [finding.allowed[:5] for finding in found] == ["begin", "be th"]
    for finding in found:
        assert_well_said(finding)


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("train--use1-az4--xa-s3", True),
        ("a" * 33 + "--use1-az4--xa-s3", True),
        ("a" * 34 + "--use1-az4--xa-s3", False),
        ("train", False),
        ("Train--use1-az4--xa-s3", False),
    ],
)
def test_access_points_have_the_suffix_and_at_most_50_characters(name: str, legal: bool) -> None:
    found = check_access_point(AccessPoint(name=name))
    assert (found == ()) is legal
    for finding in found:
        assert_well_said(finding)


def test_everything_wrong_is_said_at_once() -> None:
    found = check_file_system(
        FileSystem(
            deployment_type="PERSISTENT_2",
            storage_capacity_gib=1300,
            per_unit_storage_throughput=300,
            efa_enabled=True,
            data_compression="GZIP",
            subnets=2,
        )
    )
    assert [finding.rule for finding in found] == [
        "lustre-throughput",
        "lustre-capacity",
        "lustre-efa-metadata",
        "lustre-subnets",
        "lustre-compression",
    ]


def test_the_minimum_with_efa_comes_with_its_price_where_it_is_known() -> None:
    [finding] = check_file_system(FileSystem(**EFA | {"storage_capacity_gib": 4800, "region": US}))
    assert "38400 cost $5,568 a month" in finding.message
    assert finding.message.endswith("the next is 38400")


def test_values_known_only_at_deployment_pass_and_are_named() -> None:
    from training_storage.planning.legality import UNKNOWN  # noqa: PLC0415

    system = FileSystem(
        deployment_type="PERSISTENT_2",
        storage_capacity_gib=UNKNOWN,
        per_unit_storage_throughput=UNKNOWN,
        metadata=MetadataConfiguration(mode="USER_PROVISIONED", iops=UNKNOWN),
        efa_enabled=UNKNOWN,
    )
    assert check_file_system(system) == ()
    assert system.unknown_fields() == (
        "storage_capacity_gib",
        "per_unit_storage_throughput",
        "metadata.iops",
        "efa_enabled",
    )


def test_a_very_long_value_still_makes_a_short_message() -> None:
    for finding in check_link(Link(file_system_path="x" * 9000, data_repository_path="y\n" * 9000)):
        assert_well_said(finding)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (P2, ()),
        (P1 | {"file_system_type_version": "2.15"}, ("metadata configuration", "EFA and GPUDirect Storage")),
        (P1, ("metadata configuration", "EFA and GPUDirect Storage", "links to S3")),
        (TIERING, ("links to S3", "a fixed capacity", "throughput that can be reduced")),
    ],
)
def test_what_a_type_lacks_is_said(given: dict[str, Any], missing: tuple[str, ...]) -> None:
    assert lacks(FileSystem(**given)) == missing


def test_scratch_lacks_replication_backups_and_keys() -> None:
    assert {"replication", "backups", "a KMS key of your own"} <= set(lacks(FileSystem(**SCRATCH)))


def test_every_rule_has_an_id_a_promise_and_a_source() -> None:
    assert len(rules()) >= 60
    for name, rule in rules().items():
        assert re.fullmatch(r"(lustre|link|express|region|client)(-[a-z0-9]+)+", name)
        assert rule.promise[0].isupper()
        assert not rule.promise.endswith(".")
        assert rule.source


def test_every_rule_of_file_systems_links_and_buckets_is_walked_by_the_tables() -> None:
    walked = {row[5] for _, _, row in CHECKS}
    beside_tables = {"link-count", "link-root", "link-path-overlap", "link-prefix-overlap", "link-glacier"}
    beside_tables |= {"link-source-vpc", "link-notifications", "express-policy", "express-access-point"}
    beside_tables |= {"express-access-point-zone"}
    elsewhere = {"lustre-key-shared", "lustre-efa-security-group"}
    elsewhere |= {"lustre-required", "lustre-file-system-type", "lustre-root-squash-template"}
    elsewhere |= {"link-required", "express-required"}
    regional = {name for name in rules() if name.startswith("region-")}
    assert set(rules()) == walked | beside_tables | elsewhere | regional


def test_an_access_point_names_the_zone_of_its_bucket() -> None:
    for name, zone, legal in (
        ("ab--use1-az4--xa-s3", "use1-az4", True),
        ("ab--use1-az5--xa-s3", "use1-az4", False),
        ("ab--use1-az5--xa-s3", None, True),
        ("ab--${Zone}--xa-s3", "use1-az4", True),
    ):
        found = check_access_point(AccessPoint(name=name, zone_id=zone))
        assert [finding.rule for finding in found] == ([] if legal else ["express-access-point-zone"])


def test_the_root_is_alone_whatever_the_other_path_is() -> None:
    root, unknown = Link(file_system_path="/"), Link(file_system_path=UNKNOWN)
    for one, other in ((root, unknown), (unknown, root), (root, Link()), (Link(file_system_path="${P}"), root)):
        [finding] = check_link_beside(one, [other])
        assert finding.rule == "link-root"
        assert_well_said(finding)


@pytest.mark.parametrize("tier", ["ARCHIVE_ACCESS", "DEEP_ARCHIVE_ACCESS"])
def test_archive_tiers_of_intelligent_tiering_are_refused_like_glacier(tier: str) -> None:
    [finding] = check_linked_bucket(LinkedBucket(name="b", prefixes=("x/",), transitions=((tier, ""),)))
    assert finding.rule == "link-glacier"
    assert_well_said(finding)
    assert check_linked_bucket(LinkedBucket(name="b", prefixes=("x/",), transitions=((tier, "y/"),))) == ()
