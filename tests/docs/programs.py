"""What becomes of each program that the pages call: it runs, or what is typed is held to what the program takes."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from tests.docs import aws_command
from tests.docs.blocks import ROOT
from tests.docs.shell_words import commands
from training_storage.cli import _parse, main
from training_storage.testing.local_aws import __main__ as local_aws_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.docs.aws_command import AwsCommand
    from tests.docs.surroundings import Surroundings

#: Programs that only a node of the job has, or the network around it.
NODE_PROGRAMS = frozenset({"cat", "date", "findmnt", "fio", "lnetctl", "sacct", "sinfo", "sleep", "squeue", "srun"})
#: Programs that are held to what they take instead of being run, each with its reason.
NOT_RUN: Mapping[str, str] = {
    "pip": "an installation would change the environment that the tests run in; package and extras must be ours",
    "make": "its targets are the tests themselves; the target must exist",
    "cdk": "the CLI takes seconds of a core for each call, and tests/local_aws deploys with it; command, options, "
    "context and stack must be right: the app is synthesized with them",
    "python -m training_storage.testing.local_aws": "tests/local_aws start it; options and command must be right",
    ".": "it changes nothing but the reader's shell",
    "pytest": "tests of an example; tests/packaging run them in an environment of their own",
    "mypy": "likewise",
}
#: Services that the local AWS has not.
NOT_LOCAL = frozenset({"ce", "service-quotas"})
#: A verb says by exit code 1 that something needs attention.
ATTENTION = frozenset({"status", "check", "verify"})
#: A park takes the job with it: the overview's goes to the end, those of other pages say what they would do.
ENDS_THE_JOB = "README.md"
_SHELL = frozenset({"cat", "cd", "cp", "echo", "ls", "mkdir"})
_LOCAL_AWS = ["-m", "training_storage.testing.local_aws"]
_REGISTRY = ROOT / "node_modules" / "aws-cdk" / "lib" / "cli" / "cli-type-registry.json"


class PageError(AssertionError):
    """A page shows what does not work; one line."""


def run(words: Sequence[str], surroundings: Surroundings) -> str:
    """Run one command; return what it printed.

    Raises
    ------
    PageError
        If it fails, or is none that a page may show.
    """
    words = ["python" if words[0] == "python3" else words[0], *words[1:]]
    program, *arguments = words
    if program == "training-storage":
        ends = arguments[0] == "park" and surroundings.page != ENDS_THE_JOB
        return _run_ours([*arguments, "--dry-run"] if ends and "--dry-run" not in arguments else arguments)
    if program in _SHELL and not any(word.startswith("/") for word in arguments):
        return _run_here(words)
    check(words)
    if program == "aws" and arguments[0] not in NOT_LOCAL:
        return _run_aws(arguments, surroundings)
    if program == "cdk":
        return surroundings.cdk(arguments)
    if program in NODE_PROGRAMS:
        raise PageError(f"{program} runs on nodes only: the block needs a label")
    within = _within(arguments) if arguments[:2] == _LOCAL_AWS and surroundings.aws is not None else []
    return "".join(run(inner, surroundings) for inner in within)


def _run_aws(arguments: list[str], surroundings: Surroundings) -> str:
    command = _aws(arguments)
    if command is None:
        raise PageError(f"aws {arguments[0]} is no operation of an API: the block needs a label")
    printed = command.run(surroundings.client)
    surroundings.settle()
    return printed


def _run_here(words: list[str]) -> str:
    """Run a command that only looks at, or makes, what is in the reader's folder."""
    if words[0] == "cd":
        os.chdir(words[1])
        return ""
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if ended.returncode:
        raise PageError(f"{shlex.join(words)}: {ended.stderr.strip()}")
    return ended.stdout


def check(words: Sequence[str]) -> None:
    """Hold one command to what its program takes.

    Raises
    ------
    PageError
        If the program would refuse it, or is none that a page may show.
    """
    program, *arguments = words
    program = "python" if program == "python3" else program
    checks: dict[str, Callable[[list[str]], object]] = {
        "training-storage": _check_ours,
        "aws": _aws,
        "cdk": _check_cdk,
        "pip": _check_pip,
        "make": _check_make,
        "python": _check_python,
        "sbatch": _check_sbatch,
        "pytest": lambda words: _only(words, allowed=("--snapshot-update",)),
        "mypy": lambda words: _only(words, allowed=()),
        ".": _check_activation,
        "export": _check_export,
    }
    if program in checks:
        checks[program](arguments)
    elif program not in NODE_PROGRAMS:
        raise PageError(f"nothing here knows the program {program!r}")


