"""Engines that compute the points of a sweep: two in `engine`, the others one to a file, known by its name."""

from __future__ import annotations

from attn_exp import registry

NAMES: tuple[str, ...] = tuple(sorted(("process", "serial", *registry.names(__path__, without=("engine",)))))
"""The names that `sweep.engine` takes."""
