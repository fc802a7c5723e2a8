"""Deploy `TrainingStorage -c instances=256` into the local AWS, show what stands, destroy it, show that the lake stays.

Run by `make demo`, inside the environment that `python -m training_storage.testing.local_aws` sets. It refuses to talk
to anything but a loopback endpoint.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import boto3

from training_storage.testing.local_aws import check_loopback

ROOT = Path(__file__).resolve().parents[1]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
STACK = "TrainingStorage"
# Lines of the CDK CLI that tell of one resource or one asset.
EVENT = re.compile(r" \| .* \| [A-Z_]+ +\| ")
ASSET = re.compile(r"[\w-]+: (start|success): ")
INSTANCES = os.environ.get("INSTANCES", "256")


def main() -> int:
    """Run the demo; return 0 if everything that it claims was seen to be so."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    check_loopback(endpoint)
    with tempfile.TemporaryDirectory() as output:
        title("1. Plan: which tiers, why, how large")
        show_plan()
        title(f"2. Deploy into the local AWS at {endpoint}")
        # Away from the app, which the CLI would synthesize first.
        cdk(
            "bootstrap",
            f"aws://{os.environ['CDK_DEFAULT_ACCOUNT']}/{os.environ['CDK_DEFAULT_REGION']}",
            quiet=True,
            folder=output,
        )
        cdk(
            "deploy",
            STACK,
            "-c",
            f"instances={INSTANCES}",
            "--require-approval",
            "never",
            "--output",
            output,
        )
        title("3. What CloudFormation and the services say stands")
        systems = show_what_stands(endpoint)
        title("4. Destroy the job: file systems by hand, after an export (docs/deleting.md), then the stack")
        for system in systems:
            delete_file_system(endpoint, system["FileSystemId"])
        cdk("destroy", STACK, "--force", "--output", output, quiet=True)
        title("5. What is left")
        return show_what_is_left(endpoint)


def show_plan() -> None:
    """Print the plan's tiers and sizes with their reasons; `training-storage plan` prints all of it."""
    command = ["training-storage", "plan", "--instances", INSTANCES]
    report = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    say(report.split("\nDemand\n")[0])


def title(text: str) -> None:
    """Print a heading."""
    say(f"\n=== {text}")


