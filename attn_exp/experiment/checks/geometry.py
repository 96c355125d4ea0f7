"""Which mistakes a run's own sizes, settings and numbers cannot show, or cannot tell apart, and why.

What hides a mistake is found in random numbers: those whose sizes have one coincidence less, and which show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array, draw
from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import follows_steps
from attn_exp.experiment.recipes import features, given_to, right, stages_of
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Given, Recipe, compute
from attn_exp.mistakes.mistake import Change
from attn_exp.problem.problem import Problem

MOST_PLACES = 250_000
"""Of matrices with more places than this the catalogue takes minutes."""
SHOWS, HIDDEN, ALIKE, UNASKED, UNKNOWN = "yes", "no", "alike", "not asked for", "-"


@dataclass(frozen=True)
class Record:
    """One mistake in one variant.

    `shows` is yes; no, where it gives the right answer here; alike, where another mistake, `like`, gives the same wrong
    answer; not asked for, where the run lacks the setting; or - where the variant is not computed in steps. `reason` is
    what hides it, where one change would show it.
    """

    variant: str
    mistake: str
    shows: str
    like: str
    reason: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Make every mistake of the catalogue in every variant, and compare the answers."""
    for settled in variants:
        if settled.head * len(problem.tokens) * problem.keys > MOST_PLACES:
            yield Record(settled.name, "-", UNKNOWN, "", f"more than {MOST_PLACES:,} weights")
        elif settled.mistakes or not follows_steps(settled, problem):
            yield Record(settled.name, "-", UNKNOWN, "", "not computed in the steps that mistakes change")
        else:
            yield from every_mistake(settled, problem)


def every_mistake(settled: Settled, problem: Problem) -> Iterator[Record]:
    """Yield a record of each mistake that one answer could show."""
    present, variant = features([(right(settled), given_to(settled, problem))]), settled.name
    made: dict[str, list[Way]] = {}
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        missing = [need for need in mistake.needs if need not in present]
        if not mistake.changes or mistake.remark or mistake.group == "precision" or mistake.of_code:
            continue
        if missing:
            yield Record(variant, name, UNASKED, "", f"the run has no {' and no '.join(missing)}")
        else:
            made[name] = [
                Way(change, compute_answer(change(right(settled)), settled, problem)) for change in mistake.changes
            ]
    plain, sizes = compute_answer(right(settled), settled, problem), sizes_of(settled, problem)
    for name, ways in made.items():
        fitting = [way for way in ways if way.answer is not None]
        telling = [way for way in fitting or ways if differ(way.answer, plain)]
        if not telling:
            yield Record(variant, name, HIDDEN, "", reason(settled, problem, fitting, None, sizes))
            continue
        first, alike = telling[0], dict[str, list[Way]]()
        for other in made if first.answer is not None else ():
            same = [way for way in made[other] if not differ(way.answer, first.answer)]
            alike |= {other: same[:1]} if same and other != name else {}
        if alike:
            cause = reason(settled, problem, [first], next(iter(alike.values())), sizes)
            yield Record(variant, name, ALIKE, ", ".join(alike), cause)
        else:
            yield Record(variant, name, SHOWS, "", "" if fitting else "it does not fit the shapes")


def sentence(records: Sequence[Record]) -> str:
    """Say how many mistakes show in each variant, and what hides most of the others; the table says the rest."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(record.variant for record in records):
        groups.setdefault(summary([record for record in records if record.variant == name]), []).append(name)
    return " ".join(f"{', '.join(names)}: {words}." for words, names in groups.items())


def summary(records: Sequence[Record]) -> str:
    """Say it of the records of one variant."""
    if records[0].shows == UNKNOWN:
        return records[0].reason
    tried = [record for record in records if record.shows != UNASKED]
    shown = sum(record.shows == SHOWS for record in tried)
    causes = Counter(record.reason for record in tried if record.shows in (HIDDEN, ALIKE) and record.reason)
    most = "".join(f"; {cause} hides {count}" for cause, count in causes.most_common(1))
    return f"{shown} of {len(tried)} mistakes would show{most}"


class Way(NamedTuple):
    """One way to make a mistake, and its answer; None where it does not fit the shapes."""

    change: Change
    answer: Array | None


class Sizes(NamedTuple):
    """The sizes of a problem: heads, key/value heads, d, d_model, queries and keys; and how large the queries are.

    `memory` is the width of a memory, None where keys are made of x; `past` how many tokens have no query.
    """

    heads: int
    groups: int
    size: int
    width: int
    rows: int
    keys: int
    is_layer: bool
    spread: float
    memory: int | None
    past: int


def compute_answer(recipe: Recipe, settled: Settled, problem: Problem) -> Array | None:
    """Return what a recipe gives on the run's problem, or None where it does not fit the shapes."""
    stages = stages_of(recipe, settled, problem)
    return None if stages is None else stages["output"]


