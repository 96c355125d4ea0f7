"""Explain wrong outputs by the mistakes that reproduce them, or else by the first stage that differs.

`Answers` tries `EXPLANATIONS` on the answers of a function, one after the other: a mistake explains the answers if
attention with this mistake gives all of them. If no mistake does, `locate` says where to look. A *candidate* is one
mistake, or several together, that may explain the answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.asking.case import (
    Answer,
    Case,
    Seen,
    differs,
    expected,
    is_blind,
    is_usual_without_keys,
    predicted,
    tolerance,
    without_blind,
)
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.questions import ABOUT_MASKS, INDIVIDUAL_MASKS
from attn_exp.diagnosis.calling.ways_to_call import failing
from attn_exp.diagnosis.recipes.candidates import (
    Candidate,
    Explained,
    Explanation,
    choose_best,
    everywhere,
    list_mistakes,
    list_other_settings,
    pair_mistakes,
    rank,
    use_default_scale,
)
from attn_exp.diagnosis.recipes.combinations import (
    INVERTED,
    LARGE_FILL,
    combine,
    combine_parts,
    fit_fills,
    fit_numbers,
    has_time,
    raw_logit_fills,
)
from attn_exp.forms.pipeline import Given
from attn_exp.mistakes.behaviour import show_first_keys
from attn_exp.mistakes.precision import round_to_half as rounded_to

SINGLE = DIGITS["float32"]
LARGE, EQUAL = "large inputs", "equal inputs"
FEW_TOKENS = ("values", "unequal lengths", "another length", EQUAL, "whole numbers", "one token")
"""Cases with few tokens, whose sums stay accurate in half precision."""
MAX_ROUNDING = 0.2
"""An output is inconclusive if rounding may exceed this fraction of its largest number."""
MAX_BASES = 3
"""Maximum number of explanations, of cases without additional masks, to combine with mistakes in masks."""
MOSTLY_NAN = 0.5
"""Outputs count as mostly NaN if in over half of them fewer than half of the numbers are finite."""
MAX_DISTANCE = 32.0
"""A candidate is ruled out if it is this many times farther from the answers than the nearest candidate."""
BLOCK_SIZES = range(2, 132)
"""Block sizes to try for functions that ignore keys or queries after the last whole block."""
OVERFLOWS = ("no_max_subtraction",)
SHOWN_BY_NAN = (OVERFLOWS, ("one_maximum",), ("mask_hides_all",))
"""Mistakes that can be inferred from NaN alone; too many of the others produce the same NaN."""
UNEXPLAINED = "no known mistake explains it"


@dataclass(frozen=True, eq=False)
class Answers:
    """The right and wrong answers of a function, and calls that get more of them.

    - `seen`: the cases with their answers, wrong ones first. An explanation must not contradict any of them.
    - `digits`: the bits to which answers are compared: those of the function's dtype, or fewer (see `views`).
    - `dtype`: the dtype with this precision, or "own" for the function's dtype.
    - `input_digits`: the bits of the inputs.
    - `across_calls`: mistakes that the checks of behaviour found, because they show only across calls.
    - `ask`: runs fresh cases, which have other sizes and numbers. An explanation must reproduce their answers too.
    - `wrong_with_memory`: the wrong answers to keys of another input. They decide between mistakes that explain the
      other answers equally well.
    """

    seen: Seen
    digits: int
    input_digits: int
    across_calls: Sequence[str] = ()
    dtype: str = "own"
    ask: Callable[[], Seen] = tuple
    wrong_with_memory: Seen = ()

    fitted: dict[object, float | None] = field(default_factory=dict)
    """Numbers fitted to the answers, shared by all views."""
    compared: dict[tuple[Candidate, Case, Answer, int], int] = field(default_factory=dict)
    """Cache of `compare`: several explanations compare one candidate with the same answers."""

    def views(self, first: bool) -> Iterator[Answers]:
        """Yield the answers compared at their own precision and, if `first`, also at float32 and half precision.

        A precision at which every answer is right is skipped: two mistakes that cancel each other would "explain" it.
        """
        single = "float32" if self.digits > SINGLE else ""
        coarser = (single, find_half_dtype([answer for _, answer in self.seen[:4]])) if first else ()
        views = (replace(self, dtype=dtype, digits=DIGITS[dtype]) for dtype in coarser if dtype)
        yield from (view for view in (self, *views) if view.wrong)

    @property
    def explanations(self) -> Sequence[Explanation]:
        return EXPLANATIONS

    def can_try(self, explanation: Explanation) -> bool:
        """Return whether to try an explanation; slow ones are skipped if no mistake gives this shape or time is up."""
        if explanation.rare and self.dtype == "float32":
            return False
        return not explanation.dear or (self.has_known_shape and has_time())

    @cached_property
    def single_mistakes(self) -> list[Candidate]:
        """All candidates with one mistake."""
        return [
            *list_mistakes([case for case, _ in self.seen]),
            *fit_fills(self.seen),
            *raw_logit_fills(self.seen),
            *fit_numbers(self.wrong, self.fitted),
        ]

    @cached_property
    def has_known_shape(self) -> bool:
        """Whether attention, right or with one mistake, gives an output of this shape."""
        case, answer = self.seen[0]
        recipes = (case.recipe, *(candidate.change(case) for candidate in self.single_mistakes))
        predictions = (predicted(recipe, case.given) for recipe in recipes)
        return answer.output is None or any(
            stages is not None and stages["output"].shape == answer.output.shape for stages in predictions
        )

    def is_explained_by(self, candidate: Candidate) -> bool:
        """Return whether a candidate contradicts no answer, even a fresh one, and reproduces a wrong one."""
        if any(self.count_reproduced(candidate, seen) < 0 for seen in (self.wrong, self.right, self.fresh)):
            return False
        return any(
            self.count_reproduced(candidate, seen) > 0 for seen in (self.wrong, failing(self.fresh, self.digits))
        )

    def count_reproduced(self, candidate: Candidate, seen: Seen) -> int:
        """Return how many answers a candidate reproduces within rounding, or -1 if it contradicts one.

        Calls that raised an error do not count.
        """
        count = 0
        for case, answer in seen:
            key = (candidate, case, answer, self.digits)
            if key not in self.compared:
                self.compared[key] = self.compare(candidate, case, answer)
            if self.compared[key] < 0:
                return -1
            count += self.compared[key]
        return count

    def compare(self, candidate: Candidate, case: Case, answer: Answer) -> int:
        """Return 1 if a candidate reproduces an answer, -1 if it contradicts it, 0 if the answer is inconclusive."""
        output, digits = answer.output, self.digits
        if output is None:
            return 0
        stages = predicted(candidate.change(case), self.get_inputs(case))
        if stages is None:  # the candidate fails on these shapes
            return 0 if output.shape != expected(case)["output"].shape else -1
        # rounding may exceed the output if weights have a vanishing sum, or with logits of 1e9
        is_rough = tolerance(stages, digits) > MAX_ROUNDING * np.abs(np.nan_to_num(stages["output"])).max(initial=1e-30)
        if (is_rough and np.isfinite(stages["weights"]).all()) or is_usual_without_keys(output, stages):
            return 0
        comparable = {**stages, "output": without_blind(stages["output"], stages)}
        if differs(without_blind(output, stages), comparable, digits) or not is_nearer(output, stages, case, digits):
            return -1
        is_conclusive = candidate.names in SHOWN_BY_NAN or not self.is_right_except_nan(case, output)
        return int(is_conclusive and not is_blind(stages))

    def get_inputs(self, case: Case) -> Given:
        """Return the inputs of a case.

        Large inputs are in float32 if those of the function were: exp overflows sooner in float32.
        """
        if case.question != LARGE or self.input_digits != SINGLE or case.given.q is None:
            return case.given
        return case.in_float32

    def is_right_except_nan(self, case: Case, output: Array) -> bool:
        stages, is_nan = expected(case), np.isnan(output)
        repaired = np.where(is_nan, stages["output"], output) if output.shape == stages["output"].shape else output
        return bool(is_nan.any()) and not differs(repaired, stages, self.digits)

    @cached_property
    def wrong(self) -> Seen:
        return failing(self.seen, self.digits)

    @cached_property
    def right(self) -> Seen:
        wrong_cases = {case for case, _ in self.wrong}
        return [(case, answer) for case, answer in self.seen if case not in wrong_cases]

    @cached_property
    def fresh(self) -> Seen:
        return self.ask()

    def keep_nearest(self, candidates: list[Candidate]) -> list[Candidate]:
        """Keep the candidates nearest to the wrong answers; float64 answers distinguish a fill of 1e-12 from 0."""
        if len(candidates) < 2 or self.digits < DIGITS["float64"]:
            return candidates
        seen = [*self.wrong, *self.fresh]
        errors = [max(find_error(candidate, case, answer) for case, answer in seen) for candidate in candidates]
        limit = MAX_DISTANCE * min(errors) + 2.0**-50
        return [candidate for candidate, error in zip(candidates, errors, strict=True) if error <= limit]

    def find_one_mistake(self) -> Explained | None:
        fitting = [candidate for candidate in self.single_mistakes if self.is_explained_by(candidate)]
        confirmed = [
            candidate for candidate in fitting if self.count_reproduced(candidate, self.wrong_with_memory) >= 0
        ]
        return choose_best(self.keep_nearest(confirmed or fitting))

    def find_two_mistakes(self) -> Explained | None:
        if self.are_mostly_nan:
            return None
        pairs = itertools.takewhile(lambda _: has_time(), pair_mistakes(self.single_mistakes, self.seen))
        return choose_best([pair for pair in pairs if self.is_explained_by(pair)])

    @cached_property
    def are_mostly_nan(self) -> bool:
        """Whether most wrong outputs are mostly NaN or infinite, so that many mistakes would fit."""
        outputs = [answer.output for _, answer in self.wrong if answer.output is not None]
        return bool(np.mean([np.isfinite(output).mean() < MOSTLY_NAN for output in outputs] or [True]) > MOSTLY_NAN)

    def find_several_mistakes(self) -> Explained | None:
        """Combine mistakes, at most one per part of attention, plus a mask mistake if cases have additional masks."""
        plain, masked = self.split_by_masks(self.seen)
        wrong = sorted(failing(plain, self.digits), key=lambda pair: pair[0].question not in FEW_TOKENS)
        if not wrong or self.are_mostly_nan:
            return None
        seen = [*wrong, *(pair for pair in plain if pair not in wrong)]
        unmasked = replace(self, seen=seen, ask=lambda: self.split_by_masks(self.fresh)[0])
        bases = [candidate for candidate in self.single_mistakes if masked and unmasked.is_explained_by(candidate)]
        equal_scores = next((pair for pair in seen if pair[0].question == EQUAL and pair[0].given.x is None), None)
        combinations = combine_parts(self.single_mistakes, wrong[0], equal_scores)
        combinations = itertools.takewhile(lambda _: has_time(), combinations)
        bases += [candidate for candidate in combinations if unmasked.is_explained_by(candidate)]
        return self.add_mask_mistake(bases, masked)

    def split_by_masks(self, seen: Seen) -> tuple[Seen, Seen]:
        """Split cases into those with only the requested masks, as in the case "values", and those with more masks."""
        usual = next((case for case, _ in self.seen if case.question == "values"), self.seen[0][0]).recipe.rules.masks
        plain = [(case, answer) for case, answer in seen if case.recipe.rules.masks == usual]
        return plain, [(case, answer) for case, answer in seen if case.recipe.rules.masks != usual]

    def add_mask_mistake(self, bases: Sequence[Candidate], masked: Seen) -> Explained | None:
        """Return the best candidate that reproduces every answer: a base by itself, or with a mask mistake added.

        Bases are candidates that reproduce the answers without additional masks. The simplest combinations come first.
        """
        found = choose_best(self.keep_if_masks_show(bases, masked))
        if found is not None or not masked or not bases:
            return found
        # in this order: a common fill, one mask mistake, an inverted mask with that fill or with another mistake
        fewest = min(len(base.names) for base in bases)
        likeliest = sorted((base for base in bases if len(base.names) == fewest), key=rank)[:MAX_BASES]
        mask_mistakes = [
            candidate for candidate in self.single_mistakes if mistakes.mistake(candidate.names[0]).group == "masks"
        ]
        inversions = [candidate for candidate in mask_mistakes if candidate.names == (INVERTED,)]
        filled = [combine((inversion, LARGE_FILL)) for inversion in inversions]
        with_another = [
            combine((inversion, candidate))
            for inversion in inversions
            for candidate in mask_mistakes
            if candidate != inversion
        ]
        for additions in ([LARGE_FILL], mask_mistakes, filled, with_another):
            combined = [combine((base, addition)) for base in likeliest for addition in additions]
            if fitting := self.keep_if_masks_show(combined, masked):
                return choose_best(self.keep_nearest(fitting))
        return None

    def keep_if_masks_show(self, candidates: Sequence[Candidate], masked: Seen) -> list[Candidate]:
        """Keep candidates that fit; if answers with additional masks are wrong, each must reproduce one of them."""
        wrong = failing(masked, self.digits)
        return [
            candidate
            for candidate in candidates
            if self.is_explained_by(candidate) and (not wrong or self.count_reproduced(candidate, wrong) > 0)
        ]

    def find_setting(self) -> Explained | None:
        settings = [(words, everywhere(change)) for words, change in list_other_settings(self.seen[0][0].recipe)]
        for words, change in (*settings, ("scale=true", use_default_scale)):
            if self.is_explained_by(Candidate((words,), change)):
                return self.find_mixed_batch() or Explained(setting=words, change=change)  # a mixed batch explains more
        return None

    def find_mistake_across_calls(self) -> Explained | None:
        names = [name for name in self.across_calls if name in ("dropout_on", "not_deterministic", "mask_stale")]
        return Explained((names[0],)) if names else None

    def find_mixed_batch(self) -> Explained | None:
        return Explained(("batch_mixed",)) if "batch_mixed" in self.across_calls else None

    def find_dropped_tail(self) -> Explained | None:
        """Return "tail_dropped" if the function ignores the last key or query, or those after the last whole block."""
        outputs = [
            (case, answer.output) for case, answer in self.seen if case.question != LARGE and answer.output is not None
        ]
        outputs.sort(key=lambda pair: pair[1].size)  # if no count fits the smallest case, skip the others
        for count in (count_keys, count_queries):
            fits_smallest = bool(outputs) and count(*outputs[0], self.digits)[1] >= 0
            counts = [count(case, output, self.digits) for case, output in outputs if fits_smallest]
            if any(0 < used < total for total, used in counts) and are_whole_blocks(counts):
                return Explained(("tail_dropped",))
        return None


EXPLANATIONS = (
    Explanation(Answers.find_mistake_across_calls, turn=0),
    Explanation(Answers.find_one_mistake),
    Explanation(Answers.find_setting),
    Explanation(Answers.find_dropped_tail, rare=True),
    Explanation(Answers.find_several_mistakes, rare=True, dear=True),
    Explanation(Answers.find_two_mistakes, rare=True, dear=True),
    Explanation(Answers.find_mixed_batch, turn=3),
)


def find_half_dtype(answers: Sequence[Answer]) -> str:
    """Return the half-precision dtype that represents every number of the answers exactly, or an empty string."""
    outputs = [answer.output for answer in answers if answer.output is not None]
    fitting = (
        dtype
        for dtype in ("bfloat16", "float16")  # the coarser first: float16 represents most of its numbers too
        if all(np.array_equal(rounded_to(output, dtype), output, equal_nan=True) for output in outputs)
    )
    return next(fitting, "") if outputs else ""


def find_error(candidate: Candidate, case: Case, answer: Answer) -> float:
    """Return `max |candidate - answer| / max |answer|`, or 0 if they are not comparable."""
    stages = predicted(candidate.change(case), case.given)
    if answer.output is None or stages is None or stages["output"].shape != answer.output.shape:
        return 0.0
    largest = max(np.abs(answer.output).max(initial=0.0), 1e-300)
    error = float(np.abs(stages["output"] - answer.output).max(initial=0.0) / largest)
    return error if np.isfinite(error) else 0.0


def are_whole_blocks(counts: Sequence[tuple[int, int]]) -> bool:
    """Return whether each case uses exactly the whole blocks of some size, or all but the last key or query.

    `counts` has the total and the used number of keys or queries of each case. An input shorter than a block may be
    used or dropped.
    """
    return all(used == total - 1 for total, used in counts) or any(
        all(used == (total // size * size or (total if used else 0)) for total, used in counts) for size in BLOCK_SIZES
    )


def count_keys(case: Case, output: Array, digits: int) -> tuple[int, int]:
    """Return the number of keys, and the number of leading keys that would give this output; -1 if no number does."""
    total = expected(case)["masked"].shape[-1]
    if not differs(output, expected(case), digits):
        return total, total
    if not np.nan_to_num(output).any():
        return total, 0
    for count in range(total, -1, -1):
        stages = predicted(show_first_keys(partial(min, count))(case.recipe), case.given)
        if stages is not None and not differs(output, stages, digits):
            return total, count
    return total, -1


def count_queries(case: Case, output: Array, digits: int) -> tuple[int, int]:
    """Return the number of queries, and the number of leading queries that are right; -1 if no number fits.

    The outputs of all other queries must have the same constant value, such as 0.
    """
    stages, right = expected(case), expected(case)["output"]
    total = right.shape[-2]
    for count in range(total, 0, -1) if output.shape == right.shape else ():
        rest = output[..., count:, :]
        is_constant = not rest.size or np.isnan(rest).all() or (rest == rest.ravel()[0]).all()
        if is_constant and not differs(output[..., :count, :], {**stages, "output": right[..., :count, :]}, digits):
            return total, count
    return total, -1 if np.nan_to_num(output).any() else 0


def is_nearer(output: Array, stages: Arrays, case: Case, digits: int) -> bool:
    """Return whether a candidate is less than half as far from a wrong output as the expected output is.

    Without this condition, logits of -50 in place of -inf could "explain" any small error, because they widen the
    tolerance.
    """
    right = expected(case)
    if right["output"].shape != output.shape or not differs(output, right, digits):
        return True
    with np.errstate(all="ignore"):
        outputs = (output, stages["output"], right["output"])
        actual, candidate, wanted = (without_blind(array, stages) for array in outputs)
        error, error_of_right = (np.abs(actual - array).max(initial=0.0) for array in (candidate, wanted))
    if not differs(actual, {**right, "output": wanted}, digits):
        return True  # only queries that see no key differ
    return bool(not np.isfinite([error, error_of_right]).all() or error < error_of_right / 2)


# Locate an unexplained mistake: the first stage that differs from attention, and how


class Located(NamedTuple):
    """What is known about wrong answers that no mistake explains.

    - `stage`: the first stage that differs: `logits` (which includes everything before them), `masked`, `weights` or
      `context`; empty if it is unknown.
    - `message`: text for the user.
    """

    stage: str = ""
    message: str = ""


def locate(seen: Seen, wrong: Seen) -> Located:
    """Describe which cases are wrong, and find the stage that contains the mistake."""
    outputs = [answer.output for _, answer in seen if answer.output is not None and answer.output.size]
    if outputs and all(not output.any() for output in outputs):
        return Located("", f"zeros for every input; {UNEXPLAINED}")
    if outputs and all(np.isnan(output).all() for output in outputs):
        return Located("", f"NaN for every input; {UNEXPLAINED}")
    wrong_questions = dict.fromkeys(case.question for case, _ in wrong)
    answered = dict.fromkeys(case.question for case, answer in seen if answer.output is not None)
    right_questions = [question for question in answered if question not in wrong_questions]
    also_right = f", and right in {', '.join(right_questions)}" if right_questions else ""
    found = locate_by_nan(seen, wrong) or locate_by_cases({*wrong_questions}, seen)
    return Located(
        found.stage, f"something else: wrong in {', '.join(wrong_questions)}{also_right}; {UNEXPLAINED}{found.message}"
    )


def locate_by_nan(seen: Seen, wrong: Seen) -> Located | None:
    """Return the stage "masked" if NaN appears only in cases with masks, and a case without masks was answered."""
    with_nan = [case for case, answer in wrong if answer.output is not None and np.isnan(answer.output).any()]
    has_plain = any(not case.recipe.rules.masks and answer.output is not None for case, answer in seen)
    is_large_only = all(case.question == LARGE for case, _ in wrong)
    is_masked = with_nan and has_plain and not is_large_only and all(case.recipe.rules.masks for case in with_nan)
    return Located("masked", ". NaN appears only with masks") if is_masked else None


def locate_by_cases(wrong_questions: set[str], seen: Seen) -> Located:
    """Locate the error by which kinds of cases get wrong answers."""
    if wrong_questions == {LARGE}:
        return Located("weights", ". Only large logits go wrong: check what is subtracted before exp, and the division")
    if wrong_questions <= {*ABOUT_MASKS, *INDIVIDUAL_MASKS}:
        return Located("masked")
    if EQUAL in wrong_questions:
        return Located("", f". With {EQUAL}, outputs are wrong too: look at masks, softmax, and how heads are combined")
    if any(
        case.question == EQUAL and expected(case)["v"].any() for case, _ in seen
    ):  # zero values would hide the weights
        return Located("logits", f". With {EQUAL}, outputs are right, so look at the logits")
    return Located()
