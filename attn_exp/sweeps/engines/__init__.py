"""Where the points of a sweep are computed: one engine to a file, each known by the name of its file."""

from __future__ import annotations

from attn_exp import registry

NAMES: tuple[str, ...] = registry.names(__path__, without=("engine",))
"""The names that `sweep.engine` takes."""
