"""The error tree: exit codes, one line a problem, the nearest word."""

from __future__ import annotations

import pickle

import pytest

from clustersim.errors import (
    ClusterSimError,
    Deadlock,
    DoesNotFit,
    ImpossibleError,
    InputError,
    NegativeAnswer,
    Problem,
    nearest,
)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("a.b", "is missing", "f.yaml", 3, 5), "f.yaml:3:5: a.b: is missing"),
        (Problem("", "is a directory", "f"), "f: is a directory"),
        (Problem("a", "is wrong"), "a: is wrong"),
        (Problem("a", "is wrong").at("--set a=1"), "--set a=1: a: is wrong"),
    ],
)
def test_problem_prints_as_one_line(problem: Problem, text: str) -> None:
    assert str(problem) == text


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("x"), 2), (ImpossibleError("x"), 3), (DoesNotFit("x"), 3), (Deadlock("x"), 3), (NegativeAnswer("x"), 1)],
)
def test_exit_codes(error: ClusterSimError, code: int) -> None:
    assert error.exit_code == code


def test_input_error_holds_every_problem_and_survives_a_process_border() -> None:
    error = InputError([Problem("a", "x"), Problem("b", "y", "f", 1, 2)])
    back = pickle.loads(pickle.dumps(error))
    assert back.problems == error.problems
    assert str(back) == "a: x\nf:1:2: b: y"


def test_nearest() -> None:
    assert nearest("intervall", ["interval", "engine"]) == "; did you mean 'interval'?"
    assert nearest("zzz", ["interval", "engine"]) == ""
