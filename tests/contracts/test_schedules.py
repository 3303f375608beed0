"""What every registered schedule owes, asked of each one unasked: a new file in ``schedules/`` is tested by being
there."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from clustersim.errors import InputError
from clustersim.pipeline.check import check
from clustersim.pipeline.check_comms import check_comms
from clustersim.pipeline.comms import Links
from clustersim.pipeline.ops import Kind, Program, parts_of
from clustersim.pipeline.schedule import Description, Pipeline, Schedule, get_schedule, schedule_names
from clustersim.pipeline.text import parse_program, to_csv

KINDS = schedule_names()
SIZES = [(1, 4), (2, 4), (2, 8), (4, 4), (4, 8), (4, 16), (6, 12)]


def instance(kind: str, tmp_path: Path, pipe: Pipeline) -> Schedule:
    if kind != "csv":
        return get_schedule(kind)
    file = tmp_path / f"{pipe.ranks}_{pipe.microbatches}.csv"
    file.write_text(to_csv(get_schedule("1f1b").program(pipe._replace(chunks=1, slices=1))))
    return get_schedule(kind, file=str(file))


def cases(kind: str, tmp_path: Path) -> list[tuple[Schedule, Pipeline]]:
    """Sizes at which the schedule is defined, at its default chunks and with as many slices as ranks where it
    slices."""
    found = []
    for ranks, microbatches in SIZES:
        chosen = instance(kind, tmp_path, Pipeline(ranks, microbatches))
        slices = ranks if chosen.traits.sliced and kind != "csv" else 1
        pipe = Pipeline(ranks, microbatches, chosen.default_chunks(), slices)
        if not chosen.refusals(pipe):
            found.append((chosen, pipe))
    return found


def held(program: Program, rank: int) -> int:
    now = peak = 0
    for action in program.ranks[rank]:
        ops = list(parts_of(action))
        now += sum(op.kind in (Kind.F, Kind.RELOAD) for op in ops)
        peak = max(peak, now)
        now -= sum(op.kind in (Kind.B, Kind.W, Kind.OFFLOAD) for op in ops)
    return peak


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_defined_somewhere_and_complete_there(kind: str, tmp_path: Path) -> None:
    found = cases(kind, tmp_path)
    assert len(found) >= 4
    for chosen, pipe in found:
        program = chosen.program(pipe)
        assert len(program.ranks) == pipe.ranks
        assert check(program) == []
        assert check_comms(program, "rendezvous") is None


@pytest.mark.parametrize("kind", KINDS)
def test_it_sits_where_it_says_and_sends_what_it_says(kind: str, tmp_path: Path) -> None:
    for chosen, pipe in cases(kind, tmp_path):
        program = chosen.program(pipe)
        placed = chosen.stage_rank(pipe)
        assert program.stage_rank == dict(enumerate(placed))
        links = Links(program)
        ops = [op for rank in program.ranks for action in rank for op in parts_of(action)]
        assert sum(links.message(op) is not None for op in ops) == chosen.messages(pipe)


@pytest.mark.parametrize("kind", KINDS)
def test_it_holds_no_more_than_it_says_and_reaches_it(kind: str, tmp_path: Path) -> None:
    for chosen, pipe in cases(kind, tmp_path):
        program, sized = chosen.program(pipe), chosen.resolve(pipe)
        share = sized.chunks * sized.slices
        bounds = [chosen.in_flight(pipe, rank) for rank in range(pipe.ranks)]
        peaks = [held(program, rank) / share for rank in range(pipe.ranks)]
        assert all(peak <= bound + 1e-9 for peak, bound in zip(peaks, bounds, strict=True))
        if (
            kind != "zb-auto"
        ):  # its cap counts a microbatch between I and W half, so the bound is not reached everywhere
            assert max(peaks) >= 0.6 * max(bounds)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_whether_it_splits_the_backward(kind: str, tmp_path: Path) -> None:
    for chosen, pipe in cases(kind, tmp_path):
        kinds = {op.kind for rank in chosen.program(pipe).ranks for action in rank for op in parts_of(action)}
        assert (Kind.W in kinds) == chosen.splits_backward
        assert (Kind.I in kinds) == (Kind.W in kinds)


@pytest.mark.parametrize("kind", KINDS)
def test_program_carries_its_name_options_and_copies(kind: str, tmp_path: Path) -> None:
    chosen, pipe = cases(kind, tmp_path)[0]
    program = chosen.program(pipe)
    assert program.name == kind
    assert program.weight_copies == chosen.weight_copies >= 1
    assert set(program.options) == set(type(chosen).model_fields)
    json.dumps(program.options)
    assert pickle.loads(pickle.dumps(program)) == program
    assert chosen.program(pipe) == program  # the same every time


@pytest.mark.parametrize("kind", KINDS)
def test_lists_survive_the_csv(kind: str, tmp_path: Path) -> None:
    chosen, pipe = cases(kind, tmp_path)[-1]
    program = chosen.program(pipe)
    again = parse_program(
        to_csv(program), microbatches=program.microbatches, slices=program.slices, chains=program.chains
    )
    assert again.ranks == program.ranks


@pytest.mark.parametrize("kind", KINDS)
def test_it_describes_itself(kind: str, tmp_path: Path) -> None:
    chosen, pipe = cases(kind, tmp_path)[0]
    bare, sized = chosen.describe(), chosen.describe(pipe)
    for text in (bare.summary, bare.defined, bare.in_flight_formula, bare.messages_formula, bare.source):
        assert text
    assert bare.in_flight is None
    assert sized.in_flight is not None
    assert len(sized.in_flight) == pipe.ranks
    assert sized.messages == chosen.messages(pipe)
    assert isinstance(bare, Description)
    assert bare.evidence in ("verified", "by definition, not verified")


def test_recalled_constructions_say_so() -> None:
    recalled = {"hanayo", "slimpipe", "bpipe", "pipedream-2bw", "csv"}
    names = {kind for kind in KINDS if not Schedule.kinds[kind].traits.verified}  # type: ignore[attr-defined]
    assert names == recalled


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_make_no_sense_are_refused_with_a_sentence(kind: str, tmp_path: Path) -> None:
    chosen, _ = cases(kind, tmp_path)[0]
    for pipe in (Pipeline(0, 4), Pipeline(2, 0), Pipeline(2, 4, 0), Pipeline(2, 4, 1, 0), Pipeline(-1, -1)):
        with pytest.raises(InputError, match=r"needs |is for pp="):
            chosen.program(pipe)


@pytest.mark.parametrize("kind", KINDS)
def test_yaml_forms(kind: str, tmp_path: Path) -> None:
    chosen, _ = cases(kind, tmp_path)[0]
    again: Any = Schedule.build(chosen.dump())
    assert again == chosen
    for alias in chosen.aliases:
        assert Schedule.kinds[alias] is type(chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described_in_the_json_schema(kind: str) -> None:
    keys = Schedule.kinds[kind].model_json_schema()["properties"]
    assert {"fsdp", "recompute_in_bubbles", "vocabulary_parallel"} <= set(keys)
    assert all(spec.get("description") for spec in keys.values())
