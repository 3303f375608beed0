"""The answer in a terminal: 80 columns, the most important line first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clustersim.shown import cut, printable
from clustersim.units import about

if TYPE_CHECKING:
    from clustersim.scenario.schema import Scenario

WIDTH = 80
NAME = 120
"""Characters of a scenario's name that a terminal shows."""
Json = dict[str, Any]

_WHAT_TO_CHANGE = {
    "straggle": "finding and replacing slow nodes",
    "degraded": "more spare nodes, or faster repair",
    "detect": "noticing failures sooner (failures' detection)",
    "diagnose": "diagnosing faster (recovery.stages.diagnose)",
    "reschedule": "spares that are held ready (recovery.stages.reschedule)",
    "wait_for_nodes": "more spare nodes (cluster.spare_nodes), or more repair crews",
    "start": "starting faster (recovery.stages.start)",
    "communicators": "faster set-up of communicators (recovery.stages.communicators)",
    "load": "faster reading of checkpoints (cluster.storage, checkpoint.restore)",
    "warm_up": "a shorter warm-up (recovery.stages.warm_up)",
    "migrate": "moving less state at a failure",
}


@dataclass(frozen=True)
class Answer:
    """Everything that a summary or a report page shows of one scenario."""

    scenario: Scenario
    document: Json
    interrupted: bool = False


def _replicas(count: int) -> str:
    """``1 replica``, ``20 replicas``."""
    return f"{count} replica" + "s" * (count != 1)


def _name(scenario: Scenario) -> str:
    return printable(cut(scenario.name, NAME))


def run_summary(answer: Answer) -> str:
    """The printed summary of ``clustersim run``."""
    scenario, run = answer.scenario, answer.document["run"]
    lines = [
        f"{_name(scenario)}: {scenario.cluster.gpus:,} GPUs, {_replicas(answer.document['replicas'])}, "
        f"seed {answer.document['seed']}",
        "",
        *_headline(scenario, run, answer.document["given_up"]),
        f"  ETTR            {percent(run['ettr'])} of the wall time is kept training",
        *_mfu(answer.document["step"], run),
        _interruptions(run),
        *_checkpoints(answer.document["checkpoint"]),
        *recovery_lines(answer.document.get("recovery")),
        "",
        "Where the time goes (mean over replicas)",
        *ledger_bars(run),
        "",
        *advice(run, scenario),
        *_warnings(answer),
    ]
    return "\n".join(line for part in lines for line in wrapped(part))


def between_s(run: Json) -> float | None:
    """Seconds from one interruption to the next, of all replicas together; null without one.

    The mean of ``mtti_s`` leaves out the replicas without an interruption, and is too short where they are many.
    """
    count, wall_s = mean(run["interruptions"]), mean(run["wall_s"])
    return wall_s / count if count and wall_s else None


def _interruptions(run: Json) -> str:
    between = between_s(run)
    every = f", one every {duration(between)}" if between is not None else ""
    lost = mean(run.get("steps_lost"))
    twice = duration(mean(run["lost_work_s"])) + ("" if lost is None else f" ({lost:,.0f} steps)")
    return f"  interruptions   {number(run['interruptions'])}{every}; {twice} done twice"


def _checkpoints(saves: Json | None) -> list[str]:
    if saves is None:
        return ["  checkpoints     none"]
    every = f"{saves['interval_steps']} steps" if saves["interval_steps"] else duration(saves["interval_s"])
    line = f"  checkpoints     {saves['engine']}, every {every}: stall {duration(saves['stall_s'])}"
    more = [f"{tier} {duration(told['durable_mean_s'])}" for tier, told in saves["tiers"].items()]
    more = [f"durable: {', '.join(more)}"] if len(more) > 1 else []
    if saves["meet"]:
        more.append(f"saves meet: stall {duration(saves['stall_mean_s'])} in the mean")
    if saves["host_memory_bytes"]:
        more.append(f"{short(saves['host_memory_bytes'])}B of host memory a node")
    lines = [f"{line}, durable after {duration(saves['durable_s'])}"]
    return [*lines, f"                  {'; '.join(more)}"] if more else lines


