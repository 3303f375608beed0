"""A small GPT in plain torch: what is measured layer by layer, and trained by the proofs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import nn


@dataclass(frozen=True)
class GptSize:
    """Sizes of the model and of one microbatch: ``batch`` sequences of ``length`` tokens."""

    hidden: int = 128
    heads: int = 4
    layers: int = 8
    length: int = 64
    vocabulary: int = 256
    batch: int = 1

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch."""
        return self.batch * self.length


class Block(nn.Module):
    """Pre-norm transformer layer: causal attention, GELU MLP of four times the width."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden)
        self.out = nn.Linear(size.hidden, size.hidden)
        self.up = nn.Linear(size.hidden, 4 * size.hidden)
        self.down = nn.Linear(4 * size.hidden, size.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) → the same."""
        batch, length, hidden = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Embed(nn.Module):
    """Token and position embedding: (batch, length) integers → (batch, length, hidden)."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.token = nn.Embedding(size.vocabulary, size.hidden)
        self.place = nn.Parameter(torch.zeros(size.length, size.hidden))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Sum of both embeddings."""
        embedded: torch.Tensor = self.token(tokens) + self.place
        return embedded


class Head(nn.Module):
    """Last norm and projection to the vocabulary."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size.hidden)
        self.project = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) → (batch, length, vocabulary)."""
        logits: torch.Tensor = self.project(self.norm(x))
        return logits


def stages_of(size: GptSize, count: int, seed: int = 0) -> list[nn.Sequential]:
    """The model cut into ``count`` stages of equally many layers; embedding first, head last.

    Raises:
        ValueError: the layers do not divide.
    """
    if size.layers % count:
        raise ValueError(f"{size.layers} layers do not divide into {count} stages")
    torch.manual_seed(seed)
    share = size.layers // count
    parts: list[list[nn.Module]] = [[Block(size) for _ in range(share)] for _ in range(count)]
    parts[0].insert(0, Embed(size))
    parts[-1].append(Head(size))
    return [nn.Sequential(*part) for part in parts]


def whole(size: GptSize, seed: int = 0) -> nn.Sequential:
    """The model in one piece."""
    return stages_of(size, 1, seed)[0]


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy."""
    return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def batch_of(size: GptSize, sequences: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tokens and targets: two (sequences, length) integer tensors."""
    generator = torch.Generator().manual_seed(seed)
    shape = (sequences, size.length)
    tokens = torch.randint(size.vocabulary, shape, generator=generator)
    return tokens, torch.randint(size.vocabulary, shape, generator=generator)
