"""What a calibration profile knows of copies, files and saves, at the keys of a scenario that it stands for.

A key that the scenario states itself wins (a preset's value is not stated by the scenario). ``calibration.used_for`` of
the scenario that was read, and so of the resolved one, says which keys took their value from which measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from clustersim.paths import PresetText
from clustersim.presets import preset_data, preset_names
from clustersim.units import BANDWIDTH, DURATION, Dimension
from clustersim.workload.fitted import MeasuredCurve
from clustersim.workload.profile import Profile, Use

ASYNC = ("async", "dcp-async")
WORST = 0.5
"""Relative error beyond which a curve is for reading only: its law is not that of the measurement (a cache, a busy disk)."""
_SET_BY = {"planning": "stall", "copy_bandwidth": "stall", "writer_bandwidth": "persist"}
"""Keys of an engine that have no effect where the scenario states another one."""


class Value(NamedTuple):
    """A key's value in SI, its dimension, and what was measured."""

    path: str
    value: float
    dimension: Dimension
    source: str

    @property
    def text(self) -> str:
        """The value as a scenario writes it, exactly."""
        return f"{self.value!r} {'s' if self.dimension is DURATION else 'B/s'}"


class Line(NamedTuple):
    """A curve's law at its largest sizes: seconds = fixed + bytes × each."""

    fixed: float
    each: float

    @classmethod
    def of(cls, curve: MeasuredCurve) -> Line:
        """That of the last range of ``curve``."""
        last = curve.ranges[-1]
        return cls(last.latency, 1.0 / last.rate if last.rate else 0.0)

    def minus(self, other: Line) -> Line:
        """What is left when the other part is taken out, at least nothing."""
        return Line(max(0.0, self.fixed - other.fixed), max(0.0, self.each - other.each))

    def plus(self, other: Line) -> Line:
        """Both, one after the other."""
        return Line(self.fixed + other.fixed, self.each + other.each)


NOTHING = Line(0.0, 0.0)


def measured_values(profile: Profile, engine: str | None) -> list[Value]:
    """What ``profile`` says of a scenario whose checkpoint engine is ``engine``.

    * A GPU's copy to pinned host memory (on a CPU: memory to memory) is the node's.
    * Files that were measured on a local disk are the node's disk; on shared storage, what one process writes and reads,
      and its latency.
    * ``async``: what blocks, and what is taken from training beside, is planning and copy; the rest until durable is the
      writer's. ``sync``: the fixed part of a save is planning, the rest the writer's.
    """
    found = [*_copies(profile), *_files(profile)]
    if engine in ASYNC:
        found += _asynchronous(profile)
    elif engine == "sync":
        found += _synchronous(profile)
    return list(
        {item.path: item for item in found}.values()
    )  # a save's own measurement comes after a file's, and rules


def _line(profile: Profile, op: str) -> Line | None:
    curve = profile.curve(op)
    return None if curve is None or curve.quality.uncertainty > WORST else Line.of(curve)


def _rate(path: str, line: Line | None, said: str) -> list[Value]:
    return [Value(path, 1.0 / line.each, BANDWIDTH, said)] if line is not None and line.each > 0 else []


def _fixed(path: str, seconds: float, said: str) -> list[Value]:
    return [Value(path, seconds, DURATION, said)] if seconds > 0 else []


def _copies(profile: Profile) -> list[Value]:
    for op in ("d2h pinned=True", "copy-host pinned=False"):
        line = _line(profile, op)
        if line is not None:
            return _rate("cluster.node.pinned_bandwidth_per_gpu", line, f"rate of {op}")
    return []


def _files(profile: Profile) -> list[Value]:
    write, read = _line(profile, "storage-write"), _line(profile, "storage-read")
    if profile.files_on == "local":
        return [*_rate("cluster.node.local_disk_write", write, "rate of storage-write"),
                *_rate("cluster.node.local_disk_read", read, "rate of storage-read")]  # fmt: skip
    if profile.files_on == "shared":
        return [*_fixed("cluster.storage.latency", write.fixed if write else 0.0, "latency of storage-write"),
                *_rate("checkpoint.writer_bandwidth", write, "rate of storage-write"),
                *_rate("checkpoint.reader_bandwidth", read, "rate of storage-read")]  # fmt: skip
    return []


def _asynchronous(profile: Profile) -> list[Value]:
    blocking, durable = (_line(profile, f"checkpoint-dcp-async-{name}") for name in ("blocking", "durable"))
    if blocking is None:
        return []
    lost = _line(profile, "checkpoint-dcp-async-lost") or NOTHING
    stall, said = blocking.plus(lost), "dcp-async-blocking and -lost" if lost is not NOTHING else "dcp-async-blocking"
    found = [*_fixed("checkpoint.planning", stall.fixed, f"fixed part of {said}"),
             *_rate("checkpoint.copy_bandwidth", stall, f"rate of {said}")]  # fmt: skip
    if durable is not None and profile.files_on == "shared":
        found += _rate(
            "checkpoint.writer_bandwidth", durable.minus(stall), "rate of dcp-async-durable less what blocks"
        )
    return [*found, *_loads(profile)]


