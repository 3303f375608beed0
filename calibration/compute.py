"""Matrix products, attention, memory-bound ops, launches, layers and a whole model on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from calibration.device import Timing, cpu_clock
from calibration.gpt import Block, GptSize, batch_of, loss_of, whole
from calibration.plan import Context, Point, rotating


def _random(context: Context, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """Normal random data: zeros would draw less power and run at higher clocks."""
    return torch.randn(*shape, device=context.device.torch).to(dtype).requires_grad_(grad)


def gemm_points(context: Context) -> Iterator[Point]:
    """Products of transformer shapes: square, thin, wide; on a GPU also one tile beyond full waves."""
    for precision, dtype in context.device.precisions(context.quick).items():
        for m, n, k in gemm_shapes(context):
            flop, width = 2.0 * m * n * k, torch.empty((), dtype=dtype).element_size()
            key = {"m": m, "n": n, "k": k, "batch": 1, "precision": precision}
            size = width * (m * k + k * n + m * n)
            yield Point(key, partial(_gemm, context, (m, n, k), dtype, size), 4 * size, flop, size)


def gemm_shapes(context: Context) -> list[tuple[int, int, int]]:
    """(m, n, k) of the products to measure."""
    if not context.device.is_gpu:
        sizes = [32, 128, 384] if context.quick else [32, 64, 128, 256, 512, 1024, 2048]
        return [(m, n, k) for m in sizes for n in sizes for k in sizes if m * n * k <= 2**31]
    tokens = [512, 2048, 8192] if context.quick else [128, 512, 1024, 2048, 4096, 8192, 16384]
    hidden = [1024, 4096] if context.quick else [1024, 2048, 4096, 5120, 8192, 12288, 16384]
    shapes = [(t, n, h) for t in tokens for h in hidden for n in (h, 3 * h, 4 * h)]
    shapes += [(t, h, 4 * h) for t in tokens for h in hidden]
    sms = torch.cuda.get_device_properties(context.device.torch).multi_processor_count
    for waves in (1, 2, 4):  # a full wave of 128 × 256 tiles, and one tile more
        shapes += [(128 * sms * waves, 256, 4096), (128 * (sms * waves + 1), 256, 4096)]
    return list(dict.fromkeys(shapes))


def _gemm(context: Context, shape: tuple[int, int, int], dtype: torch.dtype, size: float) -> Callable[[], Any]:
    m, n, k = shape
    if dtype is getattr(torch, "float8_e4m3fn", None):
        one = torch.ones((), device=context.device.torch)
        make8 = lambda: (_random(context, m, k, dtype=dtype), _random(context, n, k, dtype=dtype).t())  # noqa: E731
        take8 = rotating(context, make8, size)

        def product8() -> torch.Tensor:
            left, right = take8()
            return torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        return product8
    take = rotating(context, lambda: (_random(context, m, k, dtype=dtype), _random(context, k, n, dtype=dtype)), size)
    out = torch.empty(m, n, dtype=dtype, device=context.device.torch)
    return lambda: torch.mm(*take(), out=out)


def attention_points(context: Context) -> Iterator[Point]:
    """Scaled dot-product attention: head sizes, lengths, causal or not, grouped heads, windows; forward and backward."""
    gpu, quick = context.device.is_gpu, context.quick
    lengths = ([1024, 4096] if quick else [512, 1024, 2048, 4096, 8192, 16384, 32768]) if gpu else (
        [32, 64, 128, 256] if quick else [64, 128, 256, 512, 1024])  # fmt: skip
    sizes = [64, 128] if gpu else ([32] if quick else [32, 64, 128])
    heads = 32 if gpu else 4
    precision, dtype = next(iter(context.device.precisions(quick).items()))
    for head_dim in sizes:
        for length in lengths:
            for sequences in ([1] if length > 8192 else [1, 4]):
                variants: list[tuple[int, bool, int | None]] = [(heads, True, None), (heads, False, None)]
                if not quick:
                    variants += [(heads // 4, True, None), (heads, True, length // 4), (heads, True, length // 16)]
                for kv_heads, causal, window in variants:
                    key = {"sequences": sequences, "heads": heads, "kv_heads": kv_heads, "length": length, "head_dim": head_dim,
                           "causal": causal, "window": window, "precision": precision}  # fmt: skip
                    memory = 16.0 * sequences * heads * length * (head_dim + (length if window else 0))
                    for when in ("forward", "backward"):
                        yield Point({"pass": when, **key}, partial(_attention, context, key, when, dtype), memory)


def _attention(context: Context, key: dict[str, Any], when: str, dtype: torch.dtype) -> Callable[[], Any]:
    batch, length, size = key["sequences"], key["length"], key["head_dim"]
    back = when == "backward"
    q = _random(context, batch, key["heads"], length, size, dtype=dtype, grad=back)
    k, v = (_random(context, batch, key["kv_heads"], length, size, dtype=dtype, grad=back) for _ in range(2))
    mask = None
    if key["window"]:
        place = torch.arange(length, device=context.device.torch)
        off = place[:, None] - place[None, :]
        mask = (off >= 0) & (off < key["window"])
    options: dict[str, Any] = {"attn_mask": mask, "is_causal": key["causal"] and mask is None}
    if key["kv_heads"] != key["heads"]:
        options["enable_gqa"] = True
    if not back:
        return lambda: functional.scaled_dot_product_attention(q, k, v, **options)
    out = functional.scaled_dot_product_attention(q, k, v, **options)
    grad = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)


def memory_points(context: Context) -> Iterator[Point]:
    """Memory-bound ops by the bytes they must move; the optimizer fused and not."""
    fine = range(12, 27, 2) if context.device.is_gpu else range(12, 25)  # on a CPU, through several caches
    counts = [2**14, 2**17, 2**20] if context.quick else [2**p for p in fine]
    precision, dtype = next(iter(context.device.precisions(context.quick).items()))
    width = torch.empty((), dtype=dtype).element_size()
    for op, factor in MEMORY_OPS.items():
        for count in counts:
            moved = factor * count * (width if not op.startswith("memory-adam") else 4)
            key = {"op": op, "bytes": int(moved), "precision": precision}
            yield Point(key, partial(_memory_op, context, op, count, dtype), 8 * moved, moved=moved)


MEMORY_OPS = {"memory-stream": 3.0, "memory-layer-norm": 2.0, "memory-rms-norm": 2.0, "memory-gelu": 2.0, "memory-swiglu": 3.0,
              "memory-rope": 2.0, "memory-softmax": 2.0, "memory-cross-entropy": 2.0, "memory-dropout": 2.0,
              "memory-adam-fused": 7.0, "memory-adam-unfused": 7.0}  # fmt: skip
"""Elements read and written for each element of the input (Adam: weight, gradient, two moments; three written back)."""
_ROW = 512


def _memory_op(context: Context, op: str, count: int, dtype: torch.dtype) -> Callable[[], Any]:
    if op.startswith("memory-adam"):
        return _adam(context, count, fused=op.endswith("-fused"))
    rows = max(1, count // _ROW)
    take = rotating(context, lambda: _random(context, rows, _ROW, dtype=dtype), 4.0 * count)
    x = take()
    other, target = torch.randn_like(x), torch.randint(_ROW, (rows,), device=x.device)
    weight = torch.ones(_ROW, dtype=dtype, device=x.device)
    cos, sin = torch.cos(other), torch.sin(other)
    out = torch.empty_like(x)

    def rope() -> torch.Tensor:
        y = take()
        return y * cos + torch.cat((-y[:, _ROW // 2 :], y[:, : _ROW // 2]), dim=1) * sin

    calls: dict[str, Callable[[], Any]] = {
        "memory-stream": lambda: torch.add(take(), other, out=out),
        "memory-layer-norm": lambda: functional.layer_norm(take(), (_ROW,), weight),
        "memory-rms-norm": lambda: functional.rms_norm(take(), (_ROW,), weight),
        "memory-gelu": lambda: functional.gelu(take()),
        "memory-swiglu": lambda: functional.silu(take()) * other,
        "memory-rope": rope,
        "memory-softmax": lambda: torch.softmax(take(), dim=-1),
        "memory-cross-entropy": lambda: functional.cross_entropy(take(), target),
        "memory-dropout": lambda: functional.dropout(take(), 0.1),
    }
    return calls[op]


def _adam(context: Context, count: int, fused: bool) -> Callable[[], Any]:
    parameter = nn.Parameter(_random(context, count))
    parameter.grad = torch.randn_like(parameter)
    return torch.optim.AdamW([parameter], fused=fused, foreach=False).step


def launch_points(context: Context) -> Iterator[Point]:
    """The smallest kernel there is, again and again: time between two launches (on a CPU: of an op's dispatch)."""
    one = torch.zeros(1, device=context.device.torch)

    def many() -> dict[str, Any]:
        timing = context.device.time(lambda: [one.add_(1) for _ in range(200)], context.point_s)
        return {"median_s": timing.median_s / 200, "p25_s": timing.p25_s / 200, "p75_s": timing.p75_s / 200}

    yield Point({"what": "launch"}, many)


def layer_points(context: Context) -> Iterator[Point]:
    """A transformer layer: forward, whole backward, input and weight gradients apart, backward with recomputation."""
    if context.device.is_gpu:
        widths, lengths, batches = ([2048], [2048], [1]) if context.quick else ([2048, 4096, 8192], [2048, 8192], [1, 2, 4])
    else:
        small = ([32, 64, 96], [16, 32], [1, 2])
        widths, lengths, batches = small if context.quick else ([64, 128, 256, 512], [32, 64, 128, 256], [1, 4])
    precision, dtype = next(iter(context.device.precisions(context.quick).items()))
    for hidden in widths:
        for length in lengths:
            for batch in batches:
                size = GptSize(hidden=hidden, heads=max(1, hidden // (128 if context.device.is_gpu else 32)), layers=1,
                               length=length, batch=batch)  # fmt: skip
                memory = 60.0 * size.tokens * hidden * 4 + 12.0 * hidden**2 * 12
                for when in ("forward", "backward", "input-gradient", "weight-gradient", "recompute-backward"):
                    key = {"pass": when, "tokens": size.tokens, "length": length, "hidden": hidden, "precision": precision}
                    yield Point(key, partial(layer_pass, context, size, when, dtype), memory)


def layer_pass(context: Context, size: GptSize, when: str, dtype: torch.dtype) -> Any:
    """What to time for one pass of one layer."""
    layer = Block(size).to(context.device.torch, dtype)
    x = _random(context, size.batch, size.length, size.hidden, dtype=dtype, grad=True)
    if when == "forward":
        return lambda: layer(x)
    if when == "recompute-backward":
        from torch.utils.checkpoint import checkpoint

        return _after(context, lambda: checkpoint(layer, x, use_reentrant=False), lambda y: y.sum().backward())
    if when == "backward":
        return _after(context, lambda: layer(x), lambda y: torch.autograd.backward(y, torch.ones_like(y)))
    return _split_backward(context, layer, x, when)


def _after(context: Context, ahead: Callable[[], Any], timed: Callable[[Any], Any]) -> Any:
    """Seconds of ``timed`` on fresh results of ``ahead``, which are not timed."""
    seconds: list[float] = []
    for turn in range(9):
        ready = ahead()
        context.device.sync()
        once = _single(context, timed, ready)
        if turn >= 2:
            seconds.append(once)
    return Timing.of(seconds)


def _single(context: Context, timed: Callable[[Any], Any], ready: Any) -> float:
    if context.device.is_gpu:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        timed(ready)
        last.record()
        context.device.sync()
        return float(first.elapsed_time(last)) * 1e-3
    now = cpu_clock()
    start = now()
    timed(ready)
    return now() - start


def _split_backward(context: Context, layer: nn.Module, x: torch.Tensor, when: str) -> Any:
    """Input gradient, then weight gradient, as torch.distributed.pipelining's zero-bubble schedules take them apart."""
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

    def inputs(y: torch.Tensor) -> Any:
        return stage_backward_input([y], [torch.ones_like(y)], [x], layer.parameters())[1]

    if when == "input-gradient":
        return _after(context, lambda: layer(x), inputs)
    return _after(context, lambda: inputs(layer(x)), lambda groups: stage_backward_weight(layer.parameters(), groups))


def model_points(context: Context) -> Iterator[Point]:
    """A whole small model: forward and loss, backward, a training step with fused AdamW."""
    size = GptSize(hidden=2048, heads=16, layers=4, length=2048, vocabulary=32000) if context.device.is_gpu else (
        GptSize(hidden=64, heads=2, layers=2, length=32) if context.quick else GptSize())  # fmt: skip
    memory = 4e9 if context.device.is_gpu else 1e8
    for what in ("forward", "forward-backward", "step"):
        yield Point({"what": what, **vars(size)}, partial(_model, context, size, what), memory)


def _model(context: Context, size: GptSize, what: str) -> Callable[[], Any]:
    model = whole(size).to(context.device.torch)
    tokens, targets = (item.to(context.device.torch) for item in batch_of(size, size.batch))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def run() -> None:
        loss = loss_of(model(tokens), targets)
        if what != "forward":
            loss.backward()
        if what == "step":
            optimizer.step()
            optimizer.zero_grad()

    return run
