"""Notes on what else a setting changes, which may explain why a metric changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Protocol

import numpy as np

from attn_exp import registry, rules
from attn_exp.sweeps.answers.cube import Cube
from attn_exp.sweeps.answers.digits import signed

CHANGE_KEYS = ("mask", "past", "tokens")
"""Settings that change the number of keys a query can attend to."""
ALLOW_FOR_KEYS = ("normalized_entropy", "error", "error_ulp", "shift", "cosine")
"""Metrics that this alone does not change."""
SCALES = ("scale", "multiplier", "logit_std")
SPREAD = 0.05
"""Smallest relative change of the logits' spread that is noted."""


class Change(Protocol):
    """Two values of a setting, and a metric."""

    @property
    def axis(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def metric(self) -> str: ...


def find_cautions(cube: Cube, change: Change) -> Iterator[str]:
    """Yield the side effects of a setting's change that may explain its effect on a metric."""
    name, label = cube.names[change.axis], cube.levels[change.axis][change.end]
    if value := cube.find_pinned_value(name):
        yield f"{name} is always {value} here"
        return
    parts = {part for key in name.split(", ") for part in (key.split(".")[0], key.split(".")[-1])}
    if parts & set(CHANGE_KEYS) and change.metric not in ALLOW_FOR_KEYS:
        if "normalized_entropy" in cube.numbers:
            apart = mean_change(cube, change, "normalized_entropy")
            yield f"visible keys differ too: normalized entropy {signed(apart)}"
        else:
            yield "visible keys differ too: metrics=[normalized_entropy] allows for it"
    if name == "head":
        yield "d_head = d_model / head changes too"
    if "logit_std" in cube.numbers and not parts & set(SCALES) and change.metric not in SCALES:
        before = np.nanmean(np.take(cube.numbers["logit_std"], change.start, axis=change.axis))
        ratio = mean_change(cube, change, "logit_std") / before
        if abs(ratio) > SPREAD:
            yield f"the standard deviation of the logits changes by {ratio:+.0%}".replace("-", "−")
    if name in rules.KINDS and rules.has(name, label) and not registry.is_absent(rules.package(name), label):
        seed = f"{name}.{label}.seed"
        if any(field.name == "seed" for field in fields(rules.kind(name, label))) and seed not in cube.names:
            yield f"one draw for all seeds, by {seed}"


def mean_change(cube: Cube, change: Change, metric: str) -> float:
    """Return the mean paired difference of another metric."""
    first, second = (np.take(cube.numbers[metric], level, axis=change.axis) for level in (change.start, change.end))
    there = np.isfinite(second - first)
    return float((second - first)[there].mean()) if there.any() else 0.0
