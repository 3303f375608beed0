"""Uneven stages: what each stage of a pipeline holds, from a list of layer counts, an even spread or a layout string.

Layout strings are Megatron-LM's (``--pipeline-model-parallel-layout``): ``E`` embedding, ``t`` transformer layer, ``m``
multi-token-prediction layer, ``L`` loss (with the output layer), ``|`` between stages, ``*n`` repeats the symbol or
the group in parentheses before it; commas and spaces mean nothing. ``E|(t|)*10m|L`` is 13 stages: the embedding
alone, ten of one layer, one prediction layer, the loss alone. Stages are listed in the order of the model: stage s is
chunk s ÷ p on the loop placement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from clustersim.errors import InputError, Problem
from clustersim.pipeline.step_stages import spread

_TOKEN = re.compile(r"[EtmL|()]|\*\d+")
MOST_SYMBOLS = 1_000_000
"""Symbols of a layout, repetitions written out: more than any model has layers and any pipeline stages."""


@dataclass(frozen=True)
class StageLayers:
    """What one stage holds; ``losses`` counts the L of the layout (each an equal share of the output layer)."""

    layers: int
    embedding: bool = False
    mtp: int = 0
    losses: int = 0

    def __str__(self) -> str:
        return "E" * self.embedding + _times("t", self.layers) + _times("m", self.mtp) + "L" * self.losses


def _times(symbol: str, count: int) -> str:
    return symbol if count == 1 else f"{symbol}*{count}" if count else ""


def even_layout(layers: int, stages: int, *, mtp: int = 0) -> tuple[StageLayers, ...]:
    """Layers spread evenly, the first stage (embedding) and the last (output layer, prediction layers) lightest.

    126 layers on 128 stages leave the first and the last without layers.

    Raises:
        InputError: when there are fewer than one stage.
    """
    if stages < 1:
        raise InputError(Problem("layout", f"needs at least one stage, got {stages}"))
    return _with_ends(spread(layers, stages), mtp)


def counted_layout(counts: Sequence[int], *, mtp: int = 0) -> tuple[StageLayers, ...]:
    """Layers a stage as the user lists them; embedding on the first stage, output layer on the last.

    Raises:
        InputError: for an empty list or a negative count.
    """
    if not counts or min(counts) < 0:
        raise InputError(Problem("layout", "needs one count of layers a stage, none below 0"))
    return _with_ends(counts, mtp)


def _with_ends(counts: Sequence[int], mtp: int) -> tuple[StageLayers, ...]:
    last = len(counts) - 1
    return tuple(
        StageLayers(count, stage == 0, mtp if stage == last else 0, int(stage == last))
        for stage, count in enumerate(counts)
    )


def parse_layout(text: str) -> tuple[StageLayers, ...]:
    """The stages that a layout string describes; see the module's text.

    Raises:
        InputError: for an unknown symbol, an open parenthesis, a repetition of nothing, or symbols out of order.
    """
    symbols = _expand(_tokens(text))
    return tuple(_stage(part, index) for index, part in enumerate("".join(symbols).split("|")))


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    bare = re.sub(r"[\s,]", "", text)
    while at < len(bare):
        match = _TOKEN.match(bare, at)
        if match is None:
            raise _wrong(f"'{bare[at]}' at '{bare[at : at + 8]}' means nothing; symbols are E t m L | ( ) *n")
        tokens.append(match.group())
        at = match.end()
    if not tokens:
        raise _wrong("is empty; write for example Et*3|(tt|)*2t*3L")
    return tokens


def _expand(tokens: list[str]) -> list[str]:
    """Symbols with repetitions and groups written out."""
    stack: list[list[str]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise _wrong("closes a parenthesis that was never opened")
            group = "".join(stack.pop())
            stack[-1].append(group)
        elif token.startswith("*"):
            if not stack[-1]:
                raise _wrong(f"'{token}' repeats nothing: it stands behind a symbol or a group in parentheses")
            stack[-1][-1] = _repeated(stack[-1][-1], token[1:])
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise _wrong("leaves a parenthesis open")
    return stack[0]


def _repeated(symbols: str, times: str) -> str:
    """The symbols ``times`` over; a number of very many digits is not even read."""
    if len(times) > 9 or len(symbols) * int(times) > MOST_SYMBOLS:
        raise _wrong(f"repeats too often at '*{times[:9]}': it may have {MOST_SYMBOLS:,} symbols when written out")
    return symbols * int(times)


def _stage(part: str, index: int) -> StageLayers:
    if not re.fullmatch(r"E?t*m*L*", part):
        raise _wrong(f"stage {index} is '{part}': the order within a stage is E, t, m, L")
    if "E" in part and index:
        raise _wrong(f"has the embedding E on stage {index}: it belongs on the first stage")
    return StageLayers(part.count("t"), "E" in part, part.count("m"), part.count("L"))


def _wrong(sentence: str) -> InputError:
    return InputError(Problem("layout", f"the layout string {sentence}"))


def format_layout(stages: Sequence[StageLayers]) -> str:
    """The stages as a layout string; :func:`parse_layout` reads it back."""
    return "|".join(str(stage) for stage in stages)


def check_layout(
    stages: Sequence[StageLayers], *, layers: int, mtp: int = 0, ranks: int, chunks: int | None = None
) -> None:
    """Refuse stages that are not this model on this pipeline.

    Args:
        stages: in the order of the model.
        layers: transformer layers of the model.
        mtp: multi-token-prediction layers of the model.
        ranks: pipeline ranks.
        chunks: chunks a rank; None to accept any number.

    Raises:
        InputError: one problem for each rule broken: the sums are the model's, every rank has as many stages, the
            embedding is on the first stage and the loss on the last.
    """
    problems = list(_layout_problems(stages, layers, mtp, ranks, chunks))
    if problems:
        raise InputError([Problem("layout", sentence) for sentence in problems])


def _layout_problems(stages: Sequence[StageLayers], layers: int, mtp: int, ranks: int, chunks: int | None) -> list[str]:
    problems = []
    for name, want, got in (
        ("transformer", layers, sum(stage.layers for stage in stages)),
        ("prediction", mtp, sum(stage.mtp for stage in stages)),
    ):
        if got != want:
            change = f"add {want - got}" if got < want else f"remove {got - want}"
            problems.append(f"the stages hold {got} {name} layers, the model has {want}: {change}")
    if len(stages) % ranks:
        problems.append(f"{len(stages)} stages do not divide over pp={ranks} ranks: every rank holds as many stages")
    elif chunks is not None and len(stages) != ranks * chunks:
        problems.append(f"{len(stages)} stages are not pp * chunks = {ranks} * {chunks} = {ranks * chunks}")
    if not stages[0].embedding:
        problems.append("the first stage has no embedding (E)")
    if not stages[-1].losses:
        problems.append("the last stage has no loss (L)")
    return problems


def stage_sizes(
    stages: Sequence[StageLayers], *, layer: float, embedding: float = 0.0, head: float = 0.0, mtp: float = 0.0
) -> list[float]:
    """Parameters, bytes, FLOP or seconds of each stage, from those of one layer, the embedding, the output layer and
    one prediction layer."""
    losses = max(1, sum(stage.losses for stage in stages))
    return [
        stage.layers * layer + stage.embedding * embedding + stage.mtp * mtp + stage.losses / losses * head
        for stage in stages
    ]


def rank_sizes(sizes: Sequence[float], stage_rank: Sequence[int]) -> list[float]:
    """Sums of stage sizes on each rank."""
    totals = [0.0] * (1 + max(stage_rank))
    for stage, size in enumerate(sizes):
        totals[stage_rank[stage]] += size
    return totals
