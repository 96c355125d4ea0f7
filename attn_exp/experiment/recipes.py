"""A variant as a recipe: the stages of its steps, mistakes included, and whether it follows these steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.experiment.library_conventions import filled
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import At, Given, Recipe, compute, sides
from attn_exp.forms.steps import share, share_in_turns, split
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem, pool_heads
from attn_exp.rules.from_outside import AbsentMask
from attn_exp.rules.scores.score import Score

STAGES = ("q", "k", "v", "scores", "logits", "capped", "masked", "weights", "context", "output")
"""The stages, in the order in which they are computed."""

Stages = dict[str, Array]


def right(settled: Settled) -> Recipe:
    return Recipe(
        settled.rules, settled.heads.query, settled.heads.shared, settled.positions,
        output_projection=settled.output_projection, share=share_in_turns if settled.tiled else share,
    )  # fmt: skip


def given_to(settled: Settled, problem: Problem) -> Given:
    """Return the inputs of the recipe: x, or the heads if these are given, or pooled from those of x.

    They are empty if the weights themselves are given.
    """
    shares = settled.heads
    if problem.weights is not None:
        return Given()
    if problem.x is not None and shares.shared == shares.given:
        memory = None if problem.memory is None else problem.memory[None]
        return Given(x=problem.x[None], arrays=problem.projections, memory=memory, past=problem.past)
    assert problem.q is not None and problem.k is not None
    values = problem.k if problem.v is None else problem.v
    k, v = (pool_heads(split(side, shares.given), shares) for side in (problem.k, values))
    return Given(split(problem.q, shares.query)[None], k[None], v[None], past=problem.past)


def compute_stages(recipe: Recipe, settled: Settled, problem: Problem, copies: int = 1) -> Stages:
    """Return every stage of `copies` copies of a problem, `[n h t ...]`, for recipes that treat each differently.

    Raises:
        ValueError: a step does not fit the shapes.
    """
    if problem.weights is not None:
        return mix_given_weights(recipe, settled, problem, copies)
    given = given_to(settled, problem)
    if copies > 1:
        sides = {name: side for name in "xqkv" if (side := getattr(given, name)) is not None}
        copied: dict[str, Any] = {name: np.repeat(side, copies, axis=0) for name, side in sides.items()}
        given = replace(given, apart=True, **copied)
    stages = compute(recipe, given)
    if given.x is None:
        stages["output"] = project_output(recipe, stages, problem)
    return {name: stages[name] for name in STAGES}


def mix_given_weights(recipe: Recipe, settled: Settled, problem: Problem, copies: int = 1) -> Stages:
    """Return the stages of `copies` copies of a problem that starts at given weights, `[n h t ...]`."""
    assert problem.weights is not None and problem.v is not None
    rows, keys = problem.weights.shape
    v = np.repeat(split(problem.v, settled.heads.shared)[None], copies, axis=0)
    at = At(recipe.rules, copies, settled.head, v.shape[1], rows, keys, v.shape[-1], v.shape[-1] * settled.head)
    weights = np.broadcast_to(problem.weights, (copies, settled.head, rows, keys))
    values = recipe.share(at, v)
    context = recipe.mix(at, weights, values, values)
    output = project_output(recipe, {"q": v, "k": v, "context": context}, problem)
    return {"v": v, "weights": weights, "context": context, "output": output}


def project_output(recipe: Recipe, stages: Stages, problem: Problem) -> Array:
    at = At.of_heads(recipe.rules, stages["q"], stages["k"])
    merged: Array = recipe.merge(at, stages["context"])
    weight, bias = (problem.projections.get(name) for name in ("W_o", "b_o"))
    return np.asarray(recipe.finish(at, merged, weight, bias)) if recipe.output_projection else merged


def mistaken(settled: Settled, problem: Problem) -> Trace:
    """Compute a variant with its mistakes and return every stage, `[h t ...]`.

    Raises:
        UserError: a mistake shows only across several calls, or does not fit the shapes of this run.
    """
    recipe = filled(mistakes.applied(settled.mistakes, right(settled)), settled.empty)
    try:
        return Trace(**{name: array[0] for name, array in compute_stages(recipe, settled, problem).items()})
    except (ValueError, KeyError) as error:  # shapes, or a matrix that pooled heads lack
        raise UserError(
            f"mistake={settled.mistake} does not fit the shapes of this run, so there is no output"
        ) from error


def stages_of(recipe: Recipe, settled: Settled, problem: Problem) -> Stages | None:
    shared = settled.heads.shared
    try:
        with np.errstate(all="ignore"):
            arrays = {name: array[0] for name, array in compute_stages(recipe, settled, problem).items()}
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    for name in {"k", "v"} & arrays.keys():
        if len(arrays[name]) != shared:
            step = 1 if settled.tiled else max(len(arrays[name]) // shared, 1)
            arrays[name] = arrays[name][::step][:shared]
    return arrays


def departures(settled: Settled, problem: Problem, trace: Trace) -> tuple[str, ...]:
    """Return the stages of a variant with mistakes that do not follow from the stages before by the definition.

    Each stage is compared with the right step applied to the trace's earlier stages, so that a mistake shows where it
    is made and not in everything after it. A step that does not fit the shapes counts as a departure.
    """
    steps = bind_right_steps(filled(right(settled), settled.empty), settled, problem, trace)
    if any(isinstance(mask, AbsentMask) for mask in settled.rules.masks):
        steps = {stage: step for stage, step in steps.items() if stage not in ("masked", "weights")}
    return tuple(stage for stage, array in trace.stages() if stage in steps and not follows(steps[stage], array))


def bind_right_steps(
    recipe: Recipe, settled: Settled, problem: Problem, trace: Trace
) -> dict[str, Callable[[], Array]]:
    if problem.weights is not None:
        return {"context": lambda: mix_given_weights(recipe, settled, problem)["context"]}
    given, held = given_to(settled, problem), {name: array[None] for name, array in trace.stages()}
    q, k, v = sides(recipe, given)
    at = replace(At.of_heads(recipe.rules, q, k), past=given.past)

    def masked() -> Array:
        forbidden = recipe.forbid(at, recipe.biased(at, held["capped"]), recipe.allowed(at))
        return np.asarray(recipe.bent(at, forbidden) if at.rules.bend_last else forbidden)

    return {
        "q": lambda: recipe.place(at, "q", q, recipe.positions),
        "k": lambda: recipe.share(at, recipe.place(at, "k", k, recipe.positions)),
        "v": lambda: recipe.share(at, recipe.place(at, "v", v, recipe.positions)),
        "scores": lambda: recipe.score(at, held["q"], held["k"]),
        "logits": lambda: recipe.scaled(at, held["scores"]),
        "capped": lambda: held["logits"] if at.rules.bend_last else recipe.bent(at, held["logits"]),
        "masked": masked,
        "weights": lambda: recipe.after(at, recipe.normalize(at, held["masked"]), recipe.allowed(at)),
        "context": lambda: recipe.gather(at, recipe.mix(at, held["weights"], held["v"], held["k"])),
        "output": lambda: project_output(recipe, held, problem)[0],
    }


def follows(step: Callable[[], Array], array: Array) -> bool:
    """Say whether a stage equals the result of the right step, up to rounding."""
    try:
        with np.errstate(all="ignore"):
            made = step()
    except (ValueError, KeyError):
        return False
    mine = array if made.ndim == array.ndim else array[None]
    close = 1000 * float(np.finfo(array.dtype).eps)
    large = float(np.abs(made[np.isfinite(made)]).max(initial=0.0))
    return made.shape == mine.shape and np.allclose(mine, made, rtol=close, atol=close * large, equal_nan=True)


def features(asked: Iterable[tuple[Recipe, Given]]) -> set[str]:
    """Return what recipes use, in the words of `Mistake.needs`."""
    words: set[str] = set()
    for recipe, given in asked:
        rules, array = recipe.rules, given.q if given.x is None else given.x
        words |= {type(rule).__name__.lower() for rule in (*rules.masks, *recipe.positions)}
        words |= {kind.__name__.lower() for rule in rules.scores for kind in type(rule).__mro__}
        there = {
            "added": any(type(rule).bias is not Score.bias for rule in rules.scores),
            "mask": rules.masks,
            "position": recipe.positions,
            "shared": recipe.groups != recipe.heads,
            "batch": array is not None and len(array) > 1,
            "layer": given.x is not None or recipe.wide,
            "output": "W_o" in given.arrays,
            "bias": any(name.startswith("b_") for name in given.arrays),
        }
        words |= {word for word, is_there in there.items() if is_there}
    return words
