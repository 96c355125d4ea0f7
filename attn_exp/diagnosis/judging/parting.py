"""Explain how two implementations differ: how each answers the cases in question, and up to which stage they agree.

In: cases on which two functions give different answers. Out: sentences such as "They differ under a causal mask, where
t and s differ: a aligns causal masks top left; b follows the definition".

Some questions have no single right answer: how a causal mask is aligned if t and s differ, which key/value head a
query head uses, or what the output is for a query that sees no key. For these, `describe_answers` finds out which
common convention each function follows. Everything else is compared with the definition. `compare_traces` adds the
first stage that only one of the two computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.asking.case import (
    Answer,
    Case,
    Seen,
    expected,
    same_answer,
)
from attn_exp.diagnosis.asking.offer import setup_of
from attn_exp.diagnosis.calling.behaviour import describe_empty_row
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.observe.trace import record_with
from attn_exp.diagnosis.recipes.candidates import (
    everywhere,
    is_right,
    reproduces,
)
from attn_exp.experiment.library_conventions import sees_nothing
from attn_exp.experiment.verdict import Verdict
from attn_exp.forms.pipeline import Recipe
from attn_exp.forms.steps import share, share_in_turns
from attn_exp.own_code import guard_process
from attn_exp.rules.masks.causal import Causal

EMPTY_ROWS = "rows without keys"
"""The kind of case in which the mask hides all keys from one query."""
FOLLOWS = "follows the definition"

PLAIN = "on plain inputs"
STAGES = {
    "q": "the queries", "k": "the keys", "v": "the values", "scores": "the scores q k^T", "logits": "the scaled logits",
    "capped": "the capped logits", "masked": "the masked logits", "weights": "the weights",
    "context": "the weights times the values",
}  # fmt: skip
"""The stages of attention in order, with their names in the report."""
PROJECTED = ("q", "k", "v")
INPUTS = (*PROJECTED, "x", "memory")
"""Roles of the arguments whose use is recorded in a trace."""
LOWEST = -1e4
"""Logits below this belong to hidden keys, whatever their fill value."""
RECORDED, HIDES = "recorded", "hides keys"
"""Marks in the result of `find_stages`: HIDES if some number is as low as a hidden key's logit, else RECORDED."""
WHERE = {
    "values": PLAIN, "unequal lengths": "where t and s differ", "another length": PLAIN,
    "shared heads": "where heads share keys and values", "one key/value head": "where heads share keys and values",
    "masks": "with a mask", "large inputs": "where logits are large", "equal inputs": "where all logits are equal",
    "tiny inputs": "where logits are tiny", EMPTY_ROWS: "for queries that see no key", "causal": "under a causal mask",
    "window": "under a window", "padding": "with padding", "large hidden logits": "where hidden logits are large",
}  # fmt: skip
"""Where two functions differ, as phrases for the report; other cases appear under the name of their kind."""


@dataclass(frozen=True, eq=False)
class Pair:
    """A case with the answers of both functions, and the number of bits to compare."""

    case: Case
    answers: tuple[Answer, Answer]
    digits: int

    @property
    def both(self) -> bool:
        """Whether both functions answered."""
        return all(answer.output is not None for answer in self.answers)

    @property
    def unanswered(self) -> int:
        """Index of the function that gave no answer, if the other one did."""
        return int(self.answers[1].output is None)

    def differ(self, digits: int) -> bool:
        """Return whether both functions answered, and their answers differ by more than rounding."""
        return self.both and not same_answer(*self.answers, self.case, min(digits, self.digits))

    @cached_property
    def gap(self) -> float:
        """Maximum difference divided by the largest expected number.

        Infinite if the shapes differ or NaNs are in different places; 0 unless both functions answered.
        """
        one, other = (answer.output for answer in self.answers)
        if one is None or other is None:
            return 0.0
        if one.shape != other.shape or not np.array_equal(np.isnan(one), np.isnan(other)):
            return float("inf")
        with np.errstate(all="ignore"):
            difference = np.nan_to_num(np.abs(one - other)).max(initial=0.0)
        largest = np.abs(np.nan_to_num(expected(self.case)["output"])).max(initial=0.0)
        return float(difference / max(largest, 1e-30))

    def describe_gap(self) -> str:
        one, other = (answer.output for answer in self.answers)
        if one is not None and other is not None and one.shape != other.shape:
            return f"shapes {list(one.shape)} and {list(other.shape)}"
        return "NaNs do not match" if np.isinf(self.gap) else f"differ by up to {self.gap:.2g} times the largest number"


