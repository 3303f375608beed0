"""Published jobs and clusters: what failures, saves and restarts made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from clustersim.recovery.in_place import InJob
from clustersim.recovery.standby import standbys
from clustersim.run.result import RunResult
from clustersim.run.simulate import run_replica
from clustersim.validation.reliability_case import Case, ettr, mean, prepared, runs, told, within

DAY = 86400.0


def llama3() -> Iterator[Case]:
    """Case 1."""
    name, source = "1 Llama 3 405B", "arXiv 2407.21783, table 5"
    results = runs("llama3-405b-16k.yaml", replicas=8)
    hits = mean(results, lambda result: result.interruptions)
    yield Case(name, "unexpected interruptions in 54 d on 16,384 H100", 419, hits, 399, 439, source,
               "the rates are these counts ÷ 54 d; the bound is Poisson's")  # fmt: skip
    yield Case(name, "effective training time", 0.90, ettr(results), 0.90, 1.0, "there: over 90 %",
               "restart of 6.5 min, asynchronous saves every 10 min: assumed")  # fmt: skip
    lost = mean(results, lambda r: (1 - r.ettr) * r.wall_s / (r.interruptions + r.interruptions_planned))
    yield Case(
        name, "minutes lost an interruption", 16.7, lost / 60, None, 16.7, "what 90 % over 466 interruptions allows"
    )


def rsc() -> Iterator[Case]:
    """Case 2."""
    name, source = "2 Meta RSC", "arXiv 2410.21680, estimate of its authors"
    file = "papers/rsc-2000-nodes.yaml"
    yield within(name, "ETTR, 2,000 nodes, saves every 60 min", 0.7, ettr(runs(file)), 0.05, source,
                 "exact renewal: 0.7202; their estimate is linear")  # fmt: skip
    yield within(
        name, "ETTR, 2,000 nodes, every 5 min", 0.93, ettr(runs(file, "checkpoint.interval=5 min")), 0.02, source
    )
    fewer = ("cluster.nodes=1500", "training.global_batch=1500", "parallelism.pp=4", "checkpoint.stall=10 s",
             "checkpoint.interval=auto")  # fmt: skip
    yield within(name, "ETTR, 1,500 nodes, saves of 10 s", 0.90, ettr(runs(file, *fewer)), 0.05, source)
    mid = ("cluster.nodes=384", "training.global_batch=384")
    yield Case(name, "ETTR of 3,072 GPUs, saves every 60 min", 0.9, ettr(runs(file, *mid)), 0.85, 0.95,
               "there: about 0.9 for 2,048 to 4,096 GPUs")  # fmt: skip


def byterobust() -> Iterator[Case]:
    """Cases 3 and 4."""
    name, source = "3 ByteRobust", "arXiv 2509.16293"
    results = runs("papers/byterobust-dense.yaml")
    yield within(name, "incidents in 90 d on 9,600 GPUs", 175, mean(results, lambda result: result.interruptions), 0.10, source,
                 "the rate is this count ÷ 90 d; 10 replicas of Poisson")  # fmt: skip
    yield within(name, "ETTR of three months", 0.97, ettr(results), 0.02, source, "localisation, load, hang: assumed")
    for nodes, count in ((128, 2), (256, 2), (512, 3), (1024, 4)):
        yield within(name, f"standby machines for {nodes}", count, standbys(nodes, 1.2e-3), 0.0, f"{source}: P99 of a binomial",
                     "one probability, 1.2e-3 a window, for all four")  # fmt: skip
    yield from _reschedule(name, source)
    yield from _stalls(source)


def _reschedule(name: str, source: str) -> Iterator[Case]:
    slope = 545 - 454
    for gpus, seconds in ((8192, 635.0), (16384, 768.0)):
        ours = 454 + slope * math.log2(gpus / 2048)
        yield within(name, f"requeue at {gpus:,} GPUs, s", seconds, ours, 0.10, f"{source}, table 7",
                     "the same added a doubling as from 2,048 to 4,096")  # fmt: skip
    stage = InJob().rendezvous
    for gpus, seconds in ((4096, 51.0), (8192, 54.0), (16384, 65.0)):
        yield within(name, f"in-place update at {gpus:,} GPUs, s", seconds, stage.extra_s(gpus), 0.10, f"{source}, table 7",
                     "from 46 s at 2,048 GPUs, in proportion to log₂")  # fmt: skip


def _stalls(source: str) -> Iterator[Case]:
    """Stalls of a save every step → relative MFU; the step follows from the Megatron row of the same job."""
    rows = [("70B, 2,048 GPUs", 6.77, 0.3984, (("GEMINI", 1.84, 0.7005), ("ByteRobust", 0.04, 0.9923))),
            ("256B, 16,384 GPUs", 12.98, 0.4280, (("GEMINI", 0.18, 0.9692), ("ByteRobust", 0.02, 0.9911)))]  # fmt: skip
    for job, stall, relative, others in rows:
        step = stall * relative / (1 - relative)
        for system, seconds, published in others:
            made = (
                "failures=null",
                "checkpoint.interval={steps: 1}",
                f"checkpoint.stall={seconds} s",
                "training.duration=4 h",
                f"training.step_time={step} s",
            )
            ours = ettr(runs("papers/byterobust-dense.yaml", *made, replicas=1))
            yield within("4 ByteRobust, saves each step", f"{system}, {job}: relative MFU", published, ours, 0.025,
                         f"{source}, table 8", f"step {step:.2f} s from the Megatron row")  # fmt: skip


def bloom() -> Iterator[Case]:
    """Case 5."""
    name, source = "5 BLOOM", "BigScience chronicle: a failure a week, 40 s every 3 h"
    results = runs("papers/bloom-176b.yaml")
    waste = mean(results, lambda r: (r.ledger_s["checkpoint_stall"] + r.lost_work_s) / r.wall_s)
    yield within(name, "waste by saves and lost work", 0.0126, waste, 0.12, source,
                 "40 replicas of about 15 failures: a standard error of 4 %")  # fmt: skip
    lost = mean(results, lambda r: r.lost_work_s / max(r.interruptions, 1)) / 3600
    yield Case(name, "hours lost a crash", 3.0, lost, None, 3.0, "chronicle: up to 3 h")
    every = prepared("papers/bloom-176b.yaml", "checkpoint.interval=young").every.seconds or math.nan
    yield within(name, "Young's interval, h", 1.93, every / 3600, 0.01, "√(2 · 40 s · 168 h)")


def opt() -> Iterator[Case]:
    """Case 6: the 12th lineage, which was kept: 34.06 d of work on its 992 GPUs."""
    name, source = "6 OPT-175B", "metaseq chronicles"
    ready = prepared("papers/opt-175b.yaml")
    results = [run_replica(ready, 0, replica) for replica in range(ready.scenario.simulation.replicas)]
    days = mean(results, lambda r: r.wall_s) / DAY
    yield within(name, "days to 300 G tokens", 56, days, 0.06, f"{source}: 11 November to 6 January (63 from 5 November)",
                 "the bound is two standard deviations of a run; hours on call, load and start are assumed")  # fmt: skip
    for share, published, bound in ((0.27, 22, None), (0.56, 35, 0.09)):
        reached = mean(results, lambda r, share=share: _reached(r, share * ready.target_steps)) / DAY  # type: ignore[misc]
        row = f"days to {share:.0%} of them"
        yield (told(name, row, published, reached, source) if bound is None else
               within(name, row, published, reached, bound, source, "two standard deviations of a run"))  # fmt: skip
    back = mean(results, lambda r: sum(entry.event == "resume" for entry in r.log.entries()))
    yield within(
        name, "restarts", 90, back, 0.2, f"{source}: about 90", "hosts lost while others are replaced add none"
    )
    stops = mean(results, lambda r: r.interruptions)
    yield within(name, "failures of hosts and divergences", 105, stops, 0.2, "arXiv 2205.01068: 35 + 70 restarts for hardware",
                 "two a day, as the chronicles say")  # fmt: skip
    alone = f"failures={json.dumps([cause.dump() for cause in ready.scenario.failures[:2]])}"
    for spares in (4, 12, 18):
        some = runs("papers/opt-175b.yaml", alone, f"cluster.spare_nodes={spares}")
        wait = mean(some, lambda r: r.ledger_s["wait_for_nodes"]) / 3600
        yield told(
            name, f"hours of waiting, hosts alone, buffer {spares}", 0, wait, "buffer of 4 emptied by 5 losses in a day"
        )


def _reached(result: RunResult, steps: float) -> float:
    """When so many steps were first durable, seconds."""
    entries = result.log.entries()
    return next(entry.time_s for entry in entries if entry.event == "save_durable" and (entry.step or 0) >= steps)


def dlrover() -> Iterator[Case]:
    """Case 7."""
    name, source = "7 DLRover GLM-65B", "DLRover blog on flash checkpoint"
    before = ettr(runs("papers/dlrover-glm-65b.yaml"))
    flash = ("checkpoint.stall=0.2 s", "checkpoint.interval={steps: 10}")
    after = ettr(runs("papers/dlrover-glm-65b.yaml", *flash))
    yield within(
        name, "goodput before, 120 s every 1.5 h", 0.90, before, 0.10, source, "failure rate and restart: assumed"
    )
    yield within(name, "goodput after, 0.2 s every 10 steps", 0.95, after, 0.03, source)