def recovery_lines(told: Json | None) -> list[str]:
    """How the strategy comes back, stage by stage, what it holds ready and sends, and the interval that suits it."""
    if not told or not told["ways"]:
        return []
    lines = [f"  recovery        {told['strategy']}; after detection, mean of each way back:"]
    lines += [f"                  {way_line(way)}" for way in told["ways"][:3]]
    lines.append(f"                  {'; '.join(held(told))}")
    if told["best_interval_s"]:
        lines.append(f"                  saves every {duration(told['best_interval_s'])} would suit it")
    return lines


def way_line(way: Json) -> str:
    """One way back: its share of the failures, its length, its stages."""
    stages = ", ".join(_together(f"{name} {duration(seconds)}") for name, seconds in way["stages_s"].items())
    keeps = ", loses one step" if way["keeps_state"] else ""
    return f"{way['path']} {duration(way['total_s'])} ({way['share']:.0%} of failures{keeps}): {stages or 'no stage'}"


def _together(words: str) -> str:
    """Words that ``wrapped`` leaves on one line."""
    return words.replace(" ", "\u00a0")


def held(told: Json) -> list[str]:
    """What a strategy holds ready, and what it sends."""
    spares, cold = told["spare_nodes"], told.get("cold_spare_nodes")
    kept = [f"{spares} spare node{'s' * (spares != 1)}" + (f", {cold} more that are off" if cold else "")]
    if told["extra_memory_bytes_per_node"]:
        kept.append(f"{short(told['extra_memory_bytes_per_node'])}B of memory a node")
    if told["network_bytes_per_node_per_step"]:
        kept.append(f"{short(told['network_bytes_per_node_per_step'])}B a node sent each step")
    if told["network_bytes_per_recovery"]:
        kept.append(f"{short(told['network_bytes_per_recovery'])}B sent in a recovery")
    if told["step_overhead_s"]:
        kept.append(f"{duration(told['step_overhead_s'])} added to each step")
    return kept


def _headline(scenario: Scenario, run: Json, given_up: int) -> list[str]:
    goodput = mean(run["goodput_tokens_per_s"]) or 0.0
    if given_up:
        return [f"  time to train   none: {given_up} replicas were given up, after {span(run['wall_s'])} in the mean"]
    if scenario.training.duration is not None:
        days = duration(scenario.training.duration)
        return [f"  tokens trained  {quantity(run['tokens'])} in {days}: {short(goodput)} a second"]
    return [
        f"  time to train   {span(run['wall_s'])} for {short(mean(run['tokens']) or 0.0)} tokens: {short(goodput)} a second"
    ]


def _mfu(step: Json, run: Json) -> list[str]:
    takes = f"{step['step_time_s']:.4g} s{_given(step)}"
    line = f"  MFU             {step['mfu']:.1%} ({step['tflops_per_gpu']:.0f} TFLOP/s a GPU, step {takes})"
    if run.get("effective_mfu") is not None:
        line += f", {mean(run['effective_mfu']):.1%} over the run"
    return [line, f"                  ({step['convention']})"]


def _given(step: Json) -> str:
    return "" if step.get("step_time_modelled_s") is None else " (given)"


def ledger_bars(run: Json) -> list[str]:
    """A line a category that takes time: its name, a bar, its share, and its mean over replicas."""
    seconds = {name: item["mean"] for name, item in run["ledger_s"].items() if item and item["mean"] > 0}
    wall = math.fsum(seconds.values())
    width = max((len(name) for name in seconds), default=0)
    room = WIDTH - width - 28
    lines = []
    for name, value in sorted(seconds.items(), key=lambda pair: (pair[0] != "train", -pair[1], pair[0])):
        share = value / wall
        filled = round(share * room)
        bar = "█" * filled if filled else "▏"
        lines.append(f"  {name:<{width}}  {bar:<{room}}  {share:7.2%}  {duration(value):>12}")
    return lines


