"""A call of a function seen from inside: what its softmax is given, what it mixes with values, and which mistakes
make that.

Where answers alone leave thousands of combinations of mistakes to be tried, the numbers on the way part them: those of
the scores, then of the logits, the weights and the answer. In which order the axes of an array lie does not matter, as
arrays are held against each other by their numbers alone. What fits is a guess, which fresh questions must prove.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, expected, predicted, without_blind
from attn_exp.diagnosis.asking.offer import at_of
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code import watching, watching_jax, watching_numpy
from attn_exp.diagnosis.code.watching import Operation
from attn_exp.diagnosis.inside.cores import HIDDEN, MOST_OPERATIONS, POWERS, behind, logits_of, mixed_with, softmaxes
from attn_exp.diagnosis.recipes.candidates import Candidate, everywhere, rank
from attn_exp.diagnosis.recipes.fitted import factor_of_scores, one_for_all_sizes
from attn_exp.diagnosis.recipes.several import LIKELY, together
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.masks import filled
from attn_exp.own_code import held

ARRAYS = ("q", "k", "v", "x", "memory")
"""Roles of what a question gives: all else that a call is given is no number of it."""
ROOM = 1e-5
"""Of the largest number of a stage: as close as float32 is."""
MOST = 12
"""So many guesses are followed from one stage to the next, those of the fewest mistakes."""
SIMILAR = 1e-3
"""Of a factor: scales that are nearer are held against the logits themselves."""
LOWEST = -1e9
"""What most people put for -inf."""
FEWEST = 4
"""Hidden places that tell which number is filled in."""


# What is seen


def operations_of(caller: Caller, case: Case) -> list[Operation]:
    """Return the operations of a call with a question; none where a library, or a function, shows nothing of them."""
    with suppress(Exception), held(), np.errstate(all="ignore"):
        arguments = caller.arguments(case)
        if caller.library.name == "torch":
            sources = [arguments[role] for role in ARRAYS if role in arguments]
            return watching.watched(lambda: caller.call(arguments), sources)[0]
        if caller.library.name == "numpy":
            notes = watching_numpy.Notes({})
            with watching_numpy.watching(notes):
                caller.call({role: notes.of_x(one) if role in ARRAYS else one for role, one in arguments.items()})
            if notes.operations or "jax" not in sys.modules:
                return notes.operations
        if caller.library.name in ("jax", "numpy"):  # JAX takes arrays of NumPy too
            of_jax = watching_jax.Notes({})
            positional, named = caller.spoken(arguments)
            theirs = {name for role, name in caller.offer.parameters.items() if role not in ARRAYS}
            call: Callable[..., Any] = lambda _, first, others: caller.function(*first, **others)  # noqa: E731
            watching_jax.noted(call, {}, positional, named, theirs, of_jax)
            return of_jax.operations
    return []


@dataclass(frozen=True, eq=False)
class Inside:
    """The numbers of some stages of a call, whatever their order; None of a stage that is not seen.

    `scores` are what q and k are multiplied to, maybe scaled before; `logits` what a softmax is given, `shares` what it
    returns, and `weights` what is mixed with values.
    """

    scores: Array | None
    logits: Array | None
    shares: Array | None
    weights: Array | None
    largest_power: float = 0.0
    """The largest number of which a softmax in parts takes the power."""

    @property
    def is_whole(self) -> bool:
        """Whether each stage is seen: what does not explain it explains nothing."""
        return all(one is not None for one in (self.scores, self.logits, self.shares, self.weights))


def seen_inside(caller: Caller, case: Case) -> Inside | None:
    """Return what is seen of attention inside a call, or None where there is none."""
    operations = operations_of(caller, case)
    if not operations or len(operations) > MOST_OPERATIONS:
        return None
    with suppress(Exception):  # what is written in other ways than those that are known is no attention that is seen
        return of_softmaxes(operations) or without_softmax(operations)
    return None


def of_softmaxes(operations: Sequence[Operation]) -> Inside | None:
    """Return what stands around the softmaxes of a call, of which there may be one for each head."""
    places = list(softmaxes(operations))
    ahead = {place: set(behind(operations, place)) for place in places}
    first = [place for place in places if not ahead[place] & set(places)]
    last = [place for place in places if not any(place in others for others in ahead.values())]
    if not first:
        return None
    mixed = {place: mixed_with(operations, place) for place in last}
    sides = {found for found in mixed.values() if found is not None}
    products = [[at for at in sorted(ahead[place]) if is_of_both(operations[at])] for place in first]
    scores = {at for several in products for at in several} if all(len(one) == 1 for one in products) else set()
    return Inside(
        numbers(operations[at].said for at in scores),
        numbers(logits_of(operations, place) for place in first),
        numbers(operations[place].said for place in last) if first == last else None,
        numbers(operations[at].given[-2:][side] for at, side in sides) if None not in mixed.values() else None,
        max((float(np.nanmax(operations[at].given[0])) for place in first for at in ahead[place]
             if operations[at].name in POWERS), default=0.0),
    )  # fmt: skip


def without_softmax(operations: Sequence[Operation]) -> Inside | None:
    """Return what stands between two products of a call without a softmax."""
    products = [at for at, one in enumerate(operations) if is_of_both(one)]
    for at in products:
        for side, made in enumerate(operations[at].made[-2:]):
            scores = made if made in products else None
            before = [] if made is None else [one for one in behind(operations, made) if one in products]
            scores = before[0] if scores is None and len(before) == 1 else scores
            if scores is not None:
                weights = numbers([operations[at].given[-2:][side]])
                return Inside(numbers([operations[scores].said]), weights, None, weights)
    return None


def is_of_both(one: Operation) -> bool:
    """Say whether an operation multiplies two matrices that are made of what a question gives."""
    return one.is_product and one.name != "convolution" and all(one.of_x[-2:])


def numbers(arrays: Iterable[Array]) -> Array | None:
    """Return the numbers of some arrays in their own order, hidden logits as -inf; None of no array."""
    several = [np.ravel(one).astype(np.float64) for one in arrays]
    if not several:
        return None
    every = np.nan_to_num(np.concatenate(several), nan=0.0, posinf=np.inf, neginf=-np.inf)
    return np.sort(np.where(every <= HIDDEN, -np.inf, every))


def scaled_twice(inside: Inside, size: int) -> bool:
    """Say whether scores that are divided by d in all are divided by its root before the product, and again after."""
    scores, logits = inside.scores, inside.logits
    if scores is None or logits is None or scores.shape != logits.shape:
        return False
    return bool(np.allclose(logits, scores / np.sqrt(size), rtol=ROOM, atol=ROOM * np.abs(logits).max(initial=0.0)))


# What makes it


NOTHING = Candidate((), lambda case: case.recipe)


@dataclass(frozen=True, eq=False)
class Search:
    """Which mistakes make what is seen inside a call with one question, found from one stage to the next.

    `single` are the mistakes that are tried; those whose number was read off an answer are not, as that is of one
    mistake alone.
    """

    single: Sequence[Candidate]
    case: Case
    answer: Answer
    inside: Inside
    is_filled: bool = False
    """Whether what is hidden gets a number that is far below all others, and not -inf."""

    def pool(self, *stages: str, groups: Sequence[str] = (), but: Sequence[str] = ()) -> list[Candidate]:
        """Return the mistakes that first change one of some stages, of these groups, or of all but some."""
        known = [(one, mistakes.mistake(one.names[0])) for one in self.single if not one.fitted]
        return [one for one, made in known if made.stage in stages and made.group not in but
                and (not groups or made.group in groups)]  # fmt: skip

    def made(self, guess: Candidate) -> dict[str, Array] | None:
        """Return the stages that some mistakes make of the question."""
        return self.of_recipe(guess.change(self.case))

    def of_recipe(self, recipe: Recipe) -> dict[str, Array] | None:
        """Return the stages of a recipe."""
        if self.is_filled and recipe.forbid is steps.forbid:
            recipe = filled(LOWEST)(recipe)
        return predicted(recipe, self.case.given)

    def explanations(self, *starts: Candidate) -> list[Candidate]:
        """Return what makes all that is seen, and the answer, beside the first of some starts with which anything does.

        A query that sees no key by mistake has weights all the same, where a low number is filled in.
        """
        ways = [self, replace(self, is_filled=True)] if self.hides else [self]
        found = (way.beside(start) for way in ways for start in (*starts, NOTHING))
        return next(filter(None, found), [])

    @cached_property
    def hides(self) -> bool:
        """Whether a mask hides anything before the softmax, or fills a number in."""
        seen = self.inside.logits
        return seen is None or not np.isfinite(seen).all() or filled_in(self.case, seen)[0] is not None

    def beside(self, start: Candidate) -> list[Candidate]:
        """Return what makes all that is seen, and the answer, beside a start.

        As numbers alone are told, and not their places, what turns the scores may be none: each is followed apart.
        """
        of_scores = self.pool("q", "k", "v", "scores")
        single = [made for one in of_scores if self.has_scores(made := together((start, one)))]
        guesses = likeliest([*self.followed([start], of_scores, self.has_scores), *single])
        return likeliest(made for guess in guesses for made in self.from_scores(guess))

    def from_scores(self, guess: Candidate) -> list[Candidate]:
        """Return what makes the stages behind the scores beside a guess that makes these."""
        guesses = likeliest(self.with_logits(guess))
        if self.inside.shares is None:  # several softmaxes stand one behind another
            guesses = self.followed(guesses, self.pool("weights", but=("masks",)), self.has_weights)
        else:
            guesses = self.followed(guesses, self.pool("weights", but=("masks", "scale", "heads")), self.has_shares)
            guesses = self.followed(guesses, self.pool("weights", groups=("scale", "heads")), self.has_weights)
        return self.followed(guesses, self.pool("context", "output"), self.has_answer)

    def followed(
        self, guesses: Sequence[Candidate], pool: Sequence[Candidate], fits: Callable[[Candidate], bool]
    ) -> list[Candidate]:
        """Return the guesses that fit the next stage, each as it is, or beside a mistake of it, or beside two likely
        ones of different groups."""
        likely = [one for one in pool if one.names[0] in LIKELY]
        pairs = (pair for pair in itertools.combinations(likely, 2) if are_apart(*pair))
        for beside in ([()], ((one,) for one in pool), pairs):
            several = list(beside)
            tried = (together((guess, *more)) for guess in guesses for more in several)
            if found := [one for one in tried if fits(one)]:
                return likeliest(found)
        return []

    def has_scores(self, guess: Candidate) -> bool:
        """Say whether the scores are those of a guess, times any number."""
        made = self.made(guess)
        return made is not None and (
            self.inside.scores is None or factor_between(self.inside.scores, made["scores"]) is not None
        )

    def has_shares(self, guess: Candidate) -> bool:
        """Say whether what the softmax returns is that of a guess."""
        made = self.of_recipe(guess.change(self.case).changed(after=steps.after))
        return made is not None and is_alike(self.inside.shares, made["weights"])

    def has_weights(self, guess: Candidate) -> bool:
        """Say whether what is mixed with values are the weights of a guess."""
        made = self.made(guess)
        return made is not None and is_alike(self.inside.weights, made["weights"])

    def has_answer(self, guess: Candidate) -> bool:
        """Say whether the answer is that of a guess."""
        made, output = self.made(guess), self.answer.output
        if made is None or output is None or made["output"].shape != output.shape:
            return False
        gap = without_blind(output, made) - without_blind(made["output"], made)
        return bool(np.abs(gap).max(initial=0.0) <= ROOM * np.abs(np.nan_to_num(output)).max(initial=0.0))

    def with_logits(self, guess: Candidate) -> Iterator[Candidate]:
        """Yield what makes the logits, beside a guess: another scale, another mask, another rule of scores."""
        found = False
        stages = ("masked", "weights") if self.hides else ("weights",)  # those of a mask that comes later
        of_masks = self.pool(*stages, groups=("masks", "behaviour"))
        for others in ([NOTHING], of_masks, self.pool("capped", "masked", but=("masks",))):
            for other in others if not found else ():
                for made in self.with_scale(together((guess, other))):
                    found = True
                    yield made

    def with_scale(self, guess: Candidate) -> Iterator[Candidate]:
        """Yield what makes the logits by another scale beside a guess, and by the number that is filled in."""
        stages, seen = self.made(guess), self.inside.logits
        if stages is None or seen is None:
            yield from () if stages is None else (guess,)
            return
        if is_alike(seen, stages["masked"]):
            yield guess
            return
        filler, shown = filled_in(self.case, seen)
        factor = factor_between(shown, stages["masked"])
        if factor is None:
            return
        fill = [] if filler is None else [fill_of(filler)]
        if abs(factor - 1.0) < ROOM:
            yield together((guess, *fill))
            return
        scales = self.pool("logits", "weights", groups=("scale",))
        scaled = [together((guess, one)) for one in scales if self.may_be(one, factor)]
        fits = [one for one in scaled if (made := self.made(one)) is not None and is_alike(shown, made["masked"])]
        known = self.case.asking(guess.change(self.case))
        read = () if fits else (*factor_of_scores(factor), *one_for_all_sizes(known, factor))
        for one in (*fits, *(with_number(guess, number) for number in read)):
            yield with_number(one, fill[0]) if fill else one

    def may_be(self, scale: Candidate, factor: float) -> bool:
        """Say whether a mistake of the scale multiplies one score by a factor more than is right."""
        score, at = np.ones((1, 1, 1, 1)), at_of(self.case)
        right, made = (float(recipe.scaled(at, score).ravel()[0]) for recipe in (
            self.case.recipe, scale.change(self.case)
        ))  # fmt: skip
        return isclose(made, right * factor, rel_tol=SIMILAR) or "scores_floored" in scale.names


def filled_in(case: Case, seen: Array) -> tuple[float | None, Array]:
    """Return the number that stands where a mask hides, if one does, and the logits with that as -inf."""
    if not case.recipe.rules.masks:
        return None, seen
    every, counts = np.unique(seen[np.isfinite(seen)], return_counts=True)
    if not counts.size or counts.max() < FEWEST:
        return None, seen
    filler = float(every[counts.argmax()])
    return filler, np.sort(np.where(seen == filler, -np.inf, seen))


def fill_of(number: float) -> Candidate:
    """Return the mistake of a number that is filled in where a mask hides."""
    name = "mask_sign" if number > -HIDDEN else "mask_small_fill" if number else "mask_multiplied"
    return Candidate((name,), everywhere(filled(number)), fitted=True)


def with_number(first: Candidate, other: Candidate) -> Candidate:
    """Return two candidates made one after another, with what is said of the other's number."""
    made = together((first, other))
    return Candidate(made.names, made.change, made.fitted, other.said or first.said)


