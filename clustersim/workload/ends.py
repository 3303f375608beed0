"""Op lists of what stands at the ends of a transformer: the embedding on the first stage, the head and loss on the
last."""

from __future__ import annotations

from clustersim.workload.layers import LayerOp, Slice, enter_tp, gemm, memory, message, norm_ops
from clustersim.workload.model import TransformerModel
from clustersim.workload.stack import Stack

UNFUSED_LOSS_BYTES = 20.0
"""Bytes a logit more each way where PyTorch's own cross-entropy runs: a second fp32 copy of the logits is written and
read."""


def embedding_ops(model: TransformerModel, cut: Slice, stack: Stack) -> list[LayerOp]:
    """Look-up (rows read and written), and the scatter-add of its gradient; vocabulary rows are cut over TP ranks."""
    size = cut.tokens * model.hidden * cut.width
    ops = memory("embedding", "", 2.0 * size, 4.0 * size)
    if cut.tp > 1:
        if cut.sequence_parallel:
            ops += message("embedding", "", "tp", "reduce-scatter", "all-gather", size)
        else:
            ops += message("embedding", "", "tp", "all-reduce", None, size)
    if model.dropout:
        outside = cut.outside * model.hidden * cut.width
        ops += memory("embedding dropout", "", 2.5 * outside, 2.5 * outside)
    return ops


def head_ops(model: TransformerModel, cut: Slice, stack: Stack) -> list[LayerOp]:
    """Final norm, logits and the fp32 cross-entropy on this GPU's part of the vocabulary."""
    words = -(-model.vocab // cut.tp)
    extra = 0.0 if stack.fused_loss or cut.tp > 1 else UNFUSED_LOSS_BYTES
    logits = float(cut.tokens) * words
    ops = [
        *norm_ops(model, cut, stack, "final norm"),
        *enter_tp(cut, model.hidden, ""),
        *gemm("head", "", cut.tokens, words, model.hidden, "head"),
        *memory("loss", "", (stack.loss_forward_bytes + extra) * logits, (stack.loss_backward_bytes + extra) * logits),
    ]
    if cut.tp > 1:
        # the maximum, the target's logit and the sum of each token cross the TP ranks
        ops += [op for _ in range(3) for op in message("loss", "", "tp", "all-reduce", None, 4.0 * cut.tokens)]
    return ops


def mtp_ops(model: TransformerModel, cut: Slice) -> list[LayerOp]:
    """Joining of the last hidden state with the next token's embedding ahead of a multi-token-prediction layer."""
    return gemm("mtp join", "", cut.tokens, model.hidden, 2 * model.hidden)
