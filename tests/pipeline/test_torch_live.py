"""Against torch.distributed.pipelining itself, where torch is installed: its seven classes, its lowering, its CSV
loader."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clustersim.pipeline.check import check
from clustersim.pipeline.check_comms import check_comms
from clustersim.pipeline.comms import with_communication, with_fsdp
from clustersim.pipeline.ops import Kind, Op, Program, parts_of
from clustersim.pipeline.schedule import Pipeline, get_schedule
from clustersim.pipeline.text import parse_program, to_csv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch")
    schedules: Any = pytest.importorskip("torch.distributed.pipelining.schedules")

_MULTI = {
    "interleaved-1f1b": "ScheduleInterleaved1F1B", "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "looped-bfs": "ScheduleLoopedBFS", "zb-v": "ScheduleZBVZeroBubble", "dualpipe-v": "ScheduleDualPipeV",
}  # fmt: skip
LOOP = [(2, 2, 2), (2, 4, 2), (2, 6, 3), (3, 3, 2), (3, 6, 3), (4, 3, 2), (4, 4, 2), (4, 6, 2), (4, 8, 4), (4, 10, 2),
        (6, 12, 2), (8, 16, 2), (8, 32, 4)]  # fmt: skip
V = [(2, 4, 2), (2, 7, 2), (3, 6, 2), (3, 9, 2), (4, 8, 2), (4, 11, 2), (5, 10, 2), (6, 13, 2), (8, 16, 2), (8, 24, 2)]
CASES = [
    (kind, size)
    for kind in _MULTI
    for size in (LOOP if kind in ("interleaved-1f1b", "interleaved-zb", "looped-bfs") else V)
]
SINGLE = [(1, 1), (1, 4), (2, 2), (2, 5), (3, 3), (3, 7), (4, 4), (4, 8), (5, 5), (6, 12), (8, 8), (8, 16), (8, 64)]


def stage(index: int, rank: int, ranks: int, stages: int) -> Any:
    """What a schedule looks at of a stage before it runs."""
    return SimpleNamespace(
        num_stages=stages, group_size=ranks, group_rank=rank, stage_index=index, group=None, submod=torch.nn.Identity(),
        is_first=index == 0, is_last=index == stages - 1, has_backward=True, stage_index_to_group_rank={},
    )  # fmt: skip


def torch_schedule(kind: str, size: tuple[int, int, int], **more: Any) -> Any:
    """torch's class for ``kind`` on rank 0."""
    ranks, microbatches, chunks = size
    stages = [stage(index, 0, ranks, ranks * chunks) for index in range(chunks)]
    return getattr(schedules, _MULTI[kind])(stages, microbatches, loss_fn=lambda *_: 0, **more)


def as_program(order: dict[int, list[Any]], microbatches: int) -> Program:
    """torch's lists, idle slots left out."""
    text = "".join(",".join(str(a) for a in order[rank] if a is not None) + "\n" for rank in sorted(order))
    return parse_program(text, microbatches=microbatches)


def test_at_least_forty_sizes_of_the_five_interleaved_classes() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_compute_lists_are_equal(kind: str, size: tuple[int, int, int]) -> None:
    theirs = as_program(torch_schedule(kind, size).pipeline_order, size[1])
    assert get_schedule(kind).program(Pipeline(*size)).ranks == theirs.ranks


@pytest.mark.parametrize(("kind", "size"), CASES)
@pytest.mark.parametrize("deferred", [False, True])
def test_lowered_lists_are_equal(kind: str, size: tuple[int, int, int], deferred: bool) -> None:
    lowered = torch_schedule(kind, size, defer_pp_recv=deferred).pipeline_order_with_comms
    program = with_fsdp(get_schedule(kind).program(Pipeline(*size)))
    mine = with_communication(program, receives="deferred" if deferred else "early")
    theirs = as_program(lowered, size[1])
    # Stages dropped at once are dropped in the order of a set in torch, in ascending order here.
    assert [_reshards_sorted(rank) for rank in mine.ranks] == [_reshards_sorted(rank) for rank in theirs.ranks]


def _reshards_sorted(rank: tuple[Any, ...]) -> list[Any]:
    result: list[Any] = []
    run: list[Op] = []
    for action in rank:
        if isinstance(action, Op) and action.kind is Kind.RESHARD:
            run.append(action)
            continue
        result += [*sorted(run), action]
        run = []
    return result + sorted(run)


@pytest.mark.parametrize(("kind", "size"), [case for case in CASES if case[1][0] <= 4])
def test_exported_lists_load_in_torch(kind: str, size: tuple[int, int, int], tmp_path: Path) -> None:
    program = get_schedule(kind).program(Pipeline(*size))
    compute, comms = tmp_path / "compute.csv", tmp_path / "comms.csv"
    compute.write_text(to_csv(program))
    comms.write_text(to_csv(with_communication(with_fsdp(program))))
    ranks, microbatches, chunks = size
    for file, form in ((compute, "compute_only"), (comms, "compute_comms")):
        stages = [stage(index, 0, ranks, ranks * chunks) for index in range(chunks)]
        runtime = schedules._PipelineScheduleRuntime(stages, microbatches, loss_fn=lambda *_: 0)
        runtime._load_csv(str(file), format=form)
        loaded = as_program(runtime.pipeline_order_with_comms, microbatches)
        lowered = with_communication(with_fsdp(program))
        assert [_reshards_sorted(rank) for rank in loaded.ranks] == [_reshards_sorted(rank) for rank in lowered.ranks]


