"""Explain numbers in the boxes of a worksheet: whether they are right, which recipe gives them, or where a slip is.

In: the numbers of some stages, such as `{"weights": "[[0.4,0.6],[1,0]]"}`. Out: a verdict. `read_sheet` reads the
numbers, `catalogue` computes what every mistake would produce, and the methods of `Numbers` are the explanations that
are tried, in the order of `OF_NUMBERS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.classroom.boxes import Box, make_box, read_cells
from attn_exp.diagnosis.classroom.worksheet import (
    Reading,
    Sheet,
    Slip,
    agrees,
    are_slips,
    check_row_sums,
    describe_boxes,
    find_slips,
    get_stage,
    list_slips,
    other_readings,
    reproduces,
    run_recipe,
    transpose_sheet,
    with_own_tolerances,
)
from attn_exp.diagnosis.judging.own_form import prepared_with_code
from attn_exp.diagnosis.recipes.candidates import (
    Candidate,
    Explained,
    Explanation,
    choose_best,
    find_explanation,
    list_mistakes,
    list_other_settings,
    what_a_setting_computes,
    what_mistakes_compute,
)
from attn_exp.errors import UserError, unknown
from attn_exp.experiment import long_runs
from attn_exp.experiment.executing import STAGES, Stages, follows_steps, make_input, make_recipe
from attn_exp.experiment.variant import Settled
from attn_exp.experiment.verdict import HELD, REMARK, Finding, Verdict, decide
from attn_exp.forms.pipeline import Recipe
from attn_exp.problem.problem import Problem

TOO_FEW = "something else: no known mistake explains these numbers with certainty; too few numbers, or too few digits"
MATRICES = 800
"""Number of `[h t s]` matrices in the stages of all mistakes, for the memory estimate."""
SPARE_BITS = 5.0
"""Bits required beyond those needed to choose an explanation: a chance match then has probability 1/32."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """A candidate with its recipe and the stages that it produces."""

    candidate: Candidate
    recipe: Recipe
    stages: Stages | None


def case_of(sheet: Sheet) -> Case:
    return Case("numbers", sheet.right, make_input(sheet.settled, sheet.problem), explicit_scale=True)


def candidates_of(sheet: Sheet) -> list[Candidate]:
    """Return the mistakes that can be made on paper; the others are possible only in code."""
    candidates = list_mistakes([case_of(sheet)])
    return [candidate for candidate in candidates if not mistakes.mistake(candidate.names[0]).of_code]


def catalogue(sheet: Sheet) -> list[Prediction]:
    """Compute what every mistake would produce for the problem of a sheet; the numbers in its boxes play no part.

    Raises:
        UserError: the results would not fit in memory.
    """
    head, rows, keys = sheet.settled.head, len(sheet.problem.tokens), sheet.problem.keys
    needed = MATRICES * long_runs.FLOAT_BYTES * head * rows * keys
    purpose = "to compute every known mistake"
    long_runs.refuse_too_large(
        [long_runs.Estimate(needed, f"embeddings.tokens={rows}", purpose, "explain fewer tokens")]
    )
    case = case_of(sheet)
    recipes = [(candidate, candidate.change(case)) for candidate in candidates_of(sheet)]
    return [Prediction(candidate, recipe, run_recipe(sheet, recipe)) for candidate, recipe in recipes]


@dataclass(frozen=True, eq=False)
class Numbers:
    """A sheet with numbers, and the explanations to try: the methods `explain_...`, which return None if they fail.

    - `catalogue`: returns what every mistake would produce.
    - `kind`: `sheet` for answers to a worksheet, whose layout is known; `numbers` for any other numbers.
    - `variants`: the variants of the run, by name.
    """

    sheet: Sheet
    catalogue: Callable[[], Sequence[Prediction]]
    kind: str = "numbers"
    variants: Mapping[str, Settled] = field(default_factory=dict)

    @property
    def explanations(self) -> Sequence[Explanation]:
        return OF_SHEETS if self.kind == "sheet" else OF_NUMBERS

    def can_try(self, explanation: Explanation) -> bool:
        return True

    def views(self, first: bool) -> Iterator[Numbers]:
        """Yield these numbers in every reading to which an explanation is applied.

        `first` means that the explanation has the first priority. Such explanations are tried in more ways:

        - A worksheet is read as filled in. For the first priority, it is also read transposed.
        - Any other numbers are read as written and transposed, each number as precise as its own digits (`lenient`).
          For the first priority, they are also read as if all had the precision of the most precise one.
        """
        if self.kind == "sheet":
            sheets = self.layouts if first else self.layouts[:1]
        elif first:
            sheets = list(dict.fromkeys(sheet for pair in self.lenient.items() for sheet in pair))
        else:
            sheets = list(self.lenient.values())
        yield from (replace(self, sheet=sheet) for sheet in sheets)

    @cached_property
    def layouts(self) -> list[Sheet]:
        """The sheet as filled in, and transposed if its numbers fit that way."""
        return [layout for layout in (self.sheet, transpose_sheet(self.sheet)) if layout is not None]

    @cached_property
    def lenient(self) -> dict[Sheet, Sheet]:
        """For each layout, the same sheet with each number as precise as its own digits: 0.5 means 0.45 to 0.55."""
        return {layout: with_own_tolerances(layout) for layout in self.layouts}

    def explain_as_right(self) -> Explained | None:
        is_right = agrees(self.sheet, self.sheet.right)
        return Explained(reading=Reading(self.sheet, self.sheet.right, "")) if is_right else None

    def explain_by_notation(self) -> Explained | None:
        reading = next(
            (reading for reading in other_readings(self.sheet) if agrees(reading.sheet, reading.recipe)), None
        )
        return None if reading is None else Explained(reading=reading)

    def explain_by_mistake(self) -> Explained | None:
        return choose_best(
            [one.candidate for one in self.catalogue() if reproduces(self.sheet, one.recipe, one.stages)]
        )

    def explain_by_setting(self) -> Explained | None:
        """Return another variant of the run that reproduces the numbers, or else the first setting that does."""
        sheet, problem = self.sheet, self.sheet.problem
        for name, settled in self.variants.items():
            if name == sheet.settled.name or settled.mistakes or settled.refused:
                continue
            if follows_steps(settled, problem) and agrees(Sheet(settled, problem, sheet.boxes), make_recipe(settled)):
                return Explained(setting=f"variant=[{name}]")
        candidates = []
        if problem.q is not None:
            usual_scale = (problem.q.shape[-1] // sheet.settled.head) ** -0.5
            if sheet.settled.multiplier != usual_scale:
                candidates.append(("scale=true", sheet.right.with_rules(scale=usual_scale)))
        if problem.weights is None:
            candidates += [(words, change(sheet.right)) for words, change in list_other_settings(sheet.right)]
        words = next((words for words, recipe in candidates if agrees(sheet, recipe)), "")
        return Explained(setting=words) if words else None

    def explain_by_slips(self) -> Explained | None:
        slips = list_slips(self.sheet)
        return Explained(slips=tuple(slips)) if are_slips(slips) else None

    def explain_by_mistake_and_slip(self) -> Explained | None:
        """Return a mistake that explains all numbers but one, if the others are enough to identify it."""
        slips = [(prediction.candidate, find_only_slip(self.sheet, prediction)) for prediction in self.list_distinct()]
        found = choose_best([candidate for candidate, slip in slips if slip is not None])
        if found is None:
            return None
        slip = next(slip for candidate, slip in slips if slip is not None and candidate.names == found.names)
        box_without_slip = replace(slip.box, values=np.where(slip.cells, np.nan, slip.box.values))
        boxes = tuple(box_without_slip if box is slip.box else box for box in self.sheet.boxes)
        without_slip = replace(self, sheet=replace(self.sheet, boxes=boxes))
        # any mistake could come with a slip in any cell
        tried = len(self.catalogue()) * sum(int(box.given.sum()) for box in self.sheet.boxes)
        return None if without_slip.has_too_little_information(tried) else replace(found, slip=slip)

    def list_distinct(self) -> list[Prediction]:
        """Return the candidates that change the boxes, one per name and result."""
        keys_seen, distinct = set(), list[Prediction]()
        right_key = self.format_key(run_recipe(self.sheet, self.sheet.right))
        for prediction in self.catalogue():
            key = (prediction.candidate.names[0], self.format_key(prediction.stages))
            if prediction.stages is not None and key not in keys_seen and key[1] != right_key:
                distinct.append(prediction)
            keys_seen.add(key)
        return distinct

    def format_key(self, predicted: Stages | None) -> str:
        """Return a comparison key: the predicted numbers of the boxes, to nine decimals."""
        return " ".join(
            "-" if array is None else f"{array.shape}{(np.round(array, 9) + 0.0).tolist()}"
            for array in (get_stage(predicted, box) for box in self.sheet.boxes)
        )

    def has_too_little_information(self, tried: int) -> bool:
        """Return whether the numbers contain too little information to choose among `tried` explanations.

        A cell contains `log2(spread / rounding)` bits; its spread is the middle 80% of what the candidates predict
        there. Boxes follow from one another, so only the most informative one counts.
        """
        information = max((count_bits(box, self.catalogue()) for box in self.sheet.boxes), default=0.0)
        return information < math.log2(max(tried, 1)) + SPARE_BITS


OF_NUMBERS = (
    Explanation(Numbers.explain_as_right),
    Explanation(Numbers.explain_by_notation),
    Explanation(Numbers.explain_by_mistake),
    Explanation(Numbers.explain_by_setting, turn=2),
    Explanation(Numbers.explain_by_slips, turn=3),
    Explanation(Numbers.explain_by_mistake_and_slip, turn=5),
)
"""Explanations for any numbers; those with a smaller `turn` are preferred."""
OF_SHEETS = (
    Explanation(Numbers.explain_as_right),
    Explanation(Numbers.explain_by_mistake),
    Explanation(Numbers.explain_by_slips, turn=2),
    Explanation(Numbers.explain_by_setting, turn=3),
    Explanation(Numbers.explain_by_mistake_and_slip, turn=4),
)
"""Explanations for worksheets; slips come before other settings, which are unlikely on a worksheet."""


def count_bits(box: Box, predictions: Sequence[Prediction]) -> float:
    """Return how many bits of information the given cells contain; they grow with the spread of the predictions."""
    arrays = [get_stage(prediction.stages, box) for prediction in predictions]
    possible = [array for array in arrays if array is not None and array.shape == box.values.shape]
    if not possible:
        return 0.0
    low, high = np.quantile([np.where(np.isfinite(array), array, 0.0) for array in possible], [0.1, 0.9], axis=0)
    rounding = np.maximum(2 * box.tolerances, 1e-12)
    return float(np.log2(np.maximum((high - low) / rounding, 1.0)).sum(where=box.given))


def find_only_slip(sheet: Sheet, prediction: Prediction) -> Slip | None:
    """Return the only cell that differs from a candidate's numbers; None if none or several differ."""
    if not sheet.uses_scratch and sheet.boxes[0].misses(get_stage(prediction.stages, sheet.boxes[0])).sum() > 1:
        return None
    only = None
    for slip in find_slips(sheet, prediction.recipe, prediction.stages):
        if slip and (only or slip.cells.sum() > 1):
            return None
        only = only or slip
    return only


