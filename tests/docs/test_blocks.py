"""Every code block of every page does what the page says: it runs, or is held to what its program takes."""

from __future__ import annotations

import fnmatch
import io
import json
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.docs.blocks import DIRECTIVES, LANGUAGES, ROOT, Block, blocks, pages
from tests.docs.shell_words import commands
from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.docs.surroundings import LocalJob, Surroundings

#: Labels of shell blocks that cannot run here, each with the words that tell the reader where they do.
LABELS: Mapping[str, str] = {
    "real-account": "# in an account",
    "on-the-cluster": "# on ",
}
#: Every block with a label. What it calls is held to what the programs take.
NOT_RUN: Mapping[tuple[str, str], str] = {
    ("docs/getting-started.md", "real-account"): "the same app was deployed just before, and its lake has a fixed name",
    ("docs/real-account.md", "real-account"): "the page is what only an account can show",
    ("docs/cluster.md", "on-the-cluster"): "a session by a plugin of the AWS CLI, then Slurm on the login node",
    ("docs/park.md", "on-the-cluster"): "Slurm on the login node; tests/node_kit run the script itself",
}
#: Pages that another test runs from top to bottom, with what their blocks need.
RUN_ELSEWHERE: Mapping[str, str] = {
    "docs/testing.md": "tests/testing/test_page.py",
    "docs/training-practice.md": "tests/training/test_training_practice.py",
    "examples/train_tiny/README.md": "tests/training/test_train_tiny.py",
}
RUN = ("python", "sh", "console")
#: Pages whose reader has an app and an account with nothing in it.
OWN_ACCOUNT = frozenset({"docs/getting-started.md"})
_LINK = re.compile(r"\bdra-(?:…|0123456789abcdef0)")
_SCRIPT = 'if __name__ == "__main__":'


def _needs_aws(page: str) -> bool:
    found = blocks(page)
    return any(
        (block.language in ("sh", "console") and not block.label)
        or (block.language == "python" and "StorageContract.read" in block.text)
        for block in found
    )


PAGES = [page for page in pages() if page not in RUN_ELSEWHERE and any(b.language in RUN for b in blocks(page))]
AGAINST_AWS = sorted(
    (page for page in PAGES if _needs_aws(page) and page not in OWN_ACCOUNT), key=lambda page: page == "README.md"
)
IN_OWN_ACCOUNT = [page for page in PAGES if page in OWN_ACCOUNT]
ALONE = [page for page in PAGES if page not in (*AGAINST_AWS, *IN_OWN_ACCOUNT)]
DATA = [block for page in pages() for block in blocks(page) if block.language in ("json", "toml", "yaml")]
LABELLED = [block for page in pages() for block in blocks(page) if block.label and not block.file_name]


@pytest.mark.slow
@pytest.mark.parametrize("page", ALONE)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # Whoever asked AWS here would ask nobody.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    _run(page, _around(page, tmp_path, job=None))