@pytest.mark.parametrize(
    "kind", ["chimera", "hanayo", "1f1b-v", "v-half", "v-min", "zb-auto", "zb-h2", "pipeoffload", "1f1b-overlap"]
)
def test_other_schedules_load_in_torch(kind: str, tmp_path: Path) -> None:
    """Schedules that torch does not have itself; one chain only, torch knows no second replica."""
    schedule = get_schedule(kind)
    pipe = schedule.resolve(Pipeline(4, 8, schedule.default_chunks()))
    program = schedule.program(pipe)
    file = tmp_path / "list.csv"
    file.write_text(to_csv(program))
    stages = [stage(index, 0, 4, program.stages) for index in range(pipe.chunks)]
    runtime = schedules._PipelineScheduleRuntime(stages, 8, loss_fn=lambda *_: 0)
    if program.chains > 1:
        with pytest.raises(AssertionError):
            runtime._load_csv(str(file))
        return
    runtime._load_csv(str(file))
    assert as_program(runtime.pipeline_order, 8).ranks == program.ranks


class RecordingStage:
    """A stage that writes down what the schedule makes it do; messages are empty."""

    def __init__(self, index: int, stages: int) -> None:
        self.__dict__.update(vars(stage(index, index, stages, stages)))
        self.done: list[Op] = []

    def forward_one_chunk(self, unit: int, *_: Any, **__: Any) -> Any:
        self.done.append(Op(self.stage_index, Kind.F, unit))  # type: ignore[attr-defined]
        return None

    def backward_one_chunk(self, unit: int, **_: Any) -> None:
        self.done.append(Op(self.stage_index, Kind.B, unit))  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: []


@pytest.mark.parametrize(("kind", "name"), [("gpipe", "ScheduleGPipe"), ("1f1b", "Schedule1F1B")])
@pytest.mark.parametrize("size", SINGLE)
def test_what_the_single_stage_classes_execute(kind: str, name: str, size: tuple[int, int]) -> None:
    ranks, microbatches = size
    mine = get_schedule(kind).program(Pipeline(ranks, microbatches))
    for rank in range(ranks):
        recorder = RecordingStage(rank, ranks)
        running = getattr(schedules, name)(recorder, microbatches, loss_fn=lambda *_: torch.zeros(()))
        for method in ("_initialize_stage", "_maybe_compute_loss", "_maybe_get_loss", "_update_losses"):
            setattr(running, method, lambda *_, **__: None)
        running._check_inputs = lambda *_: ([()] * microbatches, [{}] * microbatches)
        running._step_microbatches()
        assert tuple(recorder.done) == mine.ranks[rank]


def test_torch_refuses_1f1b_below_p_and_we_run_it() -> None:
    with pytest.raises(ValueError):
        schedules.Schedule1F1B(RecordingStage(0, 8), 1, loss_fn=lambda *_: 0)
    schedule = get_schedule("1f1b")
    assert check(schedule.program(Pipeline(8, 1))) == []
    assert "m=1 < pp=8" in schedule.notes(Pipeline(8, 1))[0]


@pytest.mark.parametrize("kind", sorted(_MULTI))
def test_deferred_receives_of_torch_get_stuck_in_stream_order(kind: str) -> None:
    """torch 2.13 ``defer_pp_recv=True``: all interleaved classes but LoopedBFS hang in the strict stream model."""
    lowered = as_program(torch_schedule(kind, (4, 8, 2), defer_pp_recv=True).pipeline_order_with_comms, 8)
    stuck = check_comms(lowered, "stream")
    assert (stuck is None) == (kind == "looped-bfs")
    assert check_comms(lowered, "buffered") is None
    default = as_program(torch_schedule(kind, (4, 8, 2)).pipeline_order_with_comms, 8)
    assert check_comms(default, "stream") is None


def test_fsdp_gathers_a_step_on_rank_zero() -> None:
    """torch's rule at p8 m32 v4: interleaved 15 gathers, interleaved ZB 13, looped BFS 5, each stage once for v <=
    3."""
    wanted = {"interleaved-1f1b": 15, "interleaved-zb": 13, "looped-bfs": 5}
    for kind, gathers in wanted.items():
        mine = with_fsdp(get_schedule(kind).program(Pipeline(8, 32, 4)))
        theirs = as_program(torch_schedule(kind, (8, 32, 4)).pipeline_order_with_comms, 32)
        for program in (mine, theirs):
            assert sum(op.kind is Kind.UNSHARD for action in program.ranks[0] for op in parts_of(action)) == gathers
        few = with_fsdp(get_schedule(kind).program(Pipeline(8, 32, 3)))
        assert sum(op.kind is Kind.UNSHARD for action in few.ranks[0] for op in parts_of(action)) == 3
