"""A sheet says all that its boxes need, under every rule: its numbers are computed here from the page alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.errors import UserError
from attn_exp.report import worksheet
from attn_exp.report.worksheet import format_formula
from tests.report.browser import need_chromium
from tests.report.tab import visit

RULES = (
    "variant=[matrix]", "mask=causal", "score=[softcap,alibi,sink]", "score.softcap.cap=1.5", "score.sink.logit=0.25",
)  # fmt: skip


def shown(paper: Paper) -> dict[str, np.ndarray]:
    """What the page gives, as numbers."""
    matrices = {matrix["name"]: matrix["cells"] for matrix in worksheet.list_given_arrays(paper)}
    plain = {"−": "-", "∞": "inf"}
    return {
        name: np.array([[float("".join(plain.get(sign, sign) for sign in cell)) for cell in row] for row in cells])
        for name, cells in matrices.items()
    }


def of_sides(q: np.ndarray, k: np.ndarray, v: np.ndarray, added: np.ndarray, digits: int | None) -> list[np.ndarray]:
    """Scores, logits, capped, masked, weights and output by hand, each rounded where digits are given."""

    def written(array: np.ndarray) -> np.ndarray:
        return array if digits is None else np.round(array, digits)

    scores = written(q @ k.T)
    logits = written(scores / 2)
    capped = written(1.5 * np.tanh(logits / 1.5))
    masked = written(capped + added)
    weights = written(np.exp(masked) / (np.exp(masked).sum(axis=1, keepdims=True) + np.exp(0.25)))
    return [scores, logits, capped, masked, weights, written(weights @ v)]


def test_the_output_follows_from_what_its_sheet_gives() -> None:
    paper = attn_exp.sheet(*RULES, "stages=[output]", "digits=5").paper
    given = shown(paper)
    mine = of_sides(given["q"], given["k"], given["v"], given["added"], None)[-1]
    assert np.abs(mine - paper.blanks[0].right[0]).max() < 1e-8
    assert format_formula(paper, paper.blanks[0]) == (
        "output = weights v, weights = exp(masked) / sum of exp(masked) over the row, "
        "with an extra logit in the sum: 0.25, "
        "masked = capped + added, −∞ where a token may not look, capped = 1.5 tanh(logits / 1.5), "
        "logit = score × 0.5 (1/√4), scores = q kᵀ"
    )
    assert f"{paper.blanks[0].right[0, 0, 0]:.5f}".replace("-", "−") in worksheet.render_solution(paper, "Ada")


def test_a_marked_sheet_explains_the_marks_that_it_has() -> None:
    exercise = attn_exp.sheet("variant=[matrix]", "stages=[logits,weights]", seed=3)
    marked = exercise.check(weights=np.add(exercise.paper.blanks[1].right[0].round(2), [0.1, 0, 0]))._repr_html_()
    assert "✗ wrong" in marked and "– left empty" in marked and "→ right" not in marked


@pytest.mark.long
def test_the_page_takes_rounded_boxes_under_every_rule(tmp_path: Path) -> None:
    need_chromium()
    paper = attn_exp.sheet(*RULES, "digits=1", "stages=all").paper
    given = shown(paper)
    sides = [np.round(given["x"] @ given[f"W_{side}"], 1) for side in "qkv"]
    q, k, v = sides
    boxes = [q, k, v, *of_sides(q, k, v, given["added"], 1)]
    typed = ["-inf" if np.isneginf(number) else f"{number:.1f}" for box in boxes for number in box.ravel()]
    script = f"""
    const typed = {typed};
    sheet.inputs.forEach((input, place) => {{ input.value = typed[place]; }});
    sheet.check();
    return [typed.length, sheet.inputs.map((input) => input.className)];
    """
    found = visit(worksheet.page(paper, "", "a.csv"), script, tmp_path)
    count, states = found.answer
    assert found.console == []
    assert count == len(states) == sum(blank.right.size for blank in paper.blanks)
    assert set(states) == {"right"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("variant=[matrix]",), "logits = scores × 0.5 (1/√4)"),
        (("variant=[multi_head]", "head=2"), "logits = scores × 0.7071 (1/√2)"),
        (("variant=[matrix]", "scale=0.123456"), "logits = scores × 0.123456"),
    ],
)
def test_the_scale_is_said_exactly(words: tuple[str, ...], expected: str) -> None:
    paper = attn_exp.sheet(*words, "stages=[scores,logits]").paper
    assert format_formula(paper, paper.blanks[1]) == expected


@pytest.mark.parametrize(
    ("words", "of"),
    [((), "logits"), (("mask=causal",), "masked"), (("score=alibi",), "masked"), (("score=softcap",), "capped")],
    ids=str,
)
def test_the_box_that_the_weights_are_made_of_is_named(words: tuple[str, ...], of: str) -> None:
    paper = attn_exp.sheet("variant=[matrix]", *words, "stages=all").paper
    (told,) = (format_formula(paper, blank) for blank in paper.blanks if blank.stage == "weights")
    assert f"exp({of}) / sum of exp({of}) over the row" in told


@pytest.mark.parametrize("rule", ["normalizer=sparsemax", "score=additive"])
def test_what_no_line_can_say_makes_no_sheet(rule: str) -> None:
    with pytest.raises(UserError, match="a sheet has no formula for"):
        attn_exp.sheet("variant=[matrix]", rule)


def turned_by_hand(rows: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Turn pairs of columns, numbered from 1, as the line of a sheet says."""
    made = rows.copy()
    for place, (a, b) in enumerate(pairs):
        left, right = rows[:, a - 1], rows[:, b - 1]
        made[:, a - 1] = left * cos[:, place] - right * sin[:, place]
        made[:, b - 1] = left * sin[:, place] + right * cos[:, place]
    return made


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (("position=rope",), [(1, 3), (2, 4)]),
        (("position=rope", "position.rope.interleaved=true"), [(1, 2), (3, 4)]),
        (("position=rope", "position.rope.size=2"), [(1, 2)]),
        (("position=[sinusoidal,rope]",), [(1, 3), (2, 4)]),
        (("position=rope_llama3",), [(1, 3), (2, 4)]),
    ],
    ids=str,
)
def test_queries_that_positions_turn_follow_from_the_sheet(
    words: tuple[str, ...], pairs: list[tuple[int, int]]
) -> None:
    paper = attn_exp.sheet("variant=[matrix]", *words, "digits=5", "stages=all").paper
    given, right = shown(paper), {blank.stage: blank.right[0] for blank in paper.blanks}
    x = given.get("x with positions", given.get("x"))
    assert x is not None
    for side in "qk":
        by_hand = turned_by_hand(x @ given[f"W_{side}"], given["cos"], given["sin"], pairs)
        assert np.abs(by_hand - right[side]).max() < 1e-6
    assert f"(a, b) = {', '.join(map(str, pairs))}" in format_formula(paper, paper.blanks[0])


