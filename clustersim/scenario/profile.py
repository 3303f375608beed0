"""A calibration profile in a file of its own."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

from clustersim.errors import InputError
from clustersim.paths import absolute
from clustersim.scenario.read import read_tree


def profile_data(name: str) -> dict[str, Any]:
    """The plain data of the profile file ``name`` (relative to the file that names it).

    Raises:
        PydanticCustomError: saying what is wrong with the file.
    """
    try:
        tree, problems = read_tree(absolute(name), shown=str(name))
        if problems:
            raise InputError(problems)
    except InputError as error:
        raise PydanticCustomError(
            "profile", "{text}", {"text": "; ".join(str(item) for item in error.problems)}
        ) from None
    data = tree.plain()
    if not isinstance(data, dict):
        raise PydanticCustomError("profile", "the file must be a mapping (key: value)")
    return data
