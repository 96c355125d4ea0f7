"""The contents of a worksheet: its boxes, the right numbers, and how positions rotate queries and keys.

`make_paper` makes a worksheet of a configuration, and `predict_mistakes` yields what each mistake would produce on it.
`draw_numbers` draws small integers for one student until the common mistakes show in the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.diagnosis.classroom.boxes import KEYED
from attn_exp.diagnosis.classroom.numbers import Prediction, candidates_of, case_of, catalogue
from attn_exp.diagnosis.classroom.worksheet import Sheet, run_recipe, with_step
from attn_exp.diagnosis.judging.own_form import prepared_with_code
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.executing import STAGES, Stages, first_position, follows_steps
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem
from attn_exp.problem.projections import BIASES, MATRICES
from attn_exp.rules.positions.position import Position
from attn_exp.rules.scores.score import Score

MAX_NUMBERS = 400
"""Maximum number of cells to fill in by hand."""
KNOWN_NORMALIZERS = ("softmax", "sum", "sigmoid")
"""Normalizers for which a sheet has a formula."""
TRIED_POSITIONS = 16
"""Number of positions used to find which columns are rotated together; at position 0, none are rotated."""
SAME = 1e-9
"""Numbers that differ by less than this count as the same."""
COMMON_MISTAKES = tuple(
    """
    no_scale scale_by_d scale_multiplied scale_after_softmax softmax_over_queries no_softmax sum_normalized
    weights_transposed queries_keys_swapped values_from_keys causal_ignored causal_flipped causal_strict
    mask_after_softmax heads_not_transposed single_head no_bias projection_transposed no_output_projection
    """.split()
)
"""The most common mistakes; if one of them would not change a sheet's numbers, other numbers are drawn."""
LARGEST_WEIGHT = 0.97
"""A softmax with a larger weight on one key is saturated, and hides mistakes made before it."""
MAX_DRAWS = 60
"""Maximum number of times that numbers are drawn for one student."""


@dataclass(frozen=True, eq=False)
class Blank:
    """One box: the right numbers of a stage `[h r c]` (one head for the output), and the row and column names."""

    stage: str
    right: Array
    rows: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Paper:
    """A worksheet.

    - `sheet`: the variant and its problem, without any numbers in boxes.
    - `blanks`: the boxes to fill in, with the right numbers.
    - `digits`: the required number of decimals.
    - `transposed`: show the tables transposed, with tokens as columns, as some courses do.
    """

    sheet: Sheet
    blanks: tuple[Blank, ...]
    digits: int = 2
    transposed: bool = False

    @cached_property
    def exact(self) -> Stages:
        return run_recipe(self.sheet, self.sheet.right) or {}

    @cached_property
    def added(self) -> Array | None:
        """The additive mask and bias on the logits `[h t s]`, -inf where masked; None if there is none.

        To get them, the sheet is computed with zeros in place of its logits.
        """
        rules = self.sheet.settled.rules
        has_bias = any(type(rule).bias is not Score.bias for rule in rules.scores)
        if self.has_given_weights or not (rules.masks or has_bias):
            return None
        zeros = with_step(
            self.sheet.right, "bent", lambda step: lambda setup, logits: np.zeros_like(step(setup, logits))
        )
        return (run_recipe(self.sheet, zeros) or {}).get("masked")

    @property
    def cap(self) -> float | None:
        """The bound of a softcap; None if there is none."""
        bounds = (rule.bound() for rule in self.sheet.settled.rules.scores)
        return next((bound for bound in bounds if bound is not None), None)

    @property
    def extra(self) -> list[float]:
        """The extra logit of each head in the denominator of the softmax; empty if there is none."""
        settled = self.sheet.settled
        rules = [rule for rule in settled.rules.scores if type(rule).extra is not Score.extra]
        extras = [[float(rule.extra(head)) for head in range(settled.head)] for rule in rules]
        return [float(logit) for logit in np.logaddexp.reduce(extras)] if extras else []

    @cached_property
    def rotations(self) -> dict[str, Rotation]:
        """How positions rotate q and k, by side; empty if they do not."""
        return find_rotations(self.sheet.settled, self.sheet.problem) or {}

    def find_tolerance(self, stage: str) -> float:
        """Return the tolerance of a stage's numbers: half a unit of the last decimal.

        Rotated queries and keys may also have been rounded before the rotation, in both numbers of a pair.
        """
        half_unit, rotation = 0.5 * 10.0**-self.digits, self.rotations.get(stage)
        spread = 0.0 if rotation is None else float((np.abs(rotation.cos) + np.abs(rotation.sin)).max(initial=0.0))
        return half_unit * (1 + spread)

    @property
    def has_given_weights(self) -> bool:
        return self.sheet.problem.weights is not None

    @cached_property
    def catalogue(self) -> list[Prediction]:
        return catalogue(self.sheet)


