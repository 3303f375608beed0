"""Published recovery systems: what follows from bytes, scale and overlap, not from stages that are inputs."""

from __future__ import annotations

from collections.abc import Iterator

from clustersim.recovery.stages import Stage
from clustersim.recovery.standby import FFTrainer, TrainMover
from clustersim.validation.reliability_case import Case, ettr, mean, runs, told, within


def trainmover() -> Iterator[Case]:
    """Case 9."""
    name, source = "9 TrainMover", "arXiv 2412.12636"
    yield from _downtimes(name, source)
    for gpus, mttf_min, loss in ((65536, 27.0, 0.1647), (131072, 14.0, 0.3179)):
        yield within(name, f"d ÷ MTTF at {gpus:,} GPUs", loss, 4.45 / mttf_min, 0.002, source, "4.45 min ÷ MTTF")
        ratio = lossless(4.45 * 60, mttf_min * 60)
        yield told(name, f"1 − ETTR at {gpus:,} GPUs, d alone", loss, 1 - ratio, source,
                   "a run: d ÷ (MTTF + d) when failures spare the restart")  # fmt: skip
    moves = ("cluster.nodes=128", "training.global_batch=256", "recovery.strategy=trainmover", "training.duration=10 d",
             "failures=[{name: rebalancing, component: node, mtbf: 1280 min, severity: node, planned: true, repair: 5 min}]",
             "failures_during={spare: false}")  # fmt: skip
    ours = ettr(runs("papers/trainmover-8k.yaml", *moves))
    yield within(name, "ETTR, a machine moved every 10 min, 1,024 GPUs", 0.97, ours, 0.01, f"{source}, figure 16",
                 "the swap of an expected event")  # fmt: skip
    results = runs("papers/trainmover-8k.yaml")
    hits = mean(results, lambda r: r.wall_s * r.ettr / r.interruptions) / 3600
    down = mean(results, lambda r: sum(r.ledger_s[c] for c in ("reschedule", "communicators", "load", "warm_up", "start"))
                / r.interruptions) / 60  # fmt: skip
    yield told(name, "minutes to come back, 8,192 GPUs", 6.47, down, f"{source}, table 1", "stages are inputs")
    yield told(name, "hours of training an interruption", 3.0, hits, source)
    moved = runs("papers/trainmover-8k.yaml", "recovery.strategy=trainmover", "recovery.stages={reschedule: 120 s}")
    yield told(name, "ETTR at 8,192 GPUs, restart → TrainMover", ettr(results), ettr(moved), source)


def _downtimes(name: str, source: str) -> Iterator[Case]:
    mover = TrainMover()
    assert mover.migration is not None
    switch = mover.migration.stages["switch"]
    for gpus, expected, unexpected in ((32, 11.5, 19.6), (128, 14.5, 20.2), (256, 15.5, 20.4), (1024, 16.6, 21.1)):
        base = mover.phase_two.time.mean_s()
        fitted = " (the constant's row)" if gpus == 1024 else ""
        yield within(name, f"expected event, {gpus} GPUs, s", expected, base + switch.extra_s(gpus), 0.20,
                     f"{source}, figure 8", f"phase two 7 s, switch 0.96 s a doubling{fitted}")  # fmt: skip
        ours = base + mover.switch.time.mean_s() + mover.switch.extra_s(gpus)
        ends = " (a constant's row)" if gpus in (32, 1024) else ""
        yield within(name, f"unexpected event, {gpus} GPUs, s", unexpected, ours, 0.20, f"{source}, figure 8",
                     f"switch 11.1 s + 0.3 s a doubling{ends}")  # fmt: skip


def lossless(down_s: float, mttf_s: float) -> float:
    """ETTR of a run that loses nothing but a fixed time a failure."""
    made = (f"recovery={{strategy: restart, lossless: true, stages: {{start: {down_s} s}}}}", "checkpoint=none",
            f"failures=[{{name: f, component: job, severity: process, mtbf: {mttf_s} s, detection: 0 s}}]",
            "failures_during={recovery: false}", "training.duration=100 d", "training.step_time=1 s")  # fmt: skip
    return ettr(runs("papers/trainmover-8k.yaml", *made, replicas=1))


def fftrainer() -> Iterator[Case]:
    """FFTrainer's and Gemini's recovery by size, and what a failure every 3 h costs."""
    name, source = "9 FFTrainer", "arXiv 2512.03644, a third party's summary"
    yield within(name, "Gemini's way, 128 GPUs, s", 994, 15 + 392 + 421 + 71 * 2.3, 0.02, source,
                 "stages at 16 GPUs; connections 2.3 times as long")  # fmt: skip
    ff = FFTrainer()
    connect = ff.connect.time.mean_s() + ff.connect.extra_s(128)
    yield within(name, "FFTrainer, 128 GPUs, s", 29, (ff.heartbeat or 0) + ff.pod.time.mean_s() + connect, 0.05, source,
                 "state beside connections, which take 27 % longer than at 16")  # fmt: skip
    results = runs("papers/fftrainer-13b.yaml")
    down = mean(results, lambda r: 1 - (r.ledger_s["train"] + r.lost_work_s) / r.wall_s)
    yield Case(name, "share of time down, a failure every 3 h", 0.0027, down, 0.002, 0.0032, source, "29 s of 3 h")
    yield told(
        name,
        "the broken step included",
        0.0027,
        1 - ettr(results),
        source,
        "the step is modelled: its batch is not told",
    )


def megascale() -> Iterator[Case]:
    """Set-up of communicators by size."""
    name, source = "MegaScale", "arXiv 2402.15627, section 3.5"
    pairs = Stage.model_validate({"time": 0.0, "per_pair": 1047 / 2048**2})
    ordered = Stage.model_validate({"time": 0.0, "per_gpu": 5 / 2048})
    yield told(
        name, "TCPStore, a barrier a group, 2,048 GPUs, s", 1047, pairs.extra_s(2048), source, "GPUs² from this row"
    )
    yield Case(name, "ordered, 12,288 GPUs, s", 30, ordered.extra_s(12288), None, 30, "there: below 30 s above 10,000",
               "in proportion to GPUs, from below 5 s at 2,048")  # fmt: skip
