"""Mistakes in the two products: `q k^T` or `weights v` is computed with wrong or transposed operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import Recipe, Setup, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead


def view_transposed(side: Array) -> Array:
    """View keys or values `[s d]` as `[d s]`, and transpose that."""
    return side.reshape(*side.shape[:-2], side.shape[-1], side.shape[-2]).swapaxes(-1, -2)


def mix_queries(recipe: Recipe) -> Recipe:
    inputs = {}

    def score(setup: Setup, q: Array, k: Array) -> Any:
        inputs["q"] = q
        return recipe.score(setup, q, k)

    def mix(setup: Setup, weights: Array, v: Array, k: Array) -> Any:
        return recipe.mix(setup, weights, inputs["q"], k)

    return instead(score=score, mix=mix)(recipe)


def multiply_sums(score: Step, setup: Setup, q: Array, k: Array) -> Array:
    """Sum the features of queries and of keys separately, as an einsum with different letters for them does."""
    return np.asarray(q.sum(axis=-1)[..., :, None] * k.sum(axis=-1)[..., None, :])


def sum_separately(mix: Step, setup: Setup, weights: Array, v: Array, k: Array) -> Array:
    value_sums = v.sum(axis=-2, keepdims=True)
    return np.asarray(
        weights.sum(axis=-1, keepdims=True) * np.broadcast_to(value_sums, (*value_sums.shape[:-2], 1, v.shape[-1]))
    )


def project_again(**sides: str) -> Change:
    """Project q, k or v from another of them, not from x: `project_again(v="k")` computes `v = (x W_k) W_v`.

    That one may be projected in the same way: `project_again(k="q", v="k")` computes `v = ((x W_q) W_k) W_v`.
    """

    def project(step: Step, side: str, x: Array, arrays: Any) -> Any:
        return step(side, project(step, sides[side], x, arrays) if side in sides else x, arrays)

    return around("project", project)


def swap_projections(**sides: str) -> Change:
    """Use the matrix of another projection: `swap_projections(v="k")` computes `v = x W_k`."""
    return around("project", lambda project, side, x, arrays: project(sides.get(side, side), x, arrays))


def choose_sources(*sides: str) -> Change:
    """Project those of q, k and v that `sides` names from x, and the others from the memory."""

    def source(step: Step, side: str, x: Array, memory: Array) -> Any:
        if side in sides:
            return x
        return memory if side == "q" else step(side, x, memory)

    return around("source", source)


MISTAKES = {
    "queries_keys_swapped": Mistake(
        says="Queries and keys are swapped: the scores are k q^T instead of q k^T.",
        fix="scores = q @ k^T",
        seen="projections in the order k, q, v; tokens stored as columns but read as rows",
        stage="scores",
        changes=(
            around("score", lambda score, setup, q, k: score(setup, k, q)),
            swap_projections(q="k", k="q"),  # W_q and W_k are swapped, and so are q and k
        ),
    ),
    "weights_transposed": Mistake(
        says="The weights are transposed: each query's weights scatter its value instead of gathering values.",
        fix="context = weights @ v",
        seen="Understanding Deep Learning, notebook 12.1; SAGAN issue 11",
        stage="context",
        changes=(
            around("mix", lambda mix, setup, weights, v, k: mix(setup, weights.swapaxes(-1, -2), v, k)),
            around("after", lambda after, setup, weights, allowed: after(setup, weights, allowed).swapaxes(-1, -2)),
        ),
    ),
    "keys_viewed": Mistake(
        says="Keys are viewed as [d, s] where a transpose is needed, which mixes tokens and features.",
        fix="k.transpose(-2, -1), not k.view or k.reshape",
        seen="hyunwoongko/transformer, k.view(batch, head, d, length)",
        stage="scores",
        changes=(around("score", lambda score, setup, q, k: score(setup, q, view_transposed(k))),),
        of_code=True,
    ),
    "values_viewed": Mistake(
        says="Values are viewed as [d, s] where a transpose is needed, which mixes tokens and features.",
        fix="transpose, not view or reshape",
        seen="v.reshape(b, h, d, s) before an einsum of hds",
        stage="context",
        changes=(around("mix", lambda mix, setup, weights, v, k: mix(setup, weights, view_transposed(v), k)),),
        of_code=True,
    ),
    "keys_from_queries": Mistake(
        says="Queries are compared with queries: the keys are made from them.",
        fix="scores = q @ k^T",
        seen="q @ q.transpose; W_q used for the keys too",
        stage="scores",
        changes=(
            around("score", lambda score, setup, q, k: score(setup, q, q)),
            swap_projections(k="q"),
            choose_sources("q", "k"),
            choose_sources("k"),
        ),
        of_code=True,
    ),
    "queries_from_keys": Mistake(
        says="Keys are compared with keys: the queries are made from them.",
        fix="scores = q @ k^T",
        seen="query = key.reshape(...); W_k used for the queries too",
        stage="scores",
        changes=(
            around("score", lambda score, setup, q, k: score(setup, k, k)),
            swap_projections(q="k"),
            choose_sources(),
        ),
        of_code=True,
    ),
    "values_from_queries": Mistake(
        says="The weights mix the queries instead of the values.",
        fix="context = weights @ v",
        seen="q passed for v; W_q used for the values too",
        stage="context",
        changes=(mix_queries, swap_projections(v="q"), choose_sources("q", "v"), choose_sources("v")),
        of_code=True,
    ),
    "scores_of_sums": Mistake(
        says="A score is the sum of the query's features times the sum of the key's, not their dot product.",
        fix="use one letter for the features of both: einsum('bhtd,bhsd->bhts', q, k)",
        seen="einsum('bhsq,bhtk->bhst', q, k)",
        stage="scores",
        changes=(around("score", multiply_sums),),
        of_code=True,
    ),
    "values_summed": Mistake(
        says="Every query gets the sum of all values: the weights are summed separately and have no effect.",
        fix="use one letter for keys and values: einsum('bhts,bhse->bhte', weights, v)",
        seen="einsum('nhqk,nvhd->nqhd', weights, values)",
        stage="context",
        changes=(around("mix", sum_separately),),
        of_code=True,
    ),
    "weights_diagonal": Mistake(
        says="Only the diagonal of the weights is used: each token gets only its own value.",
        fix="use two letters for queries and keys: einsum('bhts,bhse->bhte', weights, v)",
        seen="einsum('bss,bsh->bsh', weights, v) in a port to JAX",
        stage="context",
        changes=(
            around(
                "mix",
                lambda mix, setup, weights, v, k: mix(
                    setup, np.where(np.eye(*weights.shape[-2:]) > 0, weights, 0.0), v, k
                ),
            ),
        ),
        of_code=True,
    ),
    "projected_twice": Mistake(
        says="Keys or values are projected from an earlier projection instead of from x.",
        fix="q = x @ W_q, k = x @ W_k, v = x @ W_v",
        seen="x = self.q(x); k = self.k(x); v = self.v(x)",
        stage="k",
        changes=(
            project_again(v="k"),
            project_again(v="q"),
            project_again(k="q"),
            project_again(k="q", v="q"),
            project_again(k="q", v="k"),
            project_again(q="k"),
            project_again(q="v", k="v"),
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
            around("mix", lambda mix, setup, weights, v, k: mix(setup, weights, k, k)),
            swap_projections(v="k"),  # W_k projects the values too
        ),
    ),
}
