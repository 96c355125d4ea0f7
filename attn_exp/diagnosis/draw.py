"""Small whole numbers for a worksheet, drawn again until every common mistake shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_exp.config.schema import Config
from attn_exp.diagnosis.foretold import hidden, saturated
from attn_exp.diagnosis.paper import Paper
from attn_exp.errors import UserError
from attn_exp.problem.matrices import BIASES, MATRICES

TRIES = 60

Numbers = dict[str, Any]
"""A student's own numbers: `tokens`, `vectors` and the matrices, as plain lists."""


def drawn(
    config: Config, seed: int, compose: Callable[[Numbers], Paper], telling: frozenset[str]
) -> tuple[Numbers, Paper]:
    """Return a student's numbers, and the sheet of them.

    x holds 0, 1 and 2, the matrices -1, 0 and 1; `compose` makes a sheet of numbers. They are drawn again, at most
    `TRIES` times, while one of the mistakes `telling` would not show or a softmax is saturated.

    Raises:
        UserError: no numbers show every one of these mistakes.
    """
    reason = ""
    for attempt in range(TRIES):
        made = numbers(config, np.random.default_rng([seed, attempt]))
        sheet = compose(made)
        silent = hidden(sheet, telling)
        if not silent and not saturated(sheet):
            return made, sheet
        reason = f"{silent[0]} never shows" if silent else "one key takes all"
    raise UserError(
        f"seed={seed}: in {TRIES} tries no small numbers show every common mistake ({reason}); "
        "try more tokens, another embeddings.d_model, or digits=3"
    )


def numbers(config: Config, rng: np.random.Generator) -> Numbers:
    """Return an input of small whole numbers, as wide and as long as the configuration asks."""
    tokens = config.embeddings.tokens
    names = list(tokens) if isinstance(tokens, tuple) else [f"t{place + 1}" for place in range(int(tokens or 4))]
    width = config.embeddings.d_model or 4
    vectors = rng.integers(0, 3, (len(names), width))
    vectors[~vectors.any(axis=1), rng.integers(width)] = 1  # a token of nothing but zeros asks nothing
    made: Numbers = {"tokens": names, "vectors": vectors.tolist()}
    made |= {name: rng.integers(-1, 2, (width, width)).tolist() for name in MATRICES}
    return made | ({name: rng.integers(-1, 2, width).tolist() for name in BIASES} if config.bias else {})
