"""Inputs that a document prints rounded, x and matrices among them: what they can give agrees, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_exp.config.compose import values
from attn_exp.config.schema import read_config
from attn_exp.experiment.compare import compare
from attn_exp.experiment.documents import intervals

STREAM = np.random.default_rng(0)
TRUE = {"x": STREAM.uniform(-1, 1, (3, 4))} | {f"W_{letter}": STREAM.uniform(-1, 1, (4, 4)) for letter in "qkv"}


def attention(x: Any, **matrices: Any) -> dict[str, Any]:
    """Return every stage of one head, by the definition."""
    q, k, v = (x @ matrices[f"W_{letter}"] for letter in "qkv")
    logits = q @ k.T / 2
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {"x": x, **matrices, "q": q, "k": k, "v": v, "logits": logits, "weights": weights, "output": weights @ v}


def agreements(printed: dict[str, Any], rounded: dict[str, float], *words: str) -> dict[str, bool]:
    """Hold what was printed of the true inputs against a run on inputs of two decimals."""
    typed: dict[str, Any] = {name: np.round(array, 2).tolist() for name, array in TRUE.items()}
    settings = values(["embeddings=inline", "projections=identity", "head=1", "variant=matrix", *words], [])
    settings["embeddings"] = {"vectors": typed.pop("x")}
    settings["projections"] = {"source": "identity", "given": typed}
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


WIDE = dict.fromkeys(("x", "W_q", "W_k", "W_v"), 0.005)


def test_all_that_the_true_inputs_give_agrees() -> None:
    assert all(agreements(attention(**TRUE), WIDE).values())


def test_without_it_nothing_agrees_but_by_chance() -> None:
    assert not any(agreements(attention(**TRUE), {}).values())


def test_what_rounded_inputs_cannot_give_disagrees() -> None:
    wrong = {name: array + 0.5 for name, array in attention(**TRUE).items()}
    assert not any(agreements(wrong, WIDE).values())


def test_only_what_is_said_to_be_rounded_is() -> None:
    found = agreements(attention(**TRUE), {"x": 0.005, "W_q": 0.005})
    assert (found["x"], found["W_q"], found["q"]) == (True, True, True)
    assert (found["W_k"], found["W_v"]) == (False, False)


def test_positions_turn_what_is_rounded_so_nothing_is_widened() -> None:
    assert not agreements({"weights": attention(**TRUE)["weights"]}, WIDE, "position=rope")["weights"]


@pytest.mark.parametrize("seed", range(20))
def test_a_projection_reaches_no_further_than_its_radius_and_as_far(seed: int) -> None:
    stream = np.random.default_rng(seed)
    x, matrix, bias = stream.normal(size=(3, 4)), stream.normal(size=(4, 2)), stream.normal(size=2)
    radii = intervals.Radii(0.1, 0.2, 0.05)
    radius = intervals.projected(x, matrix, radii)
    for _ in range(50):
        signs = [np.sign(stream.normal(size=array.shape)) for array in (x, matrix, bias)]
        moved = (x + 0.1 * signs[0]) @ (matrix + 0.2 * signs[1]) + bias + 0.05 * signs[2]
        assert (np.abs(moved - x @ matrix - bias) <= radius + 1e-12).all()
    row, column = x[[0]], matrix[:, [0]]  # the worst corner of one number
    worst = (np.abs(row) + 0.1) @ (np.abs(column) + 0.2) - np.abs(row) @ np.abs(column) + 0.05
    assert radius[0, 0] == pytest.approx(worst[0, 0], abs=1e-12)
