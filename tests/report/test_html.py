"""The page of a run: its numbers, its accounts of time, its escapes, its size."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from clustersim.report.course import course_of
from clustersim.report.html import report_page
from clustersim.report.story import Row, Story
from clustersim.report.summary import percent, quantity, run_summary
from clustersim.run.log import Entry, Log
from clustersim.run.result import RunResult
from clustersim.scenario.load import load
from clustersim.study.replicas import prepared_for
from clustersim.study.sensitivity import changes_of, sensitivities, too_long
from tests.report.reports import HOSTILE, SMALL, small, small_page, told


class Parsed(HTMLParser):
    """What a page holds."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def test_the_first_screen_says_the_answer_with_its_interval() -> None:
    answer, _, gains = small()
    run = answer.document["run"]
    first = small_page().split('<section id="course"')[0]
    assert f"<b>{quantity(run['tokens'])}</b> tokens" in first
    low, high = run["ettr"]["ci95"]
    assert high > 1  # Student's interval of few replicas knows no bounds; the sentence does
    assert f"95 % interval {low:.2%} to 100.00%" in first
    assert percent(run["ettr"]).split(" ± ")[0] in first
    for name in ("Where every hour went", "ETTR and tokens over time", "What to change first"):
        assert name in first
    assert all(gain.change.name.split(" (")[0] in first for gain in gains)


