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


def shares(logits: Array) -> Array:
    """Return each logit over the sum of its row, where a masked one counts nothing."""
    counted = np.where(np.isneginf(logits), 0, logits)
    return np.asarray(counted / counted.sum(axis=-1, keepdims=True))


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


def waves(x: Array) -> Array:
    """Add a sinusoid to each column, sines and cosines in turn, as the exponential of an imaginary number."""
    places, columns = np.indices(x.shape)
    wave = np.exp(1j * places * 10_000.0 ** (-(columns - columns % 2) / x.shape[1]))
    return np.asarray(x + np.where(columns % 2 == 0, wave.imag, wave.real))


def turned(head: Array, start: int, settings: Mapping[str, Any]) -> Array:
    """Turn pairs of a head's numbers as complex numbers, the first row by `start`."""
    size = settings.get("size", head.shape[1])
    one, other = (
        (slice(0, size, 2), slice(1, size, 2))
        if settings.get("interleaved")
        else (slice(0, size // 2), slice(size // 2, size))
    )
    angles = np.outer(
        np.arange(start, start + len(head)), settings.get("base", 10_000.0) ** (-np.arange(0, size, 2) / size)
    )
    points, result = (head[:, one] + 1j * head[:, other]) * np.exp(1j * angles), head.copy()
    result[:, one], result[:, other] = points.real, points.imag
    return result


def by_hand(now: Mapping[str, Any], heads: int, groups: int, about: Mapping[str, Any]) -> dict[str, Array]:
    """Return scores, weights and output of heads side by side in the columns, from the arrays alone.

    `calm`: tiny differences of large numbers decide nothing here, so that none are typed.
    """
    arrays = {name: np.array(rows, float) for name, rows in now.items()}
    marked = waves if about.get("waves") else np.asarray
    x, size, past = marked(arrays["x"]), arrays["W_q"].shape[1] // heads, about.get("past", 0)
    source = marked(arrays["memory"]) if "memory" in arrays else x
    added = {letter: arrays.get(f"b_{letter}", np.zeros((1, 1))) for letter in "qkvo"}
    q, k, v = (
        one @ arrays[f"W_{letter}"] + added[letter] for one, letter in ((x[past:], "q"), (source, "k"), (source, "v"))
    )
    q, k, v = ([side[:, h * size : (h + 1) * size] for h in range(side.shape[1] // size)] for side in (q, k, v))
    k, v = k[:groups], v[:groups]
    if "turns" in about:
        q, k = ([turned(head, start, about["turns"]) for head in side] for side, start in ((q, past), (k, 0)))
    scores = np.array([q[h] @ k[h * groups // heads].T for h in range(heads)])
    logits = scores * about.get("scale", 1 / np.sqrt(size))
    if about.get("causal"):
        logits = np.where(np.tril(np.ones(logits.shape[1:], bool), past), logits, -np.inf)
    weights = about.get("normalizer", softmax)(logits)
    context = np.concatenate([weights[h] @ v[h * groups // heads] for h in range(heads)], axis=1)
    return {
        "scores": scores,
        "weights": weights,
        "output": context @ arrays["W_o"] + added["o"] if about.get("mixed") else context,
    }


WAYS: tuple[tuple[tuple[str, ...], int, int, dict[str, Any]], ...] = (
    (("variant=[matrix]", "head=1"), 1, 1, {}),
    (("variant=[matrix]", "mask=causal", "scale=0.3"), 1, 1, {"causal": True, "scale": 0.3}),
    (("variant=[multi_head]", "head=2", "bias=true"), 2, 2, {"mixed": True}),
    (("variant=[multi_head]", "embeddings=random", "head=4", "kv_head=2", "mask=causal"), 4, 2,
     {"mixed": True, "causal": True}),
    (("variant=[matrix]", "embeddings=random", "embeddings.memory.tokens=5", "scale=false"), 1, 1, {"scale": 1.0}),
    (("variant=[matrix]", "normalizer=sigmoid"), 1, 1, {"normalizer": sigmoid}),
    (("variant=[multi_head]", "embeddings=random", "head=4", "kv_head=2", "past=2", "position=rope", "mask=causal"),
     4, 2, {"mixed": True, "past": 2, "turns": {}, "causal": True}),
    (("variant=[multi_head]", "embeddings=random", "past=1", "position=rope", "position.rope.interleaved=true",
      "position.rope.size=2", "position.rope.base=50"), 2, 2,
     {"mixed": True, "past": 1, "turns": {"interleaved": True, "size": 2, "base": 50.0}}),
    (("variant=[multi_head]", "embeddings.memory.tokens=5", "position=sinusoidal", "bias=true"), 2, 2,
     {"mixed": True, "waves": True}),
    (("variant=[matrix]", "position=[sinusoidal,rope]", "past=1"), 1, 1, {"past": 1, "waves": True, "turns": {}}),
    (("variant=[matrix]", "normalizer=sparsemax", "mask=causal"), 1, 1,
     {"normalizer": nearest, "causal": True, "calm": True}),
    (("variant=[multi_head]", "normalizer=sum", "past=1"), 2, 2,
     {"mixed": True, "normalizer": shares, "past": 1, "calm": True}),
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")
@pytest.mark.parametrize("way", WAYS[::5], ids=lambda way: " ".join(way[0]))
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
