"""The picture of the flow has room for its words: none leaves its box, meets another or is crossed by a line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, cycle, pairwise
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from attn_exp.report.charts.chart import Chart, Path, Rect, Text
from attn_exp.report.charts.matplotlib_figure import path_of
from attn_exp.report.figures import flow
from attn_exp.report.flow import LETTERS, wide
from attn_exp.report.views import seen
from tests.compose import comparison

RANDOM = ("embeddings=random", "variant=[multi_head]")
SMALL = (*RANDOM, "embeddings.tokens=3", "embeddings.d_model=48")
HUGE = (*RANDOM, "embeddings.tokens=2", "embeddings.d_model=1536", "head=24")
LONG = ("embeddings=random", "embeddings.tokens=512", "embeddings.d_model=8")
MEMORY = ("embeddings=random", "embeddings.tokens=3", "embeddings.memory.tokens=5", "embeddings.d_model=12", "head=2")
GIVEN = ("embeddings=inline", "projections=none")
ALL = ("mask=causal", "score=softcap", "position=rope", "bias=true")
CASES = {
    "default": (),
    "two heads": ("variant=[multi_head]", "head=2"),
    "one head": ("variant=[matrix]",),
    "8 heads": (*SMALL, "head=8"),
    "24 heads of 64": (*HUGE, *ALL),
    "multi-query": ("variant=[multi_query]", "head=2", *ALL),
    "grouped, all done": (*SMALL, "head=4", "kv_head=2", *ALL),
    "biases of heads": ("bias=true", "variant=[multi_head]", "head=2"),
    "memory of heads": (*MEMORY, "variant=[multi_head]", "bias=true", "score=softcap"),
    "given q, k, v": (
        *GIVEN, "embeddings.q=[[0.5,0.5]]", "embeddings.k=[[1,2],[3,4]]", "embeddings.v=[[1,2],[3,4]]",
        "variant=[matrix]",
    ),
    "given weights": (*GIVEN, "embeddings.weights=[[0.5,0.5],[1,0]]", "embeddings.v=[[1,2],[3,4]]", "variant=[matrix]"),
    "mask and cap": ("variant=[matrix]", "mask=causal", "score=softcap"),
    "additive": ("variant=[matrix]", "score=additive"),
    "sinusoids": ("position=sinusoidal", "variant=[looped,multi_head]", "bias=true", "head=2"),
    "sinusoids and turns": ("position=[sinusoidal,rope]", "variant=[looped,multi_head]", "past=1", "head=2"),
    "past": ("past=1", "position=rope", "variant=[looped,multi_head]", "bias=true"),
    "one token": ("embeddings=random", "embeddings.tokens=1", "variant=[matrix,multi_head]", "embeddings.d_model=4"),
    "512 tokens, 8 heads": (*LONG, "embeddings.d_model=16", "variant=[multi_head]", "head=8", *ALL),
    "blocks": (*LONG, "variant=[blockwise]", "weights=blocks", "head=2"),
    "no weights": (*MEMORY, "variant=[linear]"),
}  # fmt: skip
PAGES = {"paper": (6.3, None), "narrow": (3.0, None), "banner": (6.3, 2.0), "upright": (4, 7)}
SLIDE = (5.079, 2.857)


class Spot(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float
    text: str = ""

    def meets(self, other: Spot) -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > 0.5 and down > 0.5

    def within(self, other: Spot) -> bool:
        sides = self.left >= other.left - 0.1 and self.right <= other.right + 0.1
        return sides and self.top >= other.top - 0.1 and self.bottom <= other.bottom + 0.1


def spot(words: Text) -> Spot:
    """Return where a text stands: capitals are 0.75 of their size high, and 0.2 reach below the line."""
    long, text = wide(words.text, words.symbol) * words.size / LETTERS, f"{words.symbol} {words.text}"
    high, low = 0.75 * words.size, 0.2 * words.size
    if words.turned:
        return Spot(words.x - high, words.y - long / 2, words.x + low, words.y + long / 2, text)
    return Spot(words.x, words.y - high, words.x + long, words.y + low, text)


def points(path: Path) -> NDArray[np.float64]:
    """Return points `[n 2]` on a line, about half a pixel apart."""
    dots = [np.zeros((0, 2))]
    for line in path_of(path.path, (path.x, path.y)).to_polygons(closed_only=False):
        for start, end in pairwise(np.asarray(line)):
            steps = np.linspace(0, 1, 2 + int(2 * np.hypot(*(end - start))))[:, None]
            dots.append(start + steps * (end - start))
    return np.concatenate(dots)


@pytest.mark.parametrize(("words", "page"), list(zip(CASES.values(), cycle(PAGES), strict=False)), ids=CASES)
def test_no_word_leaves_its_box_meets_another_or_is_crossed(words: tuple[str, ...], page: str) -> None:
    views = seen(comparison(*words))
    for size in (SLIDE, PAGES[page]):
        assert list(flaws(flow.plan(views, *size))) == []


def flaws(chart: Chart) -> Iterator[tuple[str, ...]]:
    """Yield what is wrong with a picture."""
    shapes = chart.parts
    placed = [spot(shape) for shape in shapes if isinstance(shape, Text) and (shape.text or shape.symbol)]
    cards = [shape for shape in shapes if isinstance(shape, Rect) and shape.dashes is None]
    holders = [Spot(card.x, card.y, card.x + card.width, card.y + card.height) for card in cards]
    lines = [shape for shape in shapes if isinstance(shape, Path) and shape.fill == "none"]
    dots = np.concatenate([np.zeros((0, 2)), *map(points, lines)])
    whole = Spot(0, 0, 72 * chart.width, 72 * chart.height)
    if not placed:
        yield ("nothing",)
    yield from (("leaves the sheet", one.text) for one in placed if not one.within(whole))
    yield from (("meet", one.text, other.text) for one, other in combinations(placed, 2) if one.meets(other))
    for one in placed:
        if any(one.meets(box) and not one.within(box) for box in holders):
            yield "leaves its box", one.text
        after, before = dots > (one.left + 0.5, one.top + 0.5), dots < (one.right - 0.5, one.bottom)
        if np.any(after.all(axis=1) & before.all(axis=1)):
            yield "crossed", one.text


def test_flaws_are_seen_so_the_test_above_can_fail() -> None:
    box, line = Rect(0, 0, 40, 40, "#fff", "#000"), Path("M0 10L90 10", stroke="#000")
    long, below, good = (Text(5, y, words, LETTERS) for y, words in ((15, "a long text"), (18, "below"), (30, "good")))
    assert set(flaws(Chart(2, 2, (box, line, long, below, good)))) == {
        ("meet", " a long text", " below"), ("leaves its box", " a long text"), ("crossed", " a long text"),
    }  # fmt: skip
    assert list(flaws(Chart(0.4, 2, (long,)))) == [("leaves the sheet", " a long text")]


@pytest.mark.parametrize("name", ["default", "two heads", "one head", "8 heads", "mask and cap"])
def test_letters_on_a_slide_are_read_from_the_last_row(name: str) -> None:
    """A slide is 13.333 inches wide and drawn 5.079: letters of 7 points there have 18."""
    chart = flow.plan(seen(comparison(*CASES[name])), *SLIDE)
    assert LETTERS * min(SLIDE[0] / chart.width, SLIDE[1] / chart.height) > 6.8
