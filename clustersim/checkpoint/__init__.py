"""Checkpoint engines: what is saved where, how often, what stalls, and what survives which loss."""

from clustersim.checkpoint import (
    asynchronous,
    byterobust,
    checkfreq,
    datastates,
    fftrainer,
    gemini,
    gockpt,
    just_in_time,
    megascale,
    multilevel,
    sync,
    tiercheck,
    torchsnapshot,
    transom,
)

__all__ = [
    "asynchronous",
    "byterobust",
    "checkfreq",
    "datastates",
    "fftrainer",
    "gemini",
    "gockpt",
    "just_in_time",
    "megascale",
    "multilevel",
    "sync",
    "tiercheck",
    "torchsnapshot",
    "transom",
]
