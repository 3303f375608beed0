"""Sends and receives that hang: the cases that users reported, under three models of a send."""

from __future__ import annotations

import pytest

from clustersim.errors import Deadlock, InputError
from clustersim.pipeline.check_comms import Model, check_all, check_comms
from clustersim.pipeline.comms import Links, has_communication, with_communication
from clustersim.pipeline.ops import Batch, Kind, Op, Program
from clustersim.pipeline.schedule import Pipeline, get_schedule, schedule_names
from clustersim.pipeline.text import parse_program

MODELS: tuple[Model, ...] = ("buffered", "stream", "rendezvous")
KINDS = [name for name in schedule_names() if name != "csv"]


def passes(program: Program) -> dict[str, bool]:
    return {model: check_comms(program, model) is None for model in MODELS}


def built(kind: str) -> Program:
    chosen = get_schedule(kind)
    return chosen.program(Pipeline(4, 8, chosen.default_chunks(), 4 if chosen.traits.sliced else 1))


def test_receives_right_before_use_hang_between_two_nodes() -> None:
    """What-if 1 (pytorch#172668): interleaved, p2, four stages. Reported: rank 0 at 2F0, rank 1 at 1F1."""
    program = with_communication(get_schedule("interleaved-1f1b").program(Pipeline(2, 4, 2)), receives="late")
    stuck = check_comms(program, "stream")
    assert stuck is not None
    assert "rank 0 at 2F0, rank 1 at 1F1" in stuck.message
    assert (stuck.rank, stuck.op) == (0, "2F0")
    assert stuck.waits_for is not None
    assert stuck.waits_for.startswith("2RECV_F0 behind 0SEND_F1")
    assert ">2F0<" in stuck.drawing.splitlines()[0]
    assert ">1F1<" in stuck.drawing.splitlines()[1]
    assert passes(program)["buffered"]  # which is why one node worked


def test_the_first_wave_must_not_block_the_second_send() -> None:
    """What-if 2 (pytorch#188833): rank 0 of p8 v2 posts 8RECV_F0 ahead of 0SEND_F1; in one queue it blocks the send."""
    program = get_schedule("interleaved-1f1b").program(Pipeline(8, 16, 2))
    early = [str(action) for action in with_communication(program).ranks[0]]
    timed = [str(action) for action in with_communication(program, receives="timed").ranks[0]]
    assert early[:5] == ["0F0", "0SEND_F0", "8RECV_F0", "0F1", "0SEND_F1"]
    assert timed[:4] == ["0F0", "0SEND_F0", "0F1", "0SEND_F1"]
    for receives in ("early", "timed"):  # neither hangs: the wait is a bubble, not a deadlock
        lowered = with_communication(program, receives=receives)
        assert check_comms(lowered, "stream", streams="rank") is None
    assert timed.index("8RECV_F0") > timed.index("0SEND_F7")


def test_1f1b_needs_fused_exchanges() -> None:
    """What-if 3 (pytorch PR 126419): p4 m8 with SEND_F / RECV_B apart is stuck in stream order and in rendezvous."""
    program = get_schedule("1f1b").program(Pipeline(4, 8))
    assert passes(with_communication(program, receives="late")) == {
        "buffered": True,
        "stream": False,
        "rendezvous": False,
    }
    fused = with_communication(program, batched=True)
    assert passes(fused) == dict.fromkeys(MODELS, True)
    assert Batch((Op(0, Kind.SEND_F, 3), Op(0, Kind.RECV_B, 0))) in fused.ranks[0]
    assert Batch((Op(3, Kind.SEND_B, 0), Op(3, Kind.RECV_F, 1))) in fused.ranks[3]


@pytest.mark.parametrize("ranks", [2, 8])
def test_one_microbatch_on_many_ranks_does_not_hang(ranks: int) -> None:
    """What-if 4 (torchtitan#775): PP 8 with one microbatch: the order is fine under every model."""
    program = get_schedule("1f1b").program(Pipeline(ranks, 1))
    for receives in ("early", "timed", "late", "deferred"):
        assert passes(with_communication(program, receives=receives)) == dict.fromkeys(MODELS, True)


def test_two_ranks_send_both_ways_between_the_same_pair() -> None:
    """What-if 15 (Megatron#1450, #5100): on two ranks the next rank is the previous; pairs are told apart by the op."""
    program = with_communication(get_schedule("interleaved-1f1b").program(Pipeline(2, 4, 2)))
    links = Links(program)
    assert links.peer(Op(0, Kind.SEND_F, 0)) == links.peer(Op(2, Kind.RECV_F, 0)) == 1
    assert links.matching(Op(1, Kind.SEND_F, 0)) == Op(2, Kind.RECV_F, 0)
    assert passes(program) == dict.fromkeys(MODELS, True)


