"""A cell of a walk says how it came about: its words are worked out again here, and held to the run's own numbers."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.report.live_page import show
from tests.report.tab import Tab

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

STAGES = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")
SAID = """
Array.from(document.querySelectorAll('.why-table tbody td'), (cell) => {
  cell.dispatchEvent(new FocusEvent('focusin', {bubbles: true}));
  return [cell.closest('.step').id, cell.textContent, document.querySelector('.why').textContent,
    document.querySelectorAll('.source').length];
})
"""


def said(opened: Tab, row: int, column: int, step: str) -> str:
    """Click on a cell and return what it says."""
    opened.click(f"#{step} tbody tr:nth-child({row}) td:nth-child({column + 1})")
    return str(opened.ask("document.querySelector('.why').textContent"))


def test_the_sums_are_those_that_a_student_would_write(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped]", "mask=causal")
    score = "0.3020 × 0.588 + 0.8100 × 0.586 + 0.4063 × 0.544 + 0.0904 × (−0.134)"
    assert said(opened, 2, 1, "walk-1-scores") == f"S[likes, she] = {score} = 0.861"
    lit = "Array.from(document.querySelectorAll('.source'), (cell) => cell.textContent).join(' ')"
    assert opened.ask(lit) == "0.3020 0.8100 0.4063 0.0904 0.588 0.586 0.544 −0.134"
    assert said(opened, 2, 1, "walk-1-logits") == "L[likes, she] = 0.5 × 0.861 = 0.4305"
    weight = "exp(0.4305) / (exp(0.4305) + exp(0.3849)) = 1.5380 / 3.0075 = 0.511"
    assert said(opened, 2, 1, "walk-1-weights") == f"A[likes, she] = {weight}"
    assert said(opened, 1, 2, "walk-1-masked").endswith(" = −∞, because this query may not see this key")


@pytest.mark.parametrize(
    "words",
    [
        ("variant=[looped,multi_head]", "mask=causal", "bias=true"),
        ("variant=[multi_head]", "embeddings=random", "embeddings.d_model=8", "head=4", "kv_head=2", "past=2"),
        ("variant=[matrix]", "embeddings=random", "embeddings.memory.tokens=5", "normalizer=sigmoid"),
        ("variant=[multi_head]", "position=sinusoidal", "score=[softcap,added]", "score.softcap.cap=2"),
        ("variant=[matrix]", "normalizer=sum", "mask=causal", "score=sink", "score.sink.logit=0.5"),
        ("variant=[matrix]", "normalizer=sparsemax", "mask=causal", "scale=false", "score=additive"),
        ("experiment=attention_basics",),
    ],
    ids=["heads", "grouped", "memory", "added", "sum", "sparsemax", "large"],
)
def test_every_sum_is_right(opened: Tab, tmp_path: Path, words: tuple[str, ...]) -> None:
    """The arithmetic comes out at the table's own number, as exactly as its digits allow, in every cell."""
    show(opened, tmp_path, *words)
    found = opened.ask(SAID)
    assert {step.split("-", 2)[2] for step, *_ in found} >= set(STAGES) - {"masked"}
    assert all(sources or "not shown here" in text for *_, text, sources in found)
    assert opened.console == []
    for step, shown, text, _ in found:
        assert "the table has" not in text
        if "not shown here" in text:  # the mean of several heads has no such sum
            assert "kv_head=2" in words and step in ("walk-1-k", "walk-1-v")
        elif ", because " not in text:
            assert computed(text) == pytest.approx(plain(shown), rel=3e-3, abs=2e-3), text


def plain(text: str) -> float:
    return float(text.replace("−", "-"))


def computed(text: str) -> float:
    """Return what the arithmetic between the first and the last equals sign comes to."""
    inner = re.split(r" = ", text, maxsplit=1)[1].split(" = ")[0]
    if inner.startswith("C"):
        return plain(text.rsplit(" = ", 1)[1])
    sum_of = inner.replace("−", "-").replace("×", "*").replace(" of other terms", "")
    assert re.fullmatch(r"(exp|tanh|max|[-+*/(),. 0-9])+", sum_of), text
    return float(eval(sum_of, {"exp": math.exp, "tanh": math.tanh, "max": max}))


def test_what_a_position_or_a_mistake_changes_is_said(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped]", "position=rope")
    assert "; the table has " in said(opened, 2, 1, "walk-1-q") and "position=rope" in said(opened, 2, 1, "walk-1-q")
    for step, shown, text, _ in opened.ask(SAID):
        if "the table has" not in text:
            assert computed(text) == pytest.approx(plain(shown), abs=1e-3), (step, text)
    show(opened, tmp_path, "variant=[looped]", "mistake=no_scale")
    told = "because this stage departs from the definition, as explained above"
    assert said(opened, 2, 1, "walk-1-logits") == f"L[likes, she] = 0.861, {told}"


def test_a_query_without_keys_gets_what_its_convention_says(opened: Tab, tmp_path: Path) -> None:
    """Keras ignores a mask that leaves a query nothing: 0.3378 is softmax of its logits, and no 0 / 0."""
    blind = ("mask=array", "mask.array.values=[[1,1,0],[0,0,0],[0,1,1]]", "convention=keras_attention_float64")
    show(opened, tmp_path, "variant=[looped]", *blind)
    gives = "convention=keras_attention_float64 gives this to a query that sees no key"
    gets = f"A[likes, she] = 0.3378, because {gives}"
    assert said(opened, 2, 1, "walk-1-weights") == gets
    show(opened, tmp_path, "variant=[looped]", *blind[:2])
    because = "because this query sees no key, and 0 / 0 counts as 0"
    assert said(opened, 2, 1, "walk-1-weights") == f"A[likes, she] = 0.0000, {because}"


def test_keys_that_are_not_shown_still_take_their_share(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped]", "embeddings=random", "embeddings.tokens=20", "embeddings.d_model=20")
    weight = said(opened, 1, 1, "walk-1-weights")
    assert " of keys that are not shown) = " in weight
    numbers = re.search(r"= ([0-9.]+) / ([0-9.]+) = ([0-9.]+)$", weight)
    assert numbers and float(numbers[1]) / float(numbers[2]) == pytest.approx(float(numbers[3]), abs=1e-3)
    assert " from 16 terms that are not shown" in said(opened, 1, 1, "walk-1-scores")
    assert said(opened, 5, 1, "walk-1-context").count("×") == 16


def test_arrows_move_and_escape_ends(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[looped]")
    said(opened, 1, 1, "walk-1-scores")
    opened.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert opened.ask("document.querySelector('.why').textContent").startswith("S[she, coffee] = ")
    assert opened.ask("document.querySelectorAll('#walk-1-scores td[tabindex=\"0\"]').length") == 1
    opened.press("Escape")
    assert opened.ask("document.querySelectorAll('.why, .source, .asked').length") == 0
    assert opened.violations() == []


def test_a_number_that_a_mistake_made_is_not_written_as_the_right_sum(opened: Tab, tmp_path: Path) -> None:
    show(opened, tmp_path, "variant=[matrix]", "mask=causal", "mistake=mask_small_fill")
    told = "because this stage departs from the definition, as explained above"
    assert said(opened, 1, 2, "walk-1-masked").endswith(told)
    assert " × " in said(opened, 1, 2, "walk-1-logits")
