"""The printed summary: widths, intervals, undefined values, and advice that follows from the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.report.summary import (
    WIDTH,
    Answer,
    advice,
    duration,
    ledger_bars,
    percent,
    quantity,
    rough_bytes,
    rough_duration,
    run_summary,
    short,
    span,
)
from clustersim.scenario.load import load
from clustersim.scenario.schema import Scenario

JOB = {
    "name": "job",
    "model": "llama3-8b",
    "cluster": {"nodes": 1, "node": "dgx-h100", "storage": "tectonic"},
    "training": {"seq_len": 4096, "global_batch": 64, "duration": 86400},
    "checkpoint": {"engine": "async", "interval": 600},
}


def of(value: float, half: float | None = None) -> dict[str, Any]:
    interval = None if half is None else [value - half, value + half]
    return {"mean": value, "sd": 0.0, "p05": value, "p50": value, "p95": value, "ci95": interval}


def answer(ledger: dict[str, float], scenario: Scenario | None = None, **metrics: Any) -> Answer:
    run: dict[str, Any] = {
        "wall_s": of(86400.0), "ettr": of(0.9, 0.01), "goodput_tokens_per_s": of(1e6), "interruptions": of(3.0, 0.5),
        "effective_mfu": None, "gpu_hours": of(192.0), "steps": of(100), "tokens": of(1e12, 1e10), "lost_work_s": of(60.0),
        "nodes_down_p99": of(0), "mtti_s": of(28800.0), "ledger_s": {name: of(value) for name, value in ledger.items()},
    } | metrics  # fmt: skip
    step = {"mfu": 0.4, "hfu": 0.42, "step_time_s": 5.0, "tflops_per_gpu": 400.0, "convention": "as published",
            "breakdown_s": {"compute": 5.0}, "warnings": ["watch out"]}  # fmt: skip
    document = {"scenario": "job", "version": "0", "seed": 0, "replicas": 4, "step": step, "run": run, "given_up": 0,
                "warnings": ["1 of 4 replicas: no progress"], "checkpoint": {"engine": "async", "interval_s": 600.0,
                "interval_steps": None, "stall_s": 0.5, "durable_s": 12.0, "stall_mean_s": 0.75, "meet": True,
                "tiers": {"host": {"durable_mean_s": 0.5}, "shared": {"durable_mean_s": 12.5}},
                "host_memory_bytes": 46e9}}  # fmt: skip
    return Answer(scenario or load(JOB), document)


LEDGER = {"train": 80000.0, "rework": 3000.0, "checkpoint_stall": 10.0, "a_strategy_s_own_category": 0.001, "load": 0.0}


def test_every_line_fits() -> None:
    long = load(JOB | {"name": "x" * 70})
    text = run_summary(answer(LEDGER, long))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert "watch out" in text
    assert "Warning: 1 of 4 replicas: no progress" in text
    assert "checkpoints     async, every 10 min: stall 500 ms, durable after 12 s" in text


def test_bars_are_to_scale_and_empty_categories_are_left_out() -> None:
    lines = ledger_bars(answer(LEDGER).document["run"])
    filled = {line.split()[0]: line.count("█") for line in lines}
    assert next(iter(filled)) == "train"
    assert "load" not in filled
    assert filled["rework"] == round(filled["train"] * 3000 / 80000)
    assert all(len(line) <= WIDTH for line in lines)


@pytest.mark.parametrize(
    ("ledger", "engine", "words"),
    [
        ({"train": 9.0, "rework": 1.0}, "async", "save more often (checkpoint.interval): saves take 0.00%"),
        ({"train": 8.0, "rework": 0.2, "checkpoint_stall": 1.8}, "sync", "save less often (checkpoint.interval)"),
        ({"train": 8.0, "rework": 1.0, "checkpoint_stall": 1.0}, "sync", "the interval is about right"),
        ({"train": 8.0, "rework": 2.0}, "none", "save at all"),
        ({"train": 8.0, "wait_for_nodes": 2.0}, "async", "more spare nodes"),
        ({"train": 8.0, "own": 2.0, "load": 1.0}, "async", "faster reading of checkpoints"),
    ],
)
def test_advice_follows_from_the_ledger(ledger: dict[str, float], engine: str, words: str) -> None:
    scenario = load(JOB | {"checkpoint": {"engine": engine}})
    lines = advice(answer(ledger).document["run"], scenario)
    assert words in " ".join(lines)


def test_nothing_lost_nothing_to_change() -> None:
    assert advice(answer({"train": 9.0}).document["run"], load(JOB)) == ["Nothing but training takes time."]


def test_a_save_is_told_by_tier_with_what_it_meets_and_holds() -> None:
    lines = run_summary(answer(LEDGER)).splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("  checkpoints"))
    told = " ".join(" ".join(lines[place + 1 : place + 3]).split())
    assert told.startswith("durable: host 500 ms, shared 12.5 s; saves meet: stall 750 ms in the mean; 46 GB of host memory")


def test_undefined_values() -> None:
    text = run_summary(answer(LEDGER, ettr=None, mtti_s=None))
    assert "undefined" in text
    assert "one every never" not in text


@pytest.mark.parametrize(("value", "text"), [(1.234e12, "1.23 T"), (999.0, "999"), (0.0, "0"), (1500.0, "1.5 k")])
def test_short(value: float, text: str) -> None:
    assert short(value) == text


@pytest.mark.parametrize(("value", "text"), [(86400 * 54.0, "54 d"), (3600.0, "1 h"), (90.0, "1.5 min"), (0.0, "0 s"),
                                             (0.25, "250 ms"), (None, "undefined")])  # fmt: skip
def test_duration(value: float | None, text: str) -> None:
    assert duration(value) == text


def test_intervals() -> None:
    assert percent(of(0.9331, 0.0012)) == "93.31% ± 0.12"
    assert percent(of(0.9331)) == "93.31%"
    assert quantity(of(1e12, 2e10)) == "1 T ± 2%"
    assert span(None) == "never"


def test_tables_take_two_figures_in_the_unit_that_is_shown() -> None:
    assert [rough_duration(value) for value in (0.0, 0.0414, 0.3107, 80.0, 220.0, 7200.0, None)] == [
        "0 s", "41 ms", "311 ms", "1.3 min", "3.7 min", "2 h", "undefined"]  # fmt: skip
    assert [rough_bytes(value) for value in (0.0, 15.43e9, 2.61e12)] == ["-", "15 GB", "2.6 TB"]


def test_rare_interruptions_are_as_rare_as_they_are() -> None:
    from clustersim.report.summary import _interruptions

    def told(value: float) -> dict[str, Any]:
        return {"mean": value, "sd": 0.0, "p05": value, "p50": value, "p95": value, "ci95": [value, value]}

    # One replica in four with one interruption in its 2 days: one in 8 days; the mean of the defined mtti_s is 2 days.
    run = {"wall_s": told(2 * 86400.0), "interruptions": told(0.25), "mtti_s": told(2 * 86400.0), "lost_work_s": told(0.0)}
    assert "one every 8 d" in _interruptions(run)
    assert "one every" not in _interruptions({**run, "interruptions": told(0.0), "mtti_s": None})


def test_page_and_text_tell_the_same_time_between_interruptions() -> None:
    from clustersim.report.run_answer import headline

    rare = answer(LEDGER, wall_s=of(2 * 86400.0), interruptions=of(0.25, 0.1), mtti_s=of(2 * 86400.0))
    assert "one every 8 d" in run_summary(rare)
    assert ("one every", "8 d", "") in headline(rare)
    assert ("one every", "–", "") in headline(answer(LEDGER, interruptions=of(0.0), mtti_s=None))


def test_half_an_interval_has_two_figures_and_no_exponent() -> None:
    from clustersim.report.sweep_page import _rounded

    assert [_rounded(value) for value in (0.00312, 5.23, 52.1, 113.0, 1130.0)] == ["0.0031", "5.2", "52", "110", "1.1 k"]
