"""Sentences for sizes that a schedule refuses; ``Schedule.resolve`` puts the kind before and the nearest valid sizes
behind."""

from __future__ import annotations

from collections.abc import Iterator


def at_least(name: str, got: int, needs: int, formula: str) -> Iterator[str]:
    """``got`` must not be below ``needs`` (``formula`` says where that number comes from)."""
    if got < needs:
        yield f"needs {name} >= {_with_value(formula, needs)}, got {got}"


def multiple_of(name: str, got: int, divisor: int, formula: str) -> Iterator[str]:
    """``got`` must be a positive multiple of ``divisor``."""
    if got % divisor or got == 0:
        yield f"needs {name} to be a multiple of {_with_value(formula, divisor)}, got {got}"


def _with_value(formula: str, value: int) -> str:
    """``2p = 8``; a formula that begins with its value says it."""
    return formula if formula.split()[0] == str(value) else f"{formula} = {value}"


def even(name: str, got: int) -> Iterator[str]:
    """``got`` must be even."""
    if got % 2:
        yield f"needs an even number of {name}, got {got}"
