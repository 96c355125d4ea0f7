"""Which mistakes a run's own sizes, settings and numbers cannot show, or cannot tell apart, and why.

What hides a mistake is found in random numbers: those whose sizes have one coincidence less, and which show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array, draw
from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.mistaken import right
from attn_exp.experiment.recipes import features, follows_steps, given_to, stages_of
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
    made: dict[str, Ways] = {}
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        if not mistake.changes or mistake.remark or mistake.group == "precision" or mistake.of_code:
            continue
        missing = [need for need in mistake.needs if need not in present]
        if missing:
            yield Record(variant, name, UNASKED, "", f"the run has no {' and no '.join(missing)}")
        else:
            made[name] = ways(settled, problem, mistake.changes)
    plain = ways(settled, problem, (lambda recipe: recipe,))[0]
    for name, done in made.items():
        fitting = [way for way in done if way.answer is not None] or done
        telling = [way for way in fitting if parted(way, plain)]
        yield record(settled, problem, name, made, telling, sizes_of(settled, problem))


def record(settled: Settled, problem: Problem, name: str, made: dict[str, Ways], telling: Ways, size: Sizes) -> Record:
    """Return what is to be said of one mistake; `telling` are its ways that change the answer."""
    variant = settled.name
    if not telling:
        silent = [way for way in made[name] if way.answer is not None]
        return Record(variant, name, HIDDEN, "", reason(settled, problem, silent, None, size))
    fitting = {other: done for other, done in made.items() if other != name and telling[0].answer is not None}
    alike = {other: [way for way in done if not parted(way, telling[0])] for other, done in fitting.items()}
    others = {other: same for other, same in alike.items() if same}
    if not others:
        return Record(variant, name, SHOWS, "", "" if telling[0].answer is not None else "it does not fit the shapes")
    first = next(iter(others.values()))
    return Record(variant, name, ALIKE, ", ".join(others), reason(settled, problem, telling[:1], first[:1], size))


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


def ways(settled: Settled, problem: Problem, changes: Sequence[Change]) -> list[Way]:
    """Return what each way to make a mistake gives on the run's problem."""
    answers = []
    for change in changes:
        made = stages_of(change(right(settled)), settled, problem)
        answers.append(Way(change, None if made is None else made.get("output", made.get("weights"))))
    return answers


def parted(one: Way, other: Way) -> bool:
    """Say whether two ways give different answers."""
    return differ(one.answer, other.answer)


def differ(one: Array | None, other: Array | None) -> bool:
    """Say whether two answers differ by more than rounding; what does not fit the shapes differs from what does."""
    if one is None or other is None:
        return one is not other
    return one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def sizes_of(settled: Settled, problem: Problem) -> Sizes:
    """Return the sizes of a run's problem."""
    heads = settled.heads
    size = 1 if problem.q is None else problem.q.shape[-1] // heads.query
    width = heads.query * size if problem.x is None else problem.x.shape[-1]
    layer = problem.x is not None and heads.shared == heads.given
    memory = None if problem.memory is None else problem.memory.shape[-1]
    return Sizes(
        heads.query, heads.shared, size, width, len(problem.tokens), problem.keys, layer, settled.multiplier,
        memory, problem.past,
    )  # fmt: skip


def reason(settled: Settled, problem: Problem, ours: Ways, others: Ways | None, sizes: Sizes) -> str:
    """Say what makes mistakes look right, or alike: the coincidence without which random numbers part them."""
    if problem.weights is not None:
        return "the run starts at the weights"
    if apart(settled, ours, others, sizes):
        return "the run's own numbers"
    for text, other in breaks(sizes):
        if apart(settled, ours, others, other):
            return text
    return ""


def apart(settled: Settled, ours: Ways, others: Ways | None, sizes: Sizes) -> bool:
    """Say whether random numbers of these sizes part our ways from the right one, or from the others.

    Ways that do not fit these sizes count where none does.
    """
    recipe, given = random_problem(right(settled), settled.output_projection, sizes)
    exact = answer(recipe, given)
    if exact is None:
        return False
    theirs = [exact] if others is None else [answer(way.change(recipe), given) for way in others]
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


CHECK = Check(
    record=Record,
    columns=("variant", "mistake", "shows", "like", "reason"),
    examine=examine,
    sentence=sentence,
)
