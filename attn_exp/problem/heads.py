"""Heads side by side, apart, and shared between queries."""

from __future__ import annotations

from dataclasses import dataclass

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.matrices import check_divides, divisors
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Heads:
    """`query` heads, the `given` key/value heads of the input, and the `shared` ones that are computed with."""

    query: int
    given: int
    shared: int


def heads(head: int, kv_head: int | None, problem: Problem) -> Heads:
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
    return Heads(head, given, shared)


def pooled(apart: Array, shared: int) -> Array:
    """Return `[... g s d]` from `[... h s d]`: each shared head is the mean of the heads of its group.

    It is how a multi-head model becomes a grouped one: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query
    Transformer Models from Multi-Head Checkpoints", section 2.1. The mean of projected keys is the key of the mean
    projection, so pooling here equals pooling W_k and W_v.
    """
    *many, count, length, size = apart.shape
    return (
        apart
        if count == shared
        else apart.reshape(*many, shared, count // shared, length, size).mean(axis=-3).astype(apart.dtype)
    )