def make_paper(config: Config, requested: Sequence[str] = (), digits: int = 2, transposed: bool = False) -> Paper:
    """Return the worksheet of the first variant of a configuration.

    Raises:
        UserError: the variant is not computed in steps or lacks a stage, or the sheet would have far too many numbers.
    """
    _, problem, variants = prepared_with_code(config)
    settled = variants[0]
    refuse_long_sheet(len(problem.tokens))
    sheet = Sheet(settled, problem, ())
    exact = run_recipe(sheet, sheet.right)
    if settled.mistakes or settled.refused or exact is None:
        raise make_steps_error(settled)
    if no_formula := list_unknown_rules(settled):
        raise UserError(f"variant={settled.name}: a sheet has no formula for {no_formula[0]}")
    given_stages = ["v", "weights"] if problem.weights is not None else ["q", "k", "v"] if problem.x is None else []
    possible_stages = [stage for stage in STAGES if stage in exact and stage not in given_stages]
    if find_rotations(settled, problem) is None:
        possible_stages = [stage for stage in possible_stages if stage not in "qk"]
        if rotated := [stage for stage in requested if stage in "qk"]:
            raise UserError(
                f"{rotated[0]} cannot be a box: a sheet has no formula for position={settled.words['position']}"
            )
    for stage in requested:
        if stage not in possible_stages:
            raise UserError(unknown(stage, possible_stages, "stage"))
    informative = find_informative_stages(exact, possible_stages, problem.x)
    box_stages = [stage for stage in possible_stages if stage in requested] if requested else informative
    scratch = tuple(stage for stage in informative if stage not in box_stages and stage not in "qkv")
    sheet = replace(sheet, scratch=scratch)
    blanks = tuple(make_blank(stage, exact[stage], sheet) for stage in box_stages)
    refuse_long_sheet(sum(box.right.size for box in blanks))
    if not follows_steps(settled, problem):
        raise make_steps_error(settled)
    return Paper(sheet, blanks, digits, transposed)


def list_unknown_rules(settled: Settled) -> list[str]:
    """Return the rules of a variant for which a sheet has no formula."""
    names = [
        type(rule).__name__.lower()
        for rule in settled.rules.scores
        if rule.pairs or (type(rule).bend is not Score.bend and rule.bound() is None)
    ]
    normalizer = settled.rules.normalizer.name
    return names if normalizer in KNOWN_NORMALIZERS else [*names, normalizer]


def refuse_long_sheet(count: int) -> None:
    """Refuse more blanks than anyone would fill in; callers may pass a lower bound, such as the number of tokens.

    Raises:
        UserError: there would be too many blanks; the message gives the count.
    """
    if count > MAX_NUMBERS:
        raise UserError(
            f"a sheet of {count:,} blanks is too long; the maximum is {MAX_NUMBERS}: use fewer tokens, or stages=[...]"
        )


def make_steps_error(settled: Settled) -> UserError:
    return UserError(f"variant={settled.name} is not computed in steps that a sheet can show; try variant=[matrix]")


def find_informative_stages(exact: dict[str, Array], stages: Sequence[str], x: Array | None) -> list[str]:
    """Return the stages with new numbers, which repeat neither x nor an earlier stage."""
    chosen: list[str] = []
    for stage in stages:
        known = ([] if x is None else [x]) if stage in "qkv" else [exact[other] for other in chosen]
        if any(are_same_numbers(exact[stage], array) for array in known):
            continue
        is_context = stage == "context" and "output" in exact
        if is_context and are_same_numbers(np.concatenate(list(exact["context"]), axis=-1), exact["output"]):
            continue  # the output only concatenates the heads
        chosen.append(stage)
    return chosen


def are_same_numbers(one: Array, other: Array) -> bool:
    one, other = np.squeeze(one), np.squeeze(other)
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=1e-12)


def make_blank(stage: str, right: Array, sheet: Sheet) -> Blank:
    problem = sheet.problem
    heads = right if right.ndim == 3 else right[None]
    columns = problem.key_tokens if stage in KEYED else tuple(str(column + 1) for column in range(heads.shape[2]))
    return Blank(stage, heads, problem.key_tokens if stage in "kv" else problem.tokens, columns)


