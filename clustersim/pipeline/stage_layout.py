"""Megatron's layout strings: which layers each virtual stage holds, written out.

``E|(t|)*10m|L``: ``|`` ends a stage; ``E`` embedding, ``t`` transformer layer, ``m`` prediction layer, ``L`` output
head and loss; ``x*4`` and ``(…)*4`` repeat; commas and blanks are ignored.
"""

from __future__ import annotations

import re

from clustersim.errors import InputError, Problem
from clustersim.workload.model import TransformerModel

_PATH = "parallelism.stage_layout"
_TOKEN = re.compile(r"[EtmL|()]|\*\d+")


def expand(text: str) -> str:
    """The layout with every repetition written out.

    Raises:
        InputError: a character that means nothing, an unbalanced parenthesis, a repetition of nothing.
    """
    compact = re.sub(r"[\s,]", "", text)
    tokens = _TOKEN.findall(compact)
    if "".join(tokens) != compact:
        raise _wrong(text, "may hold E, t, m, L, |, parentheses and *number")
    stack: list[list[str]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise _wrong(text, "closes a parenthesis that was not opened")
            group = "".join(stack.pop())
            stack[-1].append(group)
        elif token.startswith("*"):
            if not stack[-1]:
                raise _wrong(text, "repeats nothing")
            stack[-1][-1] *= int(token[1:])
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise _wrong(text, "leaves a parenthesis open")
    return "".join(stack[0])


def layer_counts(text: str, model: TransformerModel, stages: int) -> list[int]:
    """Transformer layers of each of ``stages`` virtual stages.

    Raises:
        InputError: other stages or layers than the model and the schedule have; embedding not first, head or prediction
            layers not in the last stage (where this model of a step puts them).
    """
    held = expand(text).split("|")
    if len(held) != stages:
        raise _wrong(text, f"has {len(held)} stages, but pp x chunks is {stages}")
    counts = [stage.count("t") for stage in held]
    if sum(counts) != model.layers:
        raise _wrong(text, f"has {sum(counts)} layers, but the model has {model.layers}")
    if any("E" in stage for stage in held[1:]) or any("L" in stage or "m" in stage for stage in held[:-1]):
        raise _wrong(text, "must have E in the first stage, and m and L in the last")
    if held[-1].count("m") not in (0, model.mtp_layers):
        raise _wrong(text, f"has {held[-1].count('m')} prediction layers, but the model has {model.mtp_layers}")
    return counts


def _wrong(text: str, what: str) -> InputError:
    return InputError(Problem(_PATH, f"'{text}' {what}"))
