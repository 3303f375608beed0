"""Uneven stages: even spread, counts, Megatron's layout strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersim.errors import InputError
from clustersim.pipeline.placement import Placement, rank_of_stage
from clustersim.pipeline.stages import (
    StageLayers,
    check_layout,
    counted_layout,
    even_layout,
    format_layout,
    parse_layout,
    rank_sizes,
    stage_sizes,
)


def test_126_layers_on_128_stages_leave_the_ends_without_layers() -> None:
    stages = even_layout(126, 128)
    assert [stage.layers for stage in stages] == [0, *[1] * 126, 0]
    assert stages[0].embedding
    assert stages[-1].losses == 1
    check_layout(stages, layers=126, ranks=16, chunks=8)


@given(st.integers(0, 200), st.integers(1, 64))
def test_even_layouts_keep_every_layer_and_the_ends_lightest(layers: int, stages: int) -> None:
    counts = [stage.layers for stage in even_layout(layers, stages)]
    assert sum(counts) == layers
    assert max(counts) - min(counts) <= 1
    assert counts[0] == min(counts) or stages < 3 or counts[0] <= min(counts) + 1
    if stages >= 3 and layers % stages <= stages - 2:
        assert counts[0] == counts[-1] == layers // stages


@pytest.mark.parametrize(
    ("text", "stages", "layers", "mtp", "first", "last"),
    [
        ("E|(t|)*10m|L", 13, 10, 1, "E", "L"),
        ("E|(t|)*10m|m|m|LL|LL", 16, 10, 3, "E", "LL"),
        ("Et*2|(t*2|)*34,t*2L", 36, 72, 0, "Et*2", "t*2L"),
        ("Ettt|(tt|)*2 t*3L", 4, 10, 0, "Et*3", "t*3L"),
        ("E((t|)*2|)*2L", 7, 4, 0, "Et", "L"),
        ("EtL", 1, 1, 0, "EtL", "EtL"),
    ],
)
def test_layout_strings_of_megatron(text: str, stages: int, layers: int, mtp: int, first: str, last: str) -> None:
    held = parse_layout(text)
    assert len(held) == stages
    assert sum(stage.layers for stage in held) == layers
    assert sum(stage.mtp for stage in held) == mtp
    assert (str(held[0]), str(held[-1])) == (first, last)
    assert parse_layout(format_layout(held)) == held


@given(
    st.lists(
        st.builds(StageLayers, st.integers(0, 5), st.just(False), st.integers(0, 2), st.integers(0, 2)),
        min_size=1,
        max_size=9,
    )
)
def test_layouts_print_and_read_back(stages: list[StageLayers]) -> None:
    if len(stages) == 1 and not str(stages[0]):
        stages = [StageLayers(1)]
    assert parse_layout(format_layout(stages)) == tuple(stages)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("Et|tq", "'q' at 'q' means nothing"),
        ("(t|*2", "leaves a parenthesis open"),
        ("t)*2", "never opened"),
        ("*3t", "repeats nothing"),
        ("Et*999999999|L", "repeats too often"),
        ("E((t|)*1000)*1001L", "repeats too often"),
        ("Et*" + "9" * 5000 + "L", "repeats too often"),
        ("t|E", "belongs on the first stage"),
        ("E|Lt", "order within a stage"),
    ],
)
def test_wrong_strings_say_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_layout(text)


@pytest.mark.parametrize(("built", "model", "ranks", "chunks"), [(64, 80, 16, 2), (28, 30, 4, 1), (32, 40, 8, 2)])
def test_a_planner_that_loses_layers_is_refused(built: int, model: int, ranks: int, chunks: int) -> None:
    """Frameworks silently built 64 of 80 layers (pp 16, vp 2), 28 of 30 (pp 4), one layer a device less of 40 (pp
    8)."""
    with pytest.raises(
        InputError, match=f"hold {built} transformer layers, the model has {model}: add {model - built}"
    ):
        check_layout(even_layout(built, ranks * chunks), layers=model, ranks=ranks, chunks=chunks)
    check_layout(even_layout(model, ranks * chunks), layers=model, ranks=ranks, chunks=chunks)


def test_every_broken_rule_is_told() -> None:
    with pytest.raises(InputError) as caught:
        check_layout([StageLayers(3), StageLayers(4), StageLayers(2, mtp=1)], layers=8, ranks=2)
    told = str(caught.value)
    for sentence in ("remove 1", "do not divide over pp=2", "no embedding", "no loss", "hold 1 prediction layers"):
        assert sentence in told
    with pytest.raises(InputError, match=r"are not pp \* chunks = 2 \* 2 = 4"):
        check_layout(even_layout(4, 2), layers=4, ranks=2, chunks=2)


def test_counts_of_the_user_and_wrong_ones() -> None:
    assert [stage.layers for stage in counted_layout([1, 2, 2, 3])] == [1, 2, 2, 3]
    with pytest.raises(InputError):
        counted_layout([])
    with pytest.raises(InputError):
        even_layout(4, 0)


def test_heaviest_of_uneven_stages_against_the_even_formula() -> None:
    """8 layers as 1, 2, 2, 3: the even formula gives 6,792 parameters a rank, the heaviest has 9,952 (31.8 % more
    than told)."""
    layer, ends = 3160.0, 472.0
    even = stage_sizes(even_layout(8, 4), layer=layer, embedding=ends, head=ends)
    uneven = stage_sizes(counted_layout([1, 2, 2, 3]), layer=layer, embedding=ends, head=ends)
    assert max(even) == 6792.0
    assert max(uneven) == 9952.0
    assert 1 - max(even) / max(uneven) == pytest.approx(0.318, abs=5e-4)


def test_sizes_of_stages_and_ranks() -> None:
    stages = parse_layout("Et|t*2|tm|tLL|L")
    assert stage_sizes(stages, layer=10.0, embedding=3.0, head=6.0, mtp=12.0) == [13.0, 20.0, 22.0, 14.0, 2.0]
    sizes = [1.0, 2.0, 3.0, 4.0]
    assert rank_sizes(sizes, rank_of_stage(Placement.LOOP, 2, 2)) == [4.0, 6.0]
    assert rank_sizes(sizes, rank_of_stage(Placement.V, 2, 2)) == [5.0, 5.0]
