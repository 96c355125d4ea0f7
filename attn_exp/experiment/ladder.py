"""Explain why two rows differ, with a ladder from one to the other that changes one setting at a time.

Each rung is an ordinary variant, settled and executed on the problem of the run. Settings are changed in the order of
the pipeline, and each step reports how much it changes the output of the previous rung. Rungs in other orders show
whether the order matters. The idea comes from Fawcett and Hoos 2016, "Analysing differences between algorithm
configurations through ablation".
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attn_exp import forms
from attn_exp.config.schema import Config, Variant
from attn_exp.config.spelling import spelled
from attn_exp.errors import UserError, count_of
from attn_exp.experiment.executing import answer, execute
from attn_exp.experiment.measuring import compared
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import Comparison, Step
from attn_exp.experiment.variant import JOINS, Settled, baseline, pinned_or_run, say_choices, settle
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem, heads
from attn_exp.reference.oracle import is_same
from attn_exp.rules import deciding

PIPELINE = (
    "position", "head", "kv_head", "scale", "score", "mask", "mask_join", "align", "normalizer",
    "output_projection", "convention", "mistake",
)  # fmt: skip
"""Settings in the order in which a ladder changes them. Before these changes, the form becomes the plainest one that
computes the same function as the first row; after them, it becomes that of the other row."""

ALL_ORDERS_OF = 5
"""Up to this many settings, all orders are tried; for more settings, only one."""

SMALL, LARGE = 2**14, 2**24
"""Numbers of weights `[h t s]`: up to `SMALL`, all orders are tried; up to `LARGE`, one order. Above that, rungs would
take too much memory and time."""

TOGETHER, TOO_LARGE = "changed together: no variant in between", "changed together: too many weights for single steps"

Choices = Mapping[str, Any]
"""A value for each setting in `PIPELINE`."""


class Rung(NamedTuple):
    """An intermediate variant: its form, settings, trace and dtype, and the name of the row that it equals, if any."""

    form: str
    chosen: Choices
    trace: Trace
    kind: np.dtype[Any]
    row: str = ""


At = Callable[[frozenset[str]], Rung | None]
"""A function that returns the rung with these settings from the end row and all others from the start row, or None if
that rung cannot be computed."""


def ladders(comparison: Comparison) -> tuple[tuple[Step, ...], dict[tuple[str, int], Trace]]:
    """Return the steps from the baseline row to every other row, and the traces of small rungs that equal no row.

    A trace has the weights and the output of the rung; its key is the variant and the number of the step.
    """
    config, problem, rows = comparison.config, comparison.problem, dict[str, Rung]()
    for settled in (variant for variant in comparison.variants if not variant.refused):
        trace, chosen = comparison.traces[settled.name], choices(settled, config, problem)
        rows[settled.name] = Rung(str(settled.form), chosen, trace, settled.computed_in, settled.name)
    start = baseline(config, comparison.variants).name
    steps, rungs = list[Step](), dict[tuple[str, int], Trace]()
    for name, end in rows.items():
        for step, rung in climb(config, problem, list(rows.values()), rows[start], end) if name != start else ():
            steps.append(step)
            kept = Trace(weights=rung.trace.weights, output=rung.trace.output)
            if not rung.row and all(array.size <= SMALL for _, array in kept.stages()):
                rungs[name, step.step] = kept
    return tuple(steps), rungs


def choices(settled: Settled, config: Config, problem: Problem) -> dict[str, Any]:
    """Return a variant's settings; those without effect on this problem get their neutral value."""
    chosen = pinned_or_run(config.variant[settled.name], config)
    usual = heads(settled.head, None, problem).shared
    chosen["kv_head"] = None if settled.heads.shared == usual else settled.heads.shared
    chosen["output_projection"] = settled.output_projection and bool(problem.projections)
    for group in JOINS:
        chosen[group] = {name: deciding(group, name, given or {}) for name, given in chosen[group].items()}
    chosen["mask"] = dict(sorted(chosen["mask"].items()))  # the order of masks does not matter
    return {name: chosen[name] for name in PIPELINE}


def differing(one: Choices, other: Choices) -> list[str]:
    joined = all(len(side["mask"]) > 1 for side in (one, other))  # a single mask has nothing to join
    return [name for name in PIPELINE if not is_same(one[name], other[name]) and (joined or name != "mask_join")]