def _run_ours(arguments: list[str]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = main(arguments)
    if code not in ((0, 1) if arguments[0] in ATTENTION else (0,)):
        raise PageError(f"training-storage {shlex.join(arguments)} ended with {code}:\n{printed.getvalue()}")
    return printed.getvalue()


def _check_ours(arguments: list[str]) -> None:
    try:
        _parse(arguments)
    except ValueError as error:
        raise PageError(str(error)) from None


def _aws(arguments: list[str]) -> AwsCommand | None:
    service, *rest = arguments
    if service == "configure":
        if rest[:1] != ["set"] or len(rest) != 3:
            raise PageError(f"aws configure takes set NAME VALUE here, got: {rest}")
        return None
    if service == "s3":
        operands = {"ls": 1, "cp": 2, "rm": 1, "sync": 2}
        plain = [word for word in rest[1:] if not word.startswith("--")]
        if rest[0] not in operands or len(plain) != operands[rest[0]]:
            raise PageError(f"aws s3 takes no such words: {rest}")
        return None
    try:
        return aws_command.parse(["s3" if service == "s3api" else service, *rest])
    except ValueError as error:
        raise PageError(str(error)) from None


@functools.cache
def _registry() -> dict[str, Any]:
    registry: dict[str, Any] = json.loads(_REGISTRY.read_text(encoding="utf-8"))
    return registry


def _check_cdk(arguments: list[str]) -> None:
    command, *rest = arguments
    known = {"ls": "list", "synthesize": "synth", "ack": "acknowledge"}.get(command, command)
    if known not in _registry()["commands"]:
        raise PageError(f"cdk has no command {command!r}")
    options = {**_registry()["globalOptions"], **_registry()["commands"][known].get("options", {})}
    aliases = {name: name for name in options}
    for name, option in options.items():
        aliases |= dict.fromkeys([option["alias"]] if isinstance(option.get("alias"), str) else [], name)
    for word in rest:
        if not word.startswith("-"):
            continue
        name = word.lstrip("-").partition("=")[0].removeprefix("no-")
        if name not in aliases:
            raise PageError(f"cdk {command} has no option {word!r}")


def _check_pip(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if arguments[0] not in ("install", "wheel"):
        raise PageError(f"pip is shown for installing only, got: {arguments}")
    for word in arguments[1:]:
        # What the reader has put into a variable is a file of the package.
        if word.startswith(("-", "$")) or word.endswith(".txt"):
            continue
        # A checkout, with its extras.
        requirement = Requirement(word.replace(".", "training-storage", 1) if word.startswith(".") else word)
        known = {"training-storage", *(Requirement(text).name for text in project["dependencies"])}
        if requirement.name not in known:
            raise PageError(f"pip install names {requirement.name}, which is none of {sorted(known)}")
        if requirement.extras - set(project["optional-dependencies"]):
            raise PageError(f"{word} names an extra that the package has not")


def _check_make(arguments: list[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for word in arguments:
        if "=" not in word and word not in targets:
            raise PageError(f"the Makefile has no target {word!r}")


def _check_python(arguments: list[str]) -> None:
    if arguments[:2] == _LOCAL_AWS:
        _check_local_aws(arguments[2:])
    elif (arguments[:1] == ["-m"] and arguments[1] == "venv") or (
        arguments and not arguments[0].startswith("-") and next(ROOT.glob(f"**/{arguments[0]}"), None)
    ):
        return
    else:
        raise PageError(f"nothing here knows python {shlex.join(arguments)}")


def _check_local_aws(arguments: list[str]) -> None:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    local_aws_command._parser().parse_args(own)
    for words in _within(arguments):
        check(words)


def _within(arguments: list[str]) -> list[list[str]]:
    """Return the commands that the local AWS is started for."""
    inner = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    return commands(inner[2]) if inner[:2] == ["sh", "-c"] else [inner] if inner else []


def _check_sbatch(arguments: list[str]) -> None:
    script = next((word for word in arguments if not word.startswith("-")), "")
    found = next((path for path in ROOT.glob(f"constructs/**/{script}")), None)
    if script != "JOB.sh" and found is None:
        raise PageError(f"sbatch names {script!r}, which is no script of the library")
    if found is not None:
        subprocess.run([shutil.which("bash") or "bash", "-n", str(found)], check=True)


def _check_export(words: list[str]) -> None:
    if not words or any("=" not in word for word in words):
        raise PageError(f"export takes NAME=VALUE, got: {words}")


def _only(words: list[str], *, allowed: tuple[str, ...]) -> None:
    if not set(words) <= set(allowed):
        raise PageError(f"a page shows {allowed or 'no words'} here, got: {words}")


def _check_activation(arguments: list[str]) -> None:
    if arguments != [".venv/bin/activate"]:
        raise PageError(f"a page sources the environment only, got: {arguments}")
