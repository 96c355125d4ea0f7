"""Data for the scripts of a page: the run's numbers, the digits of its tables, and how to recompute each variant.

Everything that the functions return is ready for JSON; the scripts in `templates/` read it by key. A *panel* has the
weights of one variant, or of several with equal weights. A *walk* shows a variant stage by stage. A *plan* says how to
recompute a variant if the reader changes a number.

A page shows the tables of one head of one variant. The tables that it shows first are in its HTML. The others are
stored as integers, the digits of their cells, and filled in when they are needed. A panel already has the scores, the
stages derived from them and the weights, so a walk does not store them again.
"""

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
from attn_exp.report.pixels import picture_url
from attn_exp.report.views import MOST_COARSE, MOST_EXACT, Colours, Panel, Views, colours, token_labels
from attn_exp.report.walk import SIDE, Step, find_masked, is_mixed
from attn_exp.rules import AbsentMask
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules, allowed_entries, whole_grid
from attn_exp.rules.scores.score import Score

Data = dict[str, Any]
"""Data for a script of the page, ready for JSON."""


def page_data(views: Views) -> Data:
    """Return the tokens of a run, the panels with its weights, and its variants with their outputs."""
    panel_indices = {name: index for index, panel in enumerate(views.panels) for name in panel.variants}
    comparison = views.comparison
    queries, keys = token_labels(comparison.problem)
    leaders = list({row.same_as: row for row in reversed(comparison.rows) if row.same_as}.values())
    return {
        "tokens": queries,
        "keys": keys,
        "panels": [panel_data(comparison, panel, colours(views)) for panel in views.panels],
        "variants": [
            variant_data(
                comparison, row.variant, row.same_as, panel_indices.get(row.variant, -1), carried=row in leaders
            )
            for row in comparison.rows
            if row.same_as
        ],
    }


def panel_data(comparison: Comparison, panel: Panel, scale: Colours) -> Data:
    """Return the data of a panel, from which the page draws its weights.

    - `scores`, `rest`: the scores, and what is added to the logits, if the weights are a softmax of these.
    - `weights`: the weights, if they are not such a softmax.
    - `pictures`: a picture of each head instead of numbers, if a page cannot store so many.
    - `shut`: which weights are masked.
    - `own`, `standard`: the multiplier of the scores in this run, and the usual one, 1/sqrt(d).
    """
    variant, split = panel.variants[0], panel.split
    settled = find_settled(comparison, variant)
    multiplier, standard = (
        settled.multiplier if split is None else split.own,
        standard_multiplier(comparison.traces[variant]),
    )
    data: Data = {"title": panel.title, "shape": panel.weights.shape, "own": multiplier, "standard": standard}
    is_masked = find_masked(settled, panel.weights) if split is None else np.isneginf(split.rest)
    if panel.weights.size > MOST_COARSE:
        data["pictures"] = [
            picture_url(head, scale.shares, None if is_masked is None else is_masked[index])
            for index, head in enumerate(panel.weights)
        ]
        return data
    if is_masked is not None and is_masked.any():
        data["shut"] = encode_booleans(drop_equal_heads(is_masked))
    if split is None:
        return data | {"weights": encode_floats(panel.weights)}
    added = np.where(np.isneginf(split.rest), 0, split.rest)
    return data | {"scores": encode_floats(split.scores)} | ({"rest": encode_floats(added)} if added.any() else {})


def variant_data(comparison: Comparison, variant: str, letter: str, panel: int, *, carried: bool) -> Data:
    """Return the data of a variant: its letter, its output, and the index of the panel with its weights.

    The output is stored only if it is `carried` and small.
    """
    output = get_answer(comparison.traces[variant])
    has_one_function = len({row.same_as for row in comparison.rows} - {""}) == 1  # no other output to compare it with
    is_stored = carried and output.ndim == 2 and output.size <= (MOST_STARTS if has_one_function else MOST_EXACT)
    return {
        "name": variant,
        "letter": letter,
        "panel": panel,
        "answer": encode_floats(output) if is_stored else "",
        "size": output.shape[1] if is_stored else 0,
    }


