"""Run a variant on a problem, with its form or as a recipe of steps; round inputs to a dtype; measure the time.

A form runs in this order: `embed_positions`, `prepare_heads`, `attend` of the form, `replace_empty_rows`,
`merge_and_project`. A variant with mistakes runs as a `Recipe` instead, in which every step can be replaced.
"""

from __future__ import annotations

import functools
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array, bfloat16
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.library_conventions import fill_empty_rows, replace_empty_rows
from attn_exp.experiment.row import Timing
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Given, Recipe, Setup, Step, compute
from attn_exp.forms.steps import join_heads, project, share, share_in_turns, split
from attn_exp.forms.trace import CELLS, Trace, summarize_weights
from attn_exp.problem.problem import Problem, fill_in_qkv, pool_heads, project_qkv
from attn_exp.rules import AbsentMask
from attn_exp.rules.scores.score import Score


def execute(settled: Settled, problem: Problem) -> Trace:
    return run_form(settled, problem, settled.member.attend)


def compute_trace(
    settled: Settled, problem: Problem, weights: str, tell: Callable[[float], None] | None = None
) -> Trace:
    """Return the trace of a variant, with as much of its weights as the setting `weights` requests.

    `full` keeps the weights of each head, `blocks` only a summary of them, and `auto` what the form stores anyway.
    If the problem has no values, the weights are its result, so all of them are kept.
    """
    kept = "full" if problem.v is None else weights
    trace = run_form(settled, problem, settled.member.keeping(kept, tell))
    if weights != "blocks" or trace.weights is None or trace.output is None:
        return trace
    summary = summarize_weights(trace.weights, CELLS)
    return trace.replace(**dict.fromkeys(("scores", "logits", "capped", "masked", "weights")), summary=summary)


def run_form(settled: Settled, problem: Problem, attend: Callable[..., Trace]) -> Trace:
    """Run a variant on a problem, with its form, or with a recipe if the variant has mistakes."""
    if settled.mistakes:
        return run_with_mistakes(settled, problem)
    if settled.own is not None and settled.own.layer:
        return settled.own.whole(settled.question, problem, usual=isinstance(settled.scale, bool) and settled.scale)
    q, k, v = prepare_heads(settled, problem)
    if problem.weights is not None:
        weights = np.broadcast_to(problem.weights, (settled.head, *problem.weights.shape))
        mix = settled.member.mix
        assert mix is not None
        stages = mix(Trace(v=v, weights=weights))
    else:
        stages = attend(q, k, v, settled.rules)
    if settled.own is None:  # a user's own function decides what a row without keys gives
        stages = replace_empty_rows(stages, settled.rules, settled.empty)
    if stages.context is None:
        return stages
    return stages.replace(output=merge_and_project(stages.context, settled, problem))


def get_answer(trace: Trace) -> Array:
    """Return the output of a trace, or its weights if the problem has no values."""
    array = trace.weights if trace.output is None else trace.output
    assert array is not None
    return array


def follows_steps(settled: Settled, problem: Problem) -> bool:
    """Return whether a variant gives the same result as its recipe; kernels and library conventions may prevent it."""
    stages, trace = try_stages(make_recipe(settled), settled, problem) or {}, execute(settled, problem)
    actual, expected = stages.get("weights" if trace.output is None else "output", np.empty(0)), get_answer(trace)
    return actual.shape == expected.shape and np.allclose(actual, expected, rtol=1e-4, atol=1e-4, equal_nan=True)


def prepare_heads(settled: Settled, problem: Problem) -> tuple[Array | None, Array | None, Array | None]:
    """Return q `[h t d]`, k `[g s d]` and v `[g s e]`, with positions encoded and key/value heads pooled."""
    problem = embed_positions(settled, problem)
    inputs, heads = (problem.q, problem.k, problem.v), settled.heads
    q = None if inputs[0] is None else split(inputs[0], heads.query)
    k, v = (None if array is None else pool_heads(split(array, heads.given), heads) for array in inputs[1:])
    for position in settled.positions:
        if q is not None and k is not None:
            q = position.turn(q, np.arange(q.shape[1]) + first_position(settled, problem))
            k = position.turn_key(k, np.arange(k.shape[1]))
    if settled.tiled and k is not None:
        head_order = np.arange(heads.query) % heads.shared
        k, v = k[head_order], None if v is None else v[head_order]
    return q, k, v