@pytest.mark.long
def test_what_is_rounded_before_it_is_turned_is_right(tmp_path: Path) -> None:
    """A student may write `x W_q` down before turning it, on the page and graded."""
    need_chromium()
    exercise = attn_exp.sheet("variant=[matrix]", "position=rope", "stages=[q]", "digits=1", "seed=3")
    paper, given = exercise.paper, shown(exercise.paper)
    product = np.round(given["x"] @ given["W_q"], 1)
    q = np.round(turned_by_hand(product, given["cos"], given["sin"], [(1, 3), (2, 4)]), 1)
    assert np.abs(q - paper.blanks[0].right[0]).max() > 0.05  # not right to half a unit
    assert exercise.check(q=q).passed
    assert not exercise.check(q=q + 0.2).passed
    script = f"""
    const typed = {q.ravel().tolist()};
    sheet.inputs.forEach((input, place) => {{ input.value = typed[place]; }});
    sheet.check();
    return sheet.inputs.map((input) => input.className);
    """
    assert set(visit(worksheet.page(paper, "", "a.csv"), script, tmp_path).answer) == {"right"}


@pytest.mark.long
def test_each_side_has_its_own_angles_where_its_tokens_are_others() -> None:
    paper = attn_exp.sheet("variant=[matrix]", "position=rope", "past=1", "digits=5", "stages=all").paper
    given = shown(paper)
    assert len(given["cos of k"]) == len(given["x"]) == 3 and paper.blanks[0].rows == ("likes", "coffee")
    queries = turned_by_hand(given["x"][1:] @ given["W_q"], given["cos of q"], given["sin of q"], [(1, 3), (2, 4)])
    assert np.abs(queries - paper.blanks[0].right[0]).max() < 1e-6
    apart = shown(attn_exp.sheet("variant=[matrix]", "position=rope", "embeddings.memory=2", "stages=all").paper)
    assert len(apart["cos of q"]) == 3 and len(apart["cos of k"]) == 2


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_the_scores_of_heads_that_share_keys_follow_from_the_sheet(pool: str) -> None:
    paper = attn_exp.sheet(
        "variant=[multi_head]", "head=4", "kv_head=2", "digits=5", f"kv_pool={pool}", "stages=all"
    ).paper
    given, right = shown(paper), {blank.stage: blank.right for blank in paper.blanks}
    heads = np.split(given["x"] @ given["W_k"], 4, axis=1)
    means = [(heads[0] + heads[1]) / 2, (heads[2] + heads[3]) / 2]
    keys = means if pool == "mean" else heads[:2]
    assert np.abs(right["k"] - keys).max() < 1e-6
    scores = [right["q"][head] @ keys[head // 2].T for head in range(4)]
    assert np.abs(right["scores"] - scores).max() < 1e-6
    lines = {blank.stage: format_formula(paper, blank) for blank in paper.blanks}
    used = {"first": "of which the first 2 are used", "mean": "then averaged in 2 groups of adjacent heads"}
    assert lines["k"].endswith(used[pool])
    assert lines["scores"] == "scores = q kᵀ, 2 heads of q per head of k"


def test_a_memory_is_given_too() -> None:
    paper = attn_exp.sheet("variant=[matrix]", "embeddings.memory=2", "stages=all").paper
    given = shown(paper)
    assert np.abs(given["memory"] @ given["W_k"] - paper.blanks[1].right[0]).max() < 1e-4
    assert format_formula(paper, paper.blanks[1]) == "k = memory W_k"


@pytest.mark.long
def test_what_no_box_holds_may_be_rounded_too(tmp_path: Path) -> None:
    """A student who rounds scores and weights where the output alone is asked is right, on the page and graded."""
    need_chromium()
    exercise = attn_exp.sheet("variant=[matrix]", "stages=[output]", "digits=2")
    given = shown(exercise.paper)
    scores = np.round(given["q"] @ given["k"].T, 2)
    powers = np.exp(np.round(scores / 2, 2))
    output = np.round(np.round(powers / powers.sum(axis=1, keepdims=True), 2) @ given["v"], 2)
    assert np.abs(output - exercise.paper.blanks[0].right[0]).max() > 0.005  # not right to half a unit
    assert exercise.check(output=output).passed
    assert not exercise.check(output=output + 0.1).passed
    script = f"""
    const typed = {output.ravel().tolist()};
    sheet.inputs.forEach((input, place) => {{ input.value = typed[place]; }});
    sheet.check();
    return sheet.inputs.map((input) => input.className);
    """
    assert set(visit(worksheet.page(exercise.paper, "", "a.csv"), script, tmp_path).answer) == {"right"}
