"""Op-for-op equality with the lists that other code bases make."""

from __future__ import annotations

import pytest

from clustersim.pipeline.check import check
from clustersim.pipeline.ops import Fused, Kind, Op
from tests.pipeline import reference

# torch's display order of 1F1B is not what its class executes: the last rank's first forward is missing.
DISPLAY = [name for name in reference.names() if name.startswith("torch_compute/1F1B_") and "executed" not in name]
# Lists of the same schedule that differ for a stated reason.
OTHER_ORDER = {
    "jaxpp/DualPipeV_pp4_vp2_mb8.csv": "JaxPP does not split the backward of stage 0 (28.5, not 27, at unit costs)",
    "jaxpp/DualPipeV_pp4_vp2_mb10.csv": "JaxPP does not split the backward of stage 0",
    "viztools/minpp_dualpipe_vshape_pp4_vp2_mb10.csv": "minPP splits other backwards of the drain (34 instead of 33)",
    "viztools/minpp_vshape_zb_pp4_vp2_mb8.csv": "minPP keeps every weight gradient for gaps; torch pairs I, W",
    "viztools/minpp_zb1f1b_pp4_vp1_mb8.csv": "minPP lags every weight gradient by p",
}
REFUSED = {"seq1f1b/seq1f1b_pp4_vp2_mb8_k3.csv"}  # 3 slices do not divide 4 ranks: the list deadlocks
EQUAL = [
    name
    for name in reference.names()
    if name not in OTHER_ORDER and name not in REFUSED and name not in DISPLAY and reference.ours(name) is not None
]


def test_every_list_is_accounted_for() -> None:
    none = [name for name in reference.names() if reference.ours(name) is None]
    assert all(name.startswith("sailsg/vauto_") for name in none)  # the adaptive search is no schedule of ours
    assert len(EQUAL) == len(reference.names()) - len(none) - len(OTHER_ORDER) - len(REFUSED) - len(DISPLAY)
    assert len(EQUAL) >= 120


@pytest.mark.parametrize("name", EQUAL)
def test_our_list_is_the_reference_list(name: str) -> None:
    mine, theirs = reference.build(name), reference.load(name)
    if "epoverlap" in name or "KimiK2" in name:
        # Megatron-LM lists the pair as two ops, JaxPP fuses only some of them; the order is the same.
        assert reference.opened(mine) == reference.opened(theirs)
    else:
        assert mine.ranks == theirs.ranks


@pytest.mark.parametrize("name", sorted(OTHER_ORDER))
def test_lists_that_differ_hold_the_same_work(name: str) -> None:
    mine, theirs = reference.opened(reference.build(name)), reference.opened(reference.load(name))
    assert mine != theirs
    for one, other in zip(mine, theirs, strict=True):
        assert sorted(op for op in one if op.kind is Kind.F) == sorted(op for op in other if op.kind is Kind.F)
    assert not check(reference.load(name))


@pytest.mark.parametrize("name", DISPLAY)
def test_torch_display_list_of_1f1b_is_found_wrong(name: str) -> None:
    theirs = reference.load(name)
    kinds = {finding.kind for finding in check(theirs)}
    assert "missing" in kinds
    last = len(theirs.ranks) - 1
    assert any(f.rank == last and f.op == f"{last}F0" for f in check(theirs))
    assert list(reference.build(name).ranks[:-1]) == list(theirs.ranks[:-1])


@pytest.mark.parametrize("name", EQUAL)
def test_reference_lists_pass_the_check(name: str) -> None:
    assert check(reference.load(name)) == []


def test_seq1f1b_i_with_three_slices_on_four_ranks_deadlocks() -> None:
    findings = check(reference.load("seq1f1b/seq1f1b_pp4_vp2_mb8_k3.csv"))
    assert "cycle" in {finding.kind for finding in findings}


def test_interleaved_zero_bubble_with_one_chunk_is_zb_h1() -> None:
    mine = reference.load("torch_compute/InterleavedZeroBubble_pp4_vp1_mb12.csv")
    assert mine.ranks == reference.load("own/ZB-H1_pp4_mb12.csv").ranks


def test_fused_pairs_are_read() -> None:
    program = reference.load("dualpipe/DualPipe_pp4_mb8.csv")
    assert program.ranks[0][7] == Fused(Op(0, Kind.F, 3), Op(7, Kind.B, 1))
    assert program.stage_rank == {0: 0, 7: 0, 1: 1, 6: 1, 2: 2, 5: 2, 3: 3, 4: 3}
