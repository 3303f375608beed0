"""Axes of a sweep: the little language of ``--over`` and the grids it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clustersim.errors import InputError
from clustersim.study.axes import grid, parse_axis, points_from_csv, points_of, split_top_level


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("checkpoint.interval=1 min,5 min", ["1 min", "5 min"]),
        ("cluster.spare_nodes=0..64:16", [0, 16, 32, 48, 64]),
        ("parallelism.tp=1..4", [1, 2, 3, 4]),
        ("x=0.5..1.5:0.25", [0.5, 0.75, 1.0, 1.25, 1.5]),
        ("checkpoint.interval=1 min..10 min:3 min", ["1 min", "4 min", "7 min", "10 min"]),
        ("checkpoint.interval=1 min..4 min:log3", ["1 min", "2 min", "4 min"]),
        ("checkpoint.interval=0 s..2 h:lin3", ["0 s", "1 h", "2 h"]),
        ("checkpoint={engine: async, interval: 5 min},none", [{"engine": "async", "interval": "5 min"}, "none"]),
        ("training.steps=1_000", [1000]),
        ("name='a,b',c", ["a,b", "c"]),
    ],
)
def test_values(text: str, values: list[object]) -> None:
    assert parse_axis(text) == (text.partition("=")[0], values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("checkpoint.interval", "is no axis"),
        ("=1,2", "is no axis"),
        ("a=1,,2", "empty value"),
        ("a=", "empty value"),
        ("a=5..1", "runs upwards"),
        ("a=1 min..2 h", "needs a step or a number of points"),
        ("a=1 min..2 GB:log3", "of different kinds"),
        ("a=0 s..2 h:log3", "greater than 0"),
        ("a=1 min..2 h:log1", "at least 2"),
        ("a=1..2:0", "greater than 0"),
        ("a=1..10000000000", "more than"),
        ("a={b: ", "no YAML value"),
        ("a=1,1", "same value twice"),
        ("a=x..y", "neither a number nor a quantity"),
    ],
)
def test_wrong_axes_say_what_would_be_right(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse_axis(text)
    assert caught.value.exit_code == 2


def test_axes_multiply_and_zipped_axes_advance_together() -> None:
    points = grid([("a", [1, 2])], [("b", [10, 20, 30]), ("c", ["x", "y", "z"])])
    assert len(points) == 6
    assert points[0] == {"a": 1, "b": 10, "c": "x"}
    assert points[-1] == {"a": 2, "b": 30, "c": "z"}
    assert points_of({"a": [1, 2]}, {"b": [10, 20, 30], "c": "xyz"}) == points


def test_wrong_grids() -> None:
    with pytest.raises(InputError, match="given twice"):
        grid([("a", [1]), ("a", [2])])
    with pytest.raises(InputError, match="same number of values"):
        grid([], [("a", [1]), ("b", [1, 2])])
    with pytest.raises(InputError, match="more than"):
        grid([(name, list(range(1000))) for name in "abc"])


def test_points_from_csv(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("checkpoint.interval,cluster.spare_nodes\n5 min,16\n,32\n", encoding="utf-8")
    assert points_from_csv(file) == [
        {"checkpoint.interval": "5 min", "cluster.spare_nodes": 16},
        {"cluster.spare_nodes": 32},
    ]
    file.write_text("a,b\n1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"points.csv:2: --points: has 1 cells, the header 2"):
        points_from_csv(file)
    file.write_text('a,b\n1,"{"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"points\.csv:2:2: b: "):
        points_from_csv(file)
    with pytest.raises(InputError, match="cannot be read"):
        points_from_csv(tmp_path / "none.csv")


def test_split_respects_brackets_and_quotes() -> None:
    assert split_top_level("[1, 2], {a: 1, b: 2}, 'x, y', z") == ["[1, 2]", "{a: 1, b: 2}", "'x, y'", "z"]
