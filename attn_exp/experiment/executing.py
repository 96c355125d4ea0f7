"""Puts a problem through a variant, from marked positions to the output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.experiment.library_conventions import empty_rows
from attn_exp.experiment.variant import Settled
from attn_exp.forms.steps import join_heads, project, split
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem, pool_heads, sides


def execute(settled: Settled, problem: Problem) -> Trace:
    """Compute the variant on the problem and return every stage that its form formed."""
    return computed(settled, problem, settled.member.attend)


def keep(settled: Settled, problem: Problem, weights: str, tell: Callable[[float], None] | None = None) -> Trace:
    """Compute it and keep of the weights what `weights` says: all, blocks alone, or what the form has anyway.

    A problem without values ends in its weights: they are kept.
    """
    kept = "full" if problem.v is None else weights
    trace = computed(settled, problem, settled.member.keeping(kept, tell))
    if weights != "blocks" or trace.weights is None or trace.output is None:
        return trace
    from attn_exp.forms._blocks.portrait import CELLS, summary_of  # noqa: PLC0415 - few runs need the engine

    return trace.replace(
        **dict.fromkeys(("scores", "logits", "capped", "masked", "weights")), summary=summary_of(trace.weights, CELLS)
    )


def computed(settled: Settled, problem: Problem, attend: Callable[..., Trace]) -> Trace:
    """Put the problem through a form, from marked positions to the output; mistakes are made by a recipe instead."""
    if settled.mistakes:
        from attn_exp.experiment.recipes import mistaken  # noqa: PLC0415 - most runs make none

        return mistaken(settled, problem)
    if settled.own is not None and settled.own.layer:
        return settled.own.whole(settled.question, problem, usual=isinstance(settled.scale, bool) and settled.scale)
    q, k, v = placed(settled, problem)
    if problem.weights is not None:
        weights = np.broadcast_to(problem.weights, (settled.head, *problem.weights.shape))
        mix = settled.member.mix
        assert mix is not None
        stages = mix(Trace(v=v, weights=weights))
    else:
        stages = attend(q, k, v, settled.rules)
    if settled.own is None:  # what the user's own function makes of rows without keys is its answer
        stages = empty_rows(stages, settled.rules, settled.empty, forms.form(settled.plain_form).attend)
    if stages.context is None:
        return stages
    return stages.replace(output=joined(stages.context, settled, problem))


def answer(trace: Trace) -> Array:
    """Return what a trace ends in: the output, or the weights where the problem has no values."""
    last = trace.weights if trace.output is None else trace.output
    assert last is not None
    return last


def follows_steps(settled: Settled, problem: Problem) -> bool:
    """Say whether a variant computes what its recipe does: kernels and conventions of libraries may not."""
    from attn_exp.experiment.recipes import right, stages_of  # noqa: PLC0415 - most runs make no mistakes

    exact, trace = stages_of(right(settled), settled, problem), execute(settled, problem)
    if exact is None:
        return False
    last = answer(trace)
    mine = exact["output" if trace.output is not None else "weights"]
    return mine.shape == last.shape and np.allclose(mine, last, rtol=1e-4, atol=1e-4, equal_nan=True)


def placed(settled: Settled, problem: Problem) -> tuple[Array | None, Array | None, Array | None]:
    """Return q `[h t d]`, k `[g s d]` and v `[g s e]`: positions marked, key/value heads shared as settled."""
    problem = embedded(settled, problem)
    flat, shares = (problem.q, problem.k, problem.v), settled.heads
    q = None if flat[0] is None else split(flat[0], shares.query)
    k, v = (None if side is None else pool_heads(split(side, shares.given), shares) for side in flat[1:])
    for position in settled.positions:
        if q is not None and k is not None:
            q = position.turn(q, np.arange(q.shape[1]) + first_position(settled, problem))
            k = position.turn_key(k, np.arange(k.shape[1]))
    if settled.tiled and k is not None:
        turns = np.arange(shares.query) % shares.shared
        k, v = k[turns], None if v is None else v[turns]
    return q, k, v


def embedded(settled: Settled, problem: Problem) -> Problem:
    """Return the problem whose q, k and v are projected from x with the variant's positions marked in it.

    It is the same problem where no position changes x, or where they are marked already. A recipe with mistakes, or a
    layer of the user's own, marks x itself.
    """
    marks = tuple(position for position in settled.positions if position.changes_x)
    if settled.mistakes or (settled.own is not None and settled.own.layer):
        marks = ()
    if problem.x is None or problem.marks == marks:
        return problem
    q, k, v = sides(problem, lambda x: functools.reduce(lambda x, position: position.embed(x), marks, x))
    return replace(problem, q=q, k=k, v=v, marks=marks)


def first_position(settled: Settled, problem: Problem) -> int:
    """Return the position of the first query: after the past where there is one, else where it stands among the keys.

    A library that forgets the past in its masks has marked the positions of tokens before.
    """
    return problem.past if problem.past else int(settled.rules.offset)


def joined(context: Array, settled: Settled, problem: Problem) -> Array:
    """Put the heads side by side `[t h*e]`, and multiply by W_o where the variant has an output projection."""
    if settled.output_projection and problem.projections:
        return project("o", join_heads(context), problem.projections)
    return join_heads(context)
