"""Answer files as students fill them, judged as a fair teacher would: the cases of `benchmarks/classroom.py`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from attn_exp.diagnosis.classroom.grading import grade
from attn_exp.diagnosis.classroom.paper import Paper, make_paper
from attn_exp.diagnosis.classroom.worksheet import name_slip
from benchmarks.classroom import CASES, Case, handed_out, judged
from tests.compose import config


@pytest.fixture(scope="module")
def sheets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Mapping[str, Mapping[str, Paper]]]]:
    home, before = tmp_path_factory.mktemp("class"), Path.cwd()
    yield home, handed_out(home)
    os.chdir(before)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.name)
def test_a_file_is_judged_as_a_fair_teacher_would(
    case: Case, sheets: tuple[Path, Mapping[str, Mapping[str, Paper]]]
) -> None:
    found = judged(case, "Ada", *sheets)
    assert not found.trouble, f"{found.points}: {found.said}"


SHEET = ("embeddings=random", "embeddings.tokens=4", "embeddings.d_model=4", "variant=[matrix]", "seed=3")


def test_each_of_several_slips_is_named_with_its_box() -> None:
    asked = make_paper(config(*SHEET))
    numbers = {blank.stage: np.round(blank.right, 2) for blank in asked.blanks}
    for stage, place in (("q", (0, 1, 2)), ("logits", (0, 0, 0)), ("output", (0, 3, 1))):
        numbers[stage][place] += 3.0
    found = grade(asked, numbers)
    assert found.points == found.most - 3 and not found.mistakes
    assert [part in found.summary for part in ("in q, row", "in logits, row", "in output, row")] == [True] * 3


@pytest.mark.long
def test_numbers_by_chance_are_no_mistake() -> None:
    """Noughts follow from noughts under many a mistake; nothing is named of them."""
    asked = make_paper(config(*SHEET))
    rng = np.random.default_rng(0)
    for draw in (np.zeros, lambda shape: np.round(rng.normal(size=shape), 2), lambda shape: rng.integers(0, 3, shape)):
        numbers = {blank.stage: np.asarray(draw(blank.right.shape), float) for blank in asked.blanks}
        found = grade(asked, numbers)
        assert not found.mistakes and "no known mistake" in found.summary, found.summary


def test_a_nought_behind_a_coarse_number_makes_it_no_finer() -> None:
    asked = make_paper(config(*SHEET))
    numbers = {blank.stage: np.round(blank.right, 2) for blank in asked.blanks}
    numbers["weights"] = np.round(next(blank.right for blank in asked.blanks if blank.stage == "weights"), 1)
    numbers["output"] = np.round(numbers["weights"] @ numbers["v"], 2)
    found = grade(asked, numbers, decimals={stage: np.full(array.shape, 2) for stage, array in numbers.items()})
    assert (found.points, found.summary) == (found.most, "weights: rounded too coarsely, to one decimal instead of two")


@pytest.mark.parametrize(
    ("mine", "right", "kind"),
    [("-0.50", "0.50", "the sign"), ("5.30", "0.53", "the decimal point"), ("0.72", "0.27", "digits swapped"),
     ("0.70", "0.27", ""), ("0.00", "0.27", "")],
)  # fmt: skip
def test_a_slip_is_called_what_it_looks_like(mine: str, right: str, kind: str) -> None:
    assert name_slip(mine, float(mine), right, float(right)) == kind


PENCIL = {
    "exp_over_largest": lambda exact: np.exp(exact["masked"] - exact["masked"].max(-1, keepdims=True)),
    "exp_over_count": lambda exact: np.exp(exact["masked"]) / exact["masked"].shape[-1],
    "logits_negated": lambda exact: np.exp(-exact["masked"]) / np.exp(-exact["masked"]).sum(-1, keepdims=True),
}


@pytest.mark.parametrize("name", PENCIL)
def test_what_is_done_with_a_pencil_has_a_name(name: str) -> None:
    asked = make_paper(config(*SHEET))
    numbers = {blank.stage: np.round(blank.right, 2) for blank in asked.blanks}
    numbers["weights"] = np.round(PENCIL[name](asked.exact), 2)
    numbers["output"] = np.round(numbers["weights"] @ numbers["v"], 2)
    found = grade(asked, numbers)
    assert (found.first_wrong, found.mistakes) == ("weights", (name,))


def test_boxes_and_heads_that_change_places_on_paper_are_slips() -> None:
    asked = make_paper(config(*SHEET[:-2], "variant=[multi_head]", "head=2", "seed=3"))
    right = {blank.stage: np.round(blank.right, 2) for blank in asked.blanks}
    sides = grade(asked, {**right, "q": right["k"], "k": right["q"]})
    assert (sides.mistakes, sides.summary) == ((), "a slip: the boxes of q and k are swapped")
    heads = grade(asked, {**right, "weights": right["weights"][::-1]})
    assert (heads.mistakes, heads.summary) == ((), "a slip: in weights the heads 1 and 2 are swapped")


@pytest.mark.long
@pytest.mark.parametrize("number", [1e308, -np.inf, 1e-320, 9e15])
def test_any_number_is_judged_without_a_warning(number: float) -> None:
    asked = make_paper(config(*SHEET[:-2], "variant=[multi_head]", "head=2", "mask=causal", "seed=3"))
    for stage in ("q", "masked", "output"):
        numbers = {blank.stage: np.round(blank.right, 2) for blank in asked.blanks}
        numbers[stage][0, 1, 0], numbers[stage][-1, 2, 1] = number, -number
        assert grade(asked, numbers).points < grade(asked, {}).most


def test_what_goes_back_has_each_number_marked_the_sentence_whole_and_what_mends_it(
    sheets: tuple[Path, Mapping[str, Mapping[str, Paper]]],
) -> None:
    home, keys = sheets
    case = next(one for one in CASES if one.name == "no scale and a slip")
    judged(case, "Grace", home, keys)
    folder = home / "one" / "class"
    page = (folder / "grades/marked/Grace.html").read_text()
    tables = re.findall(r"<caption>(\w+)</caption>(.*?)</table>", page, re.DOTALL)
    marks = {stage: set(re.findall(r'<td class="(\w+)">', text)) for stage, text in tables}
    assert marks["scores"] == {"right"} and "wrong" in marks["logits"] and "follows" in marks["weights"]
    said = re.search(r'<p class="said">(.*?)</p>', page)
    assert (
        said and "not divided by sqrt(d). Apart from this mistake, the sheet has a slip: in output, row t2" in said[1]
    )
    assert "What to do instead: logits = scores / sqrt(d)<" in page
    assert "Grace" in (folder / "grades/marked/everybody.html").read_text()
