"""The two products: `q k^T` and `weights v` of the wrong sides, or turned."""

from __future__ import annotations

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import At, Step
from attn_exp.mistakes.mistake import Mistake, around


def weights_turned(after: Step, at: At, weights: Array, allowed: Array) -> Array:
    """The weights themselves are written down with queries as columns, and used so."""
    turned: Array = after(at, weights, allowed).swapaxes(-1, -2)
    return turned


SWAPPED = {"q": "k", "k": "q", "v": "v"}

MISTAKES = {
    "queries_keys_swapped": Mistake(
        says="Keys ask and queries answer: the scores are k q^T instead of q k^T.",
        fix="scores = q @ k^T",
        seen="projections in the order k, q, v; tokens as columns read as rows",
        stage="scores",
        changes=(
            around("score", lambda score, at, q, k: score(at, k, q)),
            # W_q and W_k change places, so that q and k themselves are exchanged
            around("project", lambda project, side, x, arrays: project(SWAPPED[side], x, arrays)),
        ),
    ),
    "weights_transposed": Mistake(
        says="Each value is spread by its own query's weights instead of gathered: the weights are transposed.",
        fix="context = weights @ v",
        seen="Understanding Deep Learning, notebook 12.1; SAGAN issue 11",
        stage="context",
        changes=(
            around("mix", lambda mix, at, weights, v, k: mix(at, weights.swapaxes(-1, -2), v, k)),
            around("after", weights_turned),
        ),
    ),
    "values_from_keys": Mistake(
        says="The weights mix the keys instead of the values.",
        fix="context = weights @ v",
        seen="k passed twice to an attention function",
        stage="context",
        changes=(
            around("mix", lambda mix, at, weights, v, k: mix(at, weights, k, k)),
            # W_k makes the values too
            around("project", lambda project, side, x, arrays: project("k" if side == "v" else side, x, arrays)),
        ),
    ),
}