def costs_of(run: Json) -> list[tuple[str, float]]:
    """(category, share of the wall time) of all that is not training, the largest first."""
    seconds = {name: item["mean"] for name, item in run["ledger_s"].items() if item}
    wall = math.fsum(seconds.values())
    lost = [(name, value / wall) for name, value in seconds.items() if name != "train" and value > 0]
    return sorted(lost, key=lambda pair: (-pair[1], pair[0]))


def advice(run: Json, scenario: Scenario) -> list[str]:
    """What costs most, and what to change first."""
    lost = costs_of(run)
    if not lost:
        return ["Nothing but training takes time."]
    name, share = lost[0]
    hours = share * (mean(run["gpu_hours"]) or 0.0)
    told = f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
    lines = [f"Costs most: {name}, {share:.2%} of the wall time, {told} GPU-hours."]
    change = next((found for item, _ in lost if (found := _change(item, dict(lost), scenario))), None)
    return [*lines, f"Change first: {change}."] if change else lines


def _change(name: str, lost: dict[str, float], scenario: Scenario) -> str | None:
    """What lowers a category. At the best interval work done twice and the time that saves take are about equal."""
    if name not in ("rework", "checkpoint_stall", "checkpoint_slowdown"):
        return _WHAT_TO_CHANGE.get(name)
    if scenario.checkpoint.kind == "none":
        return "save at all (checkpoint.engine): every failure starts the job from its beginning"
    saving = lost.get("checkpoint_stall", 0.0) + lost.get("checkpoint_slowdown", 0.0)
    rework = lost.get("rework", 0.0)
    if rework < saving / 2:
        return (
            f"save less often (checkpoint.interval): saves take {saving:.2%} of the time, work done twice {rework:.2%}"
        )
    if saving < rework / 2:
        taken = f"saves take {saving:.2%} of the time, work done twice {rework:.2%}"
        return f"save more often (checkpoint.interval): {taken}"
    return "an engine that stalls less (checkpoint.engine), or fewer failures: the interval is about right"


def _warnings(answer: Answer) -> list[str]:
    lines = [f"Warning: {text}" for text in answer.document["step"].get("warnings", [])]
    lines += [f"Warning: {text}" for text in answer.document["warnings"]]
    if answer.interrupted:
        lines.append("Interrupted: these are the replicas that were finished.")
    return ["", *lines] if lines else []


def step_summary(scenario: Scenario, step: Json) -> str:
    """The printed summary of ``clustersim step``."""
    layout, memory, gib = scenario.parallelism, step["memory"], 2.0**30
    peak = max(
        range(len(memory["stages"])), key=lambda rank: math.fsum(_parts(memory["stages"][rank]).values()), default=0
    )
    lines = [
        f"{_name(scenario)}: {scenario.cluster.gpus:,} GPUs, tp {layout.tp} × pp {layout.pp} × cp {layout.cp} × "
        f"dp {scenario.dp}, {step['microbatches']} microbatches, {layout.schedule.kind}",
        "",
        f"  step            {step['step_time_s']:.4g} s{_given(step)}: {short(step['tokens_per_s'])} tokens/s, "
        f"{step['tokens_per_s_per_gpu']:.1f} a GPU",
        f"  MFU             {step['mfu']:.1%} ({step['tflops_per_gpu']:.0f} TFLOP/s a GPU), HFU {step['hfu']:.1%}",
        f"                  ({step['convention']})",
        f"  bubble          {step['bubble_fraction']:.1%} of the step on the average rank",
        f"  memory          {memory['peak_bytes'] / gib:.1f} of {memory['limit_bytes'] / gib:.1f} GiB on pipeline rank {peak}: "
        + ", ".join(f"{name} {size / gib:.1f}" for name, size in _largest(memory["stages"][peak])),
        "",
        "Where the step goes (critical rank)",
        *_breakdown(step),
        *([""] + [f"Warning: {text}" for text in step.get("warnings", [])] if step.get("warnings") else []),
    ]
    return "\n".join(line for part in lines for line in wrapped(part))


