"""Explain why two rows differ, with a ladder from one to the other that changes one setting at a time.

Each rung of the ladder is an ordinary variant, executed on the problem of the run. A step leads from one rung to the
next: it changes one setting, in the order of the pipeline, and reports how much that changes the output. Rungs in other
orders show whether the order matters. The idea comes from Fawcett and Hoos 2016, "Analysing differences between
algorithm configurations through ablation".
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
from attn_exp.experiment.executing import execute, get_answer
from attn_exp.experiment.measuring import describe_closeness
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import Comparison, Step
from attn_exp.experiment.variant import SEPARATORS, Settled, baseline, format_choices, merge_settings, settle
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem, count_heads
from attn_exp.reference.oracle import is_same
from attn_exp.rules import effective_settings

PIPELINE = (
    "position", "head", "kv_head", "scale", "score", "mask", "mask_join", "align", "normalizer",
    "output_projection", "convention", "mistake",
)  # fmt: skip
"""Settings in the order in which a ladder changes them. The form may change too. Before the settings, it changes to the
plainest form that computes the same function. After them, it changes to the form of the other row."""

ALL_ORDERS_OF = 5
"""With up to this many settings to change, all orders are tried; with more, only one."""

SMALL, LARGE = 2**14, 2**24
"""Limits of the number of weights `[h t s]`: up to `SMALL`, all orders are tried, and up to `LARGE`, one order. With
more weights, no rung is computed, since that would take too much memory and time."""

TOGETHER, TOO_LARGE = "changed together: no variant in between", "changed together: too many weights for single steps"

Settings = Mapping[str, Any]
"""The value of each setting in `PIPELINE`, by name."""


class Rung(NamedTuple):
    """A variant on the way from one row to another.

    `chosen`: its settings.
    `dtype`: the dtype that it was computed in.
    `row`: the name of the row that it equals; empty if it equals none.
    """

    form: str
    chosen: Settings
    trace: Trace
    dtype: np.dtype[Any]
    row: str = ""


FindRung = Callable[[frozenset[str]], Rung | None]
"""Takes the names of some settings. Returns the rung that has these settings of the end row, and all other settings of
the start row; None if that rung cannot be computed."""


def build_ladders(comparison: Comparison) -> tuple[tuple[Step, ...], dict[tuple[str, int], Trace]]:
    """Return the steps from the baseline row to every other row, and the traces of the rungs between them.

    The key of a trace is the name of the variant and the number of the step. A trace has only the weights and the
    output; if these are large, it is left out.
    """
    config, problem, rows = comparison.config, comparison.problem, dict[str, Rung]()
    for settled in (variant for variant in comparison.variants if not variant.refused):
        trace, chosen = comparison.traces[settled.name], collect_settings(settled, config, problem)
        rows[settled.name] = Rung(str(settled.form), chosen, trace, settled.computed_in, settled.name)
    start = baseline(config, comparison.variants).name
    steps, rungs = list[Step](), dict[tuple[str, int], Trace]()
    for name, end in rows.items():
        for step, rung in climb_ladder(config, problem, list(rows.values()), rows[start], end) if name != start else ():
            steps.append(step)
            trace_to_keep = Trace(weights=rung.trace.weights, output=rung.trace.output)
            if not rung.row and all(array.size <= SMALL for _, array in trace_to_keep.stages()):
                rungs[name, step.step] = trace_to_keep
    return tuple(steps), rungs


def collect_settings(settled: Settled, config: Config, problem: Problem) -> dict[str, Any]:
    """Return a variant's settings by name; those without effect on this problem get their neutral value."""
    chosen = merge_settings(config.variant[settled.name], config)
    shared_by_default = count_heads(settled.head, None, problem).shared
    chosen["kv_head"] = None if settled.heads.shared == shared_by_default else settled.heads.shared
    chosen["output_projection"] = settled.output_projection and bool(problem.projections)
    for group in SEPARATORS:
        chosen[group] = {
            name: effective_settings(group, name, settings or {}) for name, settings in chosen[group].items()
        }
    chosen["mask"] = dict(sorted(chosen["mask"].items()))  # the order of masks does not matter
    return {name: chosen[name] for name in PIPELINE}


def list_differing(one: Settings, other: Settings) -> list[str]:
    are_joined = all(len(side["mask"]) > 1 for side in (one, other))  # a single mask has nothing to join
    return [name for name in PIPELINE if not is_same(one[name], other[name]) and (are_joined or name != "mask_join")]


