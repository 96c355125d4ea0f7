"""The data of a page's scripts: the run's own numbers, the digits of its tables, and plans to recompute its walks.

A page shows the tables of one head of one variant. The tables that it shows first are in its HTML; the others are
stored as integers (the digits of their cells) and filled in on demand. Scores, the stages derived from them, and
weights are not stored twice: the page already has them for its maps and lines."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from attn_exp import forms, registry
from attn_exp.arrays import Array
from attn_exp.experiment.executing import first_position, get_answer
from attn_exp.experiment.metrics.logits import standard_multiplier
from attn_exp.experiment.metrics.spread import shares_by_rule
from attn_exp.experiment.row import Comparison, Row, find_settled
from attn_exp.experiment.variant import Settled, baseline
from attn_exp.problem.problem import Problem
from attn_exp.reference.oracle import SUBTRACTED
from attn_exp.report import walk
from attn_exp.report.escapes import decimal
from attn_exp.report.pixels import picture
from attn_exp.report.views import MOST_COARSE, MOST_EXACT, Colours, Panel, Views, colours, labels
from attn_exp.report.walk import SIDE, Step, closed_by_mask, is_mixed
from attn_exp.rules import AbsentMask
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules, allowed_entries, whole_grid
from attn_exp.rules.scores.score import Score

Data = dict[str, Any]
"""Data for a script of the page, ready for JSON."""


def page_data(views: Views) -> Data:
    """Return the tokens, the weights with the numbers they are computed from, and the outputs, ready for JSON."""
    places = {name: place for place, panel in enumerate(views.panels) for name in panel.variants}
    comparison = views.comparison
    queries, keys = labels(comparison.problem)
    leaders = list({row.same_as: row for row in reversed(comparison.rows) if row.same_as}.values())
    return {
        "tokens": queries,
        "keys": keys,
        "panels": [panel_data(comparison, panel, colours(views)) for panel in views.panels],
        "variants": [
            variant_data(comparison, row.variant, row.same_as, places.get(row.variant, -1), carried=row in leaders)
            for row in comparison.rows
            if row.same_as
        ],
    }


def panel_data(comparison: Comparison, panel: Panel, scale: Colours) -> Data:
    """Return the data of a panel: scores and biases if its weights are a softmax of their sum, else the weights.

    If there are too many numbers for a page, it gets pictures instead. `shut` marks masked weights.
    """
    variant, split = panel.variants[0], panel.split
    settled = find_settled(comparison, variant)
    told: Data = {"title": panel.title, "shape": panel.weights.shape}
    own = settled.multiplier if split is None else split.own
    told |= {"own": own, "standard": standard_multiplier(comparison.traces[variant])}
    shut = closed_by_mask(settled, panel.weights) if split is None else np.isneginf(split.rest)
    if panel.weights.size > MOST_COARSE:
        told["pictures"] = [
            picture(head, scale.shares, None if shut is None else shut[place])
            for place, head in enumerate(panel.weights)
        ]
        return told
    if shut is not None and shut.any():
        told["shut"] = as_text(one_head(shut))
    if split is None:
        return told | {"weights": packed(panel.weights)}
    added = np.where(np.isneginf(split.rest), 0, split.rest)
    return told | {"scores": packed(split.scores)} | ({"rest": packed(added)} if added.any() else {})


def variant_data(comparison: Comparison, variant: str, letter: str, panel: int, *, carried: bool) -> Data:
    """Return a variant's final output, if `carried` is set and it is small, and the index of its weights panel."""
    ends = get_answer(comparison.traces[variant])
    alone = len({row.same_as for row in comparison.rows} - {""}) == 1  # no other output to compare it with
    small = carried and ends.ndim == 2 and ends.size <= (MOST_STARTS if alone else MOST_EXACT)
    return {
        "name": variant,
        "letter": letter,
        "panel": panel,
        "answer": packed(ends) if small else "",
        "size": ends.shape[1] if small else 0,
    }


MOST_STARTS, MOST_WEIGHTS = 4096, 10_000
"""Maximum number of input values, and of weights of one variant, that a page recomputes."""

NORMALIZERS = ("softmax", "sigmoid", "sum", "sparsemax")
"""Normalizers that the script of a page implements."""


def live_plans(comparison: Comparison, leaders: Sequence[str]) -> Data:
    """Return the arrays that a reader may change, and how to recompute each walk, or why that is impossible."""
    rows = [plan_row(comparison, row) for row in comparison.rows]
    plans = list[Any]()
    for row in rows:
        if row["plan"] not in plans:
            plans.append(row["plan"])
    places = {row["variant"]: plans.index(row["plan"]) for row in rows}
    told = {"plans": plans, "walks": [places[variant] for variant in leaders]}
    if not any(isinstance(plans[place], dict) for place in told["walks"]):
        return {"arrays": {}, **told}
    arrays = {
        name: {"shape": array.shape, "data": packed(array)} for name, array in input_arrays(comparison.problem).items()
    }
    listed = [row | {"plan": places[row["variant"]]} for row in rows]
    against = baseline(comparison.config, comparison.variants).name
    return {"arrays": arrays, "rows": listed, "against": against, **told}


