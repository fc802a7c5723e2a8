"""The entry points of the Lambda function: CDK's provider framework calls one once and the other until it is true."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
from typing import Any

import boto3
from botocore.config import Config

from .calls import Calls
from .gate import Gate
from .lifecycle import Lifecycle
from .metrics import Metrics
from .report import Reports

logging.getLogger().setLevel(logging.INFO)
# Throttling is ridden out here for a while, and after that by the next poll.
_CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "max_attempts": 5})


def on_event(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Begin to answer an event of CloudFormation."""
    return _lifecycle().begin(event)


def is_complete(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Go on with it; an exception's text is the reason that CloudFormation shows."""
    return {"IsComplete": _lifecycle().finished(event)}


@functools.cache
def _lifecycle() -> Lifecycle:
    def client(service: str) -> Any:  # noqa: ANN401 - boto3 clients have no type
        return boto3.client(service, config=_CONFIG)

    tag = os.environ["GATE_TAG"]
    calls = Calls(fsx=client("fsx"), s3=client("s3"), cloudformation=client("cloudformation"))
    metrics = Metrics(
        cloudwatch=client("cloudwatch"), clock=_now, period_seconds=int(os.environ["METRIC_PERIOD_SECONDS"])
    )
    gate = Gate(
        calls=calls,
        metrics=metrics,
        reports=Reports(calls=calls, uri=os.environ["REPORT_URI"]),
        clock=_now,
        pause_seconds=float(os.environ["POLL_SECONDS"]) / 3,
    )
    wait = dt.timedelta(seconds=int(os.environ["WAIT_SECONDS"]))
    return Lifecycle(gate=gate, calls=calls, metrics=metrics, tag=tag, wait=wait, clock=_now)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