def equal_but_for_rounding(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return one is other
    return bool(np.allclose(one, other, rtol=1e-9, equal_nan=True))


# The verdict


def explain(config: Config, answers: Mapping[str, Any], requested: str = "") -> Verdict:
    """Find the computation that gives the numbers of some stages, passed as strings, arrays or file names.

    The first variant of the configuration is the right computation.

    Raises:
        UserError: a stage does not exist, its numbers cannot be read or do not fit it, or the settings do not fit the
            problem.
    """
    start = perf_counter()
    _, problem, variants = prepared_with_code(config)
    sheet = read_sheet(variants[0], problem, answers)
    with np.errstate(all="ignore"):  # a person may give numbers of any size
        verdict = verdict_on(sheet, {variant.name: variant for variant in variants})
    name = " and ".join(f"answer.{box.stage}" for box in sheet.boxes)
    return decide(replace(verdict, name=name, asked=requested or variants[0].name, seconds=perf_counter() - start))


def read_sheet(settled: Settled, problem: Problem, answers: Mapping[str, Any]) -> Sheet:
    if settled.mistakes:
        raise UserError(f"leave out mistake={settled.mistake}: the run must be right for explain to find the mistake")
    empty_sheet = Sheet(settled, problem, ())
    exact = run_recipe(empty_sheet, empty_sheet.right)
    if settled.refused or exact is None or not follows_steps(settled, problem):
        raise UserError(f"explain cannot follow the steps of variant={settled.name}; try variant=[matrix]")
    known_stages = [stage for stage in STAGES if stage in exact]
    if not answers:
        raise UserError(
            f"nothing to explain; give answer.STAGE=NUMBERS or answer.STAGE=FILE ({', '.join(known_stages)})"
        )
    for stage in answers:
        if stage not in known_stages:
            raise UserError(unknown(stage, known_stages, "stage of an answer"))
    boxes = (
        make_box(stage, read_cells(answers[stage], f"answer.{stage}"), exact[stage], problem)
        for stage in sorted(answers, key=STAGES.index)
    )
    return Sheet(settled, problem, tuple(boxes))


def verdict_on(sheet: Sheet, variants: Mapping[str, Settled]) -> Verdict:
    evidence = Numbers(sheet, cache(partial(catalogue, sheet)), variants=variants)
    found = find_explanation(evidence)
    if found.reading is not None:
        findings = [Finding(box.stage, HELD, box.count_text) for box in found.reading.sheet.boxes]
        remark = found.reading.remark
        findings += [Finding("a harmless difference", REMARK, remark)] if remark else []
        return Verdict("", True, (), "attention as requested", tuple(findings))
    if found.names or found.setting:
        return verdict_of_mistake(found)
    sheet_read = evidence.lenient[sheet] if found.view is None else found.view.sheet
    return verdict_of_slips(sheet_read, found.slips or list_slips(sheet_read))


def verdict_of_mistake(found: Explained) -> Verdict:
    """Return the verdict on numbers explained by a mistake or another setting, with a slip if there is one.

    A match that may be due to chance is not reported as an explanation.
    """
    findings = tuple(describe_boxes(found.view.sheet, list_slips(found.view.sheet)))
    if found.names and found.slip is None and found.view.has_too_little_information(len(found.view.catalogue())):
        return Verdict("", False, (), TOO_FEW, findings, alike=(tuple(sorted(found.names)), *found.alike))
    computes = what_mistakes_compute(found.names) if found.names else what_a_setting_computes(found.setting)
    slip = found.slip
    computes = computes if slip is None else f"{computes} There is also a slip, in {slip.box.stage}: {slip}"
    return Verdict("", False, found.names, computes, findings, alike=found.alike)


def verdict_of_slips(sheet: Sheet, slips: Sequence[Slip | None]) -> Verdict:
    actual = [slip for slip in slips if slip]
    findings = (*describe_boxes(sheet, slips), *check_row_sums(sheet))
    if not are_slips(slips):
        computes = f"something else: no known mistake explains them; {actual[0].box.stage} is the first wrong stage"
        return Verdict("", False, (), computes, findings)
    is_followed = sheet.boxes[-1] is not actual[0].box and len(actual) == 1
    rest = "; all that follows is computed correctly from it" if is_followed else ""
    computes = f"attention as requested, except for a slip in {actual[0].box.stage}: {actual[0]}{rest}"
    return Verdict("", False, (), computes, findings)
