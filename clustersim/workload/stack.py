"""The software stack: which kernels, how much is fused, what overlaps, what the host costs.

One number a GPU type cannot be right for 2021 and 2025: the same H100 runs attention at 0.2 of its peak under the
kernels of 2023 and at 0.5 under those of 2024. A stack is a preset (``megatron-2021``, ``nemo-2025`` …) or a mapping;
without one the scenario takes the default of its GPU generation (``default_stack``). The source of each value, or the
word *owed* where no component measurement is public, stands in the preset's ``sources``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, model_validator

from clustersim.part import PresetModel
from clustersim.units import Bytes, Seconds

AttentionKernel = Literal["unfused", "flash-1", "triton", "flash-2", "cudnn", "flash-3"]


_BY_YEAR = ((2020, "megatron-2020"), (2022, "megatron-2021"), (2023, "megatron-2023"), (2024, "nemo-2024"))


class Stack(PresetModel, folder="stacks"):
    """What a training framework of some year does between the formulas and the hardware.

    A bare year stands for the NVIDIA stack of that time: ``megatron-2020`` to 2020, ``megatron-2021`` to 2022,
    ``megatron-2023``, ``nemo-2024``, ``nemo-2025`` from 2025 on.
    """

    @model_validator(mode="before")
    @classmethod
    def of_year(cls, value: Any) -> Any:
        """The preset of a bare year."""
        if isinstance(value, int) and not isinstance(value, bool) and 2012 <= value <= 2100:
            return next((name for last, name in _BY_YEAR if value <= last), "nemo-2025")
        return value

    name: str = "stack"
    year: int = Field(default=2024, ge=2012, le=2100)
    attention: AttentionKernel = "flash-2"
    fused_softmax: bool = True
    """Scale, mask and softmax of unfused attention in one kernel (Megatron's); False: PyTorch ops in fp32."""
    fused_bias: bool = True
    """The bias of Q, K, V is added inside the product; False: by a kernel of its own (PyTorch before 1.10, Megatron's
    TP)."""
    fused_bias_gradient: bool = True
    """Bias gradients come with the weight gradients (Transformer Engine); False: each is a sum of its own over the
    tokens."""
    fused_norm: bool = True
    fused_rotary: bool = True
    fused_activation: bool = True
    """Bias and GELU, or both halves of SwiGLU, in one kernel."""
    fused_dropout_add: bool = True
    """Bias, dropout and residual add in one kernel."""
    grouped_experts: bool = False
    """All experts of a GPU run in one kernel; False: a product, and a cast, of its own for each (Transformer Engine's
    GroupedLinear, which spreads them over streams)."""
    extra_bytes: float = Field(default=0.0, ge=0)
    """Memory traffic of further unfused copies, clamps and casts, bytes an element of the hidden state and layer,
    each way."""
    loss_forward_bytes: float = Field(default=30.0, ge=0)
    """Memory traffic of the fp32 cross-entropy, bytes a logit of this GPU, forward."""
    loss_backward_bytes: float = Field(default=22.0, ge=0)
    fused_loss: bool = True
    """The loss runs in the kernels counted above; False: PyTorch's own cross-entropy wherever a GPU holds all logits
    (TP 1)."""
    cast_bytes_forward: float = Field(default=4.0, ge=0)
    """fp8/fp4: bytes an element of each product's input for casting: 2 read, 1 written, 1 for its transpose."""
    cast_bytes_backward: float = Field(default=4.0, ge=0)
    """The same of each output gradient."""
    loss_kept_bytes: float = Field(default=10.0, ge=0)
    """Memory that the loss holds at its peak, bytes a logit: 16-bit logits, fp32 copy, shifted fp32 copy whose place
    the gradient takes; PyTorch's own: 14 (16-bit, fp32 log-softmax, two fp32 gradients)."""
    extra_gradient_bytes: float = Field(default=0.0, ge=0)
    """Memory of 16-bit gradients kept beside the fp32 ones that they are added to, bytes a parameter."""
    step_gradient_bytes: float = Field(default=0.0, ge=0)
    """Memory of the fp32 copy of the gradients that the optimizer step makes, bytes a parameter that it updates."""
    fragmentation: float = Field(default=0.05, ge=0, lt=1)
    """Share of the allocator's memory that holds nothing at the peak. GMLake (arXiv 2401.08156) measured 15 % on
    average for the caching allocator of PyTorch 1 and 2.0; expandable segments (2.1 on) leave little, 5 % is
    assumed."""
    bucket_bytes: Bytes = 0.0
    """Memory of the buckets that gradients and parameters travel in."""
    tp_exposed: float = Field(default=0.5, ge=0, le=1)
    """Share of tensor-parallel traffic that stays exposed where ``overlap.tp`` is on."""
    regather_exposed: float = Field(default=0.5, ge=0, le=1)
    """Sequence parallelism gathers a layer's input once more for its weight gradient, beside the input-gradient
    product: the share that shows (Korthikanti et al. 2022, Table 4: backward of 11.8 ms with it against 11.9 ms
    without)."""
    pp_exposed: float = Field(default=0.25, ge=0, le=1)
    """Share of stage-to-stage traffic that still holds up the sender where ``overlap.pp`` is on."""
    dp_overlaps: bool = True
    """False: the stack has no overlap of gradient traffic, whatever the layout asks (Megatron before 2022)."""
    communication_sms: int = Field(default=16, ge=0)
    """SMs that a collective inside a node takes while it runs beside computation; between nodes two for each NIC that
    it reaches, at most this many (NCCL: two channels a NIC, an SM each). Hidden traffic slows computation by their
    share."""
    gather_overlaps: bool = True
    """Updated parameters are gathered beside the first forward; False: before it (ZeRO of DeepSpeed, InternEvo)."""
    ring_wait: Seconds = 0.0
    """What each step of a context-parallel ring adds: the wait for its message and the launches behind it."""
    moe_once_a_node: bool = False
    """Tokens cross nodes once and are forwarded inside (DeepEP, HybridEP); False: an all-to-all of every copy
    (NCCL)."""
    optimizer_bytes: float = Field(default=62.0, ge=0)
    """Memory traffic of one optimizer step, bytes a parameter that this GPU updates."""
    optimizer_bytes_replicated: float = Field(default=6.0, ge=0)
    """The part of it that touches every local parameter even where ZeRO shards the rest."""
    gradient_copy_bytes: float = Field(default=0.0, ge=0)
    """Memory traffic around the reduction of the gradients, bytes a parameter: packed into buckets, divided by the
    replicas, copied back; 0 where gradients lie in one buffer from the start."""
    host_forward: Seconds = 0.35e-3
    """Host time to issue one layer's forward (a GPU that finishes sooner waits)."""
    host_backward: Seconds = 0.45e-3
    host_jitter: Seconds = 0.0
    """Standard deviation of when a host reaches a blocking collective; the slowest of the tensor-parallel hosts sets
    the pace of each (it shows only where the host is slower than the GPU)."""
    rank_spread: float = Field(default=0.015, ge=0, le=0.2)
    """Standard deviation of the speed of single GPUs under one clock setting; the slowest sets the pace."""
    pass_jitter: float = Field(default=0.0, ge=0, le=0.2)
    """Standard deviation of a pipeline pass from microbatch to microbatch; neighbouring stages wait for the slowest."""


_BY_ARCHITECTURE = (
    (("p100", "v100"), "megatron-2020"),
    (("a100", "a800"), "megatron-2021"),
    (("h100", "h200", "h800", "gh200"), "nemo-2024"),
    (("b200", "b300", "gb200", "gb300"), "nemo-2025"),
    (("mi250", "mi300", "mi325", "mi355"), "rocm-2025"),
    (("rtx",), "pytorch-2023"),
)


@lru_cache(maxsize=256)
def default_stack(gpu_name: str) -> Stack:
    """The stack of the year in which a GPU generation did most of its training; used where the scenario names none."""
    lowered = gpu_name.lower().replace(" ", "-")
    for words, preset in _BY_ARCHITECTURE:
        if any(word in lowered for word in words):
            return Stack.preset(preset)
    return Stack.preset("nemo-2024")
