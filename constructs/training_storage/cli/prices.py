"""``training-storage prices refresh``: read a Region's prices from AWS into a file that plans take."""

from __future__ import annotations

import datetime as dt
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from training_storage.cli.parser import OK, PROGRAM, Parser, Verbs, write_whole
from training_storage.planning import DEFAULT_REGION, catalog

if TYPE_CHECKING:
    import argparse

_NO_LIST = 1
_REGION_VARIABLES = ("CDK_DEFAULT_REGION", "AWS_REGION")


def add_verb(verbs: Verbs) -> None:
    """Add the verb `prices` with its one action."""
    parser = verbs.add_parser("prices", help="read today's prices into a file that plans take", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    refresh = actions.add_parser(
        "refresh",
        help="ask the AWS Price List for the prices of a Region",
        description="Ask the AWS Price List for the prices of a Region. Needs credentials that may call "
        "pricing:GetProducts. A plan takes the file with --prices FILE or -c prices=FILE.",
        allow_abbrev=False,
    )
    refresh.add_argument("--region", metavar="REGION", help="the Region; the caller's if left out")
    refresh.add_argument("--out", metavar="FILE", help="write to FILE instead of standard output")
    refresh.add_argument("--force", action="store_true", help="let --out replace an existing file")
    refresh.set_defaults(run=_refresh, options=["--region", "--out", "--force"])


def _refresh(arguments: argparse.Namespace) -> int:
    # Only this verb talks to AWS: no other may load boto3.
    from training_storage.operations.price_list import PriceListError, refreshed_prices  # noqa: PLC0415

    named = arguments.region or next((os.environ[name] for name in _REGION_VARIABLES if os.environ.get(name)), None)
    region = catalog.region(named or DEFAULT_REGION)
    try:
        found = refreshed_prices(region=region, today=dt.datetime.now(tz=dt.UTC).date())
    except PriceListError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return _NO_LIST
    if arguments.out is None:
        sys.stdout.write(found.text)
        sys.stdout.flush()
    else:
        write_whole(Path(arguments.out), found.text, force=arguments.force)
    for note in found.notes:
        sys.stderr.write(f"{PROGRAM}: {note}\n")
    return OK
