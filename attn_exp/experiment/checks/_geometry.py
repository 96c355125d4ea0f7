"""What hides a mistake: the same mistake in random numbers, whose sizes have one coincidence less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.arrays import Array, draw
from attn_exp.experiment.judging.worksheet import Sheet, stages
from attn_exp.forms.pipeline import Given, Recipe, compute
from attn_exp.mistakes.mistake import Change


@dataclass(frozen=True, eq=False)
class Way:
    """One way to make a mistake, and its answer; None where it does not fit the shapes."""

    change: Change
    answer: Array | None


Ways = Sequence[Way]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem: heads, key/value heads, d, d_model, queries and keys; and how large the queries are.

    `memory` is the width of a memory, None where keys are made of x; `past` how many tokens have no query.
    """

    heads: int
    groups: int
    size: int
    width: int
    rows: int
    keys: int
    layer: bool
    spread: float = 1.0
    memory: int | None = None
    past: int = 0


def ways(sheet: Sheet, changes: Sequence[Change]) -> list[Way]:
    """Return what each way to make a mistake gives on the run's problem."""
    answers = []
    for change in changes:
        made = stages(sheet, change(sheet.right))
        answers.append(Way(change, None if made is None else made.get("output", made.get("weights"))))
    return answers


def parted(one: Way, other: Way) -> bool:
    """Say whether two ways give different answers."""
    return differ(one.answer, other.answer)


def differ(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def sizes_of(sheet: Sheet) -> Sizes:
    """Return the sizes of a run's problem."""
    problem, heads = sheet.problem, sheet.settled.heads
    size = 1 if problem.q is None else problem.q.shape[-1] // heads.query
    width = heads.query * size if problem.x is None else problem.x.shape[-1]
    layer = problem.x is not None and heads.shared == heads.given
    memory = None if problem.memory is None else problem.memory.shape[-1]
    return Sizes(
        heads.query, heads.shared, size, width, len(problem.tokens), problem.keys, layer, sheet.settled.multiplier,
        memory, problem.past,
    )  # fmt: skip


def reason(sheet: Sheet, ours: Ways, others: Ways | None, sizes: Sizes) -> str:
    """Say what makes mistakes look right, or alike: the coincidence without which random numbers part them."""
    if sheet.problem.weights is not None:
        return "the run starts at the weights"
    if apart(sheet, ours, others, sizes):
        return "the run's own numbers"
    for text, other in breaks(sizes):
        if apart(sheet, ours, others, other):
            return text
    return ""


def apart(sheet: Sheet, ours: Ways, others: Ways | None, sizes: Sizes) -> bool:
    """Say whether random numbers of these sizes part our ways from the right one, or from the others.

    Ways that do not fit these sizes count where none does.
    """
    recipe, given = random_problem(sheet.right, sheet.settled.output_projection, sizes)
    right = answer(recipe, given)
    if right is None:
        return False
    theirs = [right] if others is None else [answer(way.change(recipe), given) for way in others]
    made = [answer(way.change(recipe), given) for way in ours]
    fitting = [array for array in made if array is not None] or made
    return any(differ(array, other) for array in fitting for other in theirs)


def answer(recipe: Recipe, given: Given) -> Array | None:
    """Return what a recipe gives, or None where it does not fit the shapes."""
    try:
        return compute(recipe, given)["output"]
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def random_problem(recipe: Recipe, projected: bool, sizes: Sizes) -> tuple[Recipe, Given]:
    """Return a problem of random numbers of these sizes, and the recipe for it."""
    recipe = replace(recipe, heads=sizes.heads, groups=sizes.groups)

    def normal(name: str, *shape: int) -> Array:
        return draw(0, name, "normal", shape)

    if not sizes.layer:
        heads = (sizes.heads, sizes.groups, sizes.groups)
        rows = (sizes.rows, sizes.keys, sizes.keys)
        sides = (normal(f"geometry.{side}", 1, heads[i], rows[i], sizes.size) for i, side in enumerate("qkv"))
        q, k, v = sides
        return recipe, Given(q * sizes.spread, k, v, past=sizes.past)
    inner, shared = sizes.heads * sizes.size, sizes.groups * sizes.size
    source = sizes.width if sizes.memory is None else sizes.memory
    shapes = {"W_q": (sizes.width, inner), "W_k": (source, shared), "W_v": (source, shared)}
    shapes |= {"W_o": (inner, sizes.width)} if projected else {}
    arrays = {name: normal(f"geometry.{name}", *shape) / sizes.width**0.5 for name, shape in shapes.items()}
    arrays["W_q"] = arrays["W_q"] * sizes.spread
    memory = None if sizes.memory is None else normal("geometry.memory", 1, sizes.keys, sizes.memory)
    x = normal("geometry.x", 1, sizes.rows + sizes.past, sizes.width)
    return recipe, Given(x=x, arrays=arrays, memory=memory, past=sizes.past)


def breaks(sizes: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Yield each coincidence of the sizes, with sizes in which it is gone."""
    if sizes.heads == 1:
        yield "H = 1", replace(sizes, heads=3, groups=3, width=3 * sizes.width)
    if sizes.heads > 1 and sizes.groups == sizes.heads:
        yield "every head has keys and values of its own", replace(sizes, groups=1)
    if sizes.groups == 1 < sizes.heads:
        yield "all heads share one key/value head", replace(sizes, heads=4, groups=2, width=4 * sizes.size)
    if sizes.layer and sizes.size == sizes.width:
        yield "d = d_model", replace(sizes, width=sizes.width + 1)
    if sizes.memory is not None and sizes.memory == sizes.width:
        yield "the memory is as wide as x", replace(sizes, memory=sizes.width + 1)
    yield from lengths(sizes)
    if sizes.heads == sizes.size > 1:
        yield "H = d", replace(sizes, heads=sizes.heads + 1, groups=sizes.heads + 1, width=sizes.width + sizes.size)
    yield "the logits are small", replace(sizes, spread=1e4)


def lengths(sizes: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Yield the coincidences of how many tokens there are."""
    if sizes.keys == 1:
        yield "one key", replace(sizes, rows=sizes.rows + 3, keys=sizes.keys + 3)
    if sizes.keys in (sizes.size, sizes.width, sizes.heads):
        other = {sizes.heads: "H", sizes.width: "d_model", sizes.size: "d"}[sizes.keys]
        yield f"keys = {other}", replace(sizes, rows=sizes.rows + 1, keys=sizes.keys + 1)
    if sizes.rows == sizes.keys and (not sizes.layer or sizes.memory is not None):
        yield "as many queries as keys", replace(sizes, keys=sizes.keys + 3)
