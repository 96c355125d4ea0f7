"""Attention as a list of steps on whole arrays `[... h t s]`, which can be exchanged one by one.

The steps are plain functions in the fields of `Recipe`. The form `matrix` runs the list, for one problem, for a batch
or for the seeds of a sweep at once, and so does each layer of a model; a mistake is the list with some steps
exchanged, and several mistakes follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms import steps
from attn_exp.forms.around import Around
from attn_exp.forms.trace import Trace
from attn_exp.rules.grid import Grid
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules, whole_grid

Step = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Given:
    """What attention starts from: heads `[b h t d]`, or x `[b t m]` with the matrices and biases of a layer.

    Keys and values of a layer are made of the `memory` `[b s n]` where there is one. Of the first `past` tokens of x
    there are no queries; heads that are given have none of them. `apart`: the entries of the batch are copies of one
    problem, and a mistake that takes a batch as a whole takes each of them alone. `around`: norms and residuals that
    stand around attention in somebody's layer.
    """

    q: Array | None = None
    k: Array | None = None
    v: Array | None = None
    x: Array | None = None
    arrays: Mapping[str, Array] = field(default_factory=dict)
    memory: Array | None = None
    past: int = 0
    apart: bool = False
    around: Around | None = None

    @property
    def keys(self) -> int:
        """How many keys there are."""
        made_of = next(one for one in (self.k, self.memory, self.x) if one is not None)
        return int(made_of.shape[-2])

    @cached_property
    def done(self) -> Done | None:
        """What steps have made of it, for who computes many recipes; of large ones nothing is kept."""
        first = self.x if self.q is None else self.q
        assert first is not None
        return Done(MOST_STEPS) if first.size * self.keys <= SMALL else None


MOST_STEPS, SMALL = 1000, 1 << 15
"""So many steps are kept of an input, and of such whose numbers times its keys are no more: a few megabytes in all."""


@dataclass(frozen=True)
class At:
    """Where a step stands: the rules, and how large everything is.

    `heads` query heads share `groups` key/value heads; `size` is d, the numbers of a head; `width` is that of x, or of
    all query heads side by side. The first query stands after `past` tokens, where there are any. `apart` is as in
    `Given`; `batched` says whether the arrays have an axis of the batch. `place` says which places of the logits are
    computed where it is not all of them.
    """

    rules: Rules
    batch: int
    heads: int
    groups: int
    rows: int
    keys: int
    size: int
    width: int
    past: int = 0
    apart: bool = False
    batched: bool = True
    place: Grid | None = None

    @classmethod
    def of_heads(cls, rules: Rules, q: Array, k: Array, place: Grid | None = None, given: Given | None = None) -> At:
        """Return where the steps of a form stand, from its queries `[... h t d]` and keys `[... g s d]`.

        What is `given` says how much came before, and how wide x is.
        """
        heads, rows, size = q.shape[-3:]
        batched = q.ndim == 4
        batch, groups, keys = len(q) if batched else 1, *k.shape[-3:-1]
        width = heads * size if given is None or given.x is None else given.x.shape[-1]
        past, apart = (0, False) if given is None else (given.past, given.apart)
        return cls(rules, batch, heads, groups, rows, keys, size, width, past, apart, batched, place)

    @property
    def grid(self) -> Grid:
        """The places of the logits `[... h t s]`."""
        if self.place is not None:
            return self.place
        return whole_grid(self.rules, self.heads, self.rows, self.keys, batches=self.batch if self.batched else None)


@dataclass(frozen=True)
class Recipe:
    """What is asked, `rules`, `positions` and heads, and the steps that compute it, in the order of the fields.

    `wide`: heads that are given lie side by side, `[b t h*d]`, and are cut and put together again, as those of a layer.
    `remembers`: a step uses what another one was given, so that each is taken every time.
    """

    rules: Rules
    heads: int = 1
    groups: int = 1
    positions: tuple[Position, ...] = ()
    output_projection: bool = True
    wide: bool = False
    remembers: bool = False
    order: Step = steps.order
    source: Step = steps.source
    project: Step = steps.project
    split: Step = steps.split
    place: Step = steps.place
    share: Step = steps.share
    score: Step = steps.score
    scaled: Step = steps.scaled
    bent: Step = steps.bent
    biased: Step = steps.biased
    allowed: Step = steps.allowed
    forbid: Step = steps.forbid
    normalize: Step = steps.normalize
    after: Step = steps.after
    mix: Step = steps.mix
    gather: Step = steps.gather
    merge: Step = steps.merge
    finish: Step = steps.finish

    def with_rules(self, **changes: Any) -> Recipe:
        """Return the same recipe with other rules."""
        return self.changed(rules=replace(self.rules, **changes))

    def changed(self, **fields: Any) -> Recipe:
        """Return the same recipe with other fields, as `replace` does in ten times the time: thousands are made."""
        made = object.__new__(Recipe)
        vars(made).update(vars(self) | fields)
        return made


def attend(recipe: Recipe, q: Array, k: Array, v: Array | None, place: Grid | None = None) -> Trace:
    """Return every stage that a recipe makes of heads `[... h t d]`, `[... g s d]` and `[... g s e]`, as a form does.

    `place` says which places of the logits these are, where they are a part of a whole. Without values there is no
    context.
    """
    at = At.of_heads(recipe.rules, q, k, place)
    keys, values = recipe.share(at, k), None if v is None else recipe.share(at, v)
    with np.errstate(over="ignore", invalid="ignore"):
        stages, allowed = masked_logits(recipe, at, q, keys)
    weights = weighed(recipe, at, stages["masked"], allowed)
    context = None if values is None else mixed(recipe, at, weights, values, keys)
    return Trace(q=q, k=k, v=v).replace(**stages, weights=weights, context=context)


class Done:
    """What steps have made of one input, so that recipes which share steps need not take them again.

    It is of the very same step and arrays, and holds these as long as it is there: the answer is the same number by
    number.
    """

    def __init__(self, most: int) -> None:
        """Keep what so many steps have made; then begin anew."""
        self.most = most
        self.kept = dict[Any, tuple[Any, tuple[Any, ...]]]()

    def find(self, key: Any, step: Step, given: tuple[Any, ...]) -> Any:
        """Return what a step made of what it was given, under its key, or take the step."""
        known = self.kept.get(key)
        if known is None:
            if len(self.kept) >= self.most:
                self.kept.clear()
            self.kept[key] = known = (step(*given), given)
        return known[0]

    def place(self, rules: Rules, q: Array, k: Array, given: Given) -> At:
        """Return where the steps stand: the same object for equal rules, so that their steps are the same too."""
        try:
            at: At = self.find((rules, q.shape, k.shape), At.of_heads, (rules, q, k, None, given))
        except TypeError:  # an offset for each entry of the batch cannot be looked up
            return At.of_heads(rules, q, k, None, given)
        return at


def take(done: Done | None, step: Step, *given: Any) -> Any:
    """Return what a step makes, as it is done already where that is kept."""
    if done is None:
        return step(*given)
    key = (step, *map(id, given))
    known = done.kept.get(key)
    return done.find(key, step, given) if known is None else known[0]


def compute(recipe: Recipe, given: Given, done: Done | None = None) -> dict[str, Array]:
    """Return every stage by its name, `[b h t ...]`, the last one `output`.

    `output` is the context of all heads where heads were given, else the layer's answer `[b t m]`. `done` keeps what
    steps make of this input for other recipes.

    Raises:
        ValueError: a step does not fit the shapes, as a transposed square matrix does not fit others.
    """
    done = None if recipe.remembers else done
    with np.errstate(all="ignore"):
        if done is None:
            q, k, v = sides(recipe, given)
            at = At.of_heads(recipe.rules, q, k, None, given)
        else:
            steps_of_sides = (recipe.order, recipe.source, recipe.project, recipe.split)
            of_sides = (*steps_of_sides, recipe.heads, recipe.groups, recipe.wide, id(recipe.positions))
            q, k, v = done.find(of_sides, sides, (recipe, given))
            at = done.find((id(recipe.rules), q.shape, k.shape), done.place, (recipe.rules, q, k, given))
        if recipe.positions or recipe.place is not steps.place:
            turning = done if recipe.positions else None  # what is not turned is passed on
            q, k, v = (
                take(turning, recipe.place, at, side, heads, recipe.positions)
                for side, heads in zip("qkv", (q, k, v), strict=True)
            )
        if at.groups != at.heads or recipe.share is not steps.share:
            sharing = done if at.groups != at.heads else None
            k, v = take(sharing, recipe.share, at, k), take(sharing, recipe.share, at, v)
        stages, allowed = masked_logits(recipe, at, q, k, done)
        weights = weighed(recipe, at, stages["masked"], allowed, done)
        context = mixed(recipe, at, weights, v, k, done)
        stages |= {"q": q, "k": k, "v": v, "weights": weights, "context": context}
        if given.x is None and not recipe.wide:
            return stages | {"output": context}
        merged = take(done, recipe.merge, at, context)
        if given.x is None:
            return stages | {"output": steps.split(merged, at.heads)}
        weight, bias = (given.arrays.get(name) for name in ("W_o", "b_o"))
        finished = take(done, recipe.finish, at, merged, weight, bias) if recipe.output_projection else merged
        if given.around is not None:
            finished = given.around.finish(given.x[:, given.past :], finished)
        return stages | {"output": finished}


def sides(recipe: Recipe, given: Given) -> tuple[Array, Array, Array]:
    """Return q `[b h t d]`, k and v `[b g s d]`."""
    if given.x is None:
        assert given.q is not None and given.k is not None and given.v is not None
        q, k, v = recipe.order(given.q, given.k, given.v)
        k, v = (recipe.source(side, q, heads) for side, heads in (("k", k), ("v", v)))
        return cut(recipe, q), cut(recipe, k), cut(recipe, v)
    around = given.around
    x = embedded(recipe, given.x if around is None else around.x(given.x))
    if given.memory is not None:
        keys = embedded(recipe, given.memory if around is None else around.memory(given.memory))
    else:
        keys = x
    queries = x[:, given.past :]
    flat = {side: recipe.project(side, recipe.source(side, queries, keys), given.arrays) for side in "qkv"}
    counts = {"q": recipe.heads, "k": recipe.groups, "v": recipe.groups}
    q, k, v = (recipe.split(flat[side], counts[side]) for side in "qkv")
    if around is not None and around.heads:
        q, k, v = (around.side(side, heads) for side, heads in zip("qkv", (q, k, v), strict=True))
    return q, k, v


def cut(recipe: Recipe, heads: Array) -> Array:
    """Return heads `[b h t d]` as the recipe cuts them, where they lie side by side."""
    return np.asarray(recipe.split(steps.join_heads(heads), heads.shape[1]) if recipe.wide else heads)


def embedded(recipe: Recipe, x: Array) -> Array:
    """Return the vectors of sequences `[b t m]` with the places of their tokens marked."""
    for position in recipe.positions:
        x = np.stack([position.embed(entry) for entry in x])
    return x


def masked_logits(
    recipe: Recipe, at: At, q: Array, k: Array, done: Done | None = None
) -> tuple[dict[str, Array], Array]:
    """Return the stages from q and k, one k for each query head, up to the masked logits, and which places are allowed.

    What masked keys hold may be anything, and comes to nothing: who calls this ignores what NumPy says of it.
    """
    bending = done if at.rules.scores else None  # what no rule bends is passed on
    scores = take(done, recipe.score, at, q, k)
    logits = capped = take(done, recipe.scaled, at, scores)
    if not at.rules.bend_last and (at.rules.scores or recipe.bent is not steps.bent):
        capped = take(bending, recipe.bent, at, logits)
    allowed = take(done, recipe.allowed, at)
    biased = capped
    if at.rules.scores or recipe.biased is not steps.biased:
        biased = take(bending, recipe.biased, at, capped)
    masked = take(done, recipe.forbid, at, biased, allowed)
    masked = recipe.bent(at, masked) if at.rules.bend_last else masked
    return {"scores": scores, "logits": logits, "capped": capped, "masked": masked}, allowed


def weighed(recipe: Recipe, at: At, masked: Array, allowed: Array, done: Done | None = None) -> Array:
    """Return the weights of masked logits."""
    weights: Array = take(done, recipe.normalize, at, masked)
    return weights if recipe.after is steps.after else take(done, recipe.after, at, weights, allowed)


def mixed(recipe: Recipe, at: At, weights: Array, v: Array, k: Array, done: Done | None = None) -> Array:
    """Return the context: the values mixed by their weights."""
    return np.asarray(recipe.gather(at, take(done, recipe.mix, at, weights, v, k)))
