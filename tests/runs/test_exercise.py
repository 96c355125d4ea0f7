"""A worksheet in Python: numbers from cells of a notebook are checked as those typed into its page are."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError
from attn_exp.report import worksheet
from attn_exp.runs import answers
from attn_exp.runs.sheets import Exercise

WORDS = ("experiment=the_cat_sat", "variant=[matrix]", "stages=[scores,logits,weights,output]")
X = np.array([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])


@pytest.fixture(scope="module")
def exercise() -> Exercise:
    return attn_exp.sheet(*WORDS)


@pytest.fixture(scope="module")
def sides() -> list[np.ndarray]:
    """q, k and v of the document, from its seed: np.random.seed(0) and rand(4, 4) three times."""
    random = np.random.RandomState(0)
    return [X @ random.rand(4, 4) for _ in "qkv"]


def softmax(logits: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return weights


def test_right_numbers_pass_in_full_digits_and_rounded(exercise: Exercise, sides: list[np.ndarray]) -> None:
    q, k, v = sides
    weights = softmax(q @ k.T / 2)
    assert exercise.stages == ("scores", "logits", "weights", "output")
    for digits in (16, 2):
        checked = exercise.check(scores=(q @ k.T).round(digits), weights=weights.round(digits), output=weights @ v)
        assert (checked.passed, checked.mistakes) == (True, ())
        assert checked.message == "no number is wrong; some are missing"  # logits were left out


def test_a_mistake_has_its_name_and_what_follows_from_it_is_no_mistake(
    exercise: Exercise, sides: list[np.ndarray]
) -> None:
    q, k, v = sides
    weights = softmax(q @ k.T)
    checked = exercise.check(logits=q @ k.T, weights=weights, output=weights @ v)
    assert (checked.passed, checked.mistakes) == (False, ("no_scale",))
    counts = {box.stage: (box.wrong, bool(box.follows)) for box in checked.grade.boxes}
    assert counts == {"scores": (0, False), "logits": (9, False), "weights": (0, True), "output": (0, True)}
    assert checked.grade.points == 21
    assert "no_scale" in str(checked)
    good = softmax(q @ k.T / 2)
    moved = sum(int((abs(a - b) > 0.005).sum()) for a, b in ((weights, good), (weights @ v, good @ v)))
    assert (marked := html.unescape(checked._repr_html_())).count('<td class="follows">') == moved > 15
    assert marked.count('<td class="wrong">') == 9


def test_blanks_have_the_shape_that_check_takes(tmp_path: Path) -> None:
    """Two heads, one below the other; tokens as columns; and the file that the page saves."""
    words = ("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=4", "head=2", "variant=[multi_head]")
    heads = attn_exp.sheet(*words, stages=["scores", "weights"], seed=3)
    blank = heads.blank("weights")
    assert blank.shape == (6, 3)
    assert list(blank.index) == [(head, token) for head in (1, 2) for token in ("t1", "t2", "t3")]
    right = heads.paper.blanks[1].right
    assert heads.check(weights=blank.fillna(0) + right.reshape(6, 3)).passed
    assert heads.check({"weights": right}).passed
    turned = attn_exp.sheet(*WORDS, transposed=True)
    assert list(turned.blank("output").columns) == ["The", "cat", "sat"]
    assert turned.check(output=turned.paper.blanks[-1].right[0].T).passed
    file = tmp_path / "answers.csv"
    file.write_text(answers.format_answers(turned.paper, filled=True))
    assert turned.check(str(file)).message == "all right"


def test_the_page_is_shown_in_a_frame_and_needs_nothing_from_outside(exercise: Exercise) -> None:
    frame = exercise._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert "&lt;input" in frame
    assert html.unescape(frame.split('"')[1]) == worksheet.page(exercise.paper, exercise.student, "answers.csv")
    assert "http" not in frame.replace("http-equiv", "")
    assert "to fill in: scores, logits, weights, output, to 2 decimals" in str(exercise)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("names=class.csv",), "writes files"),
        (("seed=range(0,3)", "embeddings=random"), "expected one sheet, but 3 seeds give 3"),
        (("stages=[nothing]", "experiment=the_cat_sat", "variant=[matrix]"), "unknown stage"),
    ],
)
def test_words_that_make_no_single_sheet(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        attn_exp.sheet(*words)


@pytest.mark.parametrize("given", [5, [1.0, 2.0], {5: [[1.0]]}])
def test_what_is_neither_a_file_nor_numbers_by_stage_is_said_in_a_line(exercise: Exercise, given: Any) -> None:
    with pytest.raises(UserError, match=r"numbers by stage, such as scores=|unknown stage of this sheet '5'"):
        exercise.check(given)


def test_numbers_that_do_not_fit(exercise: Exercise) -> None:
    with pytest.raises(UserError, match=r"scores: expected 3 rows of 3 numbers \(got shape \(2, 2\)\)"):
        exercise.check(scores=np.zeros((2, 2)))
    with pytest.raises(UserError, match=r"scores: expected 3 rows of 3 numbers \(could not convert"):
        exercise.check(scores=[["a"]])
    with pytest.raises(UserError, match="unknown stage of this sheet 'score'; did you mean scores"):
        exercise.check(score=np.zeros((3, 3)))
    with pytest.raises(UserError, match="cannot be read"):
        exercise.check("nowhere.csv")