def are_apart(one: Candidate, other: Candidate) -> bool:
    """Say whether two mistakes are of different groups."""
    return mistakes.mistake(one.names[0]).group != mistakes.mistake(other.names[0]).group


def likeliest(guesses: Iterable[Candidate]) -> list[Candidate]:
    """Return the likeliest of some guesses."""
    return sorted(guesses, key=rank)[:MOST]


def is_alike(seen: Array | None, made: Array) -> bool:
    """Say whether the numbers of a stage are those that are made; of a stage that is not seen, any are."""
    ordered = numbers([made])
    if seen is None or ordered is None:
        return True
    if seen.shape != ordered.shape or not np.array_equal(np.isfinite(seen), np.isfinite(ordered)):
        return False
    known = np.isfinite(seen)
    size = np.abs(seen[known]).max(initial=0.0)
    return bool(np.abs(seen[known] - ordered[known]).max(initial=0.0) <= ROOM * max(size, 1e-300))


def factor_between(seen: Array, made: Array) -> float | None:
    """Return the one number that makes the numbers of a stage of those that are made, or None where there is none."""
    ordered = numbers([made])
    if ordered is None or seen.shape != ordered.shape or np.isfinite(seen).sum() != np.isfinite(ordered).sum():
        return None
    known, others = seen[np.isfinite(seen)], ordered[np.isfinite(ordered)]
    size = np.linalg.norm(others)
    factor = float(np.linalg.norm(known) / size) if size else 1.0
    for sign in (1.0, -1.0):
        gap = np.abs(known - np.sort(sign * factor * others)).max(initial=0.0)
        if gap <= ROOM * max(np.abs(known).max(initial=0.0), 1e-300):
            return sign * factor
    return None


# Where nothing makes it


def first_stage_that_differs(case: Case, inside: Inside) -> str:
    """Return the first stage of a call that is not the right one, as far as stages are seen; else nothing."""
    right = expected(case)
    if inside.logits is None or inside.logits.size != right["masked"].size or inside.shares is None:
        return ""
    scores = inside.scores
    if scores is not None and scores.size == right["scores"].size and factor_between(scores, right["scores"]) is None:
        return "scores"
    if not is_alike(inside.logits, right["masked"]):
        hidden = numbers([right["masked"]])
        same = hidden is not None and np.isfinite(hidden).sum() == np.isfinite(inside.logits).sum()
        return "logits" if same else "masked"
    if not is_alike(inside.shares, right["weights"]) or not is_alike(inside.weights, right["weights"]):
        return "weights"
    return "context" if inside.weights is not None else ""
