"""What a row leaves blank, by its source: the entries of ``sources.yaml``."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

from clustersim.validation.rows import Row


@dataclass(frozen=True)
class Source:
    """One entry: which rows it is for, what it takes for blank cells, and why."""

    name: str
    match: str
    stack: Any
    values: dict[str, Any]
    why: dict[str, str]
    skip: str | None = None

    def value(self, key: str, default: Any = None) -> Any:
        """The entry's value of ``key``."""
        return self.values.get(key, default)

    def reason(self, key: str) -> str:
        """Why that value is taken."""
        return self.why.get(key, f"default of the source '{self.name}'")


@functools.cache
def sources() -> tuple[Source, ...]:
    """All entries, in the order in which they are tried."""
    from ruamel.yaml import YAML

    text = resources.files("clustersim.validation").joinpath("sources.yaml").read_text(encoding="utf-8")
    entries = YAML(typ="safe", pure=True).load(text)
    return tuple(
        Source(entry["name"], entry["match"], entry.get("stack"), entry.get("values", {}), entry.get("why", {}),
               entry.get("skip")) for entry in entries
    )  # fmt: skip


def source_of(row: Row) -> Source:
    """The first entry whose pattern is found in the row's source, system, model and note."""
    words = row.source
    return next(entry for entry in sources() if re.search(entry.match, words, re.IGNORECASE))
