"""The Chrome/Perfetto trace: names, tracks, arrows, counter."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersim.pipeline.comms import with_communication
from clustersim.report.perfetto import trace
from clustersim.report.scene import View
from clustersim.report.timeline import write_timeline
from tests.pipeline.replays import built, timed
from tests.report.drawings import view


def events(shown: View | list[View], phase: str) -> list[dict[str, Any]]:
    """The events of one phase."""
    return [event for event in trace(shown)["traceEvents"] if event["ph"] == phase]


def test_ops_carry_the_names_of_torch_profiler_ranges() -> None:
    found = {event["name"]: event for event in events(view("1f1b"), "X") if event["cat"] == "compute"}
    assert len(found) == 64
    assert found["PP:2F0"]["pid"] == 2
    assert found["PP:2F0"]["ts"] == pytest.approx(2.2e6)
    assert found["PP:2F0"]["dur"] == pytest.approx(1e6)
    assert found["PP:2F0"]["args"] == {"stage": 2, "kind": "F", "microbatch": 0}
    fused = [event["name"] for event in events(view("dualpipe"), "X") if "OVERLAP_F_B" in event["name"]]
    assert fused[0].startswith("PP:(")


def test_processes_are_ranks_and_threads_are_streams() -> None:
    meta = events(view("1f1b"), "M")
    names = {event["pid"]: event["args"]["name"] for event in meta if event["name"] == "process_name"}
    assert names == {rank: f"rank {rank}" for rank in range(4)}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in meta if e["name"] == "thread_name"}
    assert threads[0, 0] == "compute"
    assert threads[1, 1] == "send"
    assert threads[1, 2] == "receive"
    two = [e["args"]["name"] for e in events([view("1f1b"), view("gpipe")], "M") if e["name"] == "process_name"]
    assert two[0] == "1f1b: rank 0"
    assert two[4] == "gpipe: rank 0"


@pytest.mark.parametrize("listed", [False, True])
def test_an_arrow_for_every_message_from_send_to_receive(listed: bool) -> None:
    program = built("1f1b", 4, 8)
    shown = View(timed(with_communication(program) if listed else program, latency=0.1))
    everything = trace(shown)["traceEvents"]
    slices = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in everything if e["ph"] == "X"}
    starts = {e["id"]: e for e in everything if e["ph"] == "s"}
    stops = {e["id"]: e for e in everything if e["ph"] == "f"}
    assert len(starts) == len(stops) == 48
    for key, start in starts.items():
        stop = stops[key]
        assert stop["ts"] >= start["ts"]
        assert abs(stop["pid"] - start["pid"]) == 1
        assert "SEND" in slices[start["pid"], start["tid"], start["ts"]]  # an arrow binds to the slice around it


def test_the_counter_is_what_a_rank_holds() -> None:
    shown = view("1f1b", activation_bytes=10.0)
    counts = events(shown, "C")
    for rank in range(4):
        mine = [event["args"]["bytes"] for event in counts if event["pid"] == rank]
        assert max(mine) == shown.memory[rank].peak
        assert mine[-1] == 0


def test_slices_of_one_thread_do_not_overlap() -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events(view("interleaved-1f1b", chunks=2), "X"):
        if event["tid"] == 0:
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(after[0] >= before[1] - 1e-6 for before, after in pairwise(spans))


def test_the_file_is_json_with_finite_numbers(tmp_path: Path) -> None:
    path = write_timeline(tmp_path / "trace.json", [view("zb-v"), view("1f1b")])
    document = json.loads(path.read_text())
    phases = Counter(event["ph"] for event in document["traceEvents"])
    assert phases["s"] == phases["f"] > 0
    assert np.isfinite([event["ts"] for event in document["traceEvents"] if "ts" in event]).all()
