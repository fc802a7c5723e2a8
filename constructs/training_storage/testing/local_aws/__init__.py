"""A local AWS for tests: ministack, the CloudFormation types it lacks, and FSx for Lustre."""

from training_storage.testing.local_aws.local_aws import LocalAws, LocalAwsError, LocalAwsMissingError, check_loopback

__all__ = ["LocalAws", "LocalAwsError", "LocalAwsMissingError", "check_loopback"]
