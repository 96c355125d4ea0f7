"""What the comparison says: who is right, who is the same, what a setting changed, and what is done once."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from attn_exp.errors import UserError
from attn_exp.experiment.compare import tabulate
from attn_exp.experiment.executing import get_answer
from attn_exp.experiment.row import Comparison, Row
from tests.compose import comparison, config

RANDOM = ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=12", "head=3")


def rows(compared: Comparison) -> dict[str, Row]:
    return {row.variant: row for row in compared.rows}


@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize("scale", ["true", "false", "0.3", "0"])
def test_every_variant_is_within_rounding_of_its_reference(bias: str, scale: str) -> None:
    compared = comparison(
        *RANDOM, f"bias={bias}", f"scale={scale}", "variant=[looped,matrix,scaled,unscaled,multi_head]"
    )
    for row in compared.rows:
        assert row.error < 1e-14
        assert row.checked == 5


@pytest.mark.parametrize(("dtype", "eps"), [("float16", 2.0**-10), ("float32", 2.0**-23)])
def test_a_narrow_type_is_held_to_float64_of_the_same_inputs(dtype: str, eps: float) -> None:
    """Rounding to 11 or 24 bits shows, and is far from what a bug would do."""
    found = tabulate(config(*RANDOM), dtype=dtype)
    size = max(float(np.abs(trace.output).max()) for trace in found.traces.values() if trace.output is not None)
    assert all(eps / 1000 < row.error < 20 * eps * size for row in found.rows)


def test_without_scaling_the_table_shows_what_scaling_changed() -> None:
    found = rows(comparison(*RANDOM, "scale=false"))
    assert found["matrix"].same_as == "A"
    assert found["scaled"].same_as == "B"
    assert found["scaled"].max_diff > 0.01
    assert found["scaled"].entropy > found["matrix"].entropy


@pytest.mark.parametrize(
    ("scale", "multiplier"), [("true", 1 / math.sqrt(4)), ("false", 1.0), ("0.25", 0.25), ("0", 0.0)]
)
def test_scale_of_multi_head_uses_the_size_of_a_head(scale: str, multiplier: float) -> None:
    assert rows(comparison(*RANDOM, f"scale={scale}"))["multi_head"].multiplier == multiplier


def test_logits_of_a_thousand_do_not_overflow() -> None:
    compared = comparison("embeddings=inline", "embeddings.vectors=[[40,0],[0,40],[30,30]]", "projections=identity",
                          "scale=false")  # fmt: skip
    weights = compared.traces["matrix"].weights
    assert weights is not None
    np.testing.assert_allclose(weights[0], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], atol=1e-12)
    assert all(row.error < 1e-12 for row in compared.rows)


def test_flops_count_both_products() -> None:
    """Queries x keys x (12 + 12) numbers, a multiplication and an addition each; heads share them."""
    assert rows(comparison(*RANDOM))["matrix"].flops == 2 * 5 * 5 * (12 + 12)
    assert rows(comparison(*RANDOM))["multi_head"].flops == 3 * 2 * 5 * 5 * (4 + 4)


WORDS = ("embeddings=random", "position=sinusoidal")
VARIANTS = ["looped", "matrix", "scaled"]


@pytest.mark.long
def test_a_variant_with_positions_of_its_own_is_projected_apart() -> None:
    """Beside others it gives what it gives alone, whatever they mark."""
    own = "variant.matrix.position={rope:{}}"
    beside = tabulate(config(*WORDS, "variant=[looped,matrix,scaled]", own)).traces
    for name in VARIANTS:
        alone = tabulate(config(*WORDS, f"variant=[{name}]", *[own] * (name == "matrix"))).traces[name]
        np.testing.assert_array_equal(beside[name].output, alone.output)
    assert not np.allclose(get_answer(beside["matrix"]), get_answer(beside["looped"]), atol=0.01)


def test_against_says_which_row_all_are_compared_with() -> None:
    usual, other = comparison(*RANDOM), comparison(*RANDOM, "against=multi_head")
    assert other.rows[0].max_diff == usual.rows[3].max_diff > 0
    assert other.rows[3].max_diff == 0
    assert [row.same_as for row in other.rows] == [row.same_as for row in usual.rows]
    assert {step.against for step in other.steps} == {"multi_head"}
    assert {step.variant for step in other.steps} == {"looped", "matrix", "scaled"}
    assert [row.sameness for row in other.rows] == ["different", "different", "different", "bit-identical"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("against=foo",), "against=foo: there is no such row; choose one of looped, matrix, scaled, multi_head"),
        (
            ("against=linear", "variant=[matrix,linear]", "score=alibi"),
            "against=linear cannot be computed, so nothing can be compared with it: linear attention forms no logits",
        ),
    ],
)
def test_a_row_to_compare_with_that_is_not_there_is_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as error:
        comparison(*words)
    assert "\n" not in str(error.value)