def climb_ladder(
    config: Config, problem: Problem, rows: Sequence[Rung], start: Rung, end: Rung
) -> Iterator[tuple[Step, Rung]]:
    """Yield each step from one row to another, and the rung that it leads to.

    A rung that equals one of the `rows` is not computed again.
    """
    if len(start.chosen["mask"]) < 2:
        start = start._replace(chosen={**start.chosen, "mask_join": end.chosen["mask_join"]})
    weight_count = max(rung.chosen["head"] for rung in (start, end)) * len(problem.tokens) * problem.keys
    # rungs of a small problem keep the form that both rows have; otherwise they use the plainest form
    keeps_form = start.form == end.form and weight_count <= SMALL and not forms.is_own(start.form)
    form = start.form if keeps_form else forms.form(start.form).plainest

    @functools.cache
    def rung_with(final: frozenset[str]) -> Rung | None:
        chosen = {**start.chosen, **{name: end.chosen[name] for name in final}}
        return find_or_compute(config, problem, rows, form, chosen) if weight_count <= LARGE else None

    steps = list(walk_steps(start, end, form, rung_with))
    changes = [changed for _, changed, _, _ in steps if changed]
    tries_all_orders = weight_count <= SMALL and len(changes) <= ALL_ORDERS_OF
    for number, (settings, changed, previous, current) in enumerate(steps, start=1):
        moved = measure_difference(previous, current)
        differences = (
            measure_all_orders(changed, [other for other in changes if other != changed], rung_with)
            if changed and tries_all_orders
            else ()
        )
        finite_differences = [difference for difference in differences if not math.isnan(difference)]
        before, after = ([format_setting(name, rung, problem) for name in settings] for rung in (previous, current))
        yield (
            Step(
                variant=end.row,
                against=start.row,
                step=number,
                setting=" + ".join(settings),
                before=" + ".join(before),
                after=" + ".join(after),
                change=" and ".join(map(describe_change, settings, after)),
                moved=moved,
                total=measure_difference(start, current),
                sameness=describe_closeness(
                    get_answer(previous.trace), get_answer(current.trace), forms.coarser(previous.dtype, current.dtype)
                ),
                least=min(finite_differences, default=math.nan),
                most=max(finite_differences, default=math.nan),
                orders=f"all {math.factorial(len(changes))}" if differences else "",
                row=current.row,
                note="" if len(settings) == 1 else TOGETHER if weight_count <= LARGE else TOO_LARGE,
            ),
            current,
        )


def walk_steps(
    start: Rung, end: Rung, form: str, rung_with: FindRung
) -> Iterator[tuple[list[str], frozenset[str], Rung, Rung]]:
    """Yield each step between two rungs: the names of everything that changes, the changed settings, and both rungs.

    The changed settings are the same names without `form`. If a rung cannot be computed, the step to it is merged with
    the next one.
    """
    differing_settings = list_differing(start.chosen, end.chosen)
    form_first, form_last = (
        (rung.form != form for rung in (start, end)) if differing_settings else (start.form != end.form, False)
    )
    names = ["form"] * form_first + differing_settings + ["form"] * form_last
    previous, done, settings = start, frozenset[str](), list[str]()
    for count, name in enumerate(names, start=1):
        settings, changed = [*settings, name], frozenset(names[:count]) - {"form"}
        current = end if count == len(names) else rung_with(changed)
        if current is not None:
            yield settings, changed - done, previous, current
            previous, done, settings = current, changed, []


def find_or_compute(config: Config, problem: Problem, rows: Sequence[Rung], form: str, chosen: Settings) -> Rung | None:
    """Return the row with this form and these settings, or else a new rung; None if it cannot be computed."""
    for row in rows:
        if row.form == form and not list_differing(row.chosen, chosen):
            return row._replace(chosen=chosen)
    try:
        settled = settle("rung", Variant(**{**chosen, "form": form}), config, problem)
        return None if settled.refused else Rung(form, chosen, execute(settled, problem), settled.computed_in)
    except UserError:
        return None


def measure_all_orders(change: frozenset[str], other_changes: list[frozenset[str]], rung_with: FindRung) -> list[float]:
    """Return how much a change affects the output, for every subset of the other changes that can be made before it.

    A subset is left out if the rung before or after the change cannot be computed.
    """
    subsets = itertools.chain.from_iterable(
        itertools.combinations(other_changes, count) for count in range(len(other_changes) + 1)
    )
    already_changed = [frozenset[str]().union(*subset) for subset in subsets]
    pairs = ((rung_with(changed), rung_with(changed | change)) for changed in already_changed)
    return [
        measure_difference(previous, current)
        for previous, current in pairs
        if previous is not None and current is not None
    ]


def measure_difference(one: Rung, other: Rung) -> float:
    left, right = get_answer(one.trace), get_answer(other.trace)
    return largest_error(left, right) if left.shape == right.shape else math.nan


def format_setting(name: str, rung: Rung, problem: Problem) -> str:
    value: Any = rung.form if name == "form" else rung.chosen[name]
    if name == "kv_head" and value is None:
        return str(count_heads(rung.chosen["head"], None, problem).shared)
    if name in SEPARATORS:
        return format_choices(name, value, rung.chosen["mask_join"])
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