def test_sections_and_links_agree_and_nothing_is_loaded() -> None:
    parsed = Parsed(small_page())
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [attrs["href"] for attrs in parsed.of("a")]
    assert {link[1:] for link in links if link} <= set(ids)
    assert [attrs for name, attrs in parsed.tags if attrs.get("src") or name in ("link", "iframe", "img", "object")] == []
    policy = next(attrs["content"] for attrs in parsed.of("meta") if attrs.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_every_second_of_the_first_replica_is_drawn_once() -> None:
    """Training segments and spans of the drawn course together cover the wall time, and agree with the ledger."""
    answer, story, _ = small()
    course = course_of(story.rows, story.wall_s, prepared_for(answer.scenario).pace.nominal_s)
    pieces = sorted([(s, e) for s, e, _ in course.segments] + [(s, e) for s, e, _ in course.spans])
    assert math.fsum(e - s for s, e in pieces) == pytest.approx(story.wall_s, rel=1e-9)
    assert all(b[0] >= a[1] - 1e-6 for a, b in itertools.pairwise(pieces))
    assert len(course.failures) >= 1
    assert len(course.saves) == sum(row.event == "save_start" for row in story.rows)


def test_steps_of_segments_join_up() -> None:
    """A segment that follows another without a failure goes on where that one ended."""
    answer, story, _ = small()
    step_s = prepared_for(answer.scenario).pace.nominal_s
    course = course_of(story.rows, story.wall_s, step_s)
    joined = 0
    for (start, end, step), (after, _, further) in zip(course.segments, course.segments[1:], strict=False):
        if after - end < 1.0:
            assert further - step == round((end - start) / step_s)
            joined += 1
    assert joined > 50


def test_what_causes_cost_adds_up_to_the_ledger() -> None:
    answer, story, _ = small()
    run = answer.document["run"]
    down = math.fsum(cause.down_s for cause in story.causes.values()) / story.replicas
    stages = math.fsum(item["mean"] for name, item in run["ledger_s"].items()
                       if item and name not in ("train", "rework", "checkpoint_stall", "other"))  # fmt: skip
    assert down == pytest.approx(stages, rel=0.02)
    again = math.fsum(cause.lost_steps for cause in story.causes.values()) / story.replicas * prepared_for(answer.scenario).pace.nominal_s
    rework = run["ledger_s"]["rework"]["mean"]
    strikes = sum(cause.strikes for cause in story.causes.values()) / story.replicas
    assert 0 <= rework - again <= strikes * prepared_for(answer.scenario).pace.nominal_s  # the broken step is not counted in steps


def test_a_users_text_is_shown_and_never_runs() -> None:
    hostile = load(SMALL | {"name": HOSTILE, "description": HOSTILE, "failures": [
        {"name": HOSTILE[:300], "component": "gpu", "mtbf": 200 * 3600.0}], "simulation": {"replicas": 2}})  # fmt: skip
    answer, story = told(hostile)
    page = report_page(answer, story)
    plain = Parsed(report_page(*told(load(SMALL | {"simulation": {"replicas": 2}}))))
    parsed = Parsed(page)
    assert len(parsed.of("script")) == len(plain.of("script"))
    assert parsed.of("img") == []
    assert not any(key.startswith("on") for _, attrs in parsed.tags for key in attrs)
    shown = "".join(parsed.text)
    assert HOSTILE in shown
    assert len(page) < 5e6
    summary = run_summary(answer)
    assert "\u202e" not in summary
    assert "👩‍💻 {__DATA__}" in summary


def test_a_terminal_gets_no_control_characters() -> None:
    answer, _, _ = small()
    evil = answer.scenario.model_copy(update={"name": "a\x1b[2J\x07\u202eb\x9b"})
    said = run_summary(type(answer)(evil, answer.document))
    assert said.startswith("a\ufffd[2J\ufffd\ufffdb\ufffd: ")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", said)


def test_a_step_without_failures_or_saves_has_a_page() -> None:
    quiet = load(SMALL | {"failures": [], "checkpoint": "none", "simulation": {"replicas": 1}})
    page = report_page(*told(quiet), sensitivities(quiet, prepared_for(quiet), 0, replicas=1))
    assert "No failure struck in any replica." in page
    assert "Nothing is ever saved" in page
    assert "100.00%" in page


def test_sensitivities_follow_the_scenario() -> None:
    answer, _, gains = small()
    names = [change.name for change in changes_of(answer.scenario)]
    assert len(names) == 4
    assert {gain.change.name for gain in gains} >= set(names)
    by_name = {gain.change.name: gain for gain in gains}
    run = answer.document["run"]
    sooner = by_name["failures noticed in half the time"].ci95  # half of what detection takes becomes training
    share = run["ledger_s"]["detect"]["mean"] / run["wall_s"]["mean"]
    assert sooner is not None
    assert sooner[0] <= share / 2 <= sooner[1]
    rarer = by_name["failures 10 % rarer (MTBF + 10 %)"].relative
    lost = 1 - run["ettr"]["mean"]
    assert -0.5 * lost < rarer < lost
    assert [gain.relative for gain in gains] == sorted((gain.relative for gain in gains), reverse=True)


def test_changes_that_would_take_long_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is counted in events, so that the page does not depend on the machine."""
    answer, story, _ = small()
    prepared = prepared_for(answer.scenario)
    assert too_long(answer.scenario, prepared, 0) is None
    monkeypatch.setattr("clustersim.study.sensitivity.MOST_EVENTS", 100)
    why = too_long(answer.scenario, prepared, 0)
    assert why is not None
    assert why == too_long(answer.scenario, prepared, 0)
    page = report_page(answer, story, why)
    assert "What to change first is left out: a replica takes " in page
    assert "gain in tokens a second" not in page


def test_a_change_without_effect_gains_nothing_at_all() -> None:
    """More spares than are ever used change no replica's failures: the paired gain is exactly 0."""
    spared = load(SMALL | {"cluster": SMALL["cluster"] | {"spare_nodes": 40}})
    gains = sensitivities(spared, prepared_for(spared), 0, replicas=3)
    spares = next(gain for gain in gains if "spare" in gain.change.name)
    assert (spares.relative, spares.ci95) == (0.0, (0.0, 0.0))
    assert not spares.decided


def test_same_replicas_same_bytes() -> None:
    answer, story, gains = small()
    assert report_page(answer, story, gains) == small_page()


def long_story(events: int) -> Story:
    """A run with a save a minute and a failure an hour, of about so many events."""
    story, rows, time, step = Story(), [], 0.0, 0
    while len(rows) < events:
        for _ in range(60):
            time += 60.0
            step += 10
            rows.append(Row(time, "save_start", "", step, None, 0.5))
            rows.append(Row(time + 20.0, "save_durable", "shared", step, None, None))
        time += 30.0
        rows.append(Row(time, "failure", f"cause {step % 5}", step, 3, 60.0))
        rows.append(Row(time, "failed", "", None, 3, None))
        rows.append(Row(time, "detect", "", step, None, 60.0))
        rows.append(Row(time + 60.0, "stage", "start", step, None, 120.0))
        rows.append(Row(time + 180.0, "resume", "", step, None, None))
        rows.append(Row(time + 180.0, "repaired", "", None, 3, None))
        time += 180.0
    story.rows, story.wall_s, story.replicas = rows, time, 1
    story.curves = [([0.0, time], [0.0, float(step)])]
    return story


def test_a_hundred_thousand_events_stay_under_five_megabytes() -> None:
    answer, _, _ = small()
    story = long_story(100_000)
    page = report_page(answer, story)
    assert len(page.encode()) < 5e6
    data = json.loads(re.search(r'id="course-data" type="application/json">(.*?)</script>', page, re.DOTALL).group(1))  # type: ignore[union-attr]
    assert data["until"] is None


def test_a_log_is_read_without_its_frame_changing_it() -> None:
    result = RunResult(10.0, 0.5, 1.0, 0, 0, None, 1.0, 1, 1.0, 0.0, 0.0, None, {"train": 10.0}, log=Log(True))
    result.log.add(Entry(1.0, "failure", "x", 3, place=2, seconds=1.0))
    story = Story()
    story.add(result, result.events)
    assert story.rows == [Row(1.0, "failure", "x", 3, 2, 1.0, None)]
    assert story.causes["x"].down_s == 9.0


@pytest.mark.prove
def test_the_page_of_the_main_scenario_is_written_within_two_seconds() -> None:
    """Time of this process: other work on the machine does not count."""
    job = load(str(Path(__file__).parents[2] / "scenarios" / "llama3-405b-16k.yaml"))
    answer, story = told(job, replicas=1)
    start = time.process_time()
    page = report_page(answer, story)
    assert time.process_time() - start < 2.0
    assert len(page.encode()) < 2e6


def test_the_mean_time_between_interruptions_says_whose_mean_it_is() -> None:
    assert "a mean over those replicas that were interrupted at all" in " ".join(Parsed(small_page()).text)
