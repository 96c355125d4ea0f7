"""Small whole numbers for a worksheet, drawn again until every common mistake shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attn_exp.config.schema import Config
from attn_exp.config.spelling import spelled
from attn_exp.errors import UserError
from attn_exp.experiment.classroom.foretold import hidden, possible, saturated
from attn_exp.experiment.classroom.paper import Paper

TRIES = 60
MATRICES = ("W_q", "W_k", "W_v", "W_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")


def drawn(config: Config, seed: int, compose: Callable[[Sequence[str]], Paper]) -> tuple[list[str], Paper]:
    """Return the words that give a student's numbers, and the sheet of them.

    x holds 0, 1 and 2, the matrices -1, 0 and 1; `compose` makes a sheet of words. They are drawn again, at most
    `TRIES` times, while a common mistake would not show or a softmax is saturated.

    Raises:
        UserError: no numbers show every common mistake.
    """
    reason, telling = "", possible(compose(["embeddings=random", *sizes(config)]))
    for attempt in range(TRIES):
        words = numbers(config, np.random.default_rng([seed, attempt]))
        sheet = compose(words)
        silent = hidden(sheet, telling)
        if not silent and not saturated(sheet):
            return words, sheet
        reason = f"{silent[0]} never shows" if silent else "one key takes all"
    raise UserError(
        f"seed={seed}: in {TRIES} tries no small numbers show every common mistake ({reason}); "
        "try more tokens, another embeddings.d_model, or digits=3"
    )


def sizes(config: Config) -> list[str]:
    """Return the words of an input as large as the sheet's, of numbers that no mistake leaves as they are."""
    tokens = config.embeddings.tokens
    count = len(tokens) if isinstance(tokens, tuple) else int(tokens or 4)
    return [f"embeddings.tokens={count}", f"embeddings.d_model={config.embeddings.d_model or 4}"]


def numbers(config: Config, rng: np.random.Generator) -> list[str]:
    """Return the words of an input of small whole numbers, as wide and as long as the configuration asks."""
    tokens = config.embeddings.tokens
    names = list(tokens) if isinstance(tokens, tuple) else [f"t{place + 1}" for place in range(int(tokens or 4))]
    width = config.embeddings.d_model or 4
    words = [
        "embeddings=inline",
        f"embeddings.tokens={spelled(names)}",
        f"embeddings.vectors={spelled(rng.integers(0, 3, (len(names), width)).tolist())}",
        "projections=identity",
    ]
    for name in MATRICES:
        words.append(f"++projections.given.{name}={spelled(rng.integers(-1, 2, (width, width)).tolist())}")
    if config.bias:
        words += [f"++projections.given.{name}={spelled(rng.integers(-1, 2, width).tolist())}" for name in BIASES]
    return words
