"""x is projected once for every way to mark positions in it, however many variants share that way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attn_exp.experiment import executing
from attn_exp.experiment.compare import tabulate
from attn_exp.experiment.executing import answer
from attn_exp.problem.problem import sides
from tests.compose import config

WORDS = ("embeddings=random", "position=sinusoidal")
VARIANTS = ["looped", "matrix", "scaled"]


def test_variants_that_mark_the_same_positions_share_one_projection(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counted(*given: Any) -> Any:
        made.append(given)
        return sides(*given)

    monkeypatch.setattr(executing, "sides", counted)
    comparison = tabulate(config(*WORDS, f"variant=[{','.join(VARIANTS)}]"))
    assert [row.variant for row in comparison.rows] == VARIANTS
    assert len(made) == 1


def test_a_variant_with_positions_of_its_own_is_projected_apart() -> None:
    """Beside others it gives what it gives alone, whatever they mark."""
    own = "variant.matrix.position={rope:{}}"
    beside = tabulate(config(*WORDS, "variant=[looped,matrix,scaled]", own)).traces
    for name in VARIANTS:
        alone = tabulate(config(*WORDS, f"variant=[{name}]", *[own] * (name == "matrix"))).traces[name]
        np.testing.assert_array_equal(beside[name].output, alone.output)
    assert not np.allclose(answer(beside["matrix"]), answer(beside["looped"]), atol=0.01)
