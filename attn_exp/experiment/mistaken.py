"""A variant with mistakes: computed by the steps of a recipe, in which each mistake does one otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.experiment.library_conventions import filled
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import At, Given, Recipe, compute, sides
from attn_exp.forms.steps import share, share_in_turns, split
from attn_exp.forms.trace import Trace
from attn_exp.problem.heads import pool_heads
from attn_exp.problem.problem import Problem
from attn_exp.rules.from_outside import AbsentMask

SHOWN = ("q", "scores", "logits", "capped", "masked", "weights", "context", "output")


def mistaken(settled: Settled, problem: Problem) -> Trace:
    """Compute a variant with its mistakes and return every stage, `[h t ...]`.

    Raises:
        UserError: a mistake that shows only between several calls, or that this run's shapes have no room for.
    """
    recipe = filled(mistakes.applied(settled.mistakes, right(settled)), settled.empty)
    try:
        return traced(recipe, settled, problem)
    except ValueError as error:
        raise UserError(
            f"mistake={settled.mistake} does not fit the shapes of this run, so no answer comes of it"
        ) from error


def traced(recipe: Recipe, settled: Settled, problem: Problem) -> Trace:
    """Put a problem through the steps of a recipe, heads and output as a variant has them.

    Raises:
        ValueError: a step does not fit the shapes.
    """
    if problem.weights is not None:
        return Trace(**{name: array[0] for name, array in weighed(recipe, settled, problem, 1).items()})
    given = start(settled, problem)
    stages = compute(recipe, given)
    if given.x is None:
        stages |= {"output": whole_output(recipe, stages, problem)}
    arrays = {name: stages[name][0] for name in SHOWN}
    return Trace(k=stages["k"][0], v=stages["v"][0], **arrays)


def copied(recipe: Recipe, settled: Settled, problem: Problem, copies: int) -> dict[str, Array]:
    """Return every stage of so many copies of a problem, `[n h t ...]`, for recipes that treat each otherwise.

    Raises:
        ValueError: a step does not fit the shapes.
    """
    if problem.weights is not None:
        return weighed(recipe, settled, problem, copies)
    one = start(settled, problem)
    x, q, k, v = (None if side is None else np.repeat(side, copies, axis=0) for side in (one.x, one.q, one.k, one.v))
    stages = compute(recipe, replace(one, x=x, q=q, k=k, v=v, apart=True))
    if one.x is None:
        stages |= {"output": whole_output(recipe, stages, problem)}
    return {name: stages[name] for name in (*SHOWN, "k", "v")}


def right(settled: Settled) -> Recipe:
    """Return the recipe of a variant before any mistake."""
    return Recipe(
        settled.rules, settled.heads.query, settled.heads.shared, settled.positions,
        output_projection=settled.output_projection, share=share_in_turns if settled.tiled else share,
    )  # fmt: skip


def start(settled: Settled, problem: Problem) -> Given:
    """Return where the recipe starts: at x, or at the heads where these are given, or fewer than those of x."""
    shares = settled.heads
    if problem.x is not None and shares.shared == shares.given:
        memory = None if problem.memory is None else problem.memory[None]
        return Given(x=problem.x[None], arrays=problem.projections, memory=memory, past=problem.past)
    assert problem.q is not None and problem.k is not None
    values = problem.k if problem.v is None else problem.v
    k, v = (pool_heads(split(side, shares.given), shares) for side in (problem.k, values))
    return Given(split(problem.q, shares.query)[None], k[None], v[None], past=problem.past)


def departures(settled: Settled, problem: Problem, trace: Trace) -> tuple[str, ...]:
    """Return the stages of a variant with mistakes that do not follow from the stages before as the definition has it.

    Each stage is held against the right step on what the trace has before it, so that a mistake shows where it is made
    and not in all that comes after. A step that the shapes have no room for departs.
    """
    recipe = filled(right(settled), settled.empty)
    steps = right_steps(recipe, settled, problem, trace)
    absent = any(isinstance(mask, AbsentMask) for mask in settled.rules.masks)
    return tuple(
        stage
        for stage, array in trace.stages()
        if stage in steps and not (absent and stage in ("masked", "weights")) and not follows(steps[stage], array)
    )


def right_steps(recipe: Recipe, settled: Settled, problem: Problem, trace: Trace) -> dict[str, Callable[[], Array]]:
    """Return for each stage what the right step makes of the stages before it."""
    held = {name: array[None] for name, array in trace.stages()}
    if problem.weights is not None:
        (rows, keys), width, groups = problem.weights.shape, held["v"].shape[-1], held["v"].shape[1]
        at = At(recipe.rules, 1, settled.head, groups, rows, keys, width, width * settled.head)
        return {"context": lambda: recipe.gather(at, recipe.mix(at, held["weights"], held["v"], held["v"]))}
    given = start(settled, problem)
    flat = dict(zip("qkv", sides(recipe, given), strict=True))
    at = replace(At.of_heads(recipe.rules, flat["q"], flat["k"]), past=given.past)

    def side(name: str) -> Array:
        placed = recipe.place(at, name, flat[name], recipe.positions)
        return np.asarray(placed if name == "q" else recipe.share(at, placed))

    def masked() -> Array:
        forbidden = recipe.forbid(at, recipe.biased(at, held["capped"]), recipe.allowed(at))
        return np.asarray(recipe.bent(at, forbidden) if at.rules.bend_last else forbidden)

    return {
        "q": lambda: side("q"),
        "k": lambda: side("k"),
        "v": lambda: side("v"),
        "scores": lambda: recipe.score(at, held["q"], held["k"]),
        "logits": lambda: recipe.scaled(at, held["scores"]),
        "capped": lambda: held["logits"] if at.rules.bend_last else recipe.bent(at, held["logits"]),
        "masked": masked,
        "weights": lambda: recipe.after(at, recipe.normalize(at, held["masked"]), recipe.allowed(at)),
        "context": lambda: recipe.gather(at, recipe.mix(at, held["weights"], held["v"], held["k"])),
        "output": lambda: whole_output(recipe, held, problem)[0],
    }


def follows(step: Callable[[], Array], array: Array) -> bool:
    """Say whether a stage is what the right step makes of the stages before, but for rounding."""
    try:
        with np.errstate(all="ignore"):
            made = step()
    except (ValueError, KeyError):
        return False
    mine = array if made.ndim == array.ndim else array[None]
    close = 1000 * float(np.finfo(array.dtype).eps)
    large = float(np.abs(made[np.isfinite(made)]).max(initial=0.0))
    return made.shape == mine.shape and np.allclose(mine, made, rtol=close, atol=close * large, equal_nan=True)


def whole_output(recipe: Recipe, stages: dict[str, Array], problem: Problem) -> Array:
    """Return the heads put together, times W_o where the variant has one."""
    q, k = stages["q"], stages["k"]
    at = At(recipe.rules, 1, q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], q.shape[1] * q.shape[3])
    merged: Array = recipe.merge(at, stages["context"])
    if not recipe.output_projection:
        return merged
    weight, bias = (problem.projections.get(name) for name in ("W_o", "b_o"))
    finished: Array = recipe.finish(at, merged, weight, bias)
    return finished


def weighed(recipe: Recipe, settled: Settled, problem: Problem, copies: int) -> dict[str, Array]:
    """Return the stages of so many copies of a problem that starts at given weights, `[n h t ...]`."""
    assert problem.weights is not None and problem.v is not None
    rows, keys = problem.weights.shape
    v = np.repeat(split(problem.v, settled.heads.shared)[None], copies, axis=0)
    at = At(recipe.rules, copies, settled.head, v.shape[1], rows, keys, v.shape[-1], v.shape[-1] * settled.head)
    weights = np.broadcast_to(problem.weights, (copies, settled.head, rows, keys))
    values = recipe.share(at, v)
    context = recipe.mix(at, weights, values, values)
    output = whole_output(recipe, {"q": v, "k": v, "context": context}, problem)
    return {"v": v, "weights": weights, "context": context, "output": output}
