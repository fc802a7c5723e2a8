"""What AWS accepts of FSx for Lustre, its links and S3 Express: every limit as a rule with its source."""

from training_storage.planning.legality.buckets import bucket_facts, policy_facts
from training_storage.planning.legality.clients import EfaClients
from training_storage.planning.legality.engine import (
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
from training_storage.planning.legality.express import AccessPoint, DirectoryBucket, ExpressPolicy
from training_storage.planning.legality.finding import UNKNOWN, Finding, Rule, Unknown
from training_storage.planning.legality.links import Link, LinkedBucket
from training_storage.planning.legality.lustre_spec import (
    FileSystem,
    LegacyLink,
    Logging,
    MetadataConfiguration,
    ReadCache,
    RootSquash,
)
from training_storage.planning.legality.plans import check_plan
from training_storage.planning.legality.properties import read_directory_bucket, read_file_system, read_link
from training_storage.planning.legality.template import TemplateFinding, TemplateReport, check_template

__all__ = [
    "UNKNOWN",
    "AccessPoint",
    "DirectoryBucket",
    "EfaClients",
    "ExpressPolicy",
    "FileSystem",
    "Finding",
    "LegacyLink",
    "Link",
    "LinkedBucket",
    "Logging",
    "MetadataConfiguration",
    "ReadCache",
    "RootSquash",
    "Rule",
    "TemplateFinding",
    "TemplateReport",
    "Unknown",
    "bucket_facts",
    "check_access_point",
    "check_directory_bucket",
    "check_efa_clients",
    "check_express_policy",
    "check_file_system",
    "check_link",
    "check_link_beside",
    "check_linked_bucket",
    "check_plan",
    "check_template",
    "lacks",
    "policy_facts",
    "read_directory_bucket",
    "read_file_system",
    "read_link",
    "rules",
]