MOST_STARTS, MOST_WEIGHTS = 4096, 10_000
"""Maximum number of input values, and of weights of one variant, that a page recomputes."""

NORMALIZERS = ("softmax", "sigmoid", "sum", "sparsemax")
"""Normalizers that the script of a page implements."""


def live_plans(comparison: Comparison, variants: Sequence[str]) -> Data:
    """Return the arrays that a reader may change, and the plans to recompute the walks and the rows.

    `variants` has the variant of each walk. A plan is a mapping, or the reason why the variant cannot be recomputed.
    Equal plans are stored once; walks and rows refer to them by index.
    """
    rows = [plan_row(comparison, row) for row in comparison.rows]
    plans = list[Any]()
    for row in rows:
        if row["plan"] not in plans:
            plans.append(row["plan"])
    plan_indices = {row["variant"]: plans.index(row["plan"]) for row in rows}
    plans_and_walks = {"plans": plans, "walks": [plan_indices[variant] for variant in variants]}
    if not any(isinstance(plans[index], dict) for index in plans_and_walks["walks"]):
        return {"arrays": {}, **plans_and_walks}  # no walk can be recomputed
    inputs = input_arrays(comparison.problem)
    return {
        "arrays": {name: {"shape": array.shape, "data": encode_floats(array)} for name, array in inputs.items()},
        "rows": [row | {"plan": plan_indices[row["variant"]]} for row in rows],
        "against": baseline(comparison.config, comparison.variants).name,
        **plans_and_walks,
    }


def plan_row(comparison: Comparison, row: Row) -> Data:
    """Return the data of a row of the comparison, with its plan or the reason why there is none.

    - `spread`: `whole` if the form computes the weights as a matrix, `pieces` if only block by block, empty if neither.
    - `even`: whether the weights can have an entropy. The rules must make rows sum to 1, and if the weights are in
      pieces, none may be negative.
    """
    settled = find_settled(comparison, row.variant)
    if not row.same_as:
        return {"variant": row.variant, "letter": "", "plan": None, "spread": "", "even": False}
    trace, normalizer = comparison.traces[row.variant], settled.rules.normalizer
    spread = "whole" if trace.weights is not None else "pieces" if trace.summary is not None else ""
    return {
        "variant": row.variant,
        "letter": row.same_as,
        "plan": next(iter(find_obstacles(comparison, settled)), None) or make_plan(comparison, settled),
        "spread": spread,
        "even": shares_by_rule(settled.rules) and (spread == "whole" or not normalizer.signed),
    }


def input_arrays(problem: Problem) -> dict[str, Array]:
    # the numbers that a run starts from: x and the projections, or else q, k and v, or weights and v
    from_x = {"x": problem.x, "memory": problem.memory, **problem.projections}
    from_q = {"q": problem.q, "k": problem.k, "v": problem.v, "weights": problem.weights}
    arrays = from_q if problem.x is None else from_x
    return {name: array for name, array in arrays.items() if array is not None}


def find_obstacles(comparison: Comparison, settled: Settled) -> list[str]:
    """Return the reasons why a page cannot recompute a variant, as clauses of a sentence; empty if it can."""
    problem, rules, normalizer = comparison.problem, settled.rules, settled.rules.normalizer.name
    input_count = sum(array.size for array in input_arrays(problem).values())
    weight_count = settled.head * len(problem.tokens) * problem.keys
    rules_and_positions: list[Score | Position] = [*rules.scores, *settled.positions]
    unsupported = [registry.name_of(rule) for rule in rules_and_positions if not is_computed(rule)]
    runs_own_code = settled.own is not None or forms.is_own(settled.form)
    obstacles = [
        (runs_own_code, "this variant is your own code, which a page does not run"),
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
        (unsupported, f"a page cannot compute {' and '.join(unsupported)}"),
        (
            input_count > MOST_STARTS,
            f"the run starts from {input_count:,} numbers, but a page can use at most {MOST_STARTS:,}",
        ),
        (weight_count > MOST_WEIGHTS, f"it has {weight_count:,} weights, but a page computes at most {MOST_WEIGHTS:,}"),
    ]
    return [reason for holds, reason in obstacles if holds]


