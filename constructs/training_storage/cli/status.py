"""``training-storage status``: what stands, what it costs, and what would be lost if it were destroyed now."""

from __future__ import annotations

import datetime as dt
import json
import sys
from typing import TYPE_CHECKING

from training_storage.cli.parser import OK, Verbs, say

if TYPE_CHECKING:
    import argparse

_ATTENTION = 1
_OPTIONS = ["--job", "--region", "--json"]


def add_verb(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "status",
        help="show what stands, what it costs, and what would be lost if it were destroyed now",
        description="Show the stacks, file systems, links, tasks, buckets and nodes of training jobs, what they cost, "
        "and what would be lost if everything were destroyed now. Reads only. Exit code 0: all is well and everything "
        "could be read; 1: something needs attention or could not be read, which the answer says; 2: bad input.",
        allow_abbrev=False,
    )
    parser.add_argument("--job", metavar="NAME", help="only this job; default is the one without a name")
    parser.add_argument("--region", metavar="REGION", help="the Region; the caller's if left out")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.set_defaults(run=_run, options=_OPTIONS)


def _run(arguments: argparse.Namespace) -> int:
    # Only the verbs that talk to AWS load boto3.
    from training_storage.operations import (  # noqa: PLC0415
        aws_calls,
        status,
        status_health,
        status_json,
        status_text,
    )

    region = aws_calls.region_of(arguments.region)
    found = status.read_status(
        aws_calls.clients(region), region=region, job=arguments.job, now=dt.datetime.now(tz=dt.UTC)
    )
    if arguments.json:
        text = json.dumps(status_json.status_document(found), indent=2) + "\n"
    else:
        text = "\n".join(status_text.status_lines(found)) + "\n"
    say(sys.stdout, text)
    sys.stdout.flush()
    return OK if status_text.is_whole(found) and not status_health.problems(found) else _ATTENTION
