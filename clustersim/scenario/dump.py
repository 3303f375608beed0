"""Writing a scenario back as YAML."""

from __future__ import annotations

import io
import json
from typing import Any


def to_yaml(data: Any) -> str:
    """Plain data as block-style YAML, keys in their order."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 120
    yaml.allow_unicode = True
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def canonical(data: dict[str, Any]) -> str:
    """A scenario's plain data as one text, the same whatever the order of its keys.

    Within ``recovery`` the order is kept: stages run as they are written.
    """
    told = {**data, "recovery": json.dumps(data["recovery"], ensure_ascii=False)} if "recovery" in data else data
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
