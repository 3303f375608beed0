"""What strategies of plug-ins answer, looked at before the run takes it: a wrong answer is named where it was given."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any


def seconds(value: Any) -> bool:
    """Whether a value is a duration."""
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


def share(value: Any) -> bool:
    """Whether a value lies in (0, 1]."""
    return seconds(value) and 0 < value <= 1


def checked(method: Callable[..., Any], name: str, fits: Callable[[Any], bool], what: str) -> Callable[..., Any]:
    """``method`` with a look at what it returns.

    Raises:
        TypeError: (when it is called) the answer does not fit.
    """

    @functools.wraps(method)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = method(self, *args, **kwargs)
        if not fits(answer):
            raise TypeError(f"{type(self).__qualname__}.{name} must return {what}, not {answer!r:.60}")
        return answer

    return asked
