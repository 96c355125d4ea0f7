"""Explain wrong outputs by the mistakes that reproduce them, or else by the first stage that differs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.asking.case import (
    Answer,
    Asked,
    Case,
    Seen,
    differs,
    expected,
    is_blind,
    is_for_no_key,
    predicted,
    tolerance,
    without_blind,
)
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, MASKS_OF_MORE
from attn_exp.diagnosis.calling.ways_to_call import failing
from attn_exp.diagnosis.recipes.candidates import (
    Candidate,
    Explained,
    Explanation,
    best,
    every_mistake,
    everywhere,
    is_right,
    other_settings,
    pairs_of,
    rank,
    scaled_as_usual,
)
from attn_exp.diagnosis.recipes.combinations import (
    INVERTED,
    LARGE_FILL,
    combine,
    fills_of_raw_logits,
    fitted_fills,
    fitted_numbers,
    has_time,
    in_several_parts,
    of_masks,
)
from attn_exp.forms.pipeline import Given
from attn_exp.mistakes.behaviour import first_keys
from attn_exp.mistakes.precision import rounded as rounded_to

SINGLE = DIGITS["float32"]
LARGE = "large inputs"
FEW = ("values", "unequal lengths", "another length", "equal inputs", "whole numbers", "one token")
"""Cases with few tokens, whose sums stay accurate in half precision."""
TELLS = 0.2
"""An output is inconclusive if rounding may exceed this fraction of its largest number."""
FEW_BASES = 3
"""Number of explanations of the unmasked cases that are combined with mask mistakes."""
HALF = 0.5
"""An output is inconclusive if a smaller fraction of it is finite."""
NEARER = 32.0
"""A candidate is ruled out if it is this many times farther from the answers than the nearest candidate."""
OVERFLOWS = ("no_max_subtraction",)
SAID_BY_NAN = (OVERFLOWS, ("one_maximum",), ("mask_hides_all",))
"""Mistakes that can be inferred from NaN alone; too many of the others produce the same NaN."""


@dataclass(frozen=True, eq=False)
class Answers:
    """Cases with a function's answers, wrong ones first.

    Answers are compared to `digits` bits: those of the function's dtype, or fewer. Inputs have `kept` bits. `broken`
    lists mistakes that show only across calls. `ask` runs fresh cases, whose answers an explanation must reproduce too;
    `ask_equal` runs a case whose scores are all equal. `crossed` are wrong answers to keys of another input, which
    choose between mistakes that give all other answers alike.
    """

    seen: Seen
    digits: int
    kept: int
    broken: Sequence[str] = ()
    bits: str = "own"
    ask: Callable[[], Seen] = tuple
    ask_equal: Callable[[], Asked | None] = lambda: None
    crossed: Seen = ()

    read_off: dict[object, float | None] = field(default_factory=dict)
    """Numbers fitted to the answers, shared by all views."""
    judged: dict[tuple[Candidate, Case, Answer, int], int] = field(default_factory=dict)
    """Cache of `gives_one`: several explanations compare one candidate with the same answers."""

    def views(self, first: bool) -> Iterator[Answers]:
        """Yield the answers at their own precision and, if `first`, at that of float32 and of half precision too.

        A view in which every answer is right is skipped: two mistakes that cancel each other would "explain" it.
        """
        lowered = [("float32", SINGLE)] if self.digits > SINGLE else []
        lowered += [(self.half, DIGITS[self.half])] if self.half else []
        levels = (replace(self, bits=bits, digits=digits) for bits, digits in (lowered if first else []))
        yield from (view for view in (self, *levels) if not is_right(view.seen, view.digits))

    @property
    def explanations(self) -> Sequence[Explanation]:
        return EXPLANATIONS

    def can_try(self, explanation: Explanation) -> bool:
        """Return whether to try an explanation; slow ones are skipped if no mistake gives this shape or time is up."""
        if explanation.rare and self.bits == "float32":
            return False
        return not explanation.dear or (self.has_known_shape and has_time())

    @cached_property
    def half(self) -> str:
        return representable([answer for _, answer in self.seen[:4]])

    @cached_property
    def single(self) -> list[Candidate]:
        return [
            *every_mistake([case for case, _ in self.seen]),
            *fitted_fills(self.seen),
            *fills_of_raw_logits(self.seen),
            *fitted_numbers(self.wrong, self.read_off),
        ]

    @cached_property
    def has_known_shape(self) -> bool:
        case, answer = self.seen[0]
        recipes = (case.recipe, *(one.change(case) for one in self.single))
        made = (predicted(recipe, case.given) for recipe in recipes)
        return answer.output is None or any(
            stages is not None and stages["output"].shape == answer.output.shape for stages in made
        )

    def gives(self, candidate: Candidate) -> bool:
        """Return whether a candidate contradicts no answer, even a fresh one, and reproduces a wrong one."""
        if any(self.gives_of(candidate, seen) < 0 for seen in (self.wrong, self.right, self.fresh)):
            return False
        return any(self.gives_of(candidate, seen) > 0 for seen in (self.wrong, failing(self.fresh, self.digits)))

    def gives_of(self, candidate: Candidate, seen: Seen) -> int:
        """Return how many answers a candidate reproduces within rounding, or -1 if it contradicts one.

        Calls that raised an error do not count.
        """
        explained = 0
        for case, answer in seen:
            key = (candidate, case, answer, self.digits)
            if key not in self.judged:
                self.judged[key] = self.gives_one(*key[:3])
            if self.judged[key] < 0:
                return -1
            explained += self.judged[key]
        return explained

    def gives_one(self, candidate: Candidate, case: Case, answer: Answer) -> int:
        """Return 1 if a candidate reproduces an answer, 0 if the answer is inconclusive, -1 if it contradicts it."""
        if answer.output is None:
            return 0
        stages = predicted(candidate.change(case), self.as_given(case))
        if stages is None:  # either both fail on these shapes, or only the candidate does
            return 0 if answer.output.shape != expected(case)["output"].shape else -1
        is_rough = tolerance(stages, self.digits) > TELLS * largest(stages["output"])
        rounds_away = is_rough and np.isfinite(stages["weights"]).all()
        if rounds_away or is_for_no_key(answer.output, stages):  # weights of sums that vanish, or logits of 1e9
            return 0
        rows = {**stages, "output": without_blind(stages["output"], stages)}
        is_other = differs(without_blind(answer.output, stages), rows, self.digits)
        if is_other or not is_nearer(answer.output, stages, case, self.digits):
            return -1
        tells = candidate.names in SAID_BY_NAN or not self.is_right_but_for_nan(case, answer.output)
        return int(tells and not is_blind(stages))

    def as_given(self, case: Case) -> Given:
        """Return a case's inputs; large ones in float32, where exp overflows sooner, if the function got float32."""
        if case.rung != LARGE or self.kept != SINGLE or case.given.q is None:
            return case.given
        return case.in_float32

    def is_right_but_for_nan(self, case: Case, output: Array) -> bool:
        stages, holes = expected(case), np.isnan(output)
        filled_up = np.where(holes, stages["output"], output) if output.shape == stages["output"].shape else output
        return bool(holes.any()) and not differs(filled_up, stages, self.digits)

    @cached_property
    def wrong(self) -> Seen:
        return failing(self.seen, self.digits)

    @cached_property
    def right(self) -> Seen:
        lost = {case for case, _ in self.wrong}
        return [pair for pair in self.seen if pair[0] not in lost]

    @cached_property
    def fresh(self) -> Seen:
        return self.ask()

    def closest(self, fits: list[Candidate]) -> list[Candidate]:
        """Keep the candidates nearest to wrong float64 answers, which tell a fill of 1e-12 from 0."""
        if len(fits) < 2 or self.digits < DIGITS["float64"]:
            return fits
        seen = [*self.wrong, *self.fresh]
        gaps = [max(self.gap(one, case, answer) for case, answer in seen) for one in fits]
        return [one for one, gap in zip(fits, gaps, strict=True) if gap <= NEARER * min(gaps) + 2.0**-50]

    def gap(self, candidate: Candidate, case: Case, answer: Answer) -> float:
        """Return `max |candidate - answer| / max |answer|`, or 0 if they are not comparable."""
        stages = predicted(candidate.change(case), case.given)
        if answer.output is None or stages is None or stages["output"].shape != answer.output.shape:
            return 0.0
        size = max(np.abs(answer.output).max(initial=0.0), 1e-300)
        gap = float(np.abs(stages["output"] - answer.output).max(initial=0.0) / size)
        return gap if np.isfinite(gap) else 0.0

    def one_mistake(self) -> Explained | None:
        fits = [candidate for candidate in self.single if self.gives(candidate)]
        return best(self.closest([one for one in fits if self.gives_of(one, self.crossed) >= 0] or fits))

    def two_mistakes(self) -> Explained | None:
        if self.says_little:
            return None
        pairs = itertools.takewhile(lambda _: has_time(), pairs_of(self.single, self.seen))
        return best([pair for pair in pairs if self.gives(pair)])

    @cached_property
    def says_little(self) -> bool:
        outputs = [answer.output for _, answer in self.wrong if answer.output is not None]
        return bool(np.mean([np.isfinite(output).mean() < HALF for output in outputs] or [True]) > HALF)

    def several_mistakes(self) -> Explained | None:
        """Find mistakes, at most one per part of attention, in cases without additional masks; then one in masks."""
        plain, masked = self.by_masks(self.seen)
        wrong = sorted(failing(plain, self.digits), key=lambda pair: pair[0].rung not in FEW)
        if not wrong or self.says_little:
            return None
        seen = [*wrong, *(pair for pair in plain if pair not in wrong)]
        unmasked = replace(self, seen=seen, ask=lambda: self.by_masks(self.fresh)[0])
        base = [one for one in self.single if masked and unmasked.gives(one)]
        several = in_several_parts(self.single, wrong[0], self.ask_equal())
        base += [one for one in itertools.takewhile(lambda _: has_time(), several) if unmasked.gives(one)]
        return self.with_masks(base, masked)

    def with_masks(self, base: Sequence[Candidate], masked: Seen) -> Explained | None:
        """Return the best candidate in `base` that reproduces every answer, alone or combined with a mask mistake.

        Every candidate in `base` reproduces the answers without additional masks.
        """
        wrong_with_masks = failing(masked, self.digits)

        def tells(one: Candidate) -> bool:
            return self.gives(one) and (not wrong_with_masks or self.gives_of(one, wrong_with_masks) > 0)

        found = best([one for one in base if tells(one)])
        if found is not None or not masked or not base:
            return found
        fewest = min(len(one.names) for one in base)
        likeliest = sorted((one for one in base if len(one.names) == fewest), key=rank)[:FEW_BASES]
        late = of_masks(self.single)
        inverted = [one for one in late if one.names == (INVERTED,)]
        filled = [combine((one, LARGE_FILL)) for one in inverted]
        turned = [combine((one, other)) for one in inverted for other in late if other != one]
        for others in ([LARGE_FILL], late, filled, turned):  # simplest combinations first
            made = [combine((one, other)) for one in likeliest for other in others]
            if fitting := [one for one in made if tells(one)]:
                return best(self.closest(fitting))
        return None

    def by_masks(self, seen: Seen) -> tuple[Seen, Seen]:
        asked = next((case for case, _ in self.seen if case.rung == "values"), self.seen[0][0]).recipe.rules.masks
        plain = [pair for pair in seen if pair[0].recipe.rules.masks == asked]
        return plain, [pair for pair in seen if pair[0].recipe.rules.masks != asked]

    def setting_that_fits(self) -> Explained | None:
        others = [(word, everywhere(change)) for word, change in other_settings(self.seen[0][0].recipe)]
        for word, change in (*others, ("scale=true", scaled_as_usual)):
            if self.gives(Candidate((word,), change)):
                is_mixed = "batch_mixed" in self.broken  # which explains more
                return Explained(("batch_mixed",)) if is_mixed else Explained(setting=word, change=change)
        return None

    def between_calls(self) -> Explained | None:
        unsteady = [name for name in self.broken if name in ("dropout_on", "not_deterministic", "mask_stale")]
        return Explained((unsteady[0],)) if unsteady else None

    def batch_mixed(self) -> Explained | None:
        return Explained(("batch_mixed",)) if "batch_mixed" in self.broken else None

    def tail_dropped(self) -> Explained | None:
        """Return "tail_dropped" if the function ignores the last key or query, or all after the last whole block."""
        asked = [(case, one.output) for case, one in self.seen if case.rung != LARGE and one.output is not None]
        for count in (count_keys, count_queries):
            counts = [count(case, output, self.digits) for case, output in asked]
            if any(0 < kept < whole for whole, kept in counts) and in_blocks(counts):
                return Explained(("tail_dropped",))
        return None