def embed_positions(settled: Settled, problem: Problem) -> Problem:
    """Return the problem with q, k and v projected from x after the variant's positions are encoded in x.

    The problem is returned unchanged if no position changes x, or if the positions are already encoded. A recipe with
    mistakes and a user's own layer encode positions in x themselves.
    """
    positions = tuple(position for position in settled.positions if position.changes_x)
    if settled.mistakes or (settled.own is not None and settled.own.layer):
        positions = ()
    if problem.x is None or problem.marks == positions:
        return problem
    q, k, v = project_qkv(problem, lambda x: functools.reduce(lambda x, position: position.embed(x), positions, x))
    return replace(problem, q=q, k=k, v=v, marks=positions)


def first_position(settled: Settled, problem: Problem) -> int:
    """Return the position of the first query: the number of past tokens, or if there are none, the offset of the masks.

    If there are past tokens, the two may differ: a library may ignore the past in its masks, but positions include it.
    """
    return problem.past if problem.past else int(settled.rules.offset)


def merge_and_project(context: Array, settled: Settled, problem: Problem) -> Array:
    """Merge the heads to `[t h*e]`, and multiply by W_o if the variant has an output projection."""
    merged, has_projection = join_heads(context), settled.output_projection and problem.projections
    return project("o", merged, problem.projections) if has_projection else merged


# Dtypes

TYPES = ("float16", "bfloat16", "float32", "float64")


