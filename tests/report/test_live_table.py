"""The comparison of a page follows changed numbers: it says what the program says of them."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.config.schema import Config
from attn_exp.experiment.compare import compare
from attn_exp.experiment.row import Comparison
from tests.report.live_page import CELLS, LIVE, show, table, type_into
from tests.report.tab import Tab
from tests.report.test_live import changed

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

comparing = sys.modules[compare.__module__]

FOLLOWING = ("max_diff", "cosine", "entropy", "effective_keys", "largest_weight", "row_sum_error")


WAYS = (
    ("variant=[looped,matrix,scaled,multi_head]",),
    ("variant=[looped,unscaled,multi_head]", "mask=causal", "head=2"),
    ("variant=[multi_head,multi_query]", "embeddings=random", "embeddings.tokens=4", "bias=true", "scale=0.3"),
    ("variant=[matrix,multi_head]", "position=rope", "score=alibi", "mask=[causal,window]", "kv_head=1"),
    ("variant=[matrix,unscaled]", "embeddings=random", "position=sinusoidal", "score=[softcap,sink]", "past=2"),
    ("variant=[matrix,multi_head]", "embeddings=random", "embeddings.memory.tokens=5", "normalizer=sparsemax"),
    ("variant=[matrix,multi_head]", "normalizer=sigmoid", "scale=false"),
    ("variant=[linear,matrix,blockwise]", "mask=causal", "scale=false"),
    ("variant=[looped,unscaled,multi_head]", "against=multi_head"),
    ("experiment=qk_transpose",),
    ("experiment=the_cat_sat", "normalizer=sum"),
)  # fmt: skip


def read(text: str) -> float:
    return math.nan if text == "-" else float(text.replace("\u2212", "-"))


def half(text: str) -> float:
    """Return half a unit of the last digit of a number."""
    digits, _, power = text.partition("e")
    return 0.5001 * 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))


def held(opened: Tab, wanted: Comparison) -> None:
    """Hold what the page computes and what it shows of the comparison to what the program says."""
    shown, numbers = table(opened), json.loads(opened.ask(LIVE))
    for row, now in zip(wanted.rows, numbers, strict=True):
        size = float(now["size"])
        for name in FOLLOWING:
            exact, near = getattr(row, name), 1e-12 * (max(size, 1e-300) if name == "max_diff" else 1)
            np.testing.assert_allclose(float(now[name]), exact, rtol=1e-12, atol=near, err_msg=f"{row.variant} {name}")
            if (name, row.variant) in shown:
                _, text, still = shown[name, row.variant]
                assert not still
                assert read(text) == pytest.approx(exact, abs=half(text) + near, nan_ok=True), (name, row.variant)
        assert shown["same_as", row.variant][1] == row.same_as


@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_changes_give_the_comparison_that_the_program_computes(
    opened: Tab, tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program, given the changed problem, says the same of every row after each change."""
    found, known = show(opened, tmp_path, *words), comparing.prepare

    def with_changes(config: Config, *others: Any) -> Any:
        config, _, variants = known(config, *others)
        return config, changed(found.problem, opened.ask("attention.live.now")), variants

    monkeypatch.setattr(comparing, "prepare", with_changes)
    source = random.Random(" ".join(words))
    for _ in range(3):
        type_into(opened, source.randrange(opened.ask(CELLS)), f"{source.uniform(-3, 3):.{source.randrange(0, 4)}f}")
        held(opened, comparing.compare(found.config))
    assert opened.console == []