def climb(
    config: Config, problem: Problem, rows: Sequence[Rung], start: Rung, end: Rung
) -> Iterator[tuple[Step, Rung]]:
    if len(start.chosen["mask"]) < 2:
        start = start._replace(chosen={**start.chosen, "mask_join": end.chosen["mask_join"]})
    size = max(rung.chosen["head"] for rung in (start, end)) * len(problem.tokens) * problem.keys
    is_shared = start.form == end.form and size <= SMALL and not forms.is_own(start.form)
    form = start.form if is_shared else forms.form(start.form).plainest

    @functools.cache
    def at(changed: frozenset[str]) -> Rung | None:
        chosen = {**start.chosen, **{name: end.chosen[name] for name in changed}}
        return computed(config, problem, rows, form, chosen) if size <= LARGE else None

    climbed = list(walk_steps(start, end, form, at))
    units = [unit for _, unit, _, _ in climbed if unit]
    has_orders = size <= SMALL and len(units) <= ALL_ORDERS_OF
    for place, (settings, unit, here, there) in enumerate(climbed, start=1):
        moved = difference(here, there)
        others = (
            measure_all_orders(unit, [other for other in units if other != unit], at) if unit and has_orders else ()
        )
        numbers = [number for number in others if not math.isnan(number)]
        before, after = ([format_setting(name, rung, problem) for name in settings] for rung in (here, there))
        step = Step(
            variant=end.row,
            against=start.row,
            step=place,
            setting=" + ".join(settings),
            before=" + ".join(before),
            after=" + ".join(after),
            change=" and ".join(map(describe_change, settings, after)),
            moved=moved,
            total=difference(start, there),
            sameness=compared(answer(here.trace), answer(there.trace), forms.coarser(here.kind, there.kind)),
            least=min(numbers, default=math.nan),
            most=max(numbers, default=math.nan),
            orders=f"all {math.factorial(len(units))}" if others else "",
            row=there.row,
            note="" if len(settings) == 1 else TOGETHER if size <= LARGE else TOO_LARGE,
        )
        yield step, there


def walk_steps(start: Rung, end: Rung, form: str, at: At) -> Iterator[tuple[list[str], frozenset[str], Rung, Rung]]:
    """Yield each step from one rung to another: the settings that change, and the rungs before and after.

    The second item is the set of settings that get their final value in this step; it is empty if only the form
    changes. If a rung cannot be computed, its step is merged with the next one.
    """
    apart = differing(start.chosen, end.chosen)
    first, last = (rung.form != form for rung in (start, end)) if apart else (start.form != end.form, False)
    names = ["form"] * first + apart + ["form"] * last
    here, before, settings = start, frozenset[str](), list[str]()
    for count, name in enumerate(names, start=1):
        settings, changed = [*settings, name], frozenset(names[:count]) - {"form"}
        there = end if count == len(names) else at(changed)
        if there is not None:
            yield settings, changed - before, here, there
            here, before, settings = there, changed, []


def computed(config: Config, problem: Problem, rows: Sequence[Rung], form: str, chosen: Choices) -> Rung | None:
    for row in rows:
        if row.form == form and not differing(row.chosen, chosen):
            return row._replace(chosen=chosen)
    try:
        settled = settle("rung", Variant(**{**chosen, "form": form}), config, problem)
        return None if settled.refused else Rung(form, chosen, execute(settled, problem), settled.computed_in)
    except UserError:
        return None


def measure_all_orders(unit: frozenset[str], others: list[frozenset[str]], at: At) -> list[float]:
    """Return how much a change affects the output after each subset of the other changes for which both rungs exist."""
    done = itertools.chain.from_iterable(itertools.combinations(others, count) for count in range(len(others) + 1))
    before = [frozenset[str]().union(*some) for some in done]
    pairs = ((at(changed), at(changed | unit)) for changed in before)
    return [difference(here, there) for here, there in pairs if here is not None and there is not None]


def difference(one: Rung, other: Rung) -> float:
    left, right = answer(one.trace), answer(other.trace)
    return largest_error(left, right) if left.shape == right.shape else math.nan


def format_setting(name: str, rung: Rung, problem: Problem) -> str:
    value: Any = rung.form if name == "form" else rung.chosen[name]
    if name == "kv_head" and value is None:
        return str(heads(rung.chosen["head"], None, problem).shared)
    if name in JOINS:
        return say_choices(name, value, rung.chosen["mask_join"])
    if name == "mistake":
        return "+".join(value) or "none"
    return "as the convention says" if value is None else value if isinstance(value, str) else spelled(value)


def describe_change(name: str, value: str) -> str:
    """Describe the change as the subject of a sentence, such as `scaling`, `2 heads` or `mask=causal`."""
    if name in ("head", "kv_head"):
        return count_of(int(value), "head" if name == "head" else "key/value head")
    if name == "scale" and value in ("true", "false"):
        return "scaling" if value == "true" else "leaving out the scaling"
    if name == "output_projection":
        return "W_o" if value == "true" else "leaving out W_o"
    return f"leaving out the {name}" if value == "none" and name != "convention" else f"{name}={value}"
