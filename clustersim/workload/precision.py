"""Which precision each class of op computes in, and how many bytes its elements take."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from clustersim.hardware.gpu import Precision
from clustersim.part import Block

OpClass = Literal["linear", "attention", "head", "expert"]

BYTES: dict[str, float] = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "mxfp8": 1.03125,
    "nvfp4": 0.5625,
}
"""Bytes of an element as a matrix product reads it; block formats carry their scales (mxfp8: 1 byte for 32 elements,
OCP Microscaling 1.0; nvfp4: 1 byte for 16)."""

NARROW = frozenset({"fp8", "mxfp8", "nvfp4"})
"""Formats in which only matrix products run: everything between them stays in 16 bits and is cast on the way in."""


class OpPrecision(Block):
    """Precision of single op classes; null takes the default that ``training.precision`` implies.

    Transformer Engine runs the linear layers (and experts) in fp8 and keeps attention and the output head in bf16,
    hence those defaults for the narrow formats.
    """

    linear: Precision | None = Field(default=None)
    attention: Precision | None = Field(default=None)
    head: Precision | None = Field(default=None)
    expert: Precision | None = Field(default=None)


def precision_of(op_class: OpClass, training: Precision, chosen: OpPrecision | None = None) -> Precision:
    """Precision that ops of ``op_class`` run in."""
    own: Precision | None = getattr(chosen, op_class) if chosen is not None else None
    if own is not None:
        return own
    if training in NARROW and op_class in ("attention", "head"):
        return "bf16"
    return training


def element_bytes(precision: str) -> float:
    """Bytes of one element of a matrix operand."""
    return BYTES[precision]


def activation_bytes(training: str) -> float:
    """Bytes of one element of an activation between ops: 2, or 4 when all is fp32/tf32."""
    return 4.0 if training in ("fp32", "tf32") else 2.0
