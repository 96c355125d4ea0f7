"""The picture of the flow: the run's own shapes, worked out by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from attn_exp.report.charts.chart import Path, Rect, Text
from attn_exp.report.flow import Flow
from attn_exp.report.sections.walks import make_walks
from attn_exp.report.views import make_views
from tests.compose import comparison

MEMORY = ("embeddings=random", "embeddings.tokens=3", "embeddings.memory.tokens=5", "embeddings.d_model=12", "head=2")


def flows(*words: str) -> list[Flow]:
    return [walk["flow"] for walk in make_walks(make_views(comparison(*words)))]


def labels(flow: Flow) -> list[Text]:
    """Return what stands at the arrows."""
    return [shape for shape in flow.behind if isinstance(shape, Text) and not shape.turned]


def sizes(flow: Flow) -> dict[str, tuple[int, str]]:
    return {box.name: (box.heads, box.size) for box in flow.boxes}


def test_two_heads_of_three_tokens_by_hand() -> None:
    (flow,) = flows("variant=[multi_head]", "mask=causal")
    assert sizes(flow) == {
        **dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), (1, "4 × 4")),
        **dict.fromkeys(("x", "flat q", "flat k", "flat v", "together", "output"), (1, "3 × 4")),
        **dict.fromkeys(("q", "k", "v", "context"), (2, "3 × 2")),
        **dict.fromkeys(("scores", "logits", "masked", "weights"), (2, "3 × 3")),
    } | {"together": (1, "3 × 4")}
    said = {box.name: box.lines for box in flow.boxes}
    assert said["q"] == said["k"] == said["v"] == ("1–2 → head 1", "3–4 → head 2")
    assert said["together"] == ("head 1 → 1–2", "head 2 → 3–4")
    assert {label.text for label in labels(flow)} >= {"Q Kᵀ", "× c = 0.7071", "mask=causal", "softmax"}


def test_one_head_is_not_split_and_uses_no_output_projection() -> None:
    (flow,) = flows("variant=[looped]")
    names = ["x", "W_q", "W_k", "W_v", "q", "k", "v", "scores", "logits", "weights", "context", "output"]
    assert list(sizes(flow)) == names
    assert not any(isinstance(shape, Rect) for shape in flow.behind)


def test_a_memory_has_keys_of_its_own() -> None:
    (flow,) = flows(*MEMORY, "variant=[multi_head]")
    shown = sizes(flow)
    assert (shown["x"], shown["memory"]) == ((1, "3 × 12"), (1, "5 × 12"))
    assert (shown["flat q"], shown["flat k"], shown["weights"]) == ((1, "3 × 12"), (1, "5 × 12"), (2, "3 × 5"))


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", path)]


@pytest.mark.parametrize("words", [("variant=[multi_head]", "mask=causal"), (*MEMORY, "variant=[multi_head]")])
def test_each_arrow_leads_from_the_edge_of_a_box_to_the_edge_of_one_and_no_label_covers_any(
    words: tuple[str, ...],
) -> None:
    (flow,) = flows(*words)
    paths = [numbers(shape.path) for shape in flow.behind if isinstance(shape, Path)]
    lines, tips = paths[::2], paths[1::2]
    assert len(tips) > 15
    for line, (x, y, across, down, *back) in zip(lines, tips, strict=True):
        assert line[-2:] == [x + across / 2, y + down / 2]  # in the middle of the tip's base
        point = (x + across + back[0], y + down + back[1])
        assert any(box.top == point[1] and abs(point[0] - box.middle) <= 12 for box in flow.boxes) or any(
            box.top < point[1] < box.bottom and 0 <= point[0] - box.right <= 4 for box in flow.boxes
        )
        assert any(line[:2] in ([box.middle, box.bottom], [box.left, box.top + 20]) for box in flow.boxes)
    for label in labels(flow):
        assert not [box.name for box in flow.boxes if box.left < label.x < box.right and box.top < label.y < box.bottom]


@pytest.mark.parametrize(
    ("pool", "keys"), [("first", ("1–2 → head 1", "3–4 → head 2")), ("mean", ("1–4 mean → 1", "5–8 mean → 2"))]
)
def test_columns_of_key_value_heads_are_named(pool: str, keys: tuple[str, ...]) -> None:
    words = ("embeddings=random", "embeddings.d_model=8", "head=4", "kv_head=2", "variant=[multi_head]")
    (flow,) = flows(*words, f"kv_pool={pool}")
    said = {box.name: box.lines for box in flow.boxes}
    assert said["q"] == ("1–2 → head 1", "3–4 → head 2", "5–6 → head 3", "7–8 → head 4")
    assert said["k"] == said["v"] == keys
    assert "in each of 4 heads, 2 share a K and V" in {getattr(shape, "text", "") for shape in flow.behind}


def walks_of(*words: str) -> list[dict[str, Any]]:
    compared = comparison(*words)
    return make_walks(make_views(compared))


def parts_of(walk: dict[str, Any]) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return what stands below the columns of each matrix that a walk shows."""
    return {step.stage: step.tables[0].parts for step in walk["new"] if step.stage[:2] == "W_"}


def test_several_heads_show_the_input_in_place_with_their_columns() -> None:
    one, several = walks_of("variant=[matrix,multi_head]", "head=2")
    assert parts_of(one) == {"W_q": (), "W_k": (), "W_v": ()}
    halves = (("head 1", 2), ("head 2", 2))
    assert parts_of(several) == {"W_q": halves, "W_k": halves, "W_v": halves, "W_o": ()}
    assert several["steps"][0].stage == "x"


def test_heads_that_share_keys_are_named_together() -> None:
    """Four query heads, two key/value heads: query head h reads key/value head h // 2."""
    words = ("variant=[multi_head]", "head=4", "embeddings=random", "embeddings.d_model=8", "kv_head=2")
    (walk,) = walks_of(*words, "kv_pool=mean")
    quarters = tuple((f"head {head}", 2) for head in (1, 2, 3, 4))
    pooled = (("heads 1–2", 2), ("heads 1–2", 2), ("heads 3–4", 2), ("heads 3–4", 2))
    assert parts_of(walk)["W_q"] == quarters
    assert parts_of(walk)["W_k"] == parts_of(walk)["W_v"] == pooled
    (walk,) = walks_of(*words)
    first = (("heads 1–2", 2), ("heads 3–4", 2), ("unused", 2), ("unused", 2))
    assert parts_of(walk)["W_k"] == parts_of(walk)["W_v"] == first
