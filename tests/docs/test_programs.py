"""The checks of pages find what is wrong with a page."""

from __future__ import annotations

import pytest

from tests.docs import aws_command, programs
from tests.docs.blocks import Block
from tests.docs.shell_words import commands
from tests.docs.test_blocks import _compare


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("training-storage plan --instanzes 8", "is not an option of training-storage plan"),
        ("training-storage palk", "invalid choice: 'palk'"),
        ("aws fsx describe-file-sytems", "has no operation 'describe-file-sytems'"),
        ("aws fsx describe-file-systems --id fs-1", "has no option --id"),
        ("aws fsx create-data-repository-task --type EXPORT_TO_REPOSITORY", "Missing required parameter"),
        ("aws fxs describe-file-systems", "has no service 'fxs'"),
        ("cdk depoly TrainingStorage", "cdk has no command 'depoly'"),
        ("cdk deploy TrainingStorage --aproval never", "has no option '--aproval'"),
        ("pip install 'training-storage[trainig]'", "names an extra that the package has not"),
        ("pip install requests", "names requests"),
        ("make demonstration", "no target 'demonstration'"),
        ("sbatch missing.sbatch", "no script of the library"),
        ("curl https://example.com", "nothing here knows the program 'curl'"),
    ],
)
def test_a_command_that_its_program_would_refuse_is_refused(line: str, reason: str) -> None:
    (words,) = commands(line)
    with pytest.raises(programs.PageError, match=reason):
        programs.check(words)


def test_a_block_is_taken_apart_as_a_shell_does() -> None:
    text = "FOO=1 make test && cd 'a b'  # why\naws s3 ls s3://b/ > out.txt; sudo \\\nlnetctl net show | cat"
    assert commands(text) == [
        ["make", "test"],
        ["cd", "a b"],
        ["aws", "s3", "ls", "s3://b/"],
        ["lnetctl", "net", "show"],
        ["cat"],
    ]


@pytest.mark.parametrize("line", ["cat > app.py <<EOF", "cd $(mktemp -d)", "echo `date`"])
def test_what_a_reader_would_not_type_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="must hold plain commands"):
        commands(line)


def test_the_short_forms_of_the_aws_command_are_read() -> None:
    policy = "AutoExportPolicy={Events=[NEW,CHANGED]}"
    line = f"fsx update-data-repository-association --association-id dra-0123456789 --s3 {policy}"
    found = aws_command.parse(line.split())
    assert found.parameters["S3"] == {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}}
    line = "ec2 describe-subnets --filters Name=vpc-id,Values=vpc-1,vpc-2 Name=state,Values=available --no-dry-run"
    found = aws_command.parse(line.split())
    assert found.parameters == {
        "Filters": [
            {"Name": "vpc-id", "Values": ["vpc-1", "vpc-2"]},
            {"Name": "state", "Values": ["available"]},
        ],
        "DryRun": False,
    }


def test_a_sample_must_have_been_printed_in_its_order() -> None:
    def sample(text: str) -> Block:
        return Block(page="page.md", line=1, language="text", label="", text=text)

    _compare(sample("first …\nthird\n"), "first 1\nsecond\n  third\n")
    for text in ("third\nfirst 1\n", "second line\n", "fourth\n"):
        with pytest.raises(AssertionError, match="was not printed"):
            _compare(sample(text), "first 1\nsecond\n  third\n")
