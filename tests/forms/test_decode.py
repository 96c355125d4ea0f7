"""Decoding has no later keys: what looks ahead is refused, wherever it looks and in whichever entry."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.experiment.compare import compare
from attn_exp.forms._operator import functional
from tests.compose import config


def test_a_document_that_goes_on_late_is_refused() -> None:
    words = ("embeddings=random", "embeddings.tokens=5", "mask=document", "mask.document.ids=[0,1,2,3,3]")
    decoded = compare(config(*words, "variant=[matrix,decode]")).rows[1]
    assert decoded.note == "decoding has no later keys to look at; use mask=causal"
    assert np.isnan(decoded.error)


def test_the_second_entry_of_a_batch_is_asked_too() -> None:
    q, k, v = (np.random.default_rng(seed).standard_normal((2, 1, 2, 3)) for seed in range(3))
    with pytest.raises(ValueError, match="decoding has no later keys"):
        functional.attention(q, k, v, nonpad_kv_seqlen=np.array([0, 2]), form="decode")
    causal = [
        functional.attention(q, k, v, nonpad_kv_seqlen=np.array([0, 2]), is_causal=True, form=form)
        for form in ("decode", "looped")
    ]
    np.testing.assert_allclose(causal[0], causal[1], atol=1e-15)
