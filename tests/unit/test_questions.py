"""The four questions, asked through a real terminal (a pseudo-terminal)."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-m", "training_storage.cli", "plan"]
LIMIT_S = 30


def converse(answers: list[str], *, argv: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run the command on a terminal, type each answer when a question stands there, return code and screen."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "CDK_DEFAULT_REGION": "us-east-1"}
    process = subprocess.Popen(
        [*COMMAND, *argv], stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True, env=environment
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
    assert "instances must be a whole number from 1 to 100000" in screen
    assert "the answer must be y or n, or empty, got: 'maybe'" in screen
    assert "checkpoint_interval_minutes must be a number" in screen
    assert "one or two numbers of GiB" in screen
    assert "hot_dataset_gib must be at most dataset_gib (10), got: 20" in screen
    assert "--interface object --dataset-gib 20 --hot-dataset-gib 10" in screen


def test_the_end_of_input_is_one_line_and_exit_2() -> None:
    code, screen = converse(["\x04"])
    assert code == 2
    assert "training-storage: the input ended before all questions were answered" in screen


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
