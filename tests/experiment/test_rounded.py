"""Queries, keys and values that a document prints rounded: what they can give agrees, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_exp.config.compose import compose_values
from attn_exp.config.schema import read_config
from attn_exp.experiment.compare import compare


def drawn(seed: int = 0) -> dict[str, Any]:
    stream = np.random.default_rng(seed)
    return {side: stream.uniform(-1, 1, (3, 4)) for side in "qkv"}


def attention(q: Any, k: Any, v: Any) -> dict[str, Any]:
    """Return every stage of one head, by the definition."""
    logits = q @ k.T / 2
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {"q": q, "k": k, "v": v, "logits": logits, "weights": weights, "output": weights @ v}


def agreements(printed: dict[str, Any], rounded: dict[str, float], seed: int = 0) -> dict[str, bool]:
    """Hold what was printed of the true inputs against a run on inputs of two decimals."""
    typed = {name: np.round(array, 2).tolist() for name, array in drawn(seed).items()}
    settings = compose_values(["embeddings=inline", "projections=none", "head=1", "variant=matrix"], [])
    settings["embeddings"] = typed
    settings["published"] = [
        {
            "quantity": name,
            "stage": name,
            "decimals": 9,
            "rounded": rounded,
            "printed": str(np.round(array, 9).tolist()),
        }
        for name, array in printed.items()
    ]
    return {agreement.quantity: agreement.agrees for agreement in compare(read_config(settings)).published}


WIDE = dict.fromkeys("qkv", 0.005)


@pytest.mark.parametrize("seed", range(8))
def test_all_that_the_true_inputs_give_agrees(seed: int) -> None:
    assert all(agreements(attention(**drawn(seed)), WIDE, seed=seed).values())


def test_without_it_nothing_agrees_but_by_chance() -> None:
    assert not any(agreements(attention(**drawn()), {}).values())


def test_what_rounded_inputs_cannot_give_disagrees() -> None:
    wrong = {name: array + 0.5 for name, array in attention(**drawn()).items()}
    assert not any(agreements(wrong, WIDE).values())
