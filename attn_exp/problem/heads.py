"""Heads side by side, apart, and shared between queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.matrices import check_divides, divisors
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Heads:
    """`query` heads, the `given` key/value heads of the input, and the `shared` ones that attention uses.

    `pool` says how fewer heads come of more: the `first` ones, or the `mean` of each group.
    """

    query: int
    given: int
    shared: int
    pool: str = "first"


def heads(head: int, kv_head: int | None, problem: Problem, pool: str = "first") -> Heads:
    """Return how the sizes of a problem are shared by heads.

    Keys as wide as the queries hold one head for each query head; narrower ones hold as many as their width says.

    Raises:
        UserError: heads that do not divide the sizes, or each other.
    """
    if problem.q is not None:
        check_divides(head, problem.q.shape[-1], "d_model")
    given = head
    if problem.q is not None and problem.k is not None:
        size = problem.q.shape[-1] // head
        given = problem.k.shape[-1] // size
        if problem.k.shape[-1] % size or not given or head % given:
            raise UserError(
                f"embeddings.k has {problem.k.shape[-1]} numbers per key; expected {size} for each key/value head, "
                f"whose number must divide head={head}"
            )
    if problem.v is not None:
        check_divides(given, problem.v.shape[-1], "the size of v")
    shared = given if kv_head is None else kv_head
    if given % shared:
        raise UserError(f"kv_head={shared} does not divide head={given}; choose one of {divisors(given)}")
    return Heads(head, given, shared, pool)


def pool_heads(apart: Array, heads: Heads) -> Array:
    """Return the key/value heads that attention uses, `[... g s d]`, of those of the input, `[... h s d]`.

    `first` keeps the first g heads: random heads of the same distribution, so a sweep over g changes the grouping and
    nothing else. `mean` averages the heads of each group, which turns a trained multi-head model into a grouped one:
    Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
    section 2.1. The mean of n independent heads has a standard deviation smaller by sqrt(n), and so have its logits.
    """
    *batch, count, length, size = apart.shape
    if count == heads.shared:
        return apart
    if heads.pool == "first":
        return apart[..., : heads.shared, :, :]
    groups = apart.reshape(*batch, heads.shared, count // heads.shared, length, size)
    return np.asarray(groups.mean(axis=-3).astype(apart.dtype))
