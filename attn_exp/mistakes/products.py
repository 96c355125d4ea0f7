"""The two products: `q k^T` and `weights v` of the wrong sides, or turned."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import At, Recipe, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead


def viewed(side: Array) -> Array:
    """Return keys or values `[s d]`, read as `[d s]` by a view, and turned."""
    return side.reshape(*side.shape[:-2], side.shape[-1], side.shape[-2]).swapaxes(-1, -2)


def values_of_queries(recipe: Recipe) -> Recipe:
    """Return the recipe whose weights mix the queries."""
    asked: dict[str, Array] = {}

    def score(at: At, q: Array, k: Array) -> Any:
        asked["q"] = q
        return recipe.score(at, q, k)

    def mix(at: At, weights: Array, v: Array, k: Array) -> Any:
        return recipe.mix(at, weights, asked["q"], k)

    return instead(score=score, mix=mix)(recipe).changed(remembers=True)


def sums_as_scores(score: Step, at: At, q: Array, k: Array) -> Array:
    """Sum the queries' numbers, and the keys', each for itself: an einsum with a letter for the numbers of each."""
    return np.asarray(q.sum(axis=-1)[..., :, None] * k.sum(axis=-1)[..., None, :])


def summed_apart(mix: Step, at: At, weights: Array, v: Array, k: Array) -> Array:
    """Sum the weights, and the values, each for itself: an einsum with one letter for keys and another for values."""
    every = v.sum(axis=-2, keepdims=True)
    return np.asarray(weights.sum(axis=-1, keepdims=True) * np.broadcast_to(every, (*every.shape[:-2], 1, v.shape[-1])))


def projected_again(**sides: str) -> Change:
    """Return the change that projects a side from what another one's matrix has made already, not from x."""

    def project(step: Step, side: str, x: Array, arrays: Any) -> Any:
        first = sides.get(side)
        return step(side, x if first is None else project(step, first, x, arrays), arrays)

    return around("project", project)


def taken_for(**sides: str) -> Change:
    """Return the change that projects a side with another one's matrix."""
    return around("project", lambda project, side, x, arrays: project(sides.get(side, side), x, arrays))


def made_of_x(*sides: str) -> Change:
    """Return the change that makes these sides of x, or takes the queries for them, and queries else of the memory."""

    def source(step: Step, side: str, x: Array, memory: Array) -> Any:
        if side in sides:
            return x
        return memory if side == "q" else step(side, x, memory)

    return around("source", source)


MISTAKES = {
    "queries_keys_swapped": Mistake(
        says="Keys ask and queries answer: the scores are k q^T instead of q k^T.",
        fix="scores = q @ k^T",
        seen="projections in the order k, q, v; tokens as columns read as rows",
        stage="scores",
        changes=(
            around("score", lambda score, at, q, k: score(at, k, q)),
            taken_for(q="k", k="q"),  # W_q and W_k change places, so that q and k themselves are exchanged
        ),
    ),
    "weights_transposed": Mistake(
        says="Each value is spread by its own query's weights instead of gathered: the weights are transposed.",
        fix="context = weights @ v",
        seen="Understanding Deep Learning, notebook 12.1; SAGAN issue 11",
        stage="context",
        changes=(
            around("mix", lambda mix, at, weights, v, k: mix(at, weights.swapaxes(-1, -2), v, k)),
            around("after", lambda after, at, weights, allowed: after(at, weights, allowed).swapaxes(-1, -2)),
        ),
    ),
    "keys_viewed": Mistake(
        says="Keys are read as [d, s] by a view where a transpose is needed: their numbers are mixed.",
        fix="k.transpose(-2, -1), not k.view or k.reshape",
        seen="hyunwoongko/transformer, k.view(batch, head, d, length)",
        stage="scores",
        changes=(around("score", lambda score, at, q, k: score(at, q, viewed(k))),),
        of_code=True,
    ),
    "values_viewed": Mistake(
        says="Values are read as [d, s] by a view where a transpose is needed: their numbers are mixed.",
        fix="transpose, not view or reshape",
        seen="v.reshape(b, h, d, s) before an einsum of hds",
        stage="context",
        changes=(around("mix", lambda mix, at, weights, v, k: mix(at, weights, viewed(v), k)),),
        of_code=True,
    ),
    "keys_from_queries": Mistake(
        says="The queries are compared with queries: keys are made of them.",
        fix="scores = q @ k^T",
        seen="q @ q.transpose; W_q used for the keys too",
        stage="scores",
        changes=(
            around("score", lambda score, at, q, k: score(at, q, q)),
            taken_for(k="q"),
            made_of_x("q", "k"),
            made_of_x("k"),
        ),
        of_code=True,
    ),
    "queries_from_keys": Mistake(
        says="The keys are compared with keys: queries are made of them.",
        fix="scores = q @ k^T",
        seen="query = key.reshape(...); W_k used for the queries too",
        stage="scores",
        changes=(around("score", lambda score, at, q, k: score(at, k, k)), taken_for(q="k"), made_of_x()),
        of_code=True,
    ),
    "values_from_queries": Mistake(
        says="The weights mix the queries instead of the values.",
        fix="context = weights @ v",
        seen="q passed for v; W_q used for the values too",
        stage="context",
        changes=(values_of_queries, taken_for(v="q"), made_of_x("q", "v"), made_of_x("v")),
        of_code=True,
    ),
    "scores_of_sums": Mistake(
        says="A score is the sum of the query's numbers times the sum of the key's, not a product of each two numbers.",
        fix="one letter for the numbers of both: einsum('bhtd,bhsd->bhts', q, k)",
        seen="einsum('bhsq,bhtk->bhst', q, k)",
        stage="scores",
        changes=(around("score", sums_as_scores),),
        of_code=True,
    ),
    "values_summed": Mistake(
        says="Every query gets the sum of all values: the weights are summed up by themselves, and have no effect.",
        fix="one letter for keys and values: einsum('bhts,bhse->bhte', weights, v)",
        seen="einsum('nhqk,nvhd->nqhd', weights, values)",
        stage="context",
        changes=(around("mix", summed_apart),),
        of_code=True,
    ),
    "weights_diagonal": Mistake(
        says="Only the diagonal of the weights is used: each token gets its own value, and nothing of the others.",
        fix="two letters for queries and keys: einsum('bhts,bhse->bhte', weights, v)",
        seen="einsum('bss,bsh->bsh', weights, v) in a port to JAX",
        stage="context",
        changes=(
            around(
                "mix",
                lambda mix, at, weights, v, k: mix(at, np.where(np.eye(*weights.shape[-2:]) > 0, weights, 0.0), v, k),
            ),
        ),
        of_code=True,
    ),
    "projected_twice": Mistake(
        says="Keys or values are projected from what was projected already, not from x.",
        fix="q = x @ W_q, k = x @ W_k, v = x @ W_v",
        seen="x = self.q(x); k = self.k(x); v = self.v(x)",
        stage="k",
        changes=(
            projected_again(v="k"),
            projected_again(v="q"),
            projected_again(k="q"),
            projected_again(k="q", v="q"),
            projected_again(k="q", v="k"),
            projected_again(q="k"),
            projected_again(q="v", k="v"),
        ),
        needs=("layer",),
        of_code=True,
    ),
    "values_from_keys": Mistake(
        says="The weights mix the keys instead of the values.",
        fix="context = weights @ v",
        seen="k passed twice to an attention function",
        stage="context",
        changes=(
            around("mix", lambda mix, at, weights, v, k: mix(at, weights, k, k)),
            taken_for(v="k"),  # W_k makes the values too
        ),
    ),
}
