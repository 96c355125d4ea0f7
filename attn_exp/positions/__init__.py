"""How a model knows where a token stands: one file per way, found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp import registry
from attn_exp.config import UserError, unknown
from attn_exp.positions.position import Position

NAMES: tuple[str, ...] = registry.names(__path__, without=("position",))


def make(given: Mapping[str, Any], key: str = "position") -> tuple[Position, ...]:
    """Return the positions of a mapping from names to settings.

    Raises:
        UserError: no such way, or settings that it does not take.
    """
    for name in given:
        if name not in NAMES:
            raise UserError(unknown(f"{key}.{name}", [f"{key}.{each}" for each in NAMES], "position"))
    return tuple(
        registry.make(registry.found(__name__, name, Position), settings, f"{key}.{name}")
        for name, settings in given.items()
    )
