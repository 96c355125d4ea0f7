"""Engines that compute the points of a sweep: one to a file, known by the name of its file."""

from __future__ import annotations

from attn_exp import registry

NAMES: tuple[str, ...] = registry.names(__path__, without=("engine",))
"""The names that `sweep.engine` takes."""
