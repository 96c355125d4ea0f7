"""One scale of colour: a weight has the same colour in each table and picture of a page, and in its figure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_exp.report.views import colours, make_views
from tests.compose import comparison

RANDOM = ("variant=[matrix]", "embeddings=random")


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*RANDOM, "embeddings.tokens=3"), 1.0),
        ((*RANDOM, "embeddings.tokens=16", "mask=causal"), 1.0),
        ((*RANDOM, "embeddings.tokens=128", "mask=causal"), 0.57),  # ln 16 / ln 128 = 4 / 7
        ((*RANDOM, "embeddings.tokens=512", "mask=causal"), 0.44),  # ln 16 / ln 512 = 4 / 9
    ],
)
def test_colour_is_in_step_with_few_weights_and_shows_small_ones_of_many(words: Any, expected: float) -> None:
    scale = colours(make_views(comparison(*words), 0))
    assert scale.power == expected
    shares = scale.shares(np.array([0.0, 0.004, 0.31, 0.40, 1.0, np.nan]) * scale.top)
    assert shares[0] == shares[5] == 0 and shares[4] == 1
    assert (np.diff(shares[:5]) > 0).all()
    if expected == 1:
        assert shares[3] - shares[2] == pytest.approx(0.09)
    if expected == 0.44:
        assert shares[1] > 0.08  # a twelfth of the full colour: seen
