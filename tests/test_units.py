"""Quantities: what is read, what is refused and with which words, and that printing reads back to the same float."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from clustersim.units import (
    BANDWIDTH,
    DURATION,
    JOULE,
    SIZE,
    SPEED,
    WATT,
    WORK,
    Bytes,
    Dimension,
    PositiveSeconds,
    Seconds,
    Unit,
)

ALL = (DURATION, SIZE, BANDWIDTH, WORK, SPEED, WATT, JOULE)


@pytest.mark.parametrize(
    ("dimension", "text", "value"),
    [
        (DURATION, "35 min", 2100.0),
        (DURATION, "1 h 30 min", 5400.0),
        (DURATION, "1h30min", 5400.0),
        (DURATION, "5 y", 5 * 365 * 86400.0),
        (DURATION, "2.5 us", 2.5e-6),
        (DURATION, "3 µs", 3e-6),
        (DURATION, "1_000 s", 1000.0),
        (DURATION, "1e3 ms", 1.0),
        (DURATION, "  3 d  ", 259200.0),
        (DURATION, "-5 min", -300.0),
        (SIZE, "80 GiB", 80 * 2.0**30),
        (SIZE, "80 GB", 80e9),
        (SIZE, "8 bit", None),
        (BANDWIDTH, "400 Gbit/s", 50e9),
        (BANDWIDTH, "50 GB/s", 50e9),
        (SPEED, "989 TFLOP/s", 989e12),
        (WATT, "0.7 kW", 700.0),
    ],
)
def test_parse(dimension: Dimension, text: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match="is no unit of"):
            dimension.parse(text)
    else:
        assert dimension.parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("dimension", "text", "words"),
    [
        (DURATION, "35 mins", "did you mean 'min'"),
        (DURATION, "5 H", "did you mean 'h'"),
        (DURATION, "", "is not a duration"),
        (DURATION, "5", "write a number and a unit, such as '35 min'"),
        (DURATION, "min", "is not a duration"),
        (DURATION, "1,5 h", "decimals take a point"),
        (DURATION, "1 h -3 min", "is not a duration"),
        (DURATION, "1 h x", "is not a duration"),
        (DURATION, "5 GB", "is no unit of a duration"),
        (BANDWIDTH, "400 gbps", "bits or bytes? write 'Gbit/s' or 'GB/s'"),
        (BANDWIDTH, "400 Gb/s", "bits or bytes?"),
        (SIZE, "80 Gb", "bits or bytes? write 'Gbit' or 'GB'"),
        (BANDWIDTH, "2 TBs", "did you mean 'TB/s'"),
        (BANDWIDTH, "50 GB", "is no unit of a bandwidth"),
    ],
)
def test_refused_with_a_hint(dimension: Dimension, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        dimension.parse(text)


@given(value=st.floats(min_value=0, max_value=1e25, allow_nan=False))
@pytest.mark.parametrize("dimension", ALL, ids=lambda d: d.name)
def test_format_reads_back_to_the_same_float(dimension: Dimension, value: float) -> None:
    assert dimension.parse(dimension.format(value)) == value


@pytest.mark.parametrize(
    ("dimension", "value", "text"),
    [(DURATION, 0.0, "0 s"), (DURATION, 600.0, "10 min"), (DURATION, 50 * 1e-6, "50 us"), (DURATION, 0.25 * 3600, "15 min"), (SIZE, 80 * 2.0**30, "80 GiB"), (BANDWIDTH, 5e10, "400 Gbit/s"),
     (BANDWIDTH, 2e12, "2 TB/s"), (SPEED, 989e12, "989 TFLOP/s"), (WATT, 700.0, "700 W")],
)  # fmt: skip
def test_format_takes_the_unit_that_people_use(dimension: Dimension, value: float, text: str) -> None:
    assert dimension.format(value) == text


class Sample(BaseModel):
    wait: Seconds = 1.0
    due: PositiveSeconds = 1.0
    size: Bytes = 1.0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"wait": 3}, "needs a unit"),
        ({"wait": True}, "needs a duration"),
        ({"wait": None}, "needs a duration"),
        ({"wait": [1]}, "needs a duration"),
        ({"wait": "-3 s"}, "must be at least 0"),
        ({"due": "0 s"}, "must be greater than 0"),
        ({"size": "1e400 B"}, "must be finite"),
        ({"wait": "1e29 y"}, "out of all range"),
        ({"due": "1e-300 s"}, "out of all range"),
    ],
)
def test_field_in_a_file(data: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Sample.model_validate(data, context={"units": "required"})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1, 10**400])
def test_field_from_python_takes_si_but_nothing_absurd(bad: float) -> None:
    assert Sample.model_validate({"wait": 3}).wait == 3.0
    with pytest.raises(ValidationError):
        Sample.model_validate({"wait": bad})


def test_next_to_nothing_is_a_value_where_nothing_is() -> None:
    assert Sample.model_validate({"wait": 1e-300}).wait == 1e-300


def test_fields_print_with_their_unit() -> None:
    assert Sample(wait=90.0).model_dump(mode="json") == {"wait": "1.5 min", "due": "1 s", "size": "1 B"}


@pytest.mark.parametrize("dimension", ALL, ids=lambda d: d.name)
def test_schema_pattern_accepts_what_the_parser_accepts(dimension: Dimension) -> None:
    import re

    pattern = re.compile(Unit(dimension).schema()["pattern"])
    for value in (0.0, 1.0, 2.5e-7, 1e15, dimension.parse(dimension.example)):
        assert pattern.search(dimension.format(value))
    assert pattern.search(dimension.example)
    assert not pattern.search("12")
    assert not pattern.search("12 furlong")