def _synchronous(profile: Profile) -> list[Value]:
    op = "dcp-save" if _line(profile, "checkpoint-dcp-save") is not None else "torch-save"
    save = _line(profile, f"checkpoint-{op}")
    if save is None or profile.files_on != "shared":
        return _loads(profile)
    opening = _line(profile, "storage-write") or NOTHING
    return [*_fixed("checkpoint.planning", save.minus(opening).fixed, f"fixed part of {op} less the latency of a file"),
            *_rate("checkpoint.writer_bandwidth", save, f"rate of {op}"), *_loads(profile)]  # fmt: skip


def _loads(profile: Profile) -> list[Value]:
    if profile.files_on != "shared":
        return []
    for op in ("dcp-load", "torch-load"):
        line = _line(profile, f"checkpoint-{op}")
        if line is not None:
            return _rate("checkpoint.reader_bandwidth", line, f"rate of {op}")
    return []


# -- at the door of a scenario


def with_measured(data: dict[str, Any], profile_data: Any, context: Any) -> dict[str, Any]:
    """``data`` of a scenario with what its profile measured, where it states nothing itself.

    Args:
        data: as written; it is not changed.
        profile_data: reads the profile of a file's name.
        context: of the validation.
    """
    profile = _profile_of(data.get("calibration"), profile_data, context)
    if profile is None:
        return data
    used: dict[str, Use] = {}
    result = dict(data)
    for item in measured_values(profile, _engine(data.get("checkpoint"))):
        changed = _placed(result, item)
        if changed is not None:
            known = profile.used_for.get(item.path)
            before = known.instead_of if known is not None else _preset_value(data, item.path)
            result, used[item.path] = changed, Use(measurement=item.source, instead_of=before)
    return {**result, "calibration": profile.model_copy(update={"used_for": used})}


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _preset_value(data: Any, path: str) -> str | None:
    """What a preset that the scenario names has at a path."""
    *above, last = path.split(".")
    kept = _at(data, path)
    if isinstance(kept, PresetText):
        return kept
    folder = {"node": "nodes", "storage": "storage"}.get(above[-1])
    data = _at(data, ".".join(above))
    name = data.get("preset") if isinstance(data, dict) else data
    if folder is None or not isinstance(name, str) or name not in preset_names(folder):
        return None
    value = preset_data(folder, name).get(last)
    return None if value is None else str(value)


def _profile_of(value: Any, profile_data: Any, context: Any) -> Profile | None:
    if isinstance(value, Profile):
        return value
    try:
        raw = profile_data(value) if isinstance(value, str) else value
        return Profile.model_validate(raw, context=context) if isinstance(raw, dict) else None
    except (ValidationError, PydanticCustomError):
        return None  # the field's own validation says what is wrong, and where


def _engine(value: Any) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("engine", value.get("kind"))
        return _engine(value) if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else getattr(value, "kind", None)


def _placed(data: dict[str, Any], item: Value) -> dict[str, Any] | None:
    """``data`` with the value in place; None where the scenario has its own, or no place for it."""
    block, *rest = item.path.split(".")
    found = data.get(block)
    if rest[:-1]:
        inner = _placed(found, item._replace(path=".".join(rest))) if isinstance(found, dict) else None
        return None if inner is None else {**data, block: inner}
    if isinstance(found, str):
        found = {"engine" if block == "checkpoint" else "preset": found}
    if not isinstance(found, dict) or _own(found, rest[0], item):
        return None
    return {**data, block: {**found, rest[0]: item.text}}


def _own(block: Mapping[str, Any], key: str, item: Value) -> bool:
    """Whether the scenario states this key, or one that leaves it without effect, itself."""
    if key not in block or block[key] is None:
        return block.get(_SET_BY.get(key, "")) is not None
    stated = block[key]
    if isinstance(stated, PresetText):
        return False
    try:
        value = item.dimension.parse(stated) if isinstance(stated, str) else float(stated)
    except (TypeError, ValueError):
        return True
    return not math.isclose(value, item.value, rel_tol=1e-9)  # a resolved scenario states what was measured


def without_measured(data: dict[str, Any], profile: Profile | None) -> dict[str, Any]:
    """Dumped ``data`` with what its profile replaced put back: a scenario made of it takes measured values anew."""
    for path, use in profile.used_for.items() if profile is not None else ():
        above, _, last = path.rpartition(".")
        block = _at(data, above)
        if isinstance(block, dict) and use.instead_of is not None:
            block[last] = PresetText(use.instead_of)
        elif isinstance(block, dict):
            block.pop(last, None)
    return data