def find_causes(differing: Sequence[Pair], verdicts: Sequence[Verdict], names: Sequence[str], digits: int) -> list[str]:
    """Return sentences on where two functions differ; one sentence covers all kinds of cases described alike."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    questions = list(dict.fromkeys(pair.case.question for pair in differing))
    for question in (
        questions if "masks" not in questions else [question for question in questions if question != EMPTY_ROWS]
    ):
        pairs = [pair for pair in differing if pair.case.question == question]
        described = (
            describe_answers([(pair.case, pair.answers[side]) for pair in pairs], verdict, digits)
            for side, verdict in enumerate(verdicts)
        )
        phrases = (f"{name} {phrase}" for name, phrase in zip(names, described, strict=True))
        kinds.setdefault(tuple(phrases), []).append(describe_place(pairs[0].case))
    return [f"They differ {join_places(places)}: {'; '.join(phrases)}" for phrases, places in kinds.items()]


def join_places(places: Sequence[str]) -> str:
    first, *rest = [PLAIN] if PLAIN in places else list(dict.fromkeys(places))
    return " and ".join(filter(None, (first, ", ".join(rest))))


def describe_place(case: Case) -> str:
    kind = WHERE.get(case.question, f"in {case.question!r}")
    return "under a causal mask, where t and s differ" if is_aligned(case) else kind


def is_aligned(case: Case) -> bool:
    """Return whether a case has a causal mask and t differs from s, so that its alignment matters."""
    sizes = setup_of(case)
    return sizes.rows != sizes.keys and any(isinstance(mask, Causal) for mask in case.recipe.rules.masks)


def describe_answers(seen: Seen, verdict: Verdict, digits: int) -> str:
    """Return a phrase, to follow the name of a function, that says how it answers cases of one kind."""
    first_case, first_answer = seen[0]
    if first_case.question == EMPTY_ROWS:
        assert first_answer.output is not None
        query = int(np.argmax(sees_nothing(expected(first_case)["masked"])[0, 0]))
        return f"gives {describe_empty_row(first_answer.output, first_case, query)}"
    for applies, phrase, recipe_of in CONVENTIONS:
        if applies(first_case) and all(reproduces(recipe_of(case), case, answer, digits) for case, answer in seen):
            return phrase
    if is_right(seen, digits):
        return FOLLOWS
    is_known = verdict.mistakes and verdict.is_wrong
    return f"computes {verdict.computes.rstrip('.')}" if is_known else "does not, and no known mistake explains how"


def with_offset(case: Case, offset: int) -> Recipe:
    return case.recipe.with_rules(offset=offset)


def has_shared_heads(case: Case) -> bool:
    return case.recipe.groups not in (1, case.recipe.heads)


CONVENTIONS = (
    (is_aligned, "aligns causal masks top left", lambda case: with_offset(case, 0)),
    (
        is_aligned, "aligns causal masks bottom right",
        lambda case: with_offset(case, setup_of(case).keys - setup_of(case).rows),
    ),
    (
        has_shared_heads, "shares each key/value head among neighbouring query heads",
        everywhere(lambda recipe: replace(recipe, share=share)),
    ),
    (
        has_shared_heads, "assigns key/value heads to query heads in turn",
        everywhere(lambda recipe: replace(recipe, share=share_in_turns)),
    ),
)  # fmt: skip
"""Conventions for ambiguous cases: when each applies, its description, and what it computes."""


# One trace of each, stage by stage


def compare_traces(callers: Sequence[Caller], case: Case, names: Sequence[str]) -> str:
    """Describe up to which stage two functions agree, and the next stage that only one of them computes.

    A stage counts as computed if some operation in the trace outputs its numbers, in any order. Returns an empty string
    if the traces share no stage, as with a fused kernel.
    """
    right = list_distinct_stages(expected(case), callers[0].offer.core)
    computed = [find_stages(caller, case, right) for caller in callers]
    common = [stage for stage in right if computed[0] & computed[1] & {stage}]
    if not common:
        return ""
    last = common[-1]
    sentence = f"Their traces agree up to {'queries, keys and values' if last in PROJECTED else STAGES[last]}"
    later = list(right)[list(right).index(last) + 1 :]
    if last in PROJECTED and (missing := [stage for stage in PROJECTED if stage not in common]):
        sentence, later = "Their traces differ from the start", missing
    for stage in later:
        has_stage = [stage in stages for stages in computed]
        if has_stage in ([True, False], [False, True]):
            holder, other = names if has_stage[0] else reversed(names)
            return f"{sentence}; next, {holder} computes {STAGES[stage]} as in the definition, {other} does not"
    return f"{sentence}, and differ after that"


def first_missing_stage(caller: Caller, case: Case) -> str:
    """Return the first stage of the definition that no operation computes; an empty string if nothing is recorded."""
    right = list_distinct_stages(expected(case), caller.offer.core)
    computed, stages = find_stages(caller, case, right), list(right)
    known = [stage for stage in stages if stage in computed]
    if not known:  # not even the scores of the given q and k
        return "scores" if computed and caller.offer.core else ""
    later = stages[stages.index(known[-1]) + 1 :]
    if HIDES in computed and later[:1] == ["weights"] and not case.recipe.rules.masks:
        return "masked"  # low numbers before the weights, although nothing should be masked
    if known[-1] in PROJECTED:
        later = [stage for stage in PROJECTED if stage in right and stage not in computed] or later
    return later[0] if later else "output"


def list_distinct_stages(stages: Arrays, are_given: bool) -> dict[str, Array]:
    """Return the sorted numbers of each stage, in stage order.

    A stage that equals the one before is left out, and so are queries, keys and values if they are inputs.
    """
    distinct, before = dict[str, Array](), None
    for stage in STAGES if not are_given else [stage for stage in STAGES if stage not in PROJECTED]:
        if before is None or not np.array_equal(before, stages[stage]):
            distinct[stage] = sort_numbers(stages[stage])
        before = stages[stage]
    return distinct


def find_stages(caller: Caller, case: Case, stages: Arrays) -> set[str]:
    """Return the stages whose numbers occur in the recorded call, plus RECORDED or HIDES; empty if recording fails."""
    arguments = caller.arguments(case)
    tracked_arrays = {role: arguments[role] for role in INPUTS if role in arguments}

    def call(tracked: Mapping[str, Any]) -> Any:
        return caller.call({**arguments, **tracked})

    try:
        with guard_process(), np.errstate(all="ignore"):
            trace = record_with(caller.library.name, call, tracked_arrays)
    except Exception:  # whatever the function raises on recorded arrays
        return set()
    outputs = [operation.output for operation in trace.operations if operation.output.dtype.kind == "f"]
    products = [operation for operation in trace.operations if operation.product or operation.name.startswith("mul")]
    factors = [array for operation in products for array in operation.inputs]
    found = {HIDES if any((output < LOWEST).any() for output in outputs) else RECORDED}
    for stage, expected_numbers in stages.items():
        # numbers are weights only where they are multiplied by the values
        arrays = factors if stage == "weights" else outputs
        if any(are_same(expected_numbers, sort_numbers(array)) for array in arrays):
            found.add(stage)
    return found


def sort_numbers(array: Array) -> Array:
    return np.sort(array[array > LOWEST], axis=None)


def are_same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.size > 1 and np.allclose(one, other, rtol=0, atol=1e-5 * np.abs(one).max())