def plan_row(comparison: Comparison, row: Row) -> Data:
    """Return the plan to recompute a row, or the reason why there is none.

    `spread` says whether the weights are computed whole, in pieces or not at all; `even` says whether the rules allow
    their rows to sum to 1.
    """
    settled = find_settled(comparison, row.variant)
    if not row.same_as:
        return {"variant": row.variant, "letter": "", "plan": None, "spread": "", "even": False}
    trace, normalizer = comparison.traces[row.variant], settled.rules.normalizer
    spread = "whole" if trace.weights is not None else "pieces" if trace.summary is not None else ""
    return {
        "variant": row.variant,
        "letter": row.same_as,
        "plan": next(iter(reasons(comparison, settled)), None) or plan(comparison, settled),
        "spread": spread,
        "even": shares_by_rule(settled.rules) and (spread == "whole" or not normalizer.signed),
    }


def input_arrays(problem: Problem) -> dict[str, Array]:
    first = {"x": problem.x, "memory": problem.memory, **problem.projections}
    later = {"q": problem.q, "k": problem.k, "v": problem.v, "weights": problem.weights}
    named = later if problem.x is None else first
    return {name: array for name, array in named.items() if array is not None}


def reasons(comparison: Comparison, settled: Settled) -> list[str]:
    """Return the reasons why a page cannot recompute a variant, as clauses; empty if it can."""
    problem, rules, normalizer = comparison.problem, settled.rules, settled.rules.normalizer.name
    numbers = sum(array.size for array in input_arrays(problem).values())
    weights = settled.head * len(problem.tokens) * problem.keys
    every: list[Score | Position] = [*rules.scores, *settled.positions]
    strange = [registry.name_of(rule) for rule in every if not is_computed(rule)]
    is_own = settled.own is not None or forms.is_own(settled.form)
    known = [
        (is_own, "this variant is your own code, which a page does not run"),
        (settled.mistakes, f"this variant makes a mistake on purpose, {settled.mistake}"),
        (settled.form not in forms.NAMES, f"form={settled.form} comes from outside the package"),
        (
            settled.computed_in != np.float64,
            f"this variant rounds to {settled.computed_in}, but a page computes in float64",
        ),
        (comparison.config.model.family is not None, "its numbers come from a trained model"),
        (normalizer not in NORMALIZERS, f"normalizer={normalizer} is computed only in Python"),
        (any(isinstance(mask, AbsentMask) for mask in rules.masks), "the code of its mask is not available"),
        (rules.bend_last or np.ndim(rules.offset), "its rules are applied in an order that a page does not support"),
        (strange, f"a page cannot compute {' and '.join(strange)}"),
        (
            numbers > MOST_STARTS,
            f"the run starts from {numbers:,} numbers, but a page can use at most {MOST_STARTS:,}",
        ),
        (weights > MOST_WEIGHTS, f"it has {weights:,} weights, but a page computes at most {MOST_WEIGHTS:,}"),
    ]
    return [reason for holds, reason in known if holds]


def is_computed(rule: Score | Position) -> bool:
    """Return whether the script of a page implements a score rule or a position encoding."""
    plain = isinstance(rule, Score) and not rule.pairs and (type(rule).bend is Score.bend or rule.bound() is not None)
    return plain or registry.name_of(rule) in ("rope", "sinusoidal", "additive")


def plan(comparison: Comparison, settled: Settled) -> Data:
    """Return what the script of a page needs to compute a variant: its heads, its rules as numbers, and its output."""
    problem, shares = comparison.problem, settled.heads
    return {
        "heads": (shares.query, shares.given, shares.shared),
        "pool": shares.pool,
        "tiled": settled.tiled,
        "past": problem.past,
        "kernel": settled.member.reference == "kernel",
        "normalizer": settled.rules.normalizer.name,
        "empty": settled.empty,
        "taken": SUBTRACTED.get(settled.empty),
        "mixed": is_mixed(comparison, settled.name),
        **position_data(problem, settled),
        **rule_data(problem, settled),
    }


