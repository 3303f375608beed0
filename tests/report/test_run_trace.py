"""The Perfetto trace of a run."""

from __future__ import annotations

import json
import math

import pytest

from clustersim.report.run_trace import run_trace_json
from clustersim.report.story import Row
from clustersim.study.replicas import prepared_for
from tests.report.reports import small


def test_tracks_hold_the_run() -> None:
    answer, story, _ = small()
    document = json.loads(run_trace_json(story.rows, story.wall_s, prepared_for(answer.scenario).pace.nominal_s, name="</script>\u202e", spares=1))
    events = document["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
    assert names == {"job", "saves", "failures", "nodes", "repair shop"}
    job = [event for event in events if event["ph"] == "X" and event["cat"] == "job"]
    assert math.fsum(event["dur"] for event in job) / 1e6 == pytest.approx(story.wall_s, rel=1e-9)
    assert sum(event["ph"] == "i" for event in events) == sum(row.event == "failure" for row in story.rows)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")


def test_overlapping_repairs_lie_on_lanes_of_their_own() -> None:
    rows = [Row(1.0, "removed", "", None, 1, None, 1), Row(2.0, "removed", "", None, 2, None, 2), Row(3.0, "repaired", "", None, None, None, 1),
            Row(4.0, "removed", "", None, 3, None, 3)]  # fmt: skip
    events = json.loads(run_trace_json(rows, 10.0, 1.0))["traceEvents"]
    lanes = {event["name"]: (event["tid"], event["dur"] / 1e6) for event in events if event.get("cat") == "repair shop"}
    assert lanes == {"node 1": (0, 2.0), "node 2": (1, 8.0), "node 3": (0, 6.0)}