def is_computed(rule: Score | Position) -> bool:
    """Return whether the script of a page implements a score rule or a position encoding."""
    is_bias_or_cap = (
        isinstance(rule, Score) and not rule.pairs and (type(rule).bend is Score.bend or rule.bound() is not None)
    )
    return is_bias_or_cap or registry.name_of(rule) in ("rope", "sinusoidal", "additive")


def make_plan(comparison: Comparison, settled: Settled) -> Data:
    """Return the plan of a variant: its heads, and its rules and positions as numbers."""
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
    inputs = {"x": problem.x, "memory": problem.memory} if added else {}
    added_arrays = {
        name: reduce(lambda total, position: position.embed(total), added, np.zeros_like(array))
        for name, array in inputs.items()
        if array is not None
    }
    rotations = [position for position in settled.positions if not position.changes_x and problem.q is not None]
    width = 0 if problem.q is None else problem.q.shape[1] // settled.head
    queries = np.arange(len(problem.tokens)) + (first_position(settled, problem) if rotations else 0)
    return {
        "marks": {name: encode_floats(array) for name, array in added_arrays.items()},
        "turns": [rotation_data(rope, width, queries, np.arange(problem.keys)) for rope in rotations],
    }


def rotation_data(rope: Any, width: int, queries: Array, keys: Array) -> Data:
    """Return the cosines and sines that rotate each query and key, found by rotating the pair (1, 0)."""
    size = rope.size or width
    first = slice(0, size, 2) if rope.interleaved else slice(0, size // 2)
    second = slice(1, size, 2) if rope.interleaved else slice(size // 2, size)
    vectors = np.zeros((1, width))
    vectors[:, first] = 1.0
    rotated = {
        name: rope.turn(np.repeat(vectors, len(positions), axis=0), positions)
        for name, positions in (("q", queries), ("k", keys))
    }
    encoded = {
        name: [encode_floats(array[:, first]), encode_floats(array[:, second])] for name, array in rotated.items()
    }
    return {"pairs": size // 2, "interleaved": rope.interleaved, **encoded}


def rule_data(problem: Problem, settled: Settled) -> Data:
    """Return the rules as numbers: the scale and the caps, and for every query and key the masks and score biases."""
    rules, heads, rows, keys = settled.rules, settled.head, len(problem.tokens), problem.keys
    grid = whole_grid(rules, heads, rows, keys)
    allowed = allowed_entries(rules.masks, rows, keys, int(rules.offset), heads)
    biases = [np.asarray(bias) for rule in rules.scores if (bias := rule.bias(grid)) is not None]
    extras = [extra for rule in rules.scores if (extra := rule.extra(grid.head)) is not None]
    bounds = [bound for rule in rules.scores if (bound := rule.bound()) is not None]
    return {
        "c": settled.multiplier,
        "caps": bounds,
        "allowed": None if allowed.all() else encode_booleans(drop_equal_heads(allowed)),
        "bias": encode_floats(drop_equal_heads(np.broadcast_to(sum(biases), (heads, rows, keys)))) if biases else None,
        "extra": np.concatenate(extras, axis=-1).reshape(heads, -1).tolist() if extras else None,
        "pair": additive_weights(rules, problem, heads),
    }


def additive_weights(rules: Rules, problem: Problem, heads: int) -> list[list[float]] | None:
    rule: Any = rules.pairing
    if rule is None or problem.q is None:
        return None
    size = problem.q.shape[1] // heads
    weights = rule.weights(size, np.arange(heads)[:, None, None])
    return list(np.broadcast_to(weights.reshape(-1, size), (heads, size)).tolist())


FEW, MANY_TOKENS = 4, 8
"""A page shows only `FEW` numbers of a long vector. A vector is long if it has more than 16 numbers. If there are more
than `MANY_TOKENS` tokens, the limit is `FEW`. Rows of tokens and columns of keys are shown 16 at a time."""

MOST_CELLS = 50_000
"""Maximum number of values of a stage on a page; a larger stage is cut to its first keys, tokens and heads."""

CODES = {"masked": -32768, "−∞": -32767, "nan": -32766, "inf": 32767}
"""The integers that stand for cells that are masked or not finite."""

LARGEST = 32_765
"""The largest magnitude of a two-byte integer that is not a code."""


def cut_to_page(step: Step, most_numbers: int) -> Step:
    """Return a step with only what a page shows of it: its first head, and `FEW` numbers of long vectors.

    A vector is long if it has more than `most_numbers`.
    """
    # the numbers of heads, rows and columns; below, rows and columns become the numbers to keep
    heads, rows, columns = step.heads.shape
    full_rows, full_columns = step.shape[::-1] if step.stage == "lse" else (1, 1, *step.shape)[-2:]
    if walk.is_projection(step):
        rows = min(rows, FEW if full_rows > most_numbers else SIDE)
    if not walk.has_columns_of_keys(step):
        columns = min(columns, FEW if full_columns > most_numbers else SIDE)
        rows = rows if heads * rows * columns <= MOST_CELLS else min(rows, SIDE)
    whole_table = step.tables[0]
    table = whole_table._replace(
        title="head 1" if step.head_rows else whole_table.title,
        rows=whole_table.rows[:rows],
        columns=whole_table.columns[:columns],
        matrix=whole_table.matrix[:rows, :columns],
        parts=cut_parts(whole_table.parts, columns),
    )
    kept_heads = heads if walk.has_columns_of_keys(step) else max(1, min(heads, MOST_CELLS // max(1, rows * columns)))
    return step._replace(tables=(table,), heads=step.heads[:kept_heads, :rows, :columns])


def cut_parts(parts: tuple[tuple[str, int], ...], columns: int) -> tuple[tuple[str, int], ...]:
    # the heads above the columns that are kept: for 6 columns, 4, 4 and 4 columns become 4 and 2
    starts = np.cumsum([0, *(count for _, count in parts)]).tolist()
    cut = [(label, min(count, columns - start)) for (label, count), start in zip(parts, starts, strict=False)]
    return tuple((label, count) for label, count in cut if count > 0)


def walk_data(walk_values: Mapping[str, Any], panels: Sequence[tuple[Panel, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the data of a walk: its variant, title and panel, and the data of its steps by stage.

    `panels` are all panels of the page, each with its data. The result refers to its panel by index; if the walk has no
    panel, this is an empty string.
    """
    index = walk_values["panel"]
    arrays, mask = ({}, "") if index == "" else derived_arrays(*panels[index])
    steps = {
        step.stage: step_data(step, arrays.get(step.stage), mask) for group in walk_values["groups"] for step in group
    }
    return {"variant": walk_values["variant"], "title": walk_values["title"], "panel": index, "steps": steps}


def derived_arrays(panel: Panel, data: Mapping[str, Any]) -> tuple[dict[str, Array], str]:
    """Return the stages that a page derives from the numbers of a panel, and the mask of the panel, encoded."""
    if "pictures" in data:
        return {}, ""
    split = panel.split
    arrays = {"weights": panel.weights}
    if split is not None and "scores" in data:
        logits = split.own * split.scores
        arrays |= {"scores": split.scores, "logits": logits, "masked": logits + split.rest}
    return arrays, data.get("shut", "")


def is_derived(step: Step, array: Array | None, mask: str) -> bool:
    """Return whether a page can derive the numbers of a step, up to rounding, from its panel.

    `array` and `mask` are the stage and the mask that `derived_arrays` returns for the panel.
    """
    if array is None or array.shape != step.heads.shape:
        return False
    if (
        step.is_masked is not None
        and step.is_masked.any()
        and encode_booleans(drop_equal_heads(step.is_masked)) != mask
    ):
        return False
    tolerance = 1e-12 * float(np.abs(step.heads[np.isfinite(step.heads)]).max(initial=0))
    return np.allclose(array, step.heads, rtol=1e-12, atol=tolerance, equal_nan=True)


def limit_cells(step: Step) -> Step:
    """Cut a step to at most `MOST_CELLS` numbers: drop its last keys, and if too few keys are left, queries and heads.

    The columns of the step must be keys.
    """
    heads, rows, columns = step.heads.shape
    if heads * rows * columns <= MOST_CELLS:
        return step
    columns = min(columns, SIDE, MOST_CELLS // (heads * rows))
    if columns < FEW:
        rows, columns = min(rows, SIDE), min(step.heads.shape[2], SIDE)
    return step._replace(heads=step.heads[: max(1, MOST_CELLS // (rows * columns)), :rows, :columns])


def step_data(step: Step, array: Array | None, mask: str) -> dict[str, Any]:
    # `array` and `mask` are those of `is_derived`; if the page derives the step from its panel, no digits are stored
    from_panel, has_tokens = is_derived(step, array, mask), not walk.is_projection(step)
    step = limit_cells(step) if walk.has_columns_of_keys(step) and not from_panel else step
    table, heads = step.tables[0], len(step.heads)
    digits, is_wide = ("", False) if from_panel else encode_cells(step)
    return {
        "rows": ("k" if step.rows_are_keys else "q") if has_tokens else list(table.rows),
        "columns": "k" if walk.has_columns_of_keys(step) else list(table.columns),
        "owners": step.owners,
        "headRows": step.head_rows,
        "shape": step.heads.shape,
        "titled": (heads > 1 or bool(table.title)) and not step.owners,
        "decimals": step.decimals,
        "largest": step.largest,
        "power": step.power,
        "parts": table.parts,
        "wide": is_wide,
        "digits": digits,
    }


def encode_cells(step: Step) -> tuple[str, bool]:
    """Return the digits of all cells in base64, and whether they are stored as float64.

    They are stored as two-byte integers, unless a number is too large for that.
    """
    values = step.heads.ravel()
    if (np.abs(values[np.isfinite(values)]) * 10.0**step.decimals > LARGEST).any():
        return encode_floats(np.rint(values * 10.0**step.decimals)), True
    codes = np.array([encode_cell(value, step.decimals) for value in values.tolist()], dtype="<i2")
    if step.is_masked is not None:
        heads, rows, columns = step.heads.shape
        codes[step.is_masked[:heads, :rows, :columns].ravel()] = CODES["masked"]
    return base64.b64encode(codes.tobytes()).decode(), False


def encode_cell(value: float, places: int) -> int:
    """Return the number that a cell shows as an integer, such as 25 for 0.25, or a code of `CODES`."""
    text = decimal(value, places)
    return CODES[text] if text in CODES else int(text.replace(".", "").replace("−", "-"))


def encode_floats(array: Array) -> str:
    """Return an array in base64, as little-endian float64; a large array as float32, which halves its size."""
    array = np.ascontiguousarray(array, "<f4" if array.size > MOST_EXACT else "<f8")
    return base64.b64encode(array.tobytes()).decode()


def encode_booleans(booleans: Array) -> str:
    """Return booleans as a string such as `0110`."""
    return "".join("01"[int(each)] for each in booleans.ravel())


def drop_equal_heads(by_head: Array) -> Array:
    """Return an array `[h t s]`, or only its first head if all heads are equal."""
    return by_head[:1] if (by_head == by_head[:1]).all() else by_head
