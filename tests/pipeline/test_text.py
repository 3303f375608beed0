"""Op lists as text: the CSV of torch.distributed.pipelining, in and out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.pipeline.comms import with_communication
from clustersim.pipeline.ops import Action, Batch, Fused, Kind, Op
from clustersim.pipeline.schedule import Pipeline, get_schedule
from clustersim.pipeline.text import (
    load_program,
    merge_backward,
    parse_action,
    parse_op,
    parse_program,
    split_backward,
    to_csv,
    to_grid,
)

WHOLE = {Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD}
number = st.integers(0, 5000)
ops = st.builds(lambda s, k, u: Op(s, k, None if k in WHOLE else u), number, st.sampled_from(Kind), number)
actions: st.SearchStrategy[Action] = st.one_of(
    ops, st.builds(Fused, ops, ops), st.builds(lambda many: Batch(tuple(many)), st.lists(ops, min_size=1, max_size=4))
)


@given(actions)
def test_every_action_reads_back(action: Action) -> None:
    assert parse_action(str(action)) == action


@given(st.lists(st.lists(actions, min_size=1, max_size=6), min_size=1, max_size=4))
def test_every_program_reads_back(ranks: list[list[Action]]) -> None:
    made = parse_program("".join(",".join(map(str, rank)) + "\n" for rank in ranks))
    assert to_csv(parse_program(to_csv(made))) == to_csv(made)
    assert made.ranks == tuple(tuple(rank) for rank in ranks)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2G3", "no known kind"),
        ("F3", "is no op"),
        ("2F", "needs the unit's number"),
        ("1UNSHARD4", "is for a whole stage"),
        ("2SENDF3", "did you mean 'SEND_F'"),
        ("-1F0", "is no op"),
    ],
)
def test_a_wrong_op_says_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_op(text)


@pytest.mark.parametrize("text", ["(0F1;7B1)", "(0F1)OVERLAP_F_B", "(0F1;1F1;2F1)OVERLAP_F_B", "(0F1;7B1", "[0SEND_F1"])
def test_a_wrong_pair_or_batch_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_action(text)


def test_every_wrong_cell_is_told_with_line_and_column() -> None:
    with pytest.raises(InputError) as caught:
        parse_program("0F0,0X0\n1F0,,1B\n", file="mine.csv")
    places = [(p.file, p.line, p.column) for p in caught.value.problems]
    assert places == [("mine.csv", 1, 2), ("mine.csv", 2, 3)]


def test_idle_slots_of_a_drawing_are_skipped() -> None:
    made = parse_program("0F0,,,0B0\n,1F0,1B0,\n")
    assert [len(rank) for rank in made.ranks] == [2, 2]


def test_microbatches_are_read_off_the_list() -> None:
    assert parse_program("0F0,0F1,0F2\n").microbatches == 3
    assert parse_program("0F0,0F1,0F2,0F3\n", slices=2).microbatches == 2
    assert parse_program("0F0,1F0\n", chains=2).microbatches == 2


def test_empty_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        parse_program("\n,,\n")
    with pytest.raises(InputError, match="cannot read the op list"):
        load_program(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_program(tmp_path / "binary.csv")


def test_files_go_out_and_in(tmp_path: Path) -> None:
    made = get_schedule("dualpipe").program(Pipeline(4, 8))
    file = tmp_path / "dual.csv"
    file.write_text(to_csv(made))
    assert load_program(file, microbatches=8, chains=2).ranks == made.ranks


def test_lists_with_communication_read_back() -> None:
    made = with_communication(get_schedule("1f1b").program(Pipeline(3, 4)), batched=True)
    assert any(isinstance(action, Batch) for action in made.ranks[1])
    assert parse_program(to_csv(made)).ranks == made.ranks


def test_backward_split_and_merged() -> None:
    made = get_schedule("1f1b").program(Pipeline(3, 4))
    split = split_backward(made)
    assert all(op.kind is not Kind.B for rank in split.ranks for op in rank)  # type: ignore[union-attr]
    assert merge_backward(split).ranks == made.ranks
    assert merge_backward(get_schedule("zb-h1").program(Pipeline(3, 4))).ranks[0][-1] == Op(0, Kind.B, 3)


def test_grid_is_aligned_and_cut() -> None:
    made = get_schedule("gpipe").program(Pipeline(2, 2))
    assert to_grid(made) == "rank 0: 0F0 0F1 0B0 0B1\nrank 1: 1F0 1F1 1B0 1B1\n"
    assert to_grid(made, width=11) == "rank 0: 0F0\nrank 1: 1F0\n"


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"0F0,0B0\n\n1F0,99999999999999999999B0\n", "3:2", "out of range"),
        (b"0F99999999999,0B0\n", "1:1", "out of range"),
        (b"0F0\n" + b"x" * 200_000 + b"\n", "2:1", "no row of CSV"),
        (b"0F0," + b"y" * 50_000 + b"\n", "1:2", "is no op"),
        (b"0F0,\x000B0\n", "1:2", "is no op"),
        (b'"0F0,0B0\n1F0\n', "1:1", "is no op"),
    ],
)
def test_garbage_is_named_by_line_and_column(tmp_path: Path, content: bytes, place: str, message: str) -> None:
    file = tmp_path / "garbage.csv"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load_program(file)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{file}:{place}: ")
    assert len(first) < len(str(file)) + 200
    assert first.isprintable()


def test_byte_order_marks_and_windows_newlines_are_read(tmp_path: Path) -> None:
    file = tmp_path / "windows.csv"
    file.write_bytes(b"\xef\xbb\xbf0F0,0B0\r\n1F0,1B0\r\n")
    assert load_program(file).ranks == parse_program("0F0,0B0\n1F0,1B0\n").ranks
