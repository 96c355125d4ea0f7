"""Predict the result of each mistake on a worksheet, and draw small integers until every common mistake shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.diagnosis.explaining.numbers import candidates_of, case_of
from attn_exp.diagnosis.sheets.worksheet import stages
from attn_exp.errors import UserError
from attn_exp.experiment.recipes import Stages
from attn_exp.problem.matrices import BIASES, MATRICES

COMMON = (
    "no_scale", "scale_by_d", "scale_multiplied", "scale_after_softmax", "softmax_over_queries", "no_softmax",
    "sum_normalized", "weights_transposed", "queries_keys_swapped", "values_from_keys", "causal_ignored",
    "causal_flipped", "causal_strict", "mask_after_softmax", "heads_not_transposed", "single_head", "no_bias",
    "projection_transposed", "no_output_projection",
)  # fmt: skip
"""The most common mistakes; a sheet whose numbers hide one of these is redrawn."""
LARGEST_WEIGHT = 0.97
"""A softmax with a larger weight than this on one key is saturated: mistakes before it no longer show."""


@dataclass(frozen=True, eq=False)
class Foretold:
    """The result of one mistake: the first box that it changes, and the numbers of all stages."""

    name: str
    says: str
    stage: str
    made: Stages


def foretold(paper: Paper) -> Iterator[Foretold]:
    """Yield the result of each mistake that a student can make on this sheet, in the first variant that a box shows."""
    case, seen = case_of(paper.sheet), set[str]()
    for candidate in candidates_of(paper.sheet):
        name = candidate.names[0]
        mistake = mistakes.mistake(name)
        if name in seen or mistake.remark or mistake.group in ("precision", "behaviour"):
            continue
        made = stages(paper.sheet, candidate.change(case))
        first = None if made is None else first_changed(paper, made)
        if made is not None and first is not None and at_hand(paper, made):
            seen.add(name)
            yield Foretold(name, mistake.says, first, made)


def at_hand(paper: Paper, made: Stages) -> bool:
    """Return whether a student can make a mistake on this sheet: not if it changes a q, k or v that is given."""
    asked = {blank.stage for blank in paper.blanks}
    given = [side for side in "qkv" if side in paper.exact and side in made and side not in asked]
    return not any(differs_when_written(made[side], paper.exact[side], paper.digits) for side in given)


def first_changed(paper: Paper, made: Stages) -> str | None:
    """Return the first box whose written numbers a mistake changes."""
    for blank in paper.blanks:
        if blank.stage not in made or differs_when_written(made[blank.stage], blank.right, paper.digits):
            return blank.stage
    return None


def differs_when_written(array: Array, right: Array, digits: int) -> bool:
    """Return whether numbers, written with this many decimals, differ from the right ones."""
    array = array if array.ndim == 3 else array[None]
    if array.shape != right.shape:
        return True
    with np.errstate(invalid="ignore"):
        apart = np.abs(array - right) > 10.0**-digits
    return bool((apart | (np.isfinite(array) != np.isfinite(right))).any())


def possible(paper: Paper) -> frozenset[str]:
    """Return the common mistakes that change the numbers of a sheet at all, however little."""
    fine = replace(paper, digits=9)
    return frozenset(mistake.name for mistake in foretold(fine)) & frozenset(COMMON)


def hidden(paper: Paper, possible: frozenset[str]) -> list[str]:
    """Return the mistakes in `possible` that no box of the sheet would show."""
    shown = {mistake.name for mistake in foretold(paper)}
    return [name for name in COMMON if name in possible - shown]


def saturated(paper: Paper) -> bool:
    """Return whether a query attends to almost one key only, though it can see several."""
    weights = paper.exact.get("weights")
    if weights is None:
        return False
    several = (weights > 0).sum(axis=-1) > 1
    return bool((weights.max(axis=-1)[several] > LARGEST_WEIGHT).any())


def flat(paper: Paper) -> bool:
    """Return whether a head has the same score for every pair, so that its weights are uniform."""
    scores = paper.exact.get("scores")
    return scores is not None and scores[0].size > 1 and bool((np.ptp(scores, axis=(-2, -1)) == 0).any())


# Small integers for a worksheet

TRIES = 60

Numbers = dict[str, Any]
"""A student's own numbers: `tokens`, `vectors` and the weight matrices, as plain lists."""


def drawn(
    config: Config, seed: int, compose: Callable[[Numbers], Paper], telling: frozenset[str]
) -> tuple[Numbers, Paper]:
    """Draw a student's numbers, and return them with their sheet.

    x holds 0, 1 and 2, the matrices -1, 0 and 1; `compose` makes a sheet of numbers. They are redrawn, at most `TRIES`
    times, while two tokens are the same, one of the mistakes `telling` would not show, a head is flat, or a softmax is
    saturated.

    Raises:
        UserError: no numbers show every one of these mistakes.
    """
    reason = ""
    for attempt in range(TRIES):
        made = numbers(config, np.random.default_rng([seed, attempt]))
        if alike(made["vectors"]):
            reason = "two tokens are the same"
            continue
        sheet = compose(made)
        silent = hidden(sheet, telling)
        if not (silent or saturated(sheet) or flat(sheet)):
            return made, sheet
        reason = f"{silent[0]} never shows" if silent else "one key takes all" if saturated(sheet) else "a head is flat"
    raise UserError(
        f"seed={seed}: in {TRIES} tries no small numbers show every common mistake ({reason}); "
        "try more tokens, another embeddings.d_model, or digits=3"
    )


def alike(vectors: Sequence[Sequence[int]]) -> bool:
    """Return whether two tokens have the same vector, though there are enough vectors for all."""
    rows, width = {tuple(row) for row in vectors}, len(vectors[0])
    return bool(len(rows) < len(vectors) <= (3**width - 1) // 2)


def numbers(config: Config, rng: np.random.Generator) -> Numbers:
    """Return a random input of small integers with the width and length of the configuration."""
    tokens = config.embeddings.tokens
    names = list(tokens) if isinstance(tokens, tuple) else [f"t{place + 1}" for place in range(int(tokens or 4))]
    width = config.embeddings.d_model or 4
    vectors = rng.integers(0, 3, (len(names), width))
    vectors[~vectors.any(axis=1), rng.integers(width)] = 1  # a zero vector would have only zero scores
    made: Numbers = {"tokens": names, "vectors": vectors.tolist()}
    made |= {name: rng.integers(-1, 2, (width, width)).tolist() for name in MATRICES}
    return made | ({name: rng.integers(-1, 2, width).tolist() for name in BIASES} if config.bias else {})
