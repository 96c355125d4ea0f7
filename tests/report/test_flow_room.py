"""The picture of the flow has room for its words: none leaves its box, meets another or is crossed by a line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, cycle, pairwise
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.path import Path as Line
from numpy.typing import NDArray

from attn_exp.report.charts.chart import Curve, Label, Rect, Sheet
from attn_exp.report.charts.matplotlib_figure import path_of
from attn_exp.report.charts.widths import width
from attn_exp.report.figures import flow
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
    "many variants": ("variant=[looped,matrix,scaled,unscaled,multi_head,multi_query]", "head=2"),
    "8 heads": (*SMALL, "head=8"),
    "24 heads": (*SMALL, "head=24", "mask=causal"),
    "24 heads of 64": (*HUGE, *ALL),
    "4 of 24 heads share": (*HUGE, "kv_head=6", *ALL),
    "16 share": (*SMALL, "head=16", "kv_head=2"),
    "one K and V": (*SMALL, "head=8", "kv_head=1"),
    "multi-query": ("variant=[multi_query]", "head=2", *ALL),
    "grouped, all done": (*SMALL, "head=4", "kv_head=2", *ALL),
    "biases": ("bias=true", "variant=[matrix]"),
    "biases of heads": ("bias=true", "variant=[multi_head]", "head=2"),
    "memory": (*MEMORY, "variant=[matrix]"),
    "memory of heads": (*MEMORY, "variant=[multi_head]", "bias=true", "score=softcap"),
    "given q, k, v": (
        *GIVEN, "embeddings.q=[[0.5,0.5]]", "embeddings.k=[[1,2],[3,4]]", "embeddings.v=[[1,2],[3,4]]",
        "variant=[matrix]",
    ),
    "given weights": (*GIVEN, "embeddings.weights=[[0.5,0.5],[1,0]]", "embeddings.v=[[1,2],[3,4]]", "variant=[matrix]"),
    "mask and cap": ("variant=[matrix]", "mask=causal", "score=softcap"),
    "long words of masks": ("variant=[matrix]", "mask=window", "score=alibi"),
    "additive": ("variant=[matrix]", "score=additive"),
    "sinusoids": ("position=sinusoidal", "variant=[looped,multi_head]", "bias=true", "head=2"),
    "sinusoids and turns": ("position=[sinusoidal,rope]", "variant=[looped,multi_head]", "past=1", "head=2"),
    "past": ("past=1", "position=rope", "variant=[looped,multi_head]", "bias=true"),
    "one token": ("embeddings=random", "embeddings.tokens=1", "variant=[matrix,multi_head]", "embeddings.d_model=4"),
    "512 tokens": (*LONG, "variant=[matrix]", "mask=causal"),
    "512 tokens, 8 heads": (*LONG, "embeddings.d_model=16", "variant=[multi_head]", "head=8", *ALL),
    "blocks": (*LONG, "variant=[blockwise]", "weights=blocks", "head=2"),
    "blocks of heads": (*SMALL, "head=8", "kv_head=1", "variant.multi_head.form=blockwise"),
    "no weights": (*MEMORY, "variant=[linear]"),
    "mistakes": ("variant=[multi_head]", "mistake=no_scale", "head=2"),
}  # fmt: skip
PAGES = {"paper": (6.3, None), "slide": (5.079, 2.857), "narrow": (3.0, None), "banner": (6.3, 2.0), "upright": (4, 7)}


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


def spots(sheet: Sheet) -> list[Spot]:
    """Return where each text stands: capitals are 0.75 of their size high, and 0.2 reach below the line."""
    return [spot(shape) for shape in sheet.shapes if isinstance(shape, Label) and (shape.text or shape.symbol)]


def spot(words: Label) -> Spot:
    symbol = 72 * 1.12 * width(words.symbol, 12) + 4 if words.symbol else 0
    long, text = symbol + 72 * width(words.text, words.size), f"{words.symbol} {words.text}"
    high, low = 0.75 * words.size, 0.2 * words.size
    if words.turned:
        return Spot(words.x - high, words.y - long / 2, words.x + low, words.y + long / 2, text)
    return Spot(words.x, words.y - high, words.x + long, words.y + low, text)


def boxes(sheet: Sheet) -> Iterator[Spot]:
    """Yield what holds words: stages, and the cells in them."""
    for rect in (shape for shape in sheet.shapes if isinstance(shape, Rect)):
        if not rect.dashed and min(rect.width, rect.height) > 20:
            yield Spot(rect.x, rect.y, rect.x + rect.width, rect.y + rect.height)


def points(sheet: Sheet) -> NDArray[np.float64]:
    """Return points `[n 2]` on all lines, about half a pixel apart."""
    dots = [np.zeros((0, 2))]
    for curve in (shape for shape in sheet.shapes if isinstance(shape, Curve) and not shape.fill):
        line = np.concatenate(Line(*path_of(curve.path, curve.x, curve.y)).to_polygons(closed_only=False))
        for start, end in pairwise(line):
            steps = np.linspace(0, 1, 2 + int(2 * np.hypot(*(end - start))))[:, None]
            dots.append(start + steps * (end - start))
    return np.concatenate(dots)


@pytest.mark.parametrize(("words", "page"), list(zip(CASES.values(), cycle(PAGES), strict=False)), ids=CASES)
def test_no_word_leaves_its_box_meets_another_or_is_crossed(words: tuple[str, ...], page: str) -> None:
    views = seen(comparison(*words))
    for size in (PAGES["slide"], PAGES[page]):
        assert list(flaws(flow.shown(views, *size).sheet)) == []


def flaws(sheet: Sheet) -> Iterator[tuple[str, ...]]:
    """Yield what is wrong with a sheet."""
    placed, holders, dots = spots(sheet), list(boxes(sheet)), points(sheet)
    whole = Spot(0, 0, sheet.width, sheet.height)
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
    box, line = Rect(0, 0, 40, 40, "#fff", "#000"), Curve("M0 10H90")
    long, below, good = Label(5, 15, "a long text"), Label(5, 18, "below"), Label(5, 30, "good")
    assert set(flaws(Sheet(100, 100, (box, line, long, below, good)))) == {
        ("meet", " a long text", " below"), ("leaves its box", " a long text"), ("crossed", " a long text"),
    }  # fmt: skip
    assert list(flaws(Sheet(30, 100, (Label(5, 15, "a long text"),)))) == [("leaves the sheet", " a long text")]


@pytest.mark.parametrize("name", ["default", "two heads", "one head", "8 heads", "memory of heads", "mask and cap"])
def test_on_a_slide_no_line_leads_back_to_the_left(name: str) -> None:
    shown = flow.shown(seen(comparison(*CASES[name])), *PAGES["slide"])
    assert shown.letters >= flow.NEARLY * flow.SMALLEST
    for curve in (shape for shape in shown.sheet.shapes if isinstance(shape, Curve) and not shape.fill):
        across = np.concatenate(Line(*path_of(curve.path, curve.x, curve.y)).to_polygons(closed_only=False))[:, 0]
        assert (np.diff(across) >= 0).all()
