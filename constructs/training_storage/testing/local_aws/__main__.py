"""The command: ``python -m training_storage.testing.local_aws``."""

import argparse
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence

from training_storage.testing.local_aws.local_aws import LocalAws, LocalAwsError

_DESCRIPTION = """\
Start a local AWS on 127.0.0.1: S3, EC2, IAM, Lambda, CloudFormation and more from ministack, every other
CloudFormation type from its registry schema, and FSx for Lustre.

Without COMMAND it serves until interrupted and prints the variables to export.
With COMMAND it runs that command with those variables set, stops, and returns the command's exit code."""

_EPILOG = """\
examples:
  python -m training_storage.testing.local_aws
  python -m training_storage.testing.local_aws --port 4566
  python -m training_storage.testing.local_aws -- cdk bootstrap
  python -m training_storage.testing.local_aws -- sh -c 'cdk bootstrap && cdk deploy --all --require-approval never'"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command: list[str] = []
    if "--" in given:
        at = given.index("--")
        given, command = given[:at], given[at + 1 :]
        if not command:
            return _fail("a command must follow --, for example: -- cdk bootstrap")
    options = _parser().parse_args(given)
    # Ended by a supervisor or a closed terminal, the server must stop as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with LocalAws.start(port=options.port, region=options.region, quick=True) as aws:
            return _run(aws, command) if command else _serve(aws)
    except LocalAwsError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training_storage.testing.local_aws",
        usage="%(prog)s [--port N] [--region REGION] [-- COMMAND ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, metavar="N", help="TCP port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--region", default="us-east-1", help="Region of the exported variables (default: %(default)s)")
    return parser


def _run(aws: LocalAws, command: Sequence[str]) -> int:
    try:
        return subprocess.run(command, env=aws.environment(), check=False).returncode
    except OSError as error:
        return _fail(f"cannot run {command[0]}: {error.strerror}")


def _serve(aws: LocalAws) -> int:
    for name, value in aws.settings().items():
        print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - the command's output
    print(f"# serving on {aws.endpoint_url} until interrupted", flush=True)  # noqa: T201 - the command's output
    try:
        aws.wait_until_stopped()
    except KeyboardInterrupt:
        return 0
    return _fail("the server ended by itself")


def _fail(message: str) -> int:
    print(f"local AWS: {message}", file=sys.stderr)  # noqa: T201 - the command's output
    return 2


if __name__ == "__main__":
    sys.exit(main())