@pytest.mark.parametrize("model", MODELS)
def test_messages_that_fit_the_buffer_never_block(model: Model) -> None:
    """What-if 21 (nccl#479, #784): a send may block until received, and passes while the message fits the buffer."""
    program = with_communication(get_schedule("1f1b").program(Pipeline(4, 8)), receives="late")
    assert check_comms(program, model, eager_bytes=4e6, message_bytes=4e6) is None
    assert (check_comms(program, model, eager_bytes=4e6, message_bytes=4e6 + 1) is None) == (model == "buffered")


@pytest.mark.parametrize("kind", KINDS)
def test_default_lowering_runs_under_every_model(kind: str) -> None:
    program = built(kind)
    for receives in ("early", "timed"):
        lowered = with_communication(program, receives=receives)
        assert passes(lowered) == dict.fromkeys(MODELS, True)
        assert check_comms(lowered, "stream", streams="rank") is None


@pytest.mark.parametrize("kind", KINDS)
def test_buffered_sends_hang_under_no_lowering(kind: str) -> None:
    program = built(kind)
    for lowered in (
        with_communication(program, receives="late"),
        with_communication(program, receives="deferred"),
        with_communication(program, batched=True),
    ):
        assert check_comms(lowered, "buffered") is None


@pytest.mark.parametrize("kind", KINDS)
def test_lowering_keeps_the_work_and_pairs_every_message(kind: str) -> None:
    program = built(kind)
    links = Links(program)
    for receives in ("early", "timed", "late", "deferred"):
        lowered = with_communication(program, receives=receives)
        for before, after in zip(program.ranks, lowered.ranks, strict=True):
            assert [a for a in after if not (isinstance(a, Op) and a.kind.value.startswith(("SEND", "RECV")))] == list(
                before
            )
        sent = [a for rank in lowered.ranks for a in rank if isinstance(a, Op) and a.kind in (Kind.SEND_F, Kind.SEND_B)]
        received = [
            a for rank in lowered.ranks for a in rank if isinstance(a, Op) and a.kind in (Kind.RECV_F, Kind.RECV_B)
        ]
        assert sorted(received) == sorted(op for op in map(links.matching, sent) if op is not None)
        assert len(sent) == get_schedule(kind).messages(
            Pipeline(4, 8, get_schedule(kind).default_chunks(), program.slices if kind not in ("chimera",) else 1)
        )


def test_a_list_without_communication_is_lowered_first() -> None:
    assert check_comms(get_schedule("1f1b").program(Pipeline(4, 8)), "rendezvous") is None


def test_a_cyclic_order_is_told_as_such() -> None:
    program = parse_program("0F0,0B1,0F1,0B0\n1F0,1F1,1B0,1B1\n")
    stuck = check_comms(program)
    assert stuck is not None
    assert stuck.kind == "cycle"
    with pytest.raises(Deadlock, match="rank 0 at 0B1, rank 1 at 1F1"):
        with_communication(program)


def test_lowering_twice_is_refused() -> None:
    lowered = with_communication(get_schedule("1f1b").program(Pipeline(2, 2)))
    assert has_communication(lowered)
    with pytest.raises(InputError):
        with_communication(lowered)


def test_a_receive_that_nobody_sends_is_waited_for_in_every_model() -> None:
    program = parse_program("0F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    for model in MODELS:
        stuck = check_comms(program, model)
        assert stuck is not None
        assert stuck.rank in (0, 1)
        assert "1RECV_F0" in stuck.drawing


def test_send_before_the_work_is_done_hangs() -> None:
    program = parse_program("0SEND_F0,0F0,0B0\n1RECV_F0,1F0,1B0\n")
    stuck = check_comms(program, "stream")
    assert stuck is not None
    assert (stuck.rank, stuck.op, stuck.waits_for) == (0, "0SEND_F0", "0F0")


def test_all_checks_in_one_call() -> None:
    program = get_schedule("1f1b").program(Pipeline(4, 8))
    assert check_all(program) == []
    late = with_communication(program, receives="late")
    assert [finding.message.partition(":")[0] for finding in check_all(late)] == [
        "communication hangs (stream)", "communication hangs (rendezvous)",
    ]  # fmt: skip
    assert check_all(late, ("buffered",)) == []
    assert check_all(late, eager_bytes=1.0, message_bytes=1.0) == []
    assert [finding.kind for finding in check_all(parse_program("0F0,0B0,0B0\n"))] == ["double"]