def say(text: str) -> None:
    """Print a line at once, so that it keeps its place among the CLI's."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def cdk(*arguments: str, quiet: bool = False, folder: str | None = None) -> None:
    """Run the pinned CDK CLI; show what it says but for single resources, or nothing of it where `quiet`."""
    result = subprocess.run(
        [str(CDK), *arguments, "--no-color", "--no-notices"],
        cwd=folder or ROOT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if result.returncode:
        sys.exit(f"demo: cdk {arguments[0]} failed with {result.returncode}\n{result.stdout}")
    if quiet:
        say(f"cdk {arguments[0]}: done")
        return
    lines = result.stdout.splitlines()
    events = [line for line in lines if EVENT.search(line)]
    say("\n".join(line for line in lines if line not in events and not ASSET.match(line)))
    created = [line for line in events if "CREATE_COMPLETE" in line and "AWS::CloudFormation::Stack" not in line]
    say(f"({len(created)} resources created, each with an event of its own)")


def client(endpoint: str, service: str) -> Any:  # noqa: ANN401 -- boto3 clients have no static type
    """Return a client whose endpoint is stated, never looked up."""
    return boto3.client(service, endpoint_url=endpoint)


def show_what_stands(endpoint: str) -> list[dict[str, Any]]:
    """Print stacks, file systems, links, directory buckets and clusters; return the file systems."""
    for stack in client(endpoint, "cloudformation").describe_stacks()["Stacks"]:
        say(f"stack {stack['StackName']}: {stack['StackStatus']}")
    fsx = client(endpoint, "fsx")
    systems: list[dict[str, Any]] = fsx.describe_file_systems()["FileSystems"]
    for system in systems:
        lustre = system["LustreConfiguration"]
        say(
            f"file system {system['FileSystemId']}: {system['Lifecycle']}, {system['StorageCapacity']:,} GiB"
            f" {lustre['DeploymentType']} at {lustre['PerUnitStorageThroughput']} MB/s per TiB,"
            f" Lustre {system['FileSystemTypeVersion']}"
        )
    for link in fsx.describe_data_repository_associations()["Associations"]:
        say(f"  {link['FileSystemPath']:<14} <-> {link['DataRepositoryPath']} ({link['Lifecycle']})")
    for bucket in client(endpoint, "s3").list_directory_buckets()["Buckets"]:
        say(f"directory bucket {bucket['Name']}")
    for group in client(endpoint, "autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]:
        say(
            f"cluster {group['AutoScalingGroupName']}: {group['DesiredCapacity']} of {group['MaxSize']} nodes running"
            " (starting them is an act of its own)"
        )
    show_slurm(endpoint)
    return systems


def show_slurm(endpoint: str) -> None:
    """Print the node groups of AWS PCS and the way in, from what CloudFormation has deployed."""
    cloudformation = client(endpoint, "cloudformation")
    standing = {
        resource["LogicalResourceId"]
        for resource in cloudformation.describe_stack_resources(StackName=STACK)["StackResources"]
        if resource["ResourceType"] == "AWS::PCS::ComputeNodeGroup" and resource["ResourceStatus"] == "CREATE_COMPLETE"
    }
    template = cloudformation.get_template(StackName=STACK)["TemplateBody"]
    resources = (json.loads(template) if isinstance(template, str) else template)["Resources"]
    for identifier in sorted(standing):
        group = resources[identifier]["Properties"]
        scaling = group["ScalingConfiguration"]
        say(
            f"Slurm node group {group['Name']}: {scaling['MinInstanceCount']} to {scaling['MaxInstanceCount']} nodes"
            f" of {group['InstanceConfigs'][0]['InstanceType']}"
        )
    outputs = cloudformation.describe_stacks(StackName=STACK)["Stacks"][0]["Outputs"]
    for output in outputs:
        if output["OutputKey"] in {"StartSessionCommand", "StartNodesCommand"}:
            say(f"{output['OutputKey']}: {output['OutputValue']}")


def delete_file_system(endpoint: str, identifier: str) -> None:
    """Delete a file system as docs/deleting.md says, and wait until it is gone."""
    fsx = client(endpoint, "fsx")
    filters = [{"Name": "file-system-id", "Values": [identifier]}]
    wait_until(
        lambda: all(
            task["Lifecycle"] not in {"PENDING", "EXECUTING"}
            for task in fsx.describe_data_repository_tasks(Filters=filters)["DataRepositoryTasks"]
        )
    )
    fsx.delete_file_system(FileSystemId=identifier)
    wait_until(
        lambda: identifier not in {system["FileSystemId"] for system in fsx.describe_file_systems()["FileSystems"]}
    )
    say(f"file system {identifier} and its links: deleted through the FSx API")


def wait_until(condition: Any) -> None:  # noqa: ANN401 -- any callable that says true at last
    """Poll for at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("demo: timed out")
        time.sleep(0.1)


def show_what_is_left(endpoint: str) -> int:
    """Print what is left; return 0 if that is the lake, whole, and nothing of the job."""
    stacks = {
        stack["StackName"]: stack["StackStatus"]
        for stack in client(endpoint, "cloudformation").describe_stacks()["Stacks"]
    }
    s3 = client(endpoint, "s3")
    lakes = [b["Name"] for b in s3.list_buckets()["Buckets"] if b["Name"].startswith("training-data-lake-")]
    for lake in lakes:
        say(f"data lake s3://{lake}: still there, versioning {s3.get_bucket_versioning(Bucket=lake)['Status']}")
    for home in client(endpoint, "efs").describe_file_systems()["FileSystems"]:
        say(f"home file system {home['FileSystemId']}: files of people, kept (-c home_file_system_id= brings it back)")
    say(f"stacks: {', '.join(f'{name} ({status})' for name, status in stacks.items())}")
    whole = len(lakes) == 1 and stacks.get("TrainingDataLake") == "CREATE_COMPLETE" and STACK not in stacks
    say("\nThe job is gone, the lake is still there." if whole else "\ndemo: the lake is not as it should be")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
