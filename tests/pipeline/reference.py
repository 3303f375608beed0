"""Which of our schedules each reference list belongs to."""

from __future__ import annotations

import re
from pathlib import Path

from clustersim.pipeline.ops import Op, Program, parts_of
from clustersim.pipeline.schedule import Pipeline, get_schedule
from clustersim.pipeline.text import load_program, merge_backward

FOLDER = Path(__file__).parent.parent / "data" / "schedules"

_TORCH = {
    "1F1B": "1f1b", "Std1F1B": "1f1b", "GPipe": "gpipe", "DualPipeV": "dualpipe-v",
    "Interleaved1F1B": "interleaved-1f1b",
    "InterleavedZeroBubble": "interleaved-zb", "LoopedBFS": "looped-bfs", "ZBVZeroBubble": "zb-v",
    "Eager1F1B": "eager-1f1b", "KimiK2": "interleaved-1f1b-ep", "ZeroBubble": "zb-h1",
}  # fmt: skip
_OWN = {"ZB-H1": "zb-h1", "ZB-H2": "zb-h2", "TeraPipe": "terapipe", "Seq1F1B-ZB1": "seq1f1b-zb"}
_SAIL = {
    "1f1b": "1f1b", "1f1bv": "1f1b-v", "groupedinterleaved": "pipeoffload", "interleaved": "interleaved-1f1b",
    "seq1f1b": "seq1f1b", "vhalf": "v-half", "vmin": "v-min", "zb": "zb-auto", "zbv": "zb-v",
}  # fmt: skip
_VIZ = {
    "victarry_1f1b": "1f1b", "victarry_1f1b_interleave": "interleaved-1f1b", "victarry_1f1b_overlap": "1f1b-overlap",
    "victarry_1f1b_interleave_overlap": "interleaved-1f1b-ep", "victarry_dualpipe_v": "dualpipe-v",
    "victarry_zero_bubble_1p": "zb-h1", "minpp_1f1b": "1f1b", "minpp_dualpipe_vshape": "dualpipe-v",
    "minpp_eager1f1b": "eager-1f1b", "minpp_gpipe": "gpipe", "minpp_interleaved_virtual_pipeline": "interleaved-1f1b",
    "minpp_looped_bfs": "looped-bfs", "minpp_vshape_zb": "zb-v", "minpp_zb1f1b": "zb-h1",
}  # fmt: skip


def names() -> list[str]:
    """Every list, as ``folder/name.csv``, sorted."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.csv"))


def size(name: str) -> Pipeline:
    """Ranks, microbatches, chunks and slices as the file's name says."""

    def number(key: str) -> int:
        match = re.search(rf"(?<![a-z]){key}(\d+)", name)
        return int(match.group(1)) if match else 1

    chunks = 2 if re.search(r"interleaved_|groupedinterleaved", name) else number("vp")
    return Pipeline(number("pp"), number("mb"), chunks, number("k"))


def ours(name: str) -> tuple[str, dict[str, object]] | None:
    """(kind, options) of our schedule that the list belongs to, None where we have none."""
    folder, file = name.split("/")
    first = file.split("_")[0]
    if folder in ("torch_compute", "jaxpp"):
        return _TORCH[first], {}
    if folder == "megatron":
        kind = "interleaved-1f1b-ep" if "epoverlap" in file else "interleaved-1f1b"
        group = re.search(r"group(\d+)", file)
        return (kind, {"group": int(group.group(1))}) if group else ("1f1b", {})
    if folder == "sailsg":
        if first == "vauto":
            return None
        group = re.search(r"_g(\d+)", file)
        options: dict[str, object] = {"group": int(group.group(1))} if group else {}
        if first == "zb":
            options["memory"] = 2.0 if "mem2p" in file else 1.0
        if first == "zbv":
            options["construction"] = "greedy"
        return _SAIL[first], options
    if folder == "viztools":
        kind = _VIZ[file.split("_pp")[0]]
        return kind, ({"backward": "ascending"} if kind == "looped-bfs" else {})
    if folder == "own":
        return _OWN[first], {}
    if folder == "dualpipe":
        return ("dualpipe-v" if "V" in first else "dualpipe"), {}
    if folder == "chimera":
        return "chimera", {}
    return ("seq1f1b" if "vp1" in file else "seq1f1b-i"), {}


def load(name: str) -> Program:
    """The reference list."""
    pipe = size(name)
    chains = 2 if ours(name) in (("chimera", {}), ("dualpipe", {})) else 1
    return load_program(FOLDER / name, microbatches=pipe.microbatches, slices=pipe.slices, chains=chains)


def build(name: str) -> Program:
    """Our program for the list."""
    found = ours(name)
    assert found is not None
    kind, options = found
    schedule, pipe = get_schedule(kind, **options), size(name)
    if schedule.traits.chunks is not None:
        pipe = pipe._replace(chunks=1)
    return schedule.program(pipe)


def opened(program: Program) -> list[list[Op]]:
    """Lists with fused pairs opened and I directly followed by its W written B."""
    return [[op for action in rank for op in parts_of(action)] for rank in merge_backward(program).ranks]
