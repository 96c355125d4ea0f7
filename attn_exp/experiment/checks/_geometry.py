"""What hides a mistake: the same mistake in random numbers, whose sizes have one coincidence less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.experiment.judging.worksheet import Array, Sheet, stages
from attn_exp.experiment.mistakes.mistake import Change
from attn_exp.experiment.mistakes.recipe import Given, Recipe, compute
from attn_exp.streams import draw


@dataclass(frozen=True, eq=False)
class Way:
    """One way to make a mistake, and its answer; None where it does not fit the shapes."""

    change: Change
    answer: Array | None


Ways = Sequence[Way]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a problem: heads, key/value heads, d, d_model, queries and keys; and how large the queries are."""

    heads: int
    groups: int
    size: int
    width: int
    rows: int
    keys: int
    layer: bool
    spread: float = 1.0


def ways(sheet: Sheet, changes: Sequence[Change]) -> list[Way]:
    """Return what each way to make a mistake gives on the run's problem."""
    found = []
    for change in changes:
        made = stages(sheet, change(sheet.right))
        found.append(Way(change, None if made is None else made.get("output", made.get("weights"))))
    return found


def parted(one: Way, other: Way) -> bool:
    """Say whether two ways give different answers."""
    return differ(one.answer, other.answer)


def differ(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def sizes(sheet: Sheet) -> Sizes:
    """Return the sizes of a run's problem."""
    problem, heads = sheet.problem, sheet.settled.heads
    size = 1 if problem.q is None else problem.q.shape[-1] // heads.query
    width = heads.query * size if problem.x is None else problem.x.shape[-1]
    layer = problem.x is not None and heads.shared == heads.given
    return Sizes(
        heads.query, heads.shared, size, width, len(problem.tokens), problem.keys, layer, sheet.settled.multiplier
    )


def reason(sheet: Sheet, ours: Ways, others: Ways | None, found: Sizes) -> str:
    """Say what makes mistakes look right, or alike: the coincidence without which random numbers part them."""
    if sheet.problem.weights is not None:
        return "the run starts at the weights"
    if apart(sheet, ours, others, found):
        return "the run's own numbers"
    for text, other in breaks(found):
        if apart(sheet, ours, others, other):
            return text
    return ""


def apart(sheet: Sheet, ours: Ways, others: Ways | None, found: Sizes) -> bool:
    """Say whether random numbers of these sizes part our ways from the right one, or from the others."""
    recipe, given = random_problem(sheet.right, sheet.settled.output_projection, found)
    right = answer(recipe, given)
    if right is None:
        return False
    theirs = [right] if others is None else [answer(way.change(recipe), given) for way in others]
    return any(differ(answer(way.change(recipe), given), other) for way in ours for other in theirs)


def answer(recipe: Recipe, given: Given) -> Array | None:
    """Return what a recipe gives, or None where it does not fit the shapes."""
    try:
        return compute(recipe, given)["output"]
    except (ValueError, IndexError, ZeroDivisionError):
        return None


def random_problem(recipe: Recipe, projected: bool, found: Sizes) -> tuple[Recipe, Given]:
    """Return a problem of random numbers of these sizes, and the recipe for it."""
    recipe = replace(recipe, heads=found.heads, groups=found.groups)

    def normal(name: str, *shape: int) -> Array:
        return draw(0, name, "normal", shape)

    if not found.layer:
        heads = (found.heads, found.groups, found.groups)
        rows = (found.rows, found.keys, found.keys)
        sides = (normal(f"geometry.{side}", 1, heads[i], rows[i], found.size) for i, side in enumerate("qkv"))
        q, k, v = sides
        return recipe, Given(q * found.spread, k, v)
    inner, shared = found.heads * found.size, found.groups * found.size
    shapes = {"W_q": (found.width, inner), "W_k": (found.width, shared), "W_v": (found.width, shared)}
    shapes |= {"W_o": (inner, found.width)} if projected else {}
    arrays = {name: normal(f"geometry.{name}", *shape) / found.width**0.5 for name, shape in shapes.items()}
    arrays["W_q"] = arrays["W_q"] * found.spread
    return recipe, Given(x=normal("geometry.x", 1, found.rows, found.width), arrays=arrays)


def breaks(found: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Yield each coincidence of the sizes, with sizes in which it is gone."""
    if found.heads == 1:
        yield "H = 1", replace(found, heads=3, groups=3, width=3 * found.width)
    if found.heads > 1 and found.groups == found.heads:
        yield "every head has keys and values of its own", replace(found, groups=1)
    if found.groups == 1 < found.heads:
        yield "all heads share one key/value head", replace(found, heads=4, groups=2, width=4 * found.size)
    if found.layer and found.size == found.width:
        yield "d = d_model", replace(found, width=found.width + 1)
    yield from lengths(found)
    if found.heads == found.size > 1:
        yield "H = d", replace(found, heads=found.heads + 1, groups=found.heads + 1, width=found.width + found.size)
    yield "the logits are small", replace(found, spread=1e4)


def lengths(found: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Yield the coincidences of how many tokens there are."""
    if found.keys == 1:
        yield "one key", replace(found, rows=found.rows + 3, keys=found.keys + 3)
    if found.keys in (found.size, found.width, found.heads):
        other = {found.heads: "H", found.width: "d_model", found.size: "d"}[found.keys]
        yield f"keys = {other}", replace(found, rows=found.rows + 1, keys=found.keys + 1)
    if found.rows == found.keys and not found.layer:
        yield "as many queries as keys", replace(found, keys=found.keys + 3)
