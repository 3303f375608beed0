"""What every drawing of a timeline shows: boxes, idle stretches, memory, names and colours, ready to be drawn.

Colours are apart for the common colour-vision deficiencies (Okabe and Ito's palette, lightened); a chunk is a shade
of its kind's colour, and a microbatch's slices carry hatches, so nothing rests on hue alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from clustersim.errors import InputError
from clustersim.pipeline.activations import Held, held_bytes
from clustersim.pipeline.critical import critical_path
from clustersim.pipeline.dependencies import KINDS
from clustersim.pipeline.evaluate import evaluate
from clustersim.pipeline.idle import Gap, idle_gaps
from clustersim.pipeline.ops import Kind
from clustersim.pipeline.replay import Timeline

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

COLOURS: dict[Kind, str] = {
    Kind.F: "#56a0d3",
    Kind.B: "#e0824a",
    Kind.I: "#f0c04a",
    Kind.W: "#3aa684",
    Kind.R: "#c98bb0",
    Kind.S: "#7f7fbf",
    Kind.T: "#a6a6d9",
}
OTHER_COLOUR = "#8c8c8c"
CAUSE_COLOURS: dict[str, str] = {
    "fill": "#f1f1f1",
    "drain": "#e6e6e6",
    "dependency": "#f9d9d3",
    "latency": "#ddd3ee",
    "blocked_send": "#b9a4dc",
    "imbalance": "#e9d8b4",
    "memory": "#c9e4de",
}
KIND_NAMES: dict[Kind, str] = {
    Kind.F: "forward",
    Kind.B: "backward",
    Kind.I: "input gradient",
    Kind.W: "weight gradient",
    Kind.R: "recompute",
    Kind.S: "vocabulary S",
    Kind.T: "vocabulary T",
}
MEMORY_LEGEND = [["#5f6d7c", "memory that is always held"], ["#9aa7b5", "activations held"]]
"""Colours of the memory strip, and what they stand for."""


@dataclass(frozen=True, eq=False)
class View:
    """A timeline as it shall be drawn.

    Attributes:
        timeline: from either replay.
        title: what it is called; the program's name if empty.
        activation_bytes: bytes of one unit on one stage, one number or one a stage. None: memory counts microbatches
            (of a whole rank's share) instead of bytes.
        checkpoint_bytes: bytes that a unit keeps until it is recomputed.
        pending_bytes: bytes that a unit keeps between its I and its W.
        static_bytes: bytes that each rank holds all the time, (ranks,); what it holds of units lies on them.
        limit: the most a rank may hold, in the same measure, one number or one a rank; drawn as a line.
        time_unit: what a time of 1 is called.
    """

    timeline: Timeline
    title: str = ""
    activation_bytes: float | Sequence[float] | None = None
    checkpoint_bytes: float | Sequence[float] | None = None
    limit: float | Sequence[float] | None = None
    time_unit: str = "s"
    pending_bytes: float | Sequence[float] | None = None
    static_bytes: Sequence[float] | None = None

    @property
    def name(self) -> str:
        """The title, or the program's name."""
        return self.title or self.timeline.graph.program.name or "schedule"

    @property
    def memory_unit(self) -> str:
        """What memory is measured in."""
        return "microbatches" if self.activation_bytes is None else "bytes"

    @cached_property
    def memory(self) -> list[Held]:
        """What each rank holds over time."""
        graph = self.timeline.graph
        size = 1 / (graph.chunks * graph.program.slices) if self.activation_bytes is None else self.activation_bytes
        held = held_bytes(self.timeline, size, self.checkpoint_bytes, self.pending_bytes)
        return [dataclasses.replace(one, bytes=one.bytes + base) for one, base in zip(held, self.base, strict=True)]

    @property
    def base(self) -> list[float]:
        """What each rank holds when no unit is in flight."""
        return [0.0] * self.timeline.graph.ranks if self.static_bytes is None else list(self.static_bytes)

    @cached_property
    def limits(self) -> list[float | None]:
        """The limit of each rank.

        Raises:
            InputError: there is not one a rank.
        """
        ranks = self.timeline.graph.ranks
        if self.limit is None or isinstance(self.limit, (int, float)):
            return [self.limit] * ranks
        if len(self.limit) != ranks:
            raise InputError(f"limit needs one number or one a rank ({ranks}), not {len(self.limit)}")
        return list(self.limit)

    @property
    def over(self) -> list[bool]:
        """Whether each rank holds more than its limit at some time."""
        return [
            limit is not None and held.peak > limit * (1 + 1e-12)
            for limit, held in zip(self.limits, self.memory, strict=True)
        ]

    @cached_property
    def memory_top(self) -> float:
        """The largest value or limit on any rank, for a common scale."""
        peaks = [held.peak for held in self.memory] + [limit for limit in self.limits if limit is not None]
        return max([*peaks, 1e-300])

    @cached_property
    def gaps(self) -> list[Gap]:
        """Idle stretches that can be seen."""
        least = 1e-9 * self.timeline.makespan
        return [gap for gap in idle_gaps(self.timeline) if gap.end - gap.start > least]

    @cached_property
    def numbers(self) -> dict[str, object]:
        """What ``evaluate`` says."""
        return evaluate(self.timeline)

    @cached_property
    def boxes(self) -> Boxes:
        """The parts to draw."""
        return Boxes.of(self.timeline)

    @cached_property
    def critical(self) -> Ints:
        """(ops,) the ops on the critical path."""
        ops = self.timeline.graph.ops
        return np.array([step.node for step in critical_path(self.timeline) if step.node < ops], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Boxes:
    """One box a part: ``op``, ``rank``, ``kind`` (index into ``KINDS``), ``chunk`` on its rank, ``microbatch`` and
    ``slice`` (−1 for a whole stage), ``half``: 0 a box of its own, 1 or 2 the upper or lower half of a fused pair's;
    ``start``, ``end`` in seconds from the first op; ``compute``: whether on the compute stream."""

    op: Ints
    rank: Ints
    stage: Ints
    kind: Ints
    chunk: Ints
    chunks: int
    microbatch: Ints
    slice: Ints
    half: Ints
    start: Floats
    end: Floats
    compute: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, timeline: Timeline) -> Boxes:
        """The boxes of a timeline."""
        graph, parts = timeline.graph, timeline.graph.parts
        chunk = chunk_of_stage(timeline)
        slices = graph.program.slices
        half = np.zeros(len(parts.node), dtype=np.int64)
        half[graph.ops :] = 2
        half[parts.node[graph.ops :]] = 1
        whole = parts.unit < 0
        return cls(
            op=parts.node,
            rank=parts.rank[parts.node],
            stage=parts.stage,
            kind=parts.kind,
            chunk=chunk[parts.stage],
            chunks=int(chunk.max(initial=0)) + 1,
            microbatch=np.where(whole, -1, parts.unit // slices),
            slice=np.where(whole, -1, parts.unit % slices),
            half=half,
            start=timeline.start[parts.node] - timeline.first_start,
            end=timeline.end[parts.node] - timeline.first_start,
            compute=graph.compute[parts.node],
        )


def chunk_of_stage(timeline: Timeline) -> Ints:
    """(stages,) how many lower stages the stage's rank runs: 0 for its first chunk."""
    graph = timeline.graph
    rank = np.full(graph.stages, -1, dtype=np.int64)
    rank[graph.parts.stage] = graph.parts.rank[graph.parts.node]
    seen: dict[int, int] = {}
    chunk = np.zeros(graph.stages, dtype=np.int64)
    for stage, owner in enumerate(rank.tolist()):
        chunk[stage] = seen.get(owner, 0)
        seen[owner] = int(chunk[stage]) + 1
    return chunk


def views(timelines: Timeline | View | Sequence[Timeline | View]) -> list[View]:
    """Whatever may be drawn, as views."""
    several = [timelines] if isinstance(timelines, (Timeline, View)) else list(timelines)
    if not several:
        raise InputError("there is no timeline to draw")
    return [one if isinstance(one, View) else View(one) for one in several]


def shade(kind: int, chunk: int, chunks: int) -> str:
    """The colour of a kind on a chunk: the first chunk has the kind's colour, later ones are darker."""
    base = COLOURS.get(KINDS[kind], OTHER_COLOUR)
    red, green, blue = (int(base[i : i + 2], 16) / 255 for i in (1, 3, 5))
    depth = chunk / (chunks - 1) if chunks > 1 else 0.0
    factor = 1 - (0.22 if chunks == 2 else 0.36) * depth
    return "#" + "".join(f"{round(255 * value * factor):02x}" for value in (red, green, blue))


def text_colour(background: str) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = (int(background[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"


def amount(value: float, view: View) -> str:
    """An amount of memory as drawings print it."""
    if view.memory_unit != "bytes":
        return f"{value:.4g}"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


@dataclass(frozen=True)
class Row:
    """A line of the table that compares views: a name, a value a view, and the last minus the first."""

    name: str
    values: tuple[float | None, ...]
    percent: bool = False

    @property
    def difference(self) -> float | None:
        """Last minus first, None where either is undefined or there is but one."""
        first, last = self.values[0], self.values[-1]
        return None if first is None or last is None or len(self.values) < 2 else last - first

    def text(self, value: float | None, *, sign: bool = False) -> str:
        """A value as the table prints it."""
        if value is None:
            return "–"
        plus = "+" if sign and value else ""
        if self.percent:
            return f"{100 * value:{plus}.2f} {'points' if sign else '%'}"
        return f"{value:{plus}.6g}"


def comparison(shown: Sequence[View]) -> list[Row]:
    """The difference table: step, the three bubbles, peak, messages and idle by cause."""
    every = [view.numbers for view in shown]
    unit = f" [{shown[0].time_unit}]" if shown[0].time_unit else ""
    rows = [Row(f"makespan{unit}", tuple(n["makespan"] for n in every))]  # type: ignore[misc]
    for key, name in (("step", "bubble ÷ step"), ("span", "bubble ÷ longest rank span"), ("work", "bubble ÷ work")):
        rows.append(Row(name, tuple(n["bubble"][key] for n in every), percent=True))  # type: ignore[index]
    in_bytes = all(view.memory_unit == "bytes" for view in shown)
    size = 2.0**30 if in_bytes else 1.0
    peaks = tuple(max((held.peak for held in view.memory), default=0.0) / size for view in shown)
    what = "peak activations" if all(view.static_bytes is None for view in shown) else "peak memory of a rank"
    rows.append(Row(f"{what} [{'GiB' if in_bytes else 'microbatches'}]", peaks))
    rows.append(Row("messages", tuple(float(n["messages"]) for n in every)))  # type: ignore[arg-type]
    for cause in CAUSE_COLOURS:
        values = tuple(n["idle_by_cause"][cause] for n in every)  # type: ignore[index]
        if any(value > 1e-9 * view.timeline.makespan for value, view in zip(values, shown, strict=True)):
            rows.append(Row(f"idle: {cause.replace('_', ' ')}", values))
    return rows
