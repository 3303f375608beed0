"""Logs of other tools: what is read from good ones; what is said about partial and broken ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from clustersim.calibrate.build import build_profile
from clustersim.calibrate.load import load
from clustersim.calibrate.logs.kineto import group_of, union
from clustersim.errors import InputError

NCCL = """# nccl-tests version 2.16.4 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  41210 on     node-a device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  41210 on     node-a device  1 [0000:43:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.00    0.09    0.09      0    11.90    0.09    0.09      0
       65536         16384     float     sum      -1    16.00    4.10    4.10      0    15.80    4.15    4.15      0
     4194304       1048576     float     sum      -1    40.00  104.86  104.86      0    39.70  105.65  105.65      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 36.4
"""


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value)


def test_nccl_tests(tmp_path: Path) -> None:
    found = load(put(tmp_path, "log.txt", NCCL))
    assert {r["key"]["bytes"]: r["median_s"] for r in found.records} == pytest.approx({1024: 12e-6, 65536: 16e-6, 4194304: 40e-6})
    assert found.records[0]["key"]["op"] == "all-reduce"
    assert (found.records[0]["key"]["group"], found.records[0]["key"]["place"]) == (2, "inside")
    assert "H100" in found.header["device"]["name"]
    profile = build_profile([found], "x")
    curve = profile.curve("all-reduce", 2, "inside")
    assert curve is not None
    assert curve.seconds(65536) == pytest.approx(16e-6, rel=0.2)


def test_nccl_tests_across_nodes(tmp_path: Path) -> None:
    text = NCCL.replace("node-a device  1", "node-b device  0")
    assert load(put(tmp_path, "log.txt", text)).records[0]["key"]["place"] == "across"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("# Avg bus bandwidth    : 36.4\n", ""), "the run did not finish"),
        (("4194304       1048576     float     sum      -1    40.00  104.86  104.86      0    39.70  105.65  105.65      0",
          "4194304       1048576     float     sum"), "log.txt:14: this row is cut off"),
        (("40.00  104.86  104.86      0 ", "40.00  104.86  104.86      7 "), "log.txt:14: 7 wrong values"),
        (("#  Rank  ", "#  "), "lists no ranks"),
        (("all_reduce_perf", "nameless"), "does not say which collective ran"),
    ],
)  # fmt: skip
def test_broken_nccl_logs_are_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    assert said in refused(put(tmp_path, "log.txt", NCCL.replace(*change)))


FIO: dict[str, Any] = {
    "fio version": "fio-3.33",
    "global options": {"bs": "1M", "direct": "1"},
    "jobs": [
        {"jobname": "w", "error": 0, "job options": {"numjobs": "4"}, "read": {"io_bytes": 0, "runtime": 0},
         "write": {"io_bytes": 2**30, "runtime": 500}},
        {"jobname": "r", "error": 0, "job options": {"direct": "0"}, "read": {"io_bytes": 2**30, "runtime": 100},
         "write": {"io_bytes": 0, "runtime": 0}},
    ],
}  # fmt: skip


def test_fio(tmp_path: Path) -> None:
    found = load(put(tmp_path, "fio.json", FIO))
    assert [(r["key"]["op"], r["key"]["jobs"], r["median_s"]) for r in found.records] == [("storage-write", 4, 0.5), ("storage-read", 1, 0.1)]
    assert "page cache" in found.skipped[0]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [(("error",), 5, "jobs[0].error: is 5"), (("write", "runtime"), 0, "jobs[0].write.runtime: is missing or 0"),
     (("write", "io_bytes"), 0, "no job moved a byte")],
)  # fmt: skip
def test_broken_fio_files_are_refused(tmp_path: Path, path: tuple[str, ...], value: int, said: str) -> None:
    data = copy.deepcopy(FIO)
    data["jobs"] = data["jobs"][:1]
    place = data["jobs"][0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert said in refused(put(tmp_path, "fio.json", data))
    assert "breaks off or is damaged" in refused(put(tmp_path, "cut.json", json.dumps(FIO)[:200]))


def kernel(name: str, ts: float, dur: float, launched: float, number: int) -> list[dict[str, Any]]:
    return [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launched, "dur": 1, "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": {"device": 0, "correlation": number}}]  # fmt: skip


def trace() -> dict[str, Any]:
    """A step of 100 µs: product 0-30, all-reduce 20-60 (30 exposed), gap 60-70 (host), norm 70-80, gap to 100."""
    return {"traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0, "dur": 100},
        *kernel("sm90_xmma_gemm_bf16", 0, 30, -5, 1),
        *kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, 40, 2, 2),
        *kernel("layer_norm_kernel", 70, 10, 68, 3),
    ]}  # fmt: skip


def test_kineto(tmp_path: Path) -> None:
    (record,) = load(put(tmp_path, "trace.json", trace())).records
    assert record["groups_s"] == pytest.approx({"communication": 40e-6, "gemm": 30e-6, "norm": 10e-6})
    assert record["exposed_communication_s"] == pytest.approx(30e-6)
    assert record["idle_s"] == pytest.approx({"host": 30e-6, "wait": 0.0})
    assert record["step_s"] == pytest.approx(100e-6)


def test_kineto_gaps_of_streams_are_waits(tmp_path: Path) -> None:
    data = trace()
    data["traceEvents"][-2]["ts"] = 1  # the norm was launched long before: it waited for something else
    (record,) = load(put(tmp_path, "trace.json", data)).records
    assert record["idle_s"] == pytest.approx({"host": 20e-6, "wait": 10e-6})


def test_broken_traces_are_refused(tmp_path: Path) -> None:
    assert "marks no steps" in refused(put(tmp_path, "a.json", {"traceEvents": trace()["traceEvents"][1:]}))
    assert "neither kernels nor operators" in refused(put(tmp_path, "b.json", {"traceEvents": trace()["traceEvents"][:1]}))
    assert "breaks off" in refused(put(tmp_path, "c.json", json.dumps(trace())[:-30]))


def test_groups_and_unions() -> None:
    assert [group_of(name) for name in ("flash_fwd_kernel", "nvjet_tst_128x256", "Memcpy HtoD", "who_knows")] == [
        "attention", "gemm", "copy", "other"]  # fmt: skip
    assert union([(5, 7), (0, 2), (1, 3)]) == [(0, 3), (5, 7)]


TITAN = """# bytes: 12 GiB
[rank0]: 12:00:01 - Saving the checkpoint (or staging if async is enabled).
[rank0]: 12:00:09 - Finished saving the checkpoint (or staging if async is enabled)in 8.50 seconds.
[rank0]: 12:10:09 - Finished loading the checkpoint in 4.25 seconds.
"""
LUSTRE = """snapshot_time             1700000000.000000 secs.nsecs
write_bytes               100 samples [bytes] 4096 4194304 1000000000
snapshot_time             1700000010.000000 secs.nsecs
write_bytes               400 samples [bytes] 4096 4194304 21000000000
"""


def test_checkpoint_and_lustre_logs(tmp_path: Path) -> None:
    saved, loaded = load(put(tmp_path, "titan.log", TITAN)).records
    assert (saved["key"]["op"], saved["median_s"]) == ("checkpoint-save", 8.5)
    assert (loaded["key"]["op"], loaded["key"]["bytes"]) == ("checkpoint-load", 12 * 2**30)
    (record,) = load(put(tmp_path, "lustre.txt", LUSTRE)).records
    assert (record["key"]["bytes"], record["median_s"]) == (20_000_000_000, 10.0)


def test_broken_checkpoint_and_lustre_logs_are_refused(tmp_path: Path) -> None:
    assert "says no size" in refused(put(tmp_path, "a.log", TITAN.replace("# bytes: 12 GiB\n", "")))
    assert "no checkpoint finished" in refused(put(tmp_path, "b.log", "\n".join(TITAN.splitlines()[:2])))
    assert "1 snapshot of the counters; a rate needs two" in refused(put(tmp_path, "c.txt", LUSTRE[:60]))
    assert "not two snapshots in order" in refused(put(tmp_path, "d.txt", LUSTRE.replace("1700000010", "1600000010")))
    assert "none of the kinds known" in refused(put(tmp_path, "e.txt", "hello"))