@pytest.mark.local_aws
@pytest.mark.parametrize("page", AGAINST_AWS)
def test_the_blocks_of_a_page_run_against_the_local_aws(
    page: str, local_job: LocalJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training_storage.cli import park, release  # noqa: PLC0415 -- boto3
    from training_storage.operations import lustre_export  # noqa: PLC0415

    for name, value in local_job.aws.settings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CDK_DEFAULT_REGION", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(park, "_POLL_SECONDS", 0.2)
    monkeypatch.setattr(release, "_POLL_SECONDS", 0.2)
    monkeypatch.setattr(lustre_export, "FIRST_POLL_SECONDS", 0.05)
    local_job.stand()
    monkeypatch.setenv("TRAINING_STORAGE_CONTRACT", str(local_job.folder / "storage.json"))
    _run(page, _around(page, tmp_path, job=local_job))


@pytest.mark.local_aws
@pytest.mark.parametrize("page", IN_OWN_ACCOUNT)
def test_what_a_page_lets_its_reader_write_deploys(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalAws.start(quick=True) as aws:
        for name, value in aws.settings().items():
            monkeypatch.setenv(name, value)
        _run(page, _around(page, tmp_path, job=None, aws=aws))


@pytest.mark.parametrize("block", LABELLED, ids=lambda block: block.place)
def test_a_block_that_cannot_run_says_where_it_does_and_calls_what_exists(block: Block) -> None:
    from tests.docs import programs  # noqa: PLC0415 -- botocore

    assert block.language == "sh"
    assert block.text.startswith(LABELS[block.label]), "the reader must see it too"
    for words in commands(block.text):
        programs.check(words)


def test_the_blocks_that_cannot_run_are_these() -> None:
    assert {(block.page, block.label) for block in LABELLED} == set(NOT_RUN)


@pytest.mark.parametrize(("page", "test"), RUN_ELSEWHERE.items())
def test_a_page_that_another_test_runs_is_read_by_it(page: str, test: str) -> None:
    text = (ROOT / test).read_text(encoding="utf-8")
    assert page.rpartition("/")[2] in text
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize("block", DATA, ids=lambda block: block.place)
def test_data_is_what_its_fence_says(block: Block) -> None:
    readers: dict[str, Callable[[str], Any]] = {
        "json": json.loads,
        "toml": tomllib.loads,
        "yaml": lambda text: list(yaml.safe_load_all(text)),
    }
    assert readers[block.language](block.text)


def test_the_site_s_own_fences_stand_on_its_own_pages() -> None:
    for page in pages():
        if any(block.language in DIRECTIVES for block in blocks(page)):
            assert page.startswith("docs/")


@pytest.mark.parametrize("fence", ["```\ntraining-storage plan\n```", "```bash\nls\n```", "    training-storage plan"])
def test_a_block_that_nothing_would_run_is_refused(fence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)
    (tmp_path / "page.md").write_text(f"# Page\n\n{fence}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"page.md:3: (a fence must name one of|code must stand in a fence)"):
        blocks("page.md")


def _around(page: str, folder: Path, *, job: LocalJob | None, aws: LocalAws | None = None) -> Surroundings:
    from tests.docs.page_setups import prepare  # noqa: PLC0415 -- with the next, starts CDK
    from tests.docs.surroundings import Surroundings  # noqa: PLC0415

    surroundings = Surroundings(page=page, folder=folder, job=job, aws=aws, names={"__name__": "__main__"})
    prepare(surroundings)
    return surroundings


def _run(page: str, surroundings: Surroundings) -> None:
    printed: str | None = None
    for block in blocks(page):
        if block.file_name is not None:
            Path(block.file_name).write_text(surroundings.of_this_job(block.text), encoding="utf-8")
            continue
        if block.label:
            continue
        if block.language == "python":
            printed = _run_python(block, surroundings)
        elif block.language in ("sh", "console"):
            printed = _run_shell(block, surroundings)
        elif block.language == "text" and printed is not None:
            _compare(block, printed)
            printed = None


def _run_python(block: Block, surroundings: Surroundings) -> str:
    # Above the code as many lines as on the page: a traceback names the page's own.
    code = compile("\n" * (block.line - 1) + surroundings.of_this_job(block.text), block.page, "exec")
    if _SCRIPT in block.text:
        # Its processes import it, so it is a file of its own.
        script = surroundings.folder / "script.py"
        script.write_text(surroundings.of_this_job(block.text), encoding="utf-8")
        ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
        assert ended.returncode == 0, f"{block.place}: {ended.stderr}"
        return ended.stdout
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, surroundings.names)  # noqa: S102 -- our own page
    return printed.getvalue()


def _run_shell(block: Block, surroundings: Surroundings) -> str:
    from tests.docs import programs  # noqa: PLC0415 -- botocore

    printed = []
    for line in _typed(block).replace("\\\n", " ").splitlines():
        # Where a page says it for one link, a reader does it for each.
        lines = [_LINK.sub(link, line) for link in surroundings.links()] if _LINK.search(line) else [line]
        for words in (words for one in lines for words in commands(surroundings.of_this_job(one))):
            try:
                printed.append(programs.run(words, surroundings))
            except Exception as error:
                error.add_note(f"{block.place}: {' '.join(words)}")
                raise
    return "".join(printed)


def _typed(block: Block) -> str:
    """Return what a reader types of a shell block: of a console, what stands after the prompt."""
    if block.language == "sh":
        return block.text
    return "\n".join(line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ "))


def _compare(block: Block, printed: str) -> None:
    """Find every line of a sample among what was printed, in that order; an ellipsis stands for anything."""
    lines = iter(printed.splitlines())
    for wanted in block.text.splitlines():
        pattern = fnmatch.translate(wanted.strip().replace("[", "[[]").replace("…", "*"))
        assert any(re.fullmatch(pattern, line.strip()) for line in lines), (
            f"{block.place}: {wanted!r} was not printed; this was:\n{printed}"
        )
