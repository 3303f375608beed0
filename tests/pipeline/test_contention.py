"""Gradient traffic and messages that computation waits for share the NICs; eager reduction of several chains."""

from __future__ import annotations

from typing import Any

import pytest

from clustersim.hardware.cluster import Cluster
from clustersim.pipeline.schedule import Schedule
from clustersim.pipeline.step import StepModel
from clustersim.workload.layout import Layout
from clustersim.workload.model import TransformerModel
from clustersim.workload.training import Training


def step(layout: dict[str, Any], schedule: Any = "1f1b", model: str = "qwen3-30b-a3b", nodes: int = 8, batch: int = 64,
         **training: Any) -> StepModel:  # fmt: skip
    cluster = Cluster.model_validate(
        {"nodes": nodes, "node": "hgx-h100", "network": "infiniband", "storage": "tectonic"}
    )
    job = Training.model_validate(
        {"seq_len": 4096, "global_batch": batch, "steps": 1, "stack": "nemo-2024", **training}
    )
    return StepModel(model=TransformerModel.preset(model), cluster=cluster, training=job,
                     layout=Layout.model_validate(layout), schedule=Schedule.build(schedule))  # fmt: skip


def tails(model: StepModel) -> list[float]:
    return [end.tail for end in model.ends]


def test_priority_of_all_to_all_never_costs_time() -> None:
    shared, yielding = (step({"ep": 32, "zero": 1, "gradient_priority": first}) for first in (False, True))
    assert yielding.step_time().seconds < shared.step_time().seconds
    assert max(tails(yielding)) < max(tails(shared))


def test_without_messages_between_nodes_priority_changes_nothing() -> None:
    inside = [step({"ep": 8, "zero": 1, "gradient_priority": first}).step_time().seconds for first in (False, True)]
    assert inside[0] == inside[1]


def test_without_overlap_gradients_come_after_everything() -> None:
    serial, beside = (step({"ep": 8, "zero": 1, "overlap": {"dp": overlap}}) for overlap in (False, True))
    assert max(tails(serial)) > max(tails(beside))
    # a wire that computation's own messages keep busy hides nothing
    busy = [step({"ep": 32, "zero": 1, "overlap": {"dp": overlap}}) for overlap in (False, True)]
    assert max(tails(busy[0])) >= max(tails(busy[1]))


@pytest.mark.parametrize("schedule", ["chimera", "dualpipe"])
def test_chains_reduce_their_gradients_as_they_end(schedule: str) -> None:
    layout = {"pp": 4, "tp": 2, "zero": 0}
    eager, late = (
        step({**layout, "overlap": {"dp": overlap}}, schedule, "llama3-8b", batch=64) for overlap in (True, False)
    )
    assert max(tails(eager)) < max(tails(late))
    # whatever hides, the stages of the last chain to end still have to be sent
    assert max(tails(eager)) > 0


def test_burst_sends_fewer_bytes_backward() -> None:
    base = {"cp": 32, "zero": 1, "context": {"kind": "ring"}}
    classic = step(base, model="llama2-7b", batch=2, seq_len=65536)
    burst = step({**base, "context": {"kind": "ring", "burst": True}}, model="llama2-7b", batch=2, seq_len=65536)
    assert burst.step_time().breakdown["cp"] < classic.step_time().breakdown["cp"]


def test_context_kinds_by_network() -> None:
    """Four nodes: a flat ring is paced by the NICs, a double ring and Ulysses inside rings are not."""
    seconds = {kind: step({"cp": 32, "zero": 1, "context": {"kind": kind}}, model="llama2-7b", batch=2, seq_len=65536)
               .step_time().seconds for kind in ("ring", "double-ring", "usp")}  # fmt: skip
    assert seconds["double-ring"] < seconds["ring"]
    assert seconds["usp"] < seconds["ring"]


def test_tokens_that_cross_nodes_once_are_faster() -> None:
    plain = step({"ep": 32, "zero": 1})
    once = step({"ep": 32, "zero": 1}, stack={"preset": "nemo-2024", "moe_once_a_node": True})
    assert once.step_time().breakdown["ep"] < plain.step_time().breakdown["ep"]


def test_any_order_of_dimensions() -> None:
    inner = step({"tp": 8, "order": "tp-dp-pp"}, model="llama3-8b")
    outer = step({"tp": 8, "order": "dp-tp-pp"}, model="llama3-8b")
    assert inner.groups.tp.domains == 1
    assert outer.groups.tp.domains == 8
    assert outer.step_time().seconds > inner.step_time().seconds


def test_parts_of_a_microbatch_hide_the_exchange_until_start_up_wins() -> None:
    seconds = {
        parts: step({"ep": 32, "zero": 1, "overlap": {"ep": True}, "expert_parts": parts}).step_time().breakdown["ep"]
        for parts in (1, 2, 4, 256)
    }
    assert seconds[1] == step({"ep": 32, "zero": 1}).step_time().breakdown["ep"]
    # two parts take most of what there is to gain; many pay their start-up
    assert seconds[2] < 0.9 * seconds[1]
    assert seconds[256] > seconds[4] >= 0.8 * seconds[2]
