"""Two rows that pin anything: each step between them is the difference of two rows that a user would write.

The judge is a run of two rows, of which one has the settings before a step and the other those after it; the last step
has to end where the row stands, and rows that differ in no setting have to have no distance.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache
from typing import Any

from attn_exp.config.compose import composed
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError
from attn_exp.experiment.compare import compare
from attn_exp.experiment.comparison import Comparison
from attn_exp.report.sentences import who_agrees, why_letters_are_shared

INPUTS = (
    ("embeddings=random", "embeddings.tokens=4", "embeddings.d_model=8"),
    ("embeddings=random", "embeddings.tokens=6", "embeddings.d_model=12", "bias=true", "seed=3"),
    ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=8", "past=2"),
    ("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=8", "projections=none"),
    ("embeddings=who_likes_what",),
    ("embeddings=random", "embeddings.tokens=1", "embeddings.d_model=4"),
)
WINDOW = {"window": {"left": 1}}
PINS: dict[str, tuple[Any, ...]] = {
    "form": ("matrix", "matrix", "matrix", "looped", "blockwise", "linear"),
    "head": (1, 2, 4),
    "kv_head": (None, None, 1, 2),
    "scale": (True, False, 0.3, 1.0, 0),
    "output_projection": (False, True),
    "mistake": ((), (), (), ("no_scale",), ("scale_by_d",), ("softmax_over_queries",)),
    "align": ("top_left", "bottom_right", "before_filler"),
    "mask": ({}, {"causal": {}}, WINDOW, {**WINDOW, "causal": {}}, {"prefix": {"length": 2}}),
    "mask_join": ("and", "or"),
    "score": ({}, {}, {"alibi": {}}, {"softcap": {"cap": 0.5}}, {"sink": {}}),
    "position": ({}, {"rope": {}}, {"sinusoidal": {}}),
    "normalizer": ("softmax", "softmax", "sigmoid", "sparsemax"),
    "convention": ("none", "none", "torch_mha", "keras", "onnx_old", "flash"),
}  # fmt: skip
CLOSE = 1e-6
"""How far, relative to the numbers, the same distance may be said by two forms that round otherwise."""

Pins = dict[str, Any]


@cache
def base(words: tuple[str, ...]) -> Config:
    """Compose the settings of an input once."""
    return composed(words, ())


def pinned(chance: random.Random) -> Pins:
    """Return a row that pins every setting, most of them as usual."""
    row = {name: chance.choice(values if chance.random() < 0.5 else values[:1]) for name, values in PINS.items()}
    return row | ({"kv_head": None} if row["head"] == row["kv_head"] else {})  # which is what none says


def run(words: tuple[str, ...], *rows: Pins) -> Comparison:
    """Compare rows of these settings."""
    return compare(replace(base(words), variant={f"row{place}": Variant(**row) for place, row in enumerate(rows)}))


def attempt(seed: int) -> str | None:
    """Take the difference of two rows apart, and each step of it."""
    chance = random.Random(seed)
    words, one, other = chance.choice(INPUTS), pinned(chance), pinned(chance)
    try:
        found = run(words, one, other)
    except UserError as error:
        return "more than a line" if "\n" in str(error) else None
    said = [who_agrees(found.rows, found.causes), *why_letters_are_shared(found)]
    if any("\n" in text for text in said):
        return f"more than a line: {said}"
    return wrong_as_a_whole(found) or wrong_step(found, words, one, other)


def wrong_as_a_whole(found: Comparison) -> str | None:
    """Say what is wrong with where the steps end."""
    shift, steps = found.rows[1].shift, found.steps
    if not all(row.same_as for row in found.rows):
        return "steps to what was not computed" if steps else None
    if not steps:
        return None if shift < CLOSE else f"no step, and a distance of {shift}"
    if not close(steps[-1].total, shift):
        return f"the last step ends at {steps[-1].total}, the row stands at {shift}"
    return None


def wrong_step(found: Comparison, words: tuple[str, ...], one: Pins, other: Pins) -> str | None:
    """Say which step is not the difference of two rows; after a change of form, two rows in one form judge no more."""
    now = one if len(one["mask"]) > 1 else {**one, "mask_join": other["mask_join"]}
    form = found.variants[0].plain_form
    for step in found.steps:
        names = step.setting.split(" + ")
        if "form" in names:
            return None
        before, now = now, {**now, **{name: other[name] for name in names}}
        try:
            apart = run(words, {**before, "form": form}, {**now, "form": form}).rows[1].shift
        except UserError:
            return None
        if not close(step.moved, apart):
            return f"{step.setting} from {step.before} to {step.after} moves {step.moved}, two rows are {apart} apart"
    return None


def close(one: float, other: float) -> bool:
    """Say whether two distances are the same, to rounding of a softmax in float32; none on both sides is the same."""
    if math.isfinite(one) and math.isfinite(other):
        return abs(one - other) <= CLOSE * max(1.0, abs(one), abs(other))
    return one == other or (math.isnan(one) and math.isnan(other))
