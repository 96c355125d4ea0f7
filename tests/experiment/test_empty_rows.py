"""A row without keys is one that the masks leave none; one whose weights vanish is no such row."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.errors import UserError
from tests.compose import comparison

FORMS = "variant=[looped,matrix,blockwise]"


@pytest.mark.parametrize("convention", ["keras", "torch_mha", "onnx"])
@pytest.mark.parametrize(
    "words",
    [
        "score=sink score.sink.logit=1000",  # the sink takes all of it
        "normalizer=sigmoid score=added score.added.values=[[-1000]]",  # e^-1000 is 0
    ],
)
def test_weights_that_vanish_stay_zero(words: str, convention: str) -> None:
    compared = comparison(*words.split(), f"convention={convention}", FORMS)
    for row in compared.rows:
        assert row.same_as == "A" and row.error < 1e-30
    np.testing.assert_array_equal(compared.traces["matrix"].output, 0)


def test_numbers_that_a_convention_cannot_hold_are_refused() -> None:
    words = ("embeddings=inline", "embeddings.vectors=[[1e30,1],[1,2]]", "projections=identity", "head=1")
    with pytest.raises(UserError, match="too large for convention=jax, which computes in float32"):
        comparison(*words, "convention=jax")