@dataclass(frozen=True, eq=False)
class Rotation:
    """Pairs of columns of a head, counted from 0, with the `cos` and `sin` `[tokens pairs]` of each token's rotation.

    Columns a and b become `a cos - b sin` and `a sin + b cos`.
    """

    pairs: tuple[tuple[int, int], ...]
    cos: Array
    sin: Array


def find_rotations(settled: Settled, problem: Problem) -> dict[str, Rotation] | None:
    """Return how the variant rotates `q` and `k`: empty if it does not, None if it transforms them in another way."""
    encodings = [position for position in settled.positions if not position.changes_x]
    if not encodings or problem.q is None or problem.k is None:
        return {}
    size = problem.q.shape[-1] // settled.heads.query
    first_query, rows, keys = first_position(settled, problem), len(problem.q), len(problem.k)
    q, k = (
        read_rotation(encodings, "q", size, first_query + np.arange(rows)),
        read_rotation(encodings, "k", size, np.arange(keys)),
    )
    return None if q is None or k is None else {"q": q, "k": k}


def read_rotation(encodings: Sequence[Position], side: str, size: int, positions: Array) -> Rotation | None:
    """Return how positions rotate pairs of columns of q or k; None if they do anything else.

    Encoding the unit vectors gives a matrix for each position. The encoding must be linear, and the matrix must rotate
    pairs of columns.
    """
    tried = np.concatenate([positions, np.arange(TRIED_POSITIONS)])
    vector = np.arange(1.0, size + 1)
    matrix = np.stack([apply_positions(encodings, side, unit, tried) for unit in np.eye(size)], axis=1)  # [tried d d]
    encoded = apply_positions(encodings, side, vector, tried)
    if not np.allclose(np.einsum("i,pij->pj", vector, matrix), encoded, atol=SAME):
        return None  # not linear
    are_mixed = (np.abs(matrix) > SAME).any(axis=0) & ~np.eye(size, dtype=bool)
    pairs = tuple((int(a), int(b)) for a, b in np.argwhere(are_mixed) if a < b)
    columns = [column for pair in pairs for column in pair]
    if len(set(columns)) < len(columns):
        return None  # a column is mixed with two others
    left, right = np.array(pairs, dtype=int).reshape(-1, 2).T
    cos, sin = matrix[:, left, left], matrix[:, left, right]
    rotation = np.broadcast_to(np.eye(size), matrix.shape).copy()
    rotation[:, left, left] = rotation[:, right, right] = cos
    rotation[:, left, right], rotation[:, right, left] = sin, -sin
    if not np.allclose(rotation, matrix, atol=SAME):
        return None
    return Rotation(pairs, cos[: len(positions)], sin[: len(positions)])


def apply_positions(encodings: Sequence[Position], side: str, vector: Array, positions: Array) -> Array:
    """Return one vector of a head, encoded at each of these positions, `[positions d]`."""
    rows = np.repeat(vector[None], len(positions), axis=0)
    for position in encodings:
        rows = position.turn(rows, positions) if side == "q" else position.turn_key(rows, positions)
    return rows


# Predict the result of each mistake on a worksheet, and draw small integers until every common mistake shows


@dataclass(frozen=True, eq=False)
class PredictedMistake:
    """The result of one mistake: the first box that it changes, and the numbers of all stages."""

    name: str
    says: str
    stage: str
    stages: Stages


def predict_mistakes(paper: Paper) -> Iterator[PredictedMistake]:
    """Yield the result of each mistake that a student can make here.

    The catalogue has several versions of some mistakes; only the first version that changes a box is yielded.
    """
    case, names_seen = case_of(paper.sheet), set[str]()
    for candidate in candidates_of(paper.sheet):
        name = candidate.names[0]
        mistake = mistakes.mistake(name)
        if name in names_seen or mistake.remark or mistake.group in ("precision", "behaviour"):
            continue
        predicted = run_recipe(paper.sheet, candidate.change(case))
        if predicted is not None and (stage := find_first_changed(paper, predicted)) and can_be_made(paper, predicted):
            names_seen.add(name)
            yield PredictedMistake(name, mistake.says, stage, predicted)


def can_be_made(paper: Paper, predicted: Stages) -> bool:
    """Return whether a student can make this mistake on the sheet: it must not change q, k or v if they are given."""
    box_stages = {blank.stage for blank in paper.blanks}
    given_sides = [side for side in "qkv" if side in paper.exact and side in predicted and side not in box_stages]
    return not any(differs_as_written(predicted[side], paper.exact[side], paper.digits) for side in given_sides)


