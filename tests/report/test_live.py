"""Numbers changed in the page by hand: what follows is what NumPy computes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from attn_exp.experiment.executing import execute
from attn_exp.experiment.row import Comparison, find_settled
from attn_exp.problem.problem import Problem, fill_in_qkv
from tests.report.live_page import CELLS, show, type_into
from tests.report.tab import Tab

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

Numbers = dict[str, list[list[float]]]

STAGES = """JSON.stringify(attention.live.plans.map((plan) => plan && attention.live.compute(plan, attention.live.now)),
  (_, value) => (typeof value === 'number' && !Number.isFinite(value) ? String(value) : value))"""
SHOWN = """Array.from(document.querySelectorAll('.walk article td ins'), (cell) => [
  cell.closest('.step').id, Number(cell.closest('[data-head]').dataset.head), cell.closest('tr').sectionRowIndex,
  cell.parentNode.cellIndex - 1, cell.textContent])"""
HELD = """Array.from(document.querySelectorAll('.changing tbody td'), (cell) =>
  Number((cell.querySelector('ins') || cell).textContent.replace('−', '-')))"""
SAID = "document.querySelector('.changed [role=status]').textContent"


def changed(problem: Problem, now: Numbers) -> Problem:
    """Return the problem with the numbers of the page."""
    arrays = {name: np.array(rows, float) for name, rows in now.items()}
    if problem.x is None:
        return replace(problem, **cast("dict[str, Any]", arrays))
    projections = {
        name: arrays[name].reshape(array.shape) if name in arrays else array
        for name, array in problem.projections.items()
    }
    return fill_in_qkv(replace(problem, x=arrays["x"], memory=arrays.get("memory"), projections=projections))


def numbers(nested: Any) -> np.ndarray[Any, Any]:
    return np.array(json.loads(json.dumps(nested)), dtype=float)


def leaders(found: Comparison) -> list[str]:
    """Return the variant of each walk, in their order."""
    first = {row.same_as: row.variant for row in reversed(found.rows) if row.same_as}
    return [first[letter] for letter in sorted(first)]


def check(opened: Tab, found: Comparison) -> None:
    """Hold all that the page has computed, and all that it shows of it, to NumPy."""
    now = opened.ask("attention.live.now")
    stages, problem = json.loads(opened.ask(STAGES)), changed(found.problem, now)
    traces = [execute(find_settled(found, name), problem) for name in leaders(found)]
    for walk, trace in zip(stages, traces, strict=True):
        for name, array in trace.stages():
            apart = numbers(walk[name])
            wanted = array.T[None] if name == "lse" else array if array.ndim == 3 else array[None]
            np.testing.assert_allclose(apart, wanted, rtol=1e-12, atol=1e-12, err_msg=name)
    for step, head, row, column, text in opened.ask(SHOWN):
        _, walk, stage = step.split("-", 2)
        array = np.array(now[stage]) if stage in now else getattr(traces[int(walk) - 1], stage)
        value = np.atleast_2d(array)[row, column] if array.ndim < 3 else array[head, row, column]
        if np.isfinite(value):
            assert float(text.replace("−", "-")) == pytest.approx(
                value, abs=0.51 * 10.0 ** -len(text.partition(".")[2])
            )


WAYS = (
    ("variant=[looped,unscaled,multi_head]", "mask=causal"),
    ("variant=[matrix]", "embeddings=random", "position=sinusoidal", "score=[softcap,sink]", "past=2", "head=2"),
    ("variant=[linear,matrix]", "mask=causal", "scale=false", "normalizer=softmax"),
    ("variant=[multi_head]", "convention=torch_mha", "mask=array", "mask.array.values=[[0,0,1],[1,1,1],[1,0,0]]"),
)  # fmt: skip


@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_twenty_numbers_typed_by_hand_give_what_numpy_computes(
    opened: Tab, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Type twenty numbers one after the other into any cells of X, W and the biases."""
    found, source = show(opened, tmp_path, *words), random.Random(" ".join(words))
    assert opened.ask("attention.live.plans.every(Boolean)")
    cells = opened.ask(CELLS)
    for _ in range(20):
        cell, text = source.randrange(cells), f"{source.uniform(-2, 2):.{source.randrange(0, 5)}f}"
        type_into(opened, cell, text)
        assert opened.ask(f"{HELD}[{cell}]") == float(text)
        check(opened, found)
    assert opened.console == []


X = "#walk-1-x tbody tr:nth-child(%d) td:nth-child(%d)"
FOCUSED = "document.activeElement.textContent || document.activeElement.value"
NUMBERS = "attention.live.now.x.flat().join(' ')"
OWN = "0.2 0.9 0.1 0.5 0.8 0.3 0.7 0.2 0.4 0.6 0.3 0.9"


