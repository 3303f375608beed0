"""Quantities with units: parsed at the door, SI floats inside.

``Seconds``, ``Bytes``, ``BytesPerSecond``, ``Flop``, ``FlopPerSecond`` and ``Watts`` are pydantic field types. In a YAML
file (validation context ``{"units": "required"}``) a bare number is refused; from Python a bare number is taken as SI.
Bits are not bytes: ``Gbit/s`` and ``GB/s`` differ by 8, and spellings that leave it open (``Gb``, ``gbps``) are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from clustersim.errors import nearest

_DECIMAL = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
        "w": 604800.0, "y": 365 * 86400.0}  # fmt: skip
BYTES = {"B": 1.0, **{f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()}}
BITS = {"bit": 1 / 8, **{f"{p}bit": f / 8 for p, f in (_DECIMAL | _BINARY).items()}}
RATE = {f"{unit}/s": factor for unit, factor in (BYTES | BITS).items()}
FLOP = {"FLOP": 1.0, **{f"{p}FLOP": f for p, f in _DECIMAL.items()}}
FLOP_RATE = {f"{unit}/s": factor for unit, factor in FLOP.items()}
POWER = {"W": 1.0, "kW": 1e3, "MW": 1e6}
ENERGY = {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6, "MWh": 3.6e9}

_NUMBER = r"(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TERM = re.compile(rf"\s*({_NUMBER})\s*([^\W\d_]+(?:/[^\W\d_]+)?)")
_LARGEST = 1e30
"""Beyond it, or below one over it where 0 is no value either, a value is a slip of the pen: products and quotients of such
values would leave the range of a float."""


@dataclass(frozen=True, eq=False)
class Dimension:
    """A kind of quantity: its name, its units (SI factor each), an example, and the units it is printed in."""

    name: str
    units: dict[str, float]
    example: str
    printed: tuple[str, ...]
    minimum: float = 0.0

    def parse(self, text: str) -> float:
        """SI value of ``text``, such as ``"1 h 30 min"``; a sum of terms is allowed.

        Raises:
            ValueError: with a sentence that says what would be right.
        """
        stripped = text.strip()
        sign = -1.0 if stripped.startswith("-") else 1.0
        body = stripped[1:] if stripped[:1] in ("-", "+") else stripped
        total, position = 0.0, 0
        while position < len(body) or position == 0:
            match = _TERM.match(body, position)
            if match is None:
                raise ValueError(self._not_a_quantity(text))
            number, unit = match.groups()
            if unit not in self.units:
                raise ValueError(f"'{unit}' in '{text[:60]}' is no unit of {self.name}{self._hint(unit)}")
            total += float(number.replace("_", "")) * self.units[unit]
            position = match.end()
        return sign * total

    def _not_a_quantity(self, text: str) -> str:
        comma = " (decimals take a point, not a comma)" if "," in text else ""
        return f"'{text[:60]}' is not {self.name}{comma}; write a number and a unit, such as '{self.example}'"

    def _hint(self, unit: str) -> str:
        shown = ", ".join(self.printed)
        folded = {known.lower(): known for known in self.units}
        if ("B" in self.units or "B/s" in self.units) and re.fullmatch(r"[kKMGTPgmt]i?b(ps|/s)?", unit):
            per_second = "/s" if "B/s" in self.units else ""
            prefix = unit[0].upper() if unit[0] not in "k" else "k"
            return f" (bits or bytes? write '{prefix}bit{per_second}' or '{prefix}B{per_second}'); units: {shown}"
        if unit.lower() in folded:
            return f"; did you mean '{folded[unit.lower()]}'? units: {shown}"
        return f"{nearest(unit, self.units) or ';'} units: {shown}"

    def format(self, value: float) -> str:
        """``value`` in the largest printed unit that reads back to the same float; SI otherwise."""
        base = next(unit for unit, factor in self.units.items() if factor == 1.0)
        best = f"{int(value) if value == int(value) and abs(value) < 1e15 else repr(value)} {base}"
        for unit in self.printed:
            shown = value / self.units[unit]
            if not 1 <= abs(shown) < 1e15:
                continue
            for text in (f"{shown:.6g}", f"{shown:.12g}", f"{shown:.0f}"):
                if len(text) <= 12 and "e" not in text and self.parse(f"{text} {unit}") == value:
                    return f"{text} {unit}"
        return best


DURATION = Dimension("a duration", TIME, "35 min", ("y", "d", "h", "min", "s", "ms", "us", "ns"))
SIZE = Dimension("a size in bytes", BYTES, "80 GiB",
                 ("TiB", "GiB", "MiB", "KiB", "PB", "TB", "GB", "MB", "kB", "B"))  # fmt: skip
BANDWIDTH = Dimension("a bandwidth", RATE, "400 Gbit/s",
                      ("TB/s", "Gbit/s", "GB/s", "MB/s", "Mbit/s", "kB/s", "B/s"))  # fmt: skip
WORK = Dimension("an amount of FLOP", FLOP, "1 TFLOP", ("EFLOP", "PFLOP", "TFLOP", "GFLOP", "FLOP"))
SPEED = Dimension("a compute rate", FLOP_RATE, "989 TFLOP/s", ("PFLOP/s", "TFLOP/s", "GFLOP/s", "FLOP/s"))
WATT = Dimension("a power", POWER, "700 W", ("MW", "kW", "W"))
JOULE = Dimension("an energy", ENERGY, "1 kWh", ("MWh", "kWh", "MJ", "kJ", "J"))


def about(seconds: float) -> str:
    """A duration for people, to three figures in the unit that fits: ``54 d``, ``3.1 h``, ``640 ms``."""
    if seconds == 0:
        return "0 s"
    fitting = next((unit for unit in ("d", "h", "min", "s", "ms", "us") if abs(seconds) >= TIME[unit]), "ns")
    number = seconds / TIME[fitting]
    return f"{number:,.0f} {fitting}" if abs(number) >= 1000 else f"{number:.3g} {fitting}"


def _validator(dimension: Dimension, positive: bool) -> Callable[[Any, ValidationInfo], float]:
    def validate(value: Any, info: ValidationInfo) -> float:
        context = info.context or {}
        if isinstance(value, str):
            try:
                number = dimension.parse(value)
            except ValueError as error:
                raise PydanticCustomError("quantity", "{text}", {"text": str(error)}) from None
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise PydanticCustomError("quantity", "needs {name}, such as '{example}'",
                                      {"name": dimension.name, "example": dimension.example})  # fmt: skip
        elif context.get("units") == "required":
            raise PydanticCustomError("quantity", "{value} needs a unit ({units}), such as '{example}'",
                                      {"value": str(value)[:60], "units": ", ".join(dimension.printed),
                                       "example": dimension.example})  # fmt: skip
        else:
            number = float(value) if abs(value) <= _LARGEST else math.inf * (1 if value > 0 else -1)
        if not math.isfinite(number):
            raise PydanticCustomError("quantity", "must be finite, such as '{example}'", {"example": dimension.example})
        if number < dimension.minimum or (positive and number == 0):
            rule = "greater than 0" if positive else "at least 0"
            raise PydanticCustomError("quantity", "{value} must be {rule}", {"value": str(value)[:60], "rule": rule})
        if number > _LARGEST or (positive and number < 1 / _LARGEST):
            raise PydanticCustomError("quantity", "{value} is out of all range; did a digit slip in?",
                                      {"value": str(value)[:60]})  # fmt: skip
        return number

    return validate


@dataclass(frozen=True)
class Unit:
    """Annotation that makes a float field a quantity of ``dimension``; ``positive`` also refuses zero."""

    dimension: Dimension
    positive: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            _validator(self.dimension, self.positive),
            serialization=core_schema.plain_serializer_function_ser_schema(self.dimension.format),
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.schema()

    def schema(self) -> JsonSchemaValue:
        """JSON Schema of the quantity: a pattern and an example."""
        units = "|".join(re.escape(unit) for unit in self.dimension.units)
        term = rf"\s*{_NUMBER}\s*({units})"
        return {"type": "string", "pattern": f"^\\s*\\+?({term})+\\s*$", "examples": [self.dimension.example]}


def written(value: float, *types: Any) -> str | float:
    """``value`` as a scenario writes it: with a unit where ``types`` (a field's type and what annotates it) hold a quantity."""
    for each in types:
        if isinstance(each, Unit):
            return each.dimension.format(value)
        found = written(value, *getattr(each, "__metadata__", ()), *get_args(each))
        if isinstance(found, str):
            return found
    return value


Seconds = Annotated[float, Unit(DURATION)]
PositiveSeconds = Annotated[float, Unit(DURATION, positive=True)]
Bytes = Annotated[float, Unit(SIZE)]
BytesPerSecond = Annotated[float, Unit(BANDWIDTH)]
PositiveBytesPerSecond = Annotated[float, Unit(BANDWIDTH, positive=True)]
Flop = Annotated[float, Unit(WORK)]
FlopPerSecond = Annotated[float, Unit(SPEED)]
PositiveFlopPerSecond = Annotated[float, Unit(SPEED, positive=True)]
Watts = Annotated[float, Unit(WATT)]
PositiveWatts = Annotated[float, Unit(WATT, positive=True)]
Joules = Annotated[float, Unit(JOULE)]
