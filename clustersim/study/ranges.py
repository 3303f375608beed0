"""Ranges of inputs: what is not known exactly, and how it may lie.

``Range.parse("checkpoint.interval=5 min..20 min")`` is uniform; ``…:log`` uniform in the logarithm; ``…:normal`` (or
``log-normal``) puts the 5th and the 95th percentile at the ends; ``…:triangular`` peaks in the middle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustersim.errors import InputError, Problem
from clustersim.study.axes import _quantity
from clustersim.units import Dimension

_Z95 = 1.6448536269514722  # standard normal quantile of 0.95
SHAPES = ("uniform", "log", "normal", "log-normal", "triangular")
_TEXT = re.compile(r"^(?P<low>.+?)\.\.(?P<high>[^:]+?)(?::(?P<shape>[a-z-]+))?$")


@dataclass(frozen=True)
class Range:
    """One uncertain input: a path, its ends in SI units, how it is distributed between them."""

    path: str
    low: float
    high: float
    shape: str = "uniform"
    dimension: Dimension | None = None
    whole: bool = False

    @classmethod
    def parse(cls, text: str, option: str = "--range") -> Range:
        """``path=low..high[:shape]``.

        Raises:
            InputError: saying what would be right.
        """
        path, equals, values = text.partition("=")
        if not equals or not path.strip():
            raise InputError(
                Problem(option, f"'{text}' is no range; write path=low..high, such as cluster.spare_nodes=0..64")
            )
        return cls.of(path.strip(), values.strip(), option)

    @classmethod
    def of(cls, path: str, value: Any, option: str = "--range") -> Range:
        """A range from its text, or from a mapping with ``low``, ``high`` and, if given, ``shape``."""
        if isinstance(value, Mapping):
            value = f"{value.get('low')}..{value.get('high')}:{value.get('shape', 'uniform')}"
        matched = _TEXT.match(str(value))
        where = f"{option} {path}"
        if matched is None:
            raise InputError(Problem(where, f"'{value}' is no range; write low..high, such as '5 min..20 min'"))
        shape = matched["shape"] or "uniform"
        if shape not in SHAPES:
            raise InputError(Problem(where, f"there is no shape '{shape}'; known: {', '.join(SHAPES)}"))
        return cls._checked(path, matched["low"].strip(), matched["high"].strip(), shape, where)

    @classmethod
    def _checked(cls, path: str, low: str, high: str, shape: str, where: str) -> Range:
        try:
            (dimension, start), (other, stop) = _quantity(low), _quantity(high)
        except ValueError as error:
            raise InputError(Problem(where, str(error))) from None
        if dimension is not other:
            raise InputError(Problem(where, f"'{low}' and '{high}' are of different kinds"))
        if not start < stop or (shape.startswith("log") and start <= 0):
            raise InputError(Problem(where, "needs low < high (and low > 0 for a logarithmic shape)"))
        whole = dimension is None and all(re.fullmatch(r"[+-]?\d+", end) for end in (low, high))
        return cls(path, start, stop, shape, dimension, whole)

    def at(self, share: float) -> float:
        """The value (SI) below which ``share`` of the distribution lies, 0 < share < 1."""
        low, high = (math.log(self.low), math.log(self.high)) if self.shape.startswith("log") else (self.low, self.high)
        if self.shape.endswith("normal"):
            from scipy.special import ndtri

            found = (low + high) / 2 + (high - low) / (2 * _Z95) * float(ndtri(share))
        elif self.shape == "triangular":
            half = math.sqrt(share / 2) if share < 0.5 else 1 - math.sqrt((1 - share) / 2)
            found = low + (high - low) * half
        else:
            found = low + (high - low) * share
        return math.exp(found) if self.shape.startswith("log") else found

    def value(self, share: float) -> Any:
        """The same as a scenario value: with its unit, or a whole number where both ends are whole."""
        number = self.at(share)
        if self.dimension is not None:
            return self.dimension.format(float(f"{max(number, 0.0):.12g}"))
        return round(number) if self.whole else float(f"{number:.12g}")
