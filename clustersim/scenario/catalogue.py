"""What may be named in a scenario: presets with their sources, and parts with their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clustersim.errors import InputError, Problem, nearest
from clustersim.part import Part, preset_data, preset_names
from clustersim.units import written

KINDS: dict[str, tuple[str, str, str]] = {
    # what to list: (folder of presets, family of parts, one line)
    "gpus": ("gpus", "", "GPU types: peaks, memory, links, power"),
    "nodes": ("nodes", "", "hosts: GPUs, links, NICs, memory"),
    "networks": ("networks", "network", "networks between nodes, and kinds of topology"),
    "storage": ("storage", "storage", "shared storage systems, and their kinds"),
    "models": ("models", "", "transformers by their published shape"),
    "stacks": ("stacks", "", "software stacks: kernels, fusion, overlap, host"),
    "failures": ("failures", "failure", "published sets of failure causes, and kinds of failure model"),
    "schedules": ("", "schedule", "pipeline schedules"),
    "engines": ("", "checkpoint engine", "checkpoint engines"),
    "strategies": ("", "recovery strategy", "recovery strategies"),
    "distributions": ("", "distribution", "distributions of a duration"),
    "optimizers": ("", "optimizer", "optimizers and their state"),
    "recompute": ("", "recompute", "what is recomputed in the backward pass"),
    "attention": ("", "attention", "attention patterns"),
}


@dataclass(frozen=True)
class Entry:
    """One name that a scenario may use.

    Attributes:
        name: as written in YAML.
        what: ``preset`` or ``part``.
        about: one line.
        aliases: other names of a part.
        keys: a part's keys, each ``{"required": …, "default": …}``.
        values: a preset's data.
        sources: a preset's sources by key; where a schedule's order comes from.
        notes: what else there is to say of a part: papers, code and rules that it follows.
    """

    name: str
    what: str
    about: str
    aliases: tuple[str, ...] = ()
    keys: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    notes: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        shared = {"name": self.name, "what": self.what, "about": self.about}
        if self.what == "preset":
            return {**shared, "values": self.values, "sources": self.sources}
        return {**shared, "aliases": list(self.aliases), "keys": self.keys, "sources": self.sources, "notes": self.notes}


def entries(kind: str) -> list[Entry]:
    """All names of one kind, presets first.

    Raises:
        InputError: when there is nothing of that kind; names the nearest.
    """
    import clustersim.scenario.schema  # noqa: F401 - its import registers all parts

    if kind not in KINDS:
        hint = nearest(kind, KINDS) or f"; known: {', '.join(KINDS)}"
        raise InputError(Problem("", f"nothing to list is called '{kind}'{hint}"))
    folder, family, _ = KINDS[kind]
    presets = [_preset(folder, name) for name in preset_names(folder)] if folder else []
    parts = Part.families[family] if family else None
    return presets + ([_part(parts.kinds[name]) for name in parts.known_kinds()] if parts is not None else [])


def _preset(folder: str, name: str) -> Entry:
    data = dict(preset_data(folder, name))
    sources = data.pop("sources", {})
    by_key = dict(sources) if isinstance(sources, dict) else {"all": str(sources)}
    return Entry(name, "preset", _about(folder, data), values=data, sources=by_key)


def _about(folder: str, data: dict[str, Any]) -> str:
    """One line that tells a preset from its neighbours."""
    if folder == "gpus":
        peaks = data.get("peak", {})
        best = next((f"{name} {peaks[name]}" for name in ("bf16", "fp16", "fp32") if name in peaks), "")
        return f"{data.get('name', '')}: {data.get('memory', '')}, {data.get('memory_bandwidth', '')}, {best} dense"
    if folder == "nodes":
        gpu = data.get("gpu")
        gpu = gpu.get("preset", gpu.get("name", "")) if isinstance(gpu, dict) else gpu
        return f"{data.get('name', '')}: {data.get('gpus', 8)} × {gpu}, {data.get('nics', 8)} × {data.get('nic_bandwidth', '')}"
    if folder == "stacks":
        return f"{data.get('year')}: attention {data.get('attention')}, optimizer {data.get('optimizer_bytes')} bytes"
    if folder == "models":
        experts = f", {data['moe'].get('experts')} experts" if isinstance(data.get("moe"), dict) else ""
        shape = f"{data.get('layers')} layers, hidden {data.get('hidden')}, {data.get('heads')} heads"
        return f"{shape}, vocab {data.get('vocab')}{experts}"
    if folder == "failures":
        causes = data.get("failures", [])
        names = [str(cause.get("name", "?")) for cause in causes[:3]]
        return f"{len(causes)} causes: {', '.join(names)}{', …' if len(causes) > 3 else ''}"
    hidden = ("name", "latency", "duplex")
    shown = {key: item for key, item in data.items() if key not in hidden and not isinstance(item, (dict, list))}
    return ", ".join(str(item) if key == "kind" else f"{key} {item}" for key, item in list(shown.items())[:4])


def _part(part: type[Part]) -> Entry:
    from clustersim.pipeline.schedule import Schedule

    about, *rest = (" ".join(text.split()).replace("``", "") for text in (part.__doc__ or "").split("\n\n"))
    source = part.traits.source if issubclass(part, Schedule) else ""
    return Entry(part.kind, "part", about, part.aliases, _keys(part), sources={"order": source} if source else {},
                 notes="\n".join(filter(None, rest)))  # fmt: skip


def _keys(part: type[Part]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for name, info in part.model_fields.items():
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        text = default.dump() if isinstance(default, Part) else _text(default)
        text = written(text, info.annotation, *info.metadata) if isinstance(text, float) else text
        keys[name] = {"required": info.is_required(), "default": text}
    return keys


def _text(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return list(value) if isinstance(value, tuple) else value