def _parts(stage: Json) -> dict[str, float]:
    return {name: float(size) for name, size in stage.items() if isinstance(size, (int, float)) and name != "total"}


def _largest(stage: Json) -> list[tuple[str, float]]:
    return sorted(_parts(stage).items(), key=lambda pair: -pair[1])[:4]


def _breakdown(step: Json) -> list[str]:
    parts = {name: value for name, value in step["breakdown_s"].items() if value > 0}
    width = max((len(name) for name in parts), default=0)
    room = WIDTH - width - 28
    total = math.fsum(parts.values())
    return [
        f"  {name:<{width}}  {'█' * round(value / total * room) or '▏':<{room}}  {value / total:7.2%}  {value * 1e3:9,.1f} ms"
        for name, value in sorted(parts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def wrapped(line: str) -> list[str]:
    """``line`` in lines of at most 80 columns, continued under its text."""
    if len(line) <= WIDTH:
        return [line.replace("\u00a0", " ")]
    import textwrap

    indent = len(line) - len(line.lstrip())
    hang = " " * (18 if line.startswith("  ") and not line.startswith("    ") else indent)
    lines = textwrap.wrap(line, WIDTH, subsequent_indent=hang, drop_whitespace=True, break_long_words=False)
    return [each.replace("\u00a0", " ") for each in lines]


def mean(item: Json | None) -> float | None:
    """Mean of a summary, None where it is undefined."""
    return None if item is None else float(item["mean"])


def _half(item: Json) -> float | None:
    interval = item.get("ci95")
    return None if interval is None else (interval[1] - interval[0]) / 2


def percent(item: Json | None) -> str:
    """A share with its interval: ``93.31% ± 0.12``."""
    if item is None:
        return "undefined"
    half = _half(item)
    return f"{item['mean']:.2%}" + (f" ± {100 * half:.2f}" if half is not None else "")


def _relative(item: Json) -> str:
    half = _half(item)
    return f" ± {100 * half / abs(item['mean']):.2g}%" if half and item["mean"] else ""


def quantity(item: Json | None) -> str:
    """A large number with its interval: ``12.3 T ± 0.15%``."""
    return "undefined" if item is None else short(item["mean"]) + _relative(item)


def number(item: Json | None) -> str:
    """A count with its interval."""
    if item is None:
        return "undefined"
    half = _half(item)
    return f"{item['mean']:,.1f}" + (f" ± {half:,.1f}" if half is not None else "")


def span(item: Json | None) -> str:
    """A duration with its interval: ``3.1 h ± 2.3%``."""
    return "never" if item is None else duration(item["mean"]) + _relative(item)


def plain(value: float) -> str:
    """A number to five figures, never with an exponent where thousands will do: ``468,560``, ``0.99413``."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.5g}"


def short(value: float) -> str:
    """Three figures and a decimal prefix: ``1.23 T``."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """A duration in the unit that fits: ``54 d``, ``3.1 h``."""
    return "undefined" if seconds is None else about(seconds)


def rough_duration(seconds: float | None) -> str:
    """A duration to two figures, three from 100 on: ``1.3 min``, ``640 ms``."""
    text = duration(seconds)
    number, _, unit = text.partition(" ")
    return f"{float(number):.2g} {unit}" if unit and "," not in number and float(number) < 99.5 else text


def rough_bytes(size: float) -> str:
    """Bytes to two figures: ``15 GB``; ``-`` for none."""
    return f"{short(float(f'{size:.2g}'))}B" if size else "-"
