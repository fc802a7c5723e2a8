"""Links: legal, one after another, never deleted by CloudFormation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from training_storage import ConstructError, DataLake, DataRepositoryAssociation, LustreFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from aws_cdk import Stack
    from aws_cdk import aws_ec2 as ec2

    Synthesize = Callable[[Stack], Any]


class Linker:
    """Makes links on one file system."""

    def __init__(self, stack: Stack, vpc: ec2.Vpc) -> None:
        self.stack = stack
        self.lake = DataLake(stack, "Lake")
        self.file_system = LustreFileSystem(
            stack,
            "FileSystem",
            vpc=vpc,
            subnet=vpc.private_subnets[0],
            storage_capacity_gib=1200,
            per_unit_storage_throughput=125,
        )

    def link(self, path: str = "/datasets", prefix: str = "datasets/", **options: Any) -> DataRepositoryAssociation:
        return DataRepositoryAssociation(
            self.stack,
            f"Link{len(self.file_system.links)}",
            file_system=self.file_system,
            file_system_path=path,
            data_lake=options.pop("data_lake", self.lake),
            prefix=prefix,
            **options,
        )


@pytest.fixture
def linker(stack: Stack, vpc: ec2.Vpc) -> Linker:
    return Linker(stack, vpc)


def test_links_are_made_one_after_another_and_after_the_lakes_policies(
    linker: Linker, stack: Stack, resources: Synthesize
) -> None:
    for name in ("datasets", "checkpoints", "logs"):
        linker.link(f"/{name}", f"{name}/")
    template = resources(stack)
    links = template.of_type("AWS::FSx::DataRepositoryAssociation")
    policies = set(template.of_type("AWS::S3::BucketPolicy")) | set(template.of_type("AWS::KMS::Key"))
    ordered = sorted(links)
    for previous, current in zip([None, *ordered], ordered, strict=False):
        assert policies <= set(links[current]["DependsOn"])
        if previous:
            assert previous in links[current]["DependsOn"]


def test_cloudformation_never_deletes_a_link(linker: Linker, stack: Stack, resources: Synthesize) -> None:
    linker.link()
    link = resources(stack).one("AWS::FSx::DataRepositoryAssociation")
    assert link["DeletionPolicy"] == "RetainExceptOnCreate"
    assert link["UpdateReplacePolicy"] == "Retain"


def test_events_become_policies_and_none_become_no_policy(linker: Linker, stack: Stack, resources: Synthesize) -> None:
    linker.link("/a", "a/", import_events=["NEW", "DELETED"], export_events=["CHANGED"])
    linker.link("/b", "b/")
    links = resources(stack).of_type("AWS::FSx::DataRepositoryAssociation").values()
    by_path = {link["Properties"]["FileSystemPath"]: link["Properties"] for link in links}
    assert by_path["/a"]["S3"] == {
        "AutoImportPolicy": {"Events": ["NEW", "DELETED"]},
        "AutoExportPolicy": {"Events": ["CHANGED"]},
    }
    assert "S3" not in by_path["/b"]


@pytest.mark.parametrize("path", ["datasets", "ns1/", "", "//", "/a//b", "a/b", "/a\0"])
def test_a_path_that_is_not_absolute_is_refused(linker: Linker, path: str) -> None:
    with pytest.raises(ConstructError, match=r"file_system_path must be an absolute directory .*got: "):
        linker.link(path)


@pytest.mark.parametrize("prefix", ["datasets", "/datasets/", "a//", "/"])
def test_a_prefix_of_the_wrong_form_is_refused(linker: Linker, prefix: str) -> None:
    with pytest.raises(ConstructError, match=r"prefix must be a path that ends with a slash .*got: "):
        linker.link(prefix=prefix)


@pytest.mark.parametrize(
    ("first", "second"),
    [("/a", "/a"), ("/a", "/a/"), ("/a", "/a/b"), ("/a/b", "/a"), ("/a/b/", "/a/b/c")],
)
def test_overlapping_paths_are_refused(linker: Linker, first: str, second: str) -> None:
    linker.link(first, "x/")
    with pytest.raises(ConstructError, match="must not lie within or around another linked path"):
        linker.link(second, "y/")


@pytest.mark.parametrize(("first", "second"), [("/ab", "/a"), ("/a", "/ab"), ("/a/b", "/a/bc")])
def test_paths_that_only_begin_alike_are_allowed(linker: Linker, first: str, second: str) -> None:
    linker.link(first, "x/")
    assert linker.link(second, "y/").file_system_path == second


@pytest.mark.parametrize(("first", "second"), [("/", "/a"), ("/a", "/")])
def test_the_root_is_linked_alone_or_not_at_all(linker: Linker, first: str, second: str) -> None:
    linker.link(first, "x/")
    with pytest.raises(ConstructError, match="'/' must be the only data repository association"):
        linker.link(second, "y/")


@pytest.mark.parametrize(("first", "second"), [("a/", "a/"), ("a/", "a/b/"), ("a/b/", "a/"), ("", "a/")])
def test_overlapping_prefixes_of_one_lake_are_refused(linker: Linker, first: str, second: str) -> None:
    linker.link("/x", first)
    with pytest.raises(ConstructError, match="must not lie within or around another linked prefix"):
        linker.link("/y", second)


def test_the_same_prefix_of_two_lakes_is_allowed(linker: Linker, stack: Stack) -> None:
    linker.link("/x", "a/")
    assert linker.link("/y", "a/", data_lake=DataLake(stack, "Other", bucket_name_prefix="other")).prefix == "a/"


def test_a_ninth_link_is_refused(linker: Linker) -> None:
    for number in range(8):
        linker.link(f"/{number}", f"{number}/")
    with pytest.raises(ConstructError, match="at most 8 data repository associations"):
        linker.link("/8", "8/")


@pytest.mark.parametrize("events", [["new"], ["NEW", "RENAMED"], "NEW", ["NEW", "NEW"]])
@pytest.mark.parametrize("direction", ["import_events", "export_events"])
def test_events_that_fsx_does_not_know_are_refused(linker: Linker, direction: str, events: Any) -> None:
    with pytest.raises(ConstructError, match=f"{direction} must"):
        linker.link(**{direction: events})


@pytest.mark.parametrize("size", [0, -1, 512_001, True])
def test_a_chunk_size_outside_the_limits_is_refused(linker: Linker, size: int) -> None:
    with pytest.raises(ConstructError, match="imported_file_chunk_size_mib must be a whole number from 1 to 512000"):
        linker.link(imported_file_chunk_size_mib=size)


def test_a_refused_link_leaves_nothing_behind(linker: Linker, stack: Stack, resources: Synthesize) -> None:
    with pytest.raises(ConstructError):
        linker.link("relative")
    linker.link()
    assert len(resources(stack).of_type("AWS::FSx::DataRepositoryAssociation")) == 1


def test_everything_wrong_with_a_link_is_said_at_once(linker: Linker) -> None:
    linker.link("/a", "a/")
    with pytest.raises(ConstructError) as refused:
        linker.link("/a/b", "a/b/", import_events=["SOON"], imported_file_chunk_size_mib=0)
    assert [finding.rule for finding in refused.value.findings] == [
        "link-chunk-size",
        "link-events",
        "link-path-overlap",
        "link-prefix-overlap",
    ]


def test_a_file_system_with_backups_is_not_linked(linker: Linker, stack: Stack, vpc: ec2.Vpc) -> None:
    linker.file_system = LustreFileSystem(
        stack,
        "Backed",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        storage_capacity_gib=1200,
        per_unit_storage_throughput=125,
        automatic_backup_retention_days=7,
    )
    with pytest.raises(ConstructError, match="automatic_backup_retention_days must .*got: 7"):
        linker.link()


def test_a_link_can_leave_out_what_cannot_change_any_more(linker: Linker, stack: Stack, resources: Synthesize) -> None:
    linker.link(batch_import_metadata_on_create=None)
    properties = resources(stack).one("AWS::FSx::DataRepositoryAssociation")["Properties"]
    assert "BatchImportMetaDataOnCreate" not in properties


def test_its_arn_is_for_policies_that_name_it(linker: Linker, stack: Stack) -> None:
    link = linker.link()
    assert "ResourceARN" in str(stack.resolve(link.resource_arn))
    assert link.bucket is linker.lake.bucket
    assert link.data_lake is linker.lake
