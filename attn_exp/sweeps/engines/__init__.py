"""Engines that compute the points of a sweep: two are in `engine`, and each of the others has its own file."""

from __future__ import annotations

from attn_exp import registry

NAMES = tuple(sorted(("process", "serial", *registry.names(__path__, without=("engine",)))))
"""The possible values of `sweep.engine`."""