def find_type(name: str) -> Any:
    if name not in TYPES:
        raise UserError(unknown(name, TYPES, "dtype"))
    try:
        return bfloat16() if name == "bfloat16" else np.dtype(name)
    except ImportError as error:
        raise UserError("dtype=bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from error


def float_info(dtype: Any) -> Any:
    """Return the `finfo` of a dtype, from NumPy or from the package that defines the dtype, such as bfloat16."""
    return sys.modules[np.dtype(dtype).type.__module__].finfo(dtype)


def round_inputs(problem: Problem, dtype: Any) -> Problem:
    """Return the problem with its inputs rounded to a dtype.

    If there is an x, q, k and v are projected again in that dtype, so they include the rounding errors of a projection.
    """
    arrays = {name: cast(getattr(problem, name), dtype) for name in ("x", "memory", "q", "k", "v", "weights")}
    if problem.x is None:
        return replace(problem, **arrays)
    projections = {name: cast(array, dtype) for name, array in problem.projections.items()}
    return fill_in_qkv(replace(problem, projections=projections, **arrays))


def cast(array: Array | None, dtype: Any) -> Any:
    return None if array is None else array.astype(dtype)


# Time and peak memory

TIMING_BUDGET = 0.005
"""Seconds for timing all variants of a run, in equal parts. A variant that needs more than its part runs only once."""

SLOW = 0.5
"""A variant that takes more seconds than this is not run again. Its time is the time that it took in the comparison.
Its peak memory is not measured, since tracing makes Python loops several times slower."""


def measure(
    variants: Sequence[Settled], problem: Problem, known_seconds: Mapping[str, float] | None = None
) -> tuple[Timing, ...]:
    """Return the time and the peak memory of every variant that is not refused.

    Each variant runs as often as its part of `TIMING_BUDGET` allows, and once more for its peak memory. `known_seconds`
    has the time of each variant in an earlier run. A variant that was slow in that run is not run again.
    """
    runnable = [variant for variant in variants if not variant.refused]
    budget, seconds = TIMING_BUDGET / len(runnable), known_seconds or {}
    return tuple(measure_one(variant, problem, budget, seconds.get(variant.name, 0.0)) for variant in runnable)


def measure_one(settled: Settled, problem: Problem, budget: float, known_seconds: float) -> Timing:
    if known_seconds > SLOW and not settled.member.library:  # a library's first run includes loading it
        return Timing(settled.name, known_seconds, known_seconds, 1, None)
    times: list[float] = []
    while not times or sum(times) + times[-1] < budget:
        start = perf_counter()
        execute(settled, problem)
        times.append(perf_counter() - start)
    return Timing(
        variant=settled.name,
        median_s=sorted(times)[len(times) // 2],
        minimum_s=min(times),
        runs=len(times),
        peak_bytes=None if times[0] >= SLOW else measure_peak_bytes(settled, problem),
    )


def measure_peak_bytes(settled: Settled, problem: Problem) -> int:
    """Return the peak of allocated bytes, in a separate run because tracing makes it slow."""
    tracemalloc.start()
    try:
        execute(settled, problem)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# A variant as a recipe: the stages that its steps compute, including its mistakes

STAGES = ("q", "k", "v", "scores", "logits", "capped", "masked", "weights", "context", "output")
"""All stages, in the order in which they are computed."""

Stages = dict[str, Array]


def make_recipe(settled: Settled) -> Recipe:
    return Recipe(
        settled.rules, settled.heads.query, settled.heads.shared, settled.positions,
        output_projection=settled.output_projection, share=share_in_turns if settled.tiled else share,
    )  # fmt: skip


def make_input(settled: Settled, problem: Problem) -> Given:
    """Return the input of the recipe: x, or q, k and v if there is no x or if key/value heads are pooled.

    The input is empty if the problem starts from given weights.
    """
    heads = settled.heads
    if problem.weights is not None:
        return Given()
    if problem.x is not None and heads.shared == heads.given:
        memory = None if problem.memory is None else problem.memory[None]
        return Given(x=problem.x[None], arrays=problem.projections, memory=memory, past=problem.past)
    assert problem.q is not None and problem.k is not None
    values = problem.k if problem.v is None else problem.v
    k, v = (pool_heads(split(array, heads.given), heads) for array in (problem.k, values))
    return Given(split(problem.q, heads.query)[None], k[None], v[None], past=problem.past)


def compute_stages(recipe: Recipe, settled: Settled, problem: Problem, copies: int = 1) -> Stages:
    """Return every stage `[n h t ...]` of a problem, by name; n is the number of `copies`.

    Several copies are needed if a recipe treats each copy differently.

    Raises:
        ValueError: a step cannot be applied to these shapes.
    """
    if problem.weights is not None:
        return mix_given_weights(recipe, settled, problem, copies)
    given = make_input(settled, problem)
    if copies > 1:
        copied: dict[str, Any] = {
            name: np.repeat(array, copies, axis=0) for name in "xqkv" if (array := getattr(given, name)) is not None
        }
        given = replace(given, independent=True, **copied)
    stages = compute(recipe, given)
    if given.x is None:
        stages["output"] = project_output(recipe, stages, problem)
    return {name: stages[name] for name in STAGES}


def mix_given_weights(recipe: Recipe, settled: Settled, problem: Problem, copies: int = 1) -> Stages:
    """Return the stages `[n h t ...]` of a problem that starts from given weights; n is the number of `copies`."""
    assert problem.weights is not None and problem.v is not None
    rows, keys = problem.weights.shape
    v = np.repeat(split(problem.v, settled.heads.shared)[None], copies, axis=0)
    setup = Setup(recipe.rules, copies, settled.head, v.shape[1], rows, keys, v.shape[-1], v.shape[-1] * settled.head)
    weights = np.broadcast_to(problem.weights, (copies, settled.head, rows, keys))
    values = recipe.share(setup, v)
    context = recipe.mix(setup, weights, values, values)
    output = project_output(recipe, {"q": v, "k": v, "context": context}, problem)
    return {"v": v, "weights": weights, "context": context, "output": output}


def project_output(recipe: Recipe, stages: Stages, problem: Problem) -> Array:
    setup = Setup.of_heads(recipe.rules, stages["q"], stages["k"])
    merged = recipe.merge(setup, stages["context"])
    weight, bias = (problem.projections.get(name) for name in ("W_o", "b_o"))
    return np.asarray(recipe.finish(setup, merged, weight, bias)) if recipe.output_projection else merged


def run_with_mistakes(settled: Settled, problem: Problem) -> Trace:
    """Return every stage `[h t ...]` of a variant, computed with its mistakes.

    Raises:
        UserError: a mistake cannot be applied to these shapes, or shows only across several calls.
    """
    recipe = fill_empty_rows(mistakes.apply_mistakes(settled.mistakes, make_recipe(settled)), settled.empty)
    try:
        return Trace(**{name: array[0] for name, array in compute_stages(recipe, settled, problem).items()})
    except (ValueError, KeyError) as error:  # KeyError: a mistake needs a matrix, but pooled heads are not projected
        raise UserError(
            f"mistake={settled.mistake} cannot be applied to the shapes of this run, so there is no output"
        ) from error


def try_stages(recipe: Recipe, settled: Settled, problem: Problem) -> Stages | None:
    """Return every stage `[h t ...]` of a recipe; None if one of its steps cannot be computed."""
    shared = settled.heads.shared
    try:
        with np.errstate(all="ignore"):
            arrays = {name: array[0] for name, array in compute_stages(recipe, settled, problem).items()}
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    for name in {"k", "v"} & arrays.keys():  # heads that were repeated for the query heads: keep one of each
        if len(arrays[name]) != shared:
            step = 1 if settled.tiled else max(len(arrays[name]) // shared, 1)
            arrays[name] = arrays[name][::step][:shared]
    return arrays


STEP_INPUTS = {
    "score": ("q", "k"), "scaled": ("scores",), "bent": ("logits",), "biased": ("capped",), "normalize": ("masked",),
    "mix": ("weights", "v", "k"), "merge": ("context",),
}  # fmt: skip
"""The stages that each step of a recipe takes as inputs."""


def find_departures(settled: Settled, problem: Problem, trace: Trace) -> tuple[str, ...]:
    """Return the stages of a variant that do not follow from its earlier stages by the definition of attention.

    The correct steps are applied to the stages in the variant's own trace. So a mistake is reported only at the stage
    where it is made, not at every later stage. A stage with the wrong shape is reported too.
    """
    recipe, inputs_of, not_compared = (
        fill_empty_rows(make_recipe(settled), settled.empty),
        dict(STEP_INPUTS),
        set[str](),
    )
    if any(isinstance(mask, AbsentMask) for mask in settled.rules.masks):
        recipe, not_compared = recipe.with_rules(masks=()), {"masked", "weights"}
    if settled.rules.bend_last:  # nothing is capped before the mask
        inputs_of.pop("bent")
        not_compared.add("capped")
    recorded = {name: array[None] for name, array in trace.stages()}
    steps = {step: partial(apply_to, recorded, getattr(recipe, step), stages) for step, stages in inputs_of.items()}
    expected = compute_stages(recipe.changed(**steps), settled, problem)
    names = [name for name in recorded if name in expected and name not in not_compared]
    return tuple(name for name in names if not is_close(recorded[name], expected[name]))


def apply_to(recorded: Stages, step: Step, stages: Sequence[str], setup: Setup, *arguments: Any) -> Array:
    """Apply a step to the recorded `stages`; if one is missing or has the wrong shape, to the step's own arguments."""
    replaced = [recorded.get(name, array) for name, array in zip(stages, arguments, strict=False)]
    try:
        return np.asarray(step(setup, *replaced, *arguments[len(replaced) :]))
    except ValueError:
        return np.asarray(step(setup, *arguments))


def is_close(actual: Array, expected: Array) -> bool:
    tolerance = 1000 * float(np.finfo(actual.dtype).eps)
    magnitude = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return expected.shape == actual.shape and np.allclose(
        actual, expected, rtol=tolerance, atol=tolerance * magnitude, equal_nan=True
    )


def list_features(computations: Iterable[tuple[Recipe, Given]]) -> set[str]:
    """Return the features that recipes use, named as in `Mistake.needs`."""
    names = set()
    for recipe, given in computations:
        rules, array = recipe.rules, given.q if given.x is None else given.x
        names |= {type(rule).__name__.lower() for rule in (*rules.masks, *recipe.positions)}
        names |= {rule_class.__name__.lower() for rule in rules.scores for rule_class in type(rule).__mro__}
        present = {
            "added": any(type(rule).bias is not Score.bias for rule in rules.scores),
            "mask": rules.masks,
            "position": recipe.positions,
            "shared": recipe.groups != recipe.heads,
            "batch": array is not None and len(array) > 1,
            "layer": given.x is not None or recipe.wide,
            "output": "W_o" in given.arrays,
            "bias": any(name.startswith("b_") for name in given.arrays),
        }
        names |= {name for name, is_present in present.items() if is_present}
    return names