EXPLANATIONS = (
    Explanation(Answers.between_calls, turn=0),
    Explanation(Answers.one_mistake),
    Explanation(Answers.setting_that_fits),
    Explanation(Answers.tail_dropped, rare=True),
    Explanation(Answers.several_mistakes, rare=True, dear=True),
    Explanation(Answers.two_mistakes, rare=True, dear=True),
    Explanation(Answers.batch_mixed, turn=3),
)


def representable(answers: Sequence[Answer]) -> str:
    """Return the half-precision dtype that represents every number of the answers exactly, or an empty string."""
    for kind in ("bfloat16", "float16"):  # the coarser first: float16 represents most of its numbers too
        outputs = [answer.output for answer in answers if answer.output is not None]
        if outputs and all(np.array_equal(rounded_to(output, kind), output, equal_nan=True) for output in outputs):
            return kind
    return ""


def largest(output: Array) -> float:
    size = float(np.abs(output).max(initial=1e-30))
    return size if np.isfinite(size) else float(np.abs(np.nan_to_num(output)).max(initial=1e-30))


BLOCKS = range(2, 132)


def in_blocks(counts: Sequence[tuple[int, int]]) -> bool:
    """Return whether each case keeps exactly the whole blocks of some size, or all but the last key or query.

    An input shorter than a block may be kept or dropped.
    """
    return all(kept == whole - 1 for whole, kept in counts) or any(
        all(kept == (whole // block * block or (whole if kept else 0)) for whole, kept in counts) for block in BLOCKS
    )


def count_keys(case: Case, output: Array, digits: int) -> tuple[int, int]:
    """Return the number of keys, and how many leading ones give this output; -1 if no number does."""
    keys = expected(case)["masked"].shape[-1]
    if not differs(output, expected(case), digits):
        return keys, keys
    if not np.nan_to_num(output).any():
        return keys, 0
    for count in range(keys, -1, -1):
        stages = predicted(first_keys(partial(min, count))(case.recipe), case.given)
        if stages is not None and not differs(output, stages, digits):
            return keys, count
    return keys, -1


def count_queries(case: Case, output: Array, digits: int) -> tuple[int, int]:
    """Return the number of queries, and how many leading ones are right while the rest are one constant, such as 0."""
    right = expected(case)
    whole = right["output"].shape[-2]
    for count in range(whole, 0, -1) if output.shape == right["output"].shape else ():
        rest = output[..., count:, :]
        same = not rest.size or np.isnan(rest).all() or (rest == rest.ravel()[0]).all()
        if same and not differs(output[..., :count, :], {**right, "output": right["output"][..., :count, :]}, digits):
            return whole, count
    return whole, -1 if np.nan_to_num(output).any() else 0


def is_nearer(output: Array, stages: Arrays, case: Case, digits: int) -> bool:
    """Return whether the candidate is nearer to a wrong output than the expected output is.

    Logits of -50 in place of -inf widen the tolerance, and could "explain" an output that is not quite right.
    """
    right = expected(case)
    if right["output"].shape != output.shape or not differs(output, right, digits):
        return True
    with np.errstate(all="ignore"):
        seen, made, asked = (without_blind(one, stages) for one in (output, stages["output"], right["output"]))
        gaps = [np.abs(seen - one).max(initial=0.0) for one in (made, asked)]
    is_same = seen is output and asked is right["output"]  # so it differs, as tested above
    if not is_same and not differs(seen, right if asked is right["output"] else {**right, "output": asked}, digits):
        return True  # only queries that see no key differ
    return bool(not np.isfinite(gaps).all() or gaps[0] < gaps[1] / 2)


# Locate an unexplained mistake: the first stage that differs from attention, and how

NOTHING = "no known mistake explains it"
EQUAL = "equal inputs"


class Located(NamedTuple):
    """What is known about wrong answers that no mistake explains.

    `stage` is the first stage that differs: `logits` (for everything that produces them), `masked`, `weights` or
    `context`; empty if unknown. `said` is one or more sentences for the user.
    """

    stage: str = ""
    said: str = ""


def located(seen: Seen, wrong: Seen) -> Located:
    """Return which cases are wrong, and the stage in which the mistake must be."""
    outputs = [answer.output for _, answer in seen if answer.output is not None and answer.output.size]
    for said, is_so in (("zeros", lambda output: not output.any()), ("NaN", lambda output: np.isnan(output).all())):
        if outputs and all(map(is_so, outputs)):
            return Located("", f"{said} for every input; {NOTHING}")
    rungs = list(dict.fromkeys(case.rung for case, _ in wrong))
    right = dict.fromkeys(case.rung for case, answer in seen if case.rung not in rungs and answer.output is not None)
    held = f", and right in {', '.join(right)}" if right else ""
    holed = [case for case, answer in wrong if answer.output is not None and np.isnan(answer.output).any()]
    has_plain = any(not case.recipe.rules.masks and answer.output is not None for case, answer in seen)
    is_masked = holed and has_plain and rungs != [LARGE] and all(case.recipe.rules.masks for case in holed)
    told = Located("masked", ". NaN appears only with masks") if is_masked else locate_by_cases({*rungs}, seen)
    return Located(told.stage, f"something else: wrong in {', '.join(rungs)}{held}; {NOTHING}{told.said}")


def locate_by_cases(lost: set[str], seen: Seen) -> Located:
    if lost == {LARGE}:
        return Located("weights", ". Only large logits go wrong: check what is subtracted before exp, and the division")
    if lost <= {*ABOUT_MASKS, *MASKS_OF_MORE}:
        return Located("masked")
    if EQUAL in lost:
        return Located("", f". With {EQUAL} it is wrong too: look at masks, softmax, and how heads are combined")
    if any(case.rung == EQUAL and expected(case)["v"].any() for case, _ in seen):  # zero values would hide the weights
        return Located("logits", f". With {EQUAL} it is right, so look at the logits")
    return Located()