def differ(one: Array | None, other: Array | None) -> bool:
    """Say whether two answers differ by more than rounding; what does not fit the shapes differs from what does."""
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def sizes_of(settled: Settled, problem: Problem) -> Sizes:
    """Return the sizes of a run's problem."""
    heads, x, memory = settled.heads, problem.x, problem.memory
    size = 1 if problem.q is None else problem.q.shape[-1] // heads.query
    return Sizes(
        heads.query, heads.shared, size, heads.query * size if x is None else x.shape[-1],
        len(problem.tokens), problem.keys, x is not None and heads.shared == heads.given, settled.multiplier,
        None if memory is None else memory.shape[-1], problem.past,
    )  # fmt: skip


def reason(settled: Settled, problem: Problem, ours: Sequence[Way], others: Sequence[Way] | None, sizes: Sizes) -> str:
    """Say what makes mistakes look right, or alike: the coincidence without which random numbers part them."""
    if problem.weights is not None:
        return "the run starts at the weights"
    coincidences = [("the run's own numbers", sizes), *breaks(sizes)]
    return next((text for text, without in coincidences if apart(settled, ours, others, without)), "")


def apart(settled: Settled, ours: Sequence[Way], others: Sequence[Way] | None, sizes: Sizes) -> bool:
    """Say whether random numbers of these sizes part our ways from the right one, or from the others.

    Ways that do not fit these sizes count where none does.
    """
    recipe = replace(right(settled), heads=sizes.heads, groups=sizes.groups)
    given = random_layer(settled, sizes) if sizes.is_layer else random_heads(sizes)

    def made(change: Change) -> Array | None:
        try:
            return compute(change(recipe), given)["output"]
        except (ValueError, IndexError, ZeroDivisionError):
            return None

    exact = made(lambda plain: plain)
    if exact is None:
        return False
    theirs = [exact] if others is None else [made(way.change) for way in others]
    answers = [made(way.change) for way in ours]
    fitting = [array for array in answers if array is not None] or answers
    return any(differ(array, other) for array in fitting for other in theirs)


def normal(name: str, *shape: int) -> Array:
    """Draw an array of normal numbers."""
    return draw(0, f"geometry.{name}", "normal", shape)


def random_heads(sizes: Sizes) -> Given:
    """Return random queries, keys and values of these sizes."""
    q = normal("q", 1, sizes.heads, sizes.rows, sizes.size) * sizes.spread
    k, v = (normal(side, 1, sizes.groups, sizes.keys, sizes.size) for side in "kv")
    return Given(q, k, v, past=sizes.past)


def random_layer(settled: Settled, sizes: Sizes) -> Given:
    """Return a random x and the matrices of a layer of these sizes."""
    inner, shared = sizes.heads * sizes.size, sizes.groups * sizes.size
    source = sizes.width if sizes.memory is None else sizes.memory
    shapes = {"W_q": (sizes.width, inner), "W_k": (source, shared), "W_v": (source, shared)}
    shapes |= {"W_o": (inner, sizes.width)} if settled.output_projection else {}
    arrays = {name: normal(name, *shape) / sizes.width**0.5 for name, shape in shapes.items()}
    arrays["W_q"] = arrays["W_q"] * sizes.spread
    memory = None if sizes.memory is None else normal("memory", 1, sizes.keys, sizes.memory)
    x = normal("x", 1, sizes.rows + sizes.past, sizes.width)
    return Given(x=x, arrays=arrays, memory=memory, past=sizes.past)


def breaks(sizes: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Yield each coincidence of the sizes, with sizes in which it is gone."""
    heads, groups, size, width, rows, keys, is_layer, _, memory, _ = sizes
    alike = {heads: "H", width: "d_model", size: "d"}.get(keys, "")
    coincidences: tuple[tuple[bool, str, dict[str, Any]], ...] = (
        (heads == 1, "H = 1", {"heads": 3, "groups": 3, "width": 3 * width}),
        (heads > 1 and groups == heads, "every head has keys and values of its own", {"groups": 1}),
        (groups == 1 < heads, "all heads share one key/value head", {"heads": 4, "groups": 2, "width": 4 * size}),
        (is_layer and size == width, "d = d_model", {"width": width + 1}),
        (memory == width, "the memory is as wide as x", {"memory": width + 1}),
        (keys == 1, "one key", {"rows": rows + 3, "keys": keys + 3}),
        (bool(alike), f"keys = {alike}", {"rows": rows + 1, "keys": keys + 1}),
        (rows == keys and (not is_layer or memory is not None), "as many queries as keys", {"keys": keys + 3}),
        (heads == size > 1, "H = d", {"heads": heads + 1, "groups": heads + 1, "width": width + size}),
    )
    yield from ((text, sizes._replace(**others)) for is_so, text, others in coincidences if is_so)
    yield "the logits are small", sizes._replace(spread=1e4)


CHECK = Check(
    record=Record,
    columns=("variant", "mistake", "shows", "like", "reason"),
    examine=examine,
    sentence=sentence,
)
