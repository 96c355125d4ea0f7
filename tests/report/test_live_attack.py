"""Random and extreme numbers typed into a page: every stage is what NumPy gives, written here once more by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.live_page import CELLS, show, type_into
from tests.report.tab import Tab
from tests.report.test_live import STAGES

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

Array = np.ndarray[Any, Any]
EXTREME = ("0", "-0", "1e-320", "1e150", "-1e150", "1e300", "1", "-1", "1e-9")
NOW = "JSON.stringify(attention.live.now)"


@pytest.fixture(scope="module", autouse=True)
def narrow(opened: Tab) -> None:
    """Show a laptop's page at 200 %."""
    opened.screen(640)


def softmax(logits: Array) -> Array:
    largest = logits.max(axis=-1, keepdims=True)
    powers = np.exp(logits - np.where(np.isneginf(largest), 0, largest))
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total))


def sigmoid(logits: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-logits)))


def nearest(logits: Array) -> Array:
    """Return the nearest point of the simplex: of every set of the largest logits, the one whose level fits."""
    weights = np.zeros_like(logits)
    for place in np.ndindex(logits.shape[:-1]):
        row = np.sort(logits[place][np.isfinite(logits[place])])[::-1]
        levels = [(row[:count].sum() - 1) / count for count in range(1, len(row) + 1)]
        fitting = [
            level for count, level in enumerate(levels, 1)
            if row[count - 1] > level and (count == len(row) or row[count] <= level)
        ]  # fmt: skip
        weights[place] = np.maximum(logits[place] - fitting[0], 0)
    return weights


def by_hand(now: Mapping[str, Any], heads: int, groups: int, about: Mapping[str, Any]) -> dict[str, Array]:
    """Return scores, weights and output of heads side by side in the columns, from the arrays alone.

    `calm`: tiny differences of large numbers decide nothing here, so that none are typed.
    """
    arrays = {name: np.array(rows, float) for name, rows in now.items()}
    size = arrays["W_q"].shape[1] // heads
    q, k, v = (arrays["x"] @ arrays[f"W_{letter}"] for letter in "qkv")
    q, k, v = ([side[:, h * size : (h + 1) * size] for h in range(side.shape[1] // size)] for side in (q, k, v))
    k, v = k[:groups], v[:groups]
    scores = np.array([q[h] @ k[h * groups // heads].T for h in range(heads)])
    logits = scores / np.sqrt(size)
    if about.get("causal"):
        logits = np.where(np.tril(np.ones(logits.shape[1:], bool)), logits, -np.inf)
    weights = about.get("normalizer", softmax)(logits)
    context = np.concatenate([weights[h] @ v[h * groups // heads] for h in range(heads)], axis=1)
    return {
        "scores": scores,
        "weights": weights,
        "output": context @ arrays["W_o"] if about.get("mixed") else context,
    }


WAYS = (
    (("variant=[multi_head]", "embeddings=random", "head=4", "kv_head=2", "mask=causal"), 4, 2,
     {"mixed": True, "causal": True}),
    (("variant=[matrix]", "normalizer=sigmoid"), 1, 1, {"normalizer": sigmoid}),
    (("variant=[matrix]", "normalizer=sparsemax", "mask=causal"), 1, 1,
     {"normalizer": nearest, "causal": True, "calm": True}),
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: " ".join(way[0]))
def test_forty_numbers_of_any_size_give_what_numpy_gives(
    opened: Tab, tmp_path: Path, way: tuple[tuple[str, ...], int, int, dict[str, Any]]
) -> None:
    """Where NumPy meets infinities or NaN, of the page only the scores are held."""
    words, heads, groups, about = way
    show(opened, tmp_path, *words)
    source = random.Random(" ".join(words))
    for count in range(40):
        text = source.choice(EXTREME) if count % 3 == 2 and not about.get("calm") else f"{source.uniform(-3, 3):.3f}"
        type_into(opened, source.randrange(opened.ask(CELLS)), text)
        stages, wanted = json.loads(opened.ask(STAGES))[0], by_hand(json.loads(opened.ask(NOW)), heads, groups, about)
        for name, array in wanted.items():
            mine, finite = np.array(stages[name], float), np.isfinite(array)
            if name != "scores" and not np.isfinite(wanted["scores"]).all():
                continue
            size = np.abs(array[finite]).max(initial=0)
            assert np.array_equal(np.isfinite(mine.reshape(array.shape)), finite), (name, count)
            assert np.abs(mine.reshape(array.shape) - array)[finite].max(initial=0) <= 1e-12 * max(1, size), (
                name,
                count,
            )
        if count % 10 == 9:
            opened.click(".changed button")
    assert opened.console == []