def find_first_changed(paper: Paper, predicted: Stages) -> str | None:
    """Return the stage of the first box that a mistake changes or leaves out; None if there is no such box."""
    changed = (
        blank.stage
        for blank in paper.blanks
        if blank.stage not in predicted or differs_as_written(predicted[blank.stage], blank.right, paper.digits)
    )
    return next(changed, None)


def differs_as_written(array: Array, right: Array, digits: int) -> bool:
    """Return whether a stage differs from the right one `[h r c]` by more than a unit of the last decimal."""
    array = array if array.ndim == 3 else array[None]
    if array.shape != right.shape:
        return True
    with np.errstate(invalid="ignore"):
        differ = np.abs(array - right) > 10.0**-digits
    return bool((differ | (np.isfinite(array) != np.isfinite(right))).any())


def find_possible_mistakes(paper: Paper) -> frozenset[str]:
    """Return the common mistakes that change a box if it is written with many decimals."""
    return frozenset(mistake.name for mistake in predict_mistakes(replace(paper, digits=9))) & frozenset(
        COMMON_MISTAKES
    )


def find_flaws(paper: Paper, must_show: frozenset[str]) -> Iterator[str]:
    """Yield the reasons why small numbers make a poor exercise, such as a common mistake that never shows."""
    x, weights, scores = paper.sheet.problem.x, paper.exact["weights"], paper.exact["scores"]
    # equal tokens are a flaw only if there are at least twice as many nonzero vectors of 0, 1 and 2 as tokens
    if x is not None and len(np.unique(x, axis=0)) < len(x) <= (3 ** x.shape[1] - 1) // 2:
        yield "two tokens are the same"
    visible = {mistake.name for mistake in predict_mistakes(paper)}
    yield from (f"{name} never shows" for name in COMMON_MISTAKES if name in must_show - visible)
    if (weights.max(axis=-1)[(weights > 0).sum(axis=-1) > 1] > LARGEST_WEIGHT).any():
        yield "one key gets almost all the weight"
    if scores[0].size > 1 and (np.ptp(scores, axis=(-2, -1)) == 0).any():
        yield "all scores of a head are equal"


def is_ambiguous(paper: Paper) -> bool:
    """Return whether two queries of a head have the same rounded weights, or a score matrix is symmetric."""
    return any(
        len(np.unique(weights.round(paper.digits), axis=0)) < len(weights) or np.array_equal(scores, scores.T)
        for weights, scores in zip(paper.exact["weights"], paper.exact["scores"], strict=True)
    )


# Small integers for a worksheet

StudentNumbers = dict[str, Any]
"""A student's numbers: `tokens`, `vectors` and the weight matrices, as plain lists."""


def draw_numbers(
    config: Config, seed: int, compose: Callable[[StudentNumbers], Paper], must_show: frozenset[str]
) -> tuple[StudentNumbers, Paper]:
    """Draw a student's numbers, and return them with their sheet.

    x consists of 0, 1 and 2, the matrices of -1, 0 and 1; `compose` turns such numbers into a sheet. While the sheet
    has flaws or is ambiguous, new numbers are drawn, at most `MAX_DRAWS` times. It has flaws if two tokens are equal, a
    mistake in `must_show` does not show, all scores of a head are equal, or a softmax is saturated. If all sheets
    without flaws are ambiguous, the first of them is returned.

    Raises:
        UserError: every draw has a flaw.
    """
    usable = list[tuple[StudentNumbers, Paper]]()
    for attempt in range(MAX_DRAWS):
        student_numbers = draw_once(config, np.random.default_rng([seed, attempt]))
        paper = compose(student_numbers)
        reason = next(find_flaws(paper, must_show), "")
        if not reason:
            usable.append((student_numbers, paper))
            if not is_ambiguous(paper):
                return usable[-1]
    if usable:
        return usable[0]
    raise UserError(
        f"seed={seed}: found no suitable numbers in {MAX_DRAWS} draws ({reason}); "
        "try more tokens, another embeddings.d_model, or digits=3"
    )


def draw_once(config: Config, rng: np.random.Generator) -> StudentNumbers:
    tokens = config.embeddings.tokens
    names = list(tokens) if isinstance(tokens, tuple) else [f"t{index + 1}" for index in range(int(tokens or 4))]
    width = config.embeddings.d_model or 4
    vectors = rng.integers(0, 3, (len(names), width))
    vectors[~vectors.any(axis=1), rng.integers(width)] = 1  # a zero vector would have only zero scores
    numbers = {"tokens": names, "vectors": vectors.tolist()}
    numbers |= {name: rng.integers(-1, 2, (width, width)).tolist() for name in MATRICES}
    return numbers | ({name: rng.integers(-1, 2, width).tolist() for name in BIASES} if config.bias else {})
