"""What a student did otherwise all the way down: worked through by plain NumPy, each box rounded, and named."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.arrays import Array
from attn_exp.diagnosis.classroom.grading import Grade, grade
from attn_exp.diagnosis.classroom.paper import Paper, make_paper
from tests.compose import config
from tests.diagnosis.functions import softmax

ONE = ("embeddings=random", "embeddings.tokens=4", "embeddings.d_model=4", "variant=[matrix]")
TWO = (*ONE[:3], "variant=[multi_head]", "head=2")
SMALL = ("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=2", "variant=[matrix]")


def worked(
    asked: Paper,
    hidden: Array | None = None,
    exchanged: bool = False,
    scaled: bool = True,
    slip: float = 0.0,
    keyed: bool = False,
    turned: bool = False,
) -> Grade:
    """Grade a student who does something else.

    Who hides some keys `[t s]`, takes q for k, forgets the scale, puts one number wrongly, makes values of keys, or
    turns the table of weights.
    """
    problem = asked.sheet.problem
    heads = asked.sheet.settled.head
    given = [np.asarray(side) for side in (problem.q, problem.k, problem.v)]
    q, k, v = (side.reshape(len(side), heads, -1).transpose(1, 0, 2).round(2) for side in given)
    if exchanged:
        q, k = k, q
    v = k if keyed else v
    made = {"q": q, "k": k, "v": v, "scores": (q @ k.transpose(0, 2, 1)).round(2)}
    made["logits"] = (made["scores"] * (q.shape[-1] ** -0.5 if scaled else 1.0)).round(2)
    masked = made["logits"] if hidden is None else np.where(hidden, -np.inf, made["logits"])
    made["weights"] = softmax(masked).round(2)
    if turned:
        made["weights"] = made["weights"].transpose(0, 2, 1)
    made["context"] = (made["weights"] @ v).round(2)
    made["context"][0, 1, 0] += slip
    joined = made["context"].transpose(1, 0, 2).reshape(len(given[0]), -1)
    mixed = joined @ problem.projections["W_o"] if asked.sheet.settled.output_projection else joined
    made["output"] = mixed.round(2)[None]
    return grade(asked, {blank.stage: made[blank.stage] for blank in asked.blanks})


@pytest.fixture(params=[(words, seed) for words in (ONE, TWO, SMALL) for seed in (1, 2)], ids=str)
def sheet(request: pytest.FixtureRequest) -> Paper:
    words, seed = request.param
    return make_paper(config(*words, f"seed={seed}"))


def test_who_does_all_as_asked_is_right(sheet: Paper) -> None:
    right = worked(sheet)
    assert (right.points, right.first_wrong, right.mistakes, right.summary) == (right.most, "", (), "")


@pytest.mark.long
def test_a_mask_that_nobody_asked_for_is_named(sheet: Paper) -> None:
    count = len(sheet.sheet.problem.tokens)
    later = worked(sheet, hidden=np.triu(np.ones((count, count), bool), 1))
    assert (later.first_wrong, later.mistakes) == ("weights", ("mask=causal",))
    assert later.summary == "attention with mask=causal, though the settings do not include it"
    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    assert worked(sheet, hidden=apart > 1).mistakes == ("mask=window mask.window.left=1 mask.window.right=1",)


def test_q_written_for_k_is_named(sheet: Paper) -> None:
    swapped = worked(sheet, exchanged=True)
    assert (swapped.first_wrong, swapped.mistakes) == ("q", ("queries_keys_swapped",))


def test_values_made_of_keys_and_a_table_turned_are_named_where_they_are_first_seen(sheet: Paper) -> None:
    keyed, turned = worked(sheet, keyed=True), worked(sheet, turned=True)
    assert (keyed.first_wrong, keyed.mistakes) == ("v", ("values_from_keys",))
    assert (turned.first_wrong, turned.mistakes) == ("weights", ("weights_transposed",))


def test_a_mistake_is_named_beside_a_slip(sheet: Paper) -> None:
    both = worked(sheet, scaled=False, slip=0.4)
    assert (both.first_wrong, both.mistakes) == ("logits", ("no_scale",))
    assert "Apart from this mistake, the sheet has a slip: " in both.summary


def test_two_mistakes_are_named_together(sheet: Paper) -> None:
    both = worked(sheet, exchanged=True, scaled=False)
    assert (both.first_wrong, both.mistakes) == ("q", ("queries_keys_swapped", "no_scale"))
    assert both.summary.endswith("k q^T instead of q k^T. The scores q k^T are not divided by sqrt(d).")


def test_a_slip_alone_is_no_setting(sheet: Paper) -> None:
    alone = worked(sheet, slip=0.4)
    assert alone.mistakes == () and alone.summary.startswith("a slip: in ")
    assert alone.points == alone.most - 1