def test_keys_alone_change_a_number_and_take_it_back(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped]")
    opened.ask("document.querySelector('#walk-1-x td[tabindex=\"0\"]').focus()")
    opened.press("ArrowRight", "ArrowDown")
    assert opened.ask(FOCUSED) == "0.3"
    opened.press("Enter", "ArrowUp", "ArrowUp")
    assert opened.ask(FOCUSED) == "0.32"
    opened.press("ArrowDown", "Enter")
    assert opened.ask(NUMBERS) == OWN.replace("0.8 0.3", "0.8 0.31")
    assert opened.ask("document.activeElement.innerText") == "0.3\n0.31"
    opened.press("7")
    assert opened.ask(NUMBERS) == OWN.replace("0.8 0.3", "0.8 7")
    opened.press("Escape")
    assert opened.ask(NUMBERS) == OWN.replace("0.8 0.3", "0.8 0.31")
    opened.press("Backspace")
    assert opened.ask(NUMBERS) == OWN
    assert opened.ask("document.querySelectorAll('ins, .moved').length") == 0
    assert not opened.ask("document.querySelector('.changed').checkVisibility()")


def test_a_quotient_is_typed_and_what_is_no_number_is_said(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped]")
    opened.click(X % (1, 2))
    opened.type("-1/3")
    opened.press("Enter")
    assert opened.ask("attention.live.now.x[0][0]") == -1 / 3
    assert opened.ask("document.querySelector('#walk-1-x tbody td ins').textContent") == "−0.3333"
    for wrong in ("1/", "1/0", "/3", "1/2/3", "1//2"):
        opened.click(X % (1, 3))
        opened.type(wrong)
        assert opened.ask("document.activeElement.getAttribute('aria-invalid')") == "true", wrong
        opened.press("Escape")


def test_old_and_new_stand_side_by_side_and_cells_explain_the_new_numbers(opened: Tab, tmp_path: Path) -> None:
    """X[she, 1] = 1.2 instead of 0.2 adds the first row of W_q to the query of she: 0.061 to 0.6642."""
    show(opened, tmp_path, "variant=[looped]")
    was = opened.ask("document.querySelector('#walk-1-q tbody td').textContent")
    opened.click(X % (1, 2))
    opened.type("1.2")
    opened.press("Enter")
    old, new = opened.ask("document.querySelector('#walk-1-q tbody td').innerText").split("\n")
    step = opened.ask("attention.live.own.W_q[0][0]")
    assert old == was
    assert float(new) == pytest.approx(float(was) + step, abs=1e-4)
    opened.click("#walk-1-q tbody td")
    assert opened.ask("document.querySelector('.why').textContent").startswith("Q[she, 1] = 1.2 × 0.061")
    assert opened.ask("document.querySelector('.why').textContent").endswith(f"= {new}")
    assert opened.ask("document.querySelector('.sums li ins').textContent").startswith("= (")


NOT_HERE = {
    ("mistake=no_scale",): "this variant makes a mistake on purpose, no_scale",
    ("embeddings=random", "embeddings.tokens=40", "embeddings.d_model=128"): "starts from 70,656 numbers, but a page",
    ("convention=flash",): "this variant rounds to float32, but a page computes in float64",
}


@pytest.mark.parametrize("words", NOT_HERE, ids=" ".join)
def test_where_nothing_can_be_changed_the_page_says_why_and_has_no_control(
    opened: Tab, tmp_path: Path, words: tuple[str, ...]
) -> None:
    show(opened, tmp_path, "variant=[looped]", *words)
    assert NOT_HERE[words] in opened.ask("document.querySelector('.walk .note').textContent")
    assert opened.ask("document.querySelectorAll('.changing, .changed').length") == 0
    assert opened.console == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_changed_page_is_sound_for_screen_readers_and_asks_for_nothing(
    opened: Tab, tmp_path: Path, scheme: str
) -> None:
    opened.screen(1280, scheme=scheme)
    show(opened, tmp_path, "variant=[looped,multi_head]", "mask=causal", "bias=true")
    opened.requests.clear()
    type_into(opened, 3, "2")
    opened.click(X % (1, 2))
    assert opened.ask("document.activeElement.getAttribute('aria-label')") == "X[she, 1], originally 0.2"
    assert opened.violations() == []
    assert (opened.requests, opened.console) == ([], [])


def test_a_number_that_stands_in_several_walks_changes_in_all_and_is_told_once(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped,multi_head]", "head=2")
    opened.click(X % (2, 2))
    opened.type("1.5")
    opened.press("Enter")
    assert opened.ask(SAID).startswith("Changed: X[likes, 1] 0.8 → 1.5. Old numbers")
    cells = "Array.from(document.querySelectorAll('[id$=\"-x\"] ins'), (cell) => cell.textContent)"
    assert opened.ask(cells) == ["1.5"] * opened.ask("document.querySelectorAll('[id$=\"-x\"]').length")
