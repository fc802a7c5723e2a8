"""The four questions, asked through a real terminal (a pseudo-terminal)."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from training_storage.cli import questions
from training_storage.planning import InvalidJobError

COMMAND = [sys.executable, "-m", "training_storage.cli", "plan"]
LIMIT_S = 30


def converse(answers: list[str], *, argv: tuple[str, ...] = (), columns: int = 100) -> tuple[int, str]:
    """Run the command on a terminal, type each answer when a question stands there, return code and screen."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "CDK_DEFAULT_REGION": "us-east-1"}
    environment.pop("COLUMNS", None)

    def own_terminal() -> None:
        # A session of its own, so that Ctrl-C typed there interrupts the command and nobody else.
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [*COMMAND, *argv],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
        env=environment,
        preexec_fn=own_terminal,  # noqa: PLW1509 - this process has no threads
    )
    os.close(terminal)
    screen, waiting, end = "", list(answers), time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < end:
            if select.select([controller], [], [], 0.1)[0]:
                try:
                    data = os.read(controller, 65536)
                except OSError:  # the other side is closed
                    break
                if not data:
                    break
                screen += data.decode()
            if waiting and screen.rstrip(" ").endswith((":", "?")):
                os.write(controller, waiting.pop(0).encode())
                screen += "\n"
        return process.wait(timeout=LIMIT_S), screen
    finally:
        if process.poll() is None:
            process.kill()
        os.close(controller)


def test_four_answers_give_a_plan_and_the_command_that_says_the_same() -> None:
    code, screen = converse(["64\n", "y\n", "30\n", "50000 10000\n"])
    assert code == 0
    for question in ("1. How large", "2. Does the code depend on a POSIX", "3. How often", "4. Is the data"):
        assert screen.count(question) == 1
    assert (
        "training-storage plan --instances 64 --interface posix --checkpoint-interval-minutes 30 "
        "--dataset-gib 50000 --hot-dataset-gib 10000"
    ) in screen
    assert "Training storage for 64 x p5.48xlarge" in screen


def test_three_of_the_four_may_be_left_to_the_plan() -> None:
    code, screen = converse(["8\n", "\n", "\n", "\n"])
    assert code == 0
    assert "The same without questions: training-storage plan --instances 8\r\n" in screen


def test_an_answer_that_does_not_do_is_asked_again_with_what_is_allowed() -> None:
    code, screen = converse(["many\n", "8\n", "maybe\n", "n\n", "-1\n", "\n", "1 2 3\n", "10 20\n", "20 10\n"])
    assert code == 0
    assert screen.count("1. How large") == 2
    asked = " ".join(screen.split("The same without questions")[0].split())
    assert "the answer must be a whole number from 1 to 100000, for example 256, got: 'many'" in asked
    assert "the answer must be posix, yes, object, no, or empty, got: 'maybe'" in asked
    assert "the answer must be minutes from 0.01 to 525,600 (a year), for example 30, or empty, got: '-1'" in asked
    assert "the answer must be asset, hot, or one or two sizes" in asked
    assert "the answer must be a hot part of at most all the data (10 GiB), got: '10 20'" in asked
    assert "_" not in asked
    assert "--interface object --dataset-gib 20 --hot-dataset-gib 10" in screen


def test_the_end_of_input_is_one_line_and_exit_2() -> None:
    code, screen = converse(["\x04"])
    assert code == 2
    lines = [line for line in screen.splitlines() if line.strip()]
    assert lines[-1].startswith("training-storage: the input ended before all questions were answered")


@pytest.mark.parametrize("before", [[], ["64\n"], ["64\n", "posix\n", "30\n"]], ids=len)
def test_ctrl_c_is_one_line_and_exit_130(before: list[str]) -> None:
    code, screen = converse([*before, "\x03"])
    assert code == 130
    assert screen.splitlines()[-1] == "training-storage: interrupted, nothing was planned."
    assert "Traceback" not in screen


@pytest.mark.parametrize(("columns", "widest"), [(72, 72), (80, 80), (200, 100)])
def test_questions_and_report_fit_the_terminal(columns: int, widest: int) -> None:
    code, screen = converse(["64\n", "posix\n", "30\n", "hot 50 TiB\n"], columns=columns)
    assert code == 0
    lines = [line for line in screen.splitlines() if not line.startswith("The same without questions")]
    assert max(map(len, lines)) <= widest
    assert max(map(len, lines)) > widest - 8


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("asset", {}),
        ("hot", {}),
        ("Hot", {}),
        ("50000", {"dataset_gib": "50000"}),
        ("50000 10000", {"dataset_gib": "50000", "hot_dataset_gib": "10000"}),
        ("50 TiB 500 GiB", {"dataset_gib": "51200", "hot_dataset_gib": "500"}),
        ("hot 50TiB", {"dataset_gib": "51200"}),
        ("asset 1.5 tib", {"dataset_gib": "1536", "hot_dataset_gib": "0"}),
        ("1 TB", {"dataset_gib": "931.323"}),
    ],
)
def test_the_data_question_takes_what_it_asks_for(text: str, fields: dict[str, str]) -> None:
    assert questions._data(text) == fields


@pytest.mark.parametrize(
    "text", ["warm", "hot cold", "1 2 3", "asset 1 2", "1,000", "-1", "1e3", "2000000000", "5 PiB"]
)
def test_the_data_question_refuses_everything_else(text: str) -> None:
    with pytest.raises(InvalidJobError, match="the answer must be asset, hot, or one or two sizes"):
        questions._data(text)


@pytest.mark.parametrize("text", ["y", "Yes", "posix", "POSIX"])
def test_the_posix_question_takes_its_own_words(text: str) -> None:
    assert questions._interface(text) == {"interface": "posix"}


@pytest.mark.parametrize("text", ["n", "NO", "object"])
def test_the_posix_question_takes_the_other_word(text: str) -> None:
    assert questions._interface(text) == {"interface": "object"}


@pytest.mark.parametrize("text", ["0", "600000", "soon", "1e2"])
def test_the_interval_question_says_its_range(text: str) -> None:
    with pytest.raises(InvalidJobError, match=r"minutes from 0\.01 to 525,600 \(a year\)"):
        questions._interval(text)


@pytest.mark.parametrize("argv", [("--instances", "8"), ("--json",), ("--interface", "posix")], ids=str)
def test_with_arguments_nothing_is_asked(argv: tuple[str, ...]) -> None:
    code, screen = converse([], argv=argv)
    assert "1. How large" not in screen
    assert code == (0 if "--instances" in argv else 2)


def test_without_a_terminal_nothing_is_asked() -> None:
    result = subprocess.run(COMMAND, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert result.returncode == 2
    assert result.stderr.startswith("training-storage: --instances is missing")
    assert result.stderr.count("\n") == 1