def position_data(problem: Problem, settled: Settled) -> Data:
    added = [position for position in settled.positions if position.changes_x]
    sources = {"x": problem.x, "memory": problem.memory} if added else {}
    marks = {
        name: reduce(lambda total, position: position.embed(total), added, np.zeros_like(array))
        for name, array in sources.items()
        if array is not None
    }
    turns = [position for position in settled.positions if not position.changes_x and problem.q is not None]
    width = 0 if problem.q is None else problem.q.shape[1] // settled.head
    queries = np.arange(len(problem.tokens)) + (first_position(settled, problem) if turns else 0)
    return {
        "marks": {name: packed(array) for name, array in marks.items()},
        "turns": [angles(rope, width, queries, np.arange(problem.keys)) for rope in turns],
    }


def angles(rope: Any, width: int, queries: Array, keys: Array) -> Data:
    """Return the cosines and sines that rotate each query and key, found by rotating the pair (1, 0)."""
    size = rope.size or width
    first = slice(0, size, 2) if rope.interleaved else slice(0, size // 2)
    second = slice(1, size, 2) if rope.interleaved else slice(size // 2, size)
    unit = np.zeros((1, width))
    unit[:, first] = 1.0
    turned = {name: rope.turn(np.repeat(unit, len(at), axis=0), at) for name, at in (("q", queries), ("k", keys))}
    both = {name: [packed(array[:, first]), packed(array[:, second])] for name, array in turned.items()}
    return {"pairs": size // 2, "interleaved": rope.interleaved, **both}


def rule_data(problem: Problem, settled: Settled) -> Data:
    """Return the scale, and the masks and score biases as numbers for every query and key."""
    rules, heads, rows, keys = settled.rules, settled.head, len(problem.tokens), problem.keys
    grid = whole_grid(rules, heads, rows, keys)
    allowed = allowed_entries(rules.masks, rows, keys, int(rules.offset), heads)
    biases = [np.asarray(bias) for rule in rules.scores if (bias := rule.bias(grid)) is not None]
    extras = [extra for rule in rules.scores if (extra := rule.extra(grid.head)) is not None]
    bounds = [bound for rule in rules.scores if (bound := rule.bound()) is not None]
    return {
        "c": settled.multiplier,
        "caps": bounds,
        "allowed": None if allowed.all() else as_text(one_head(allowed)),
        "bias": packed(one_head(np.broadcast_to(sum(biases), (heads, rows, keys)))) if biases else None,
        "extra": np.concatenate(extras, axis=-1).reshape(heads, -1).tolist() if extras else None,
        "pair": additive_weights(rules, problem, heads),
    }


def additive_weights(rules: Rules, problem: Problem, heads: int) -> list[list[float]] | None:
    rule: Any = rules.pairing
    if rule is None or problem.q is None:
        return None
    size = problem.q.shape[1] // heads
    whole = rule.weights(size, np.arange(heads)[:, None, None])
    return list(np.broadcast_to(whole.reshape(-1, size), (heads, size)).tolist())


FEW, MANY_TOKENS = 4, 8
"""A page shows only four numbers of a vector with more than 16, or with more than four if there are more than eight
tokens. Rows of tokens and columns of keys are shown 16 at a time."""

MOST_CELLS = 50_000
"""Maximum number of values of a stage on a page; larger stages are cut to the first 16 keys, tokens and heads."""

MARKS = {"closed": -32768, "−∞": -32767, "nan": -32766, "inf": 32767}
"""Codes of cells that are masked or not finite."""

LARGEST = 32_765
"""The largest magnitude of a two-byte integer that is not a code."""


def on_page(step: Step, most: int) -> Step:
    """Cut a step to what a page shows: its first head, and four numbers of vectors with more than `most`."""
    heads, rows, columns = step.corners.shape
    tall, wide = step.shape[::-1] if step.stage == "lse" else (1, 1, *step.shape)[-2:]
    if walk.is_projection(step):
        rows = min(rows, FEW if tall > most else SIDE)
    if not walk.by_key(step):
        columns = min(columns, FEW if wide > most else SIDE)
        rows = rows if heads * rows * columns <= MOST_CELLS else min(rows, SIDE)
    first = step.tables[0]
    table = first._replace(
        title="head 1" if step.head_rows else first.title,
        rows=first.rows[:rows],
        columns=first.columns[:columns],
        matrix=first.matrix[:rows, :columns],
        parts=cut_parts(first.parts, columns),
    )
    kept = heads if walk.by_key(step) else max(1, min(heads, MOST_CELLS // max(1, rows * columns)))
    return step._replace(tables=(table,), corners=step.corners[:kept, :rows, :columns])


def cut_parts(parts: tuple[tuple[str, int], ...], columns: int) -> tuple[tuple[str, int], ...]:
    starts = np.cumsum([0, *(count for _, count in parts)]).tolist()
    inside = [(whom, min(count, columns - start)) for (whom, count), start in zip(parts, starts, strict=False)]
    return tuple((whom, count) for whom, count in inside if count > 0)


def walk_data(shown: Mapping[str, Any], panels: Sequence[tuple[Panel, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the variant of a walk and its tables by stage, ready for JSON.

    `panels` are all panels of the page, each with its data.
    """
    known = {} if shown["panel"] == "" else known_arrays(*panels[shown["panel"]])
    steps = {step.stage: step_data(step, known.get(step.stage)) for group in shown["groups"] for step in group}
    return {"variant": shown["variant"], "title": shown["title"], "panel": shown["panel"], "steps": steps}


def known_arrays(panel: Panel, told: Mapping[str, Any]) -> dict[str, tuple[Array, str]]:
    """Return the stages that a page derives from a panel's numbers, each with the encoded mask of the panel."""
    split, shut = panel.split, told.get("shut", "")
    if "pictures" in told:
        return {}
    known = {"weights": panel.weights}
    if split is not None and "scores" in told:
        logits = split.own * split.scores
        known |= {"scores": split.scores, "logits": logits, "masked": logits + split.rest}
    return {stage: (array, shut) for stage, array in known.items()}


def is_derived(step: Step, known: tuple[Array, str] | None) -> bool:
    """Return whether a step equals, up to rounding, the numbers that the page derives from a panel."""
    if known is None or known[0].shape != step.corners.shape:
        return False
    if step.closed is not None and step.closed.any() and as_text(one_head(step.closed)) != known[1]:
        return False
    least = 1e-12 * float(np.abs(step.corners[np.isfinite(step.corners)]).max(initial=0))
    return np.allclose(known[0], step.corners, rtol=1e-12, atol=least, equal_nan=True)


def limit_cells(step: Step) -> Step:
    """Shrink a step whose columns are keys to `MOST_CELLS` numbers: drop the last keys, then queries and heads."""
    heads, rows, columns = step.corners.shape
    if heads * rows * columns <= MOST_CELLS:
        return step
    columns = min(columns, SIDE, MOST_CELLS // (heads * rows))
    if columns < FEW:
        rows, columns = min(rows, SIDE), min(step.corners.shape[2], SIDE)
    return step._replace(corners=step.corners[: max(1, MOST_CELLS // (rows * columns)), :rows, :columns])


def step_data(step: Step, known: tuple[Array, str] | None) -> dict[str, Any]:
    is_made, tokens = is_derived(step, known), not walk.is_projection(step)
    step = limit_cells(step) if walk.by_key(step) and not is_made else step
    table, heads = step.tables[0], len(step.corners)
    digits, wide = ("", False) if is_made else whole_numbers(step)
    return {
        "rows": ("k" if step.rows_are_keys else "q") if tokens else list(table.rows),
        "columns": "k" if walk.by_key(step) else list(table.columns),
        "owners": step.owners,
        "headRows": step.head_rows,
        "shape": step.corners.shape,
        "titled": (heads > 1 or bool(table.title)) and not step.owners,
        "decimals": step.decimals,
        "largest": step.largest,
        "power": step.power,
        "parts": table.parts,
        "wide": wide,
        "digits": digits,
    }


def whole_numbers(step: Step) -> tuple[str, bool]:
    """Return the digits of all cells as base64 of little-endian integers, and whether these are stored as float64."""
    flat = step.corners.ravel()
    if (np.abs(flat[np.isfinite(flat)]) * 10.0**step.decimals > LARGEST).any():
        return packed(np.rint(flat * 10.0**step.decimals)), True
    array = np.array([digits_of(value, step.decimals) for value in flat.tolist()], dtype="<i2")
    if step.closed is not None:
        heads, rows, columns = step.corners.shape
        array[step.closed[:heads, :rows, :columns].ravel()] = MARKS["closed"]
    return base64.b64encode(array.tobytes()).decode(), False


def digits_of(value: float, places: int) -> int:
    """Return the number shown in a cell as an integer, without the decimal point, or a code of `MARKS`."""
    text = decimal(value, places)
    return MARKS[text] if text in MARKS else int(text.replace(".", "").replace("−", "-"))


def packed(array: Array) -> str:
    """Encode an array as base64 of little-endian float64; a large array as float32, to halve its size."""
    array = np.ascontiguousarray(array, "<f4" if array.size > MOST_EXACT else "<f8")
    return base64.b64encode(array.tobytes()).decode()


def as_text(places: Array) -> str:
    """Encode booleans as a string of ones and zeros."""
    return "".join("01"[int(each)] for each in places.ravel())


def one_head(array: Array) -> Array:
    """Return an array `[h t s]`, cut to its first head if all heads are equal."""
    return array[:1] if (array == array[:1]).all() else array
