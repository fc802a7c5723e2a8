"""The command ``training-storage``: one module a verb."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from training_storage.cli.parser import OK, PROGRAM, Parser, refuse_unknown, say
from training_storage.planning import NoTierError, PlanningError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DISTRIBUTION = "training-storage"
#: The verbs, each a module of this package. Only the one that was asked for is loaded: a plan starts fast.
_VERBS = {
    "plan": "plan the storage of a training job",
    "prices": "read today's prices into a file that plans take",
    "check": "check templates, cloud assemblies and plans against what AWS accepts",
    "archive": "bring the checkpoints worth keeping into the lake",
    "status": "show what stands, what it costs, and what would be lost if it were destroyed now",
    "release": "free the space of files that are in the lake already; deletes nothing",
    "park": "bring a job's data into the lake, then let its nodes, hot storage and stack go",
    "shards": "pack small files into large shards that loaders read fast",
    "checkpoint": "publish, restore and list finished checkpoints",
    "verify": "try every place of the storage contract from this node: rights, conditional writes, speed",
}
_BAD_INPUT, _NO_TIER = 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv
        Arguments without the program's name; those of the process if None.

    Returns
    -------
    int
        What the verb says; 2 for bad input, 3 where no tier can serve the job. Errors are one line on stderr.
    """
    try:
        arguments = _parse(sys.argv[1:] if argv is None else list(argv))
        run: int = arguments.run(arguments)
    except NoTierError as error:
        return _fail(error, _NO_TIER)
    except PlanningError as error:
        return _fail(error, _BAD_INPUT)
    except BrokenPipeError:
        # The reader has seen enough.
        _drop_output()
        return OK
    except OSError as error:
        _drop_output()
        return _fail(f"the answer cannot be written ({error.strerror or error}).", _BAD_INPUT)
    return run


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog=PROGRAM, description="From one number to the right training storage on AWS.", allow_abbrev=False
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    for verb, words in _VERBS.items():
        if argv[:1] == [verb]:
            importlib.import_module(f"{__name__}.{verb}").add_verb(verbs)
        else:
            verbs.add_parser(verb, help=words)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        refuse_unknown(unknown[0], arguments)
    return arguments


class _Version(argparse.Action):
    """Prints the version; only then are the distribution's metadata loaded, which takes longer than a plan."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and exit."""
        sys.stdout.write(f"{PROGRAM} {_version()}\n")
        parser.exit()


def _version() -> str:
    """Return the installed version; a source tree on the path has none."""
    from importlib import metadata  # noqa: PLC0415 -- see _Version

    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _drop_output() -> None:
    """Point stdout nowhere: without this the interpreter complains again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(error: PlanningError | str, code: int) -> int:
    say(sys.stderr, f"{PROGRAM}: {' '.join(str(error).split())}\n")
    return code
