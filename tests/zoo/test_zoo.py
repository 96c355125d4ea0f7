"""The zoo is what it says: its wrong functions are wrong, by loops in float64 that none of them shares."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.zoo import calls, oracle
from tests.zoo.case import Case
from tests.zoo.cases import CASES

Array = NDArray[Any]

MISTAKES = """
no_scale scale_by_d scale_by_sqrt_d_model scale_by_sqrt_heads scale_by_sqrt_keys scale_multiplied scale_twice
scale_after_softmax
softmax_over_queries softmax_over_heads softmax_over_all no_softmax sum_normalized softmax_twice softmax_base_2
log_softmax no_max_subtraction
weights_transposed queries_keys_swapped values_from_keys
mask_inverted mask_ignored mask_after_softmax mask_multiplied mask_small_fill mask_transposed causal_ignored
causal_flipped causal_strict causal_next causal_top_left causal_bottom_right padding_one_long padding_one_short
window_one_wide window_one_narrow
heads_not_transposed heads_by_stride heads_merged_wrong heads_reversed heads_averaged single_head kv_heads_tiled
kv_heads_first kv_tokens_repeated
no_output_projection output_projection_transposed projection_transposed no_bias no_value_bias qkv_order
rope_pairing rope_off_by_one rope_on_values position_missing alibi_slopes alibi_sign
position_bias_missing softcap_missing softcap_after_mask
softcap_before_scale sink_missing
half_accumulation half_softmax
dropout_on not_deterministic batch_mixed tail_dropped changes_inputs reuses_output nan_leaks empty_row_nan
""".split()

RIGHT_ON_ONE_CALL = {
    "no_max_subtraction", "not_deterministic", "changes_inputs", "reuses_output", "nan_leaks", "empty_row_nan",
}  # fmt: skip


def answers(case: Case, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield what the function gives and what is right; on as many keys as queries where it takes no other."""
    ask = oracle.asked(case.settings)
    if calls.is_layer(case.function):
        arrays = calls.layer_arrays(case.function, ask, seed)
        yield calls.call(case.function, arrays, ask), calls.expected(case.function, arrays, ask)
        return
    for square in (False, True):
        arrays = calls.core_arrays(ask, seed, square)
        mask = None if "mask=causal" in case.settings else calls.some_mask(arrays, seed)
        try:
            given = calls.call(case.function, arrays, ask, mask)
        except (ValueError, RuntimeError):
            assert not square
            continue
        yield given, calls.expected(case.function, arrays, ask, mask)


def gap(given: Array, right: Array) -> float:
    """Return the largest difference over the largest right number; infinite where shapes differ or some are NaN."""
    if given.shape != right.shape or not np.isfinite(given).all():
        return math.inf
    return float(np.abs(given - right).max() / (np.abs(right).max() or 1.0))


def test_every_mistake_of_the_catalogue_has_a_function() -> None:
    assert {case.mistake for case in CASES} == set(MISTAKES)
    assert len(MISTAKES) == len(set(MISTAKES))


def test_nothing_here_imports_the_project() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        assert not [name for name in names if name.startswith("attn_exp")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_function_is_wrong(case: Case) -> None:
    gaps = [gap(given, right) for given, right in answers(case, seed=1)]
    if case.mistake in RIGHT_ON_ONE_CALL:
        assert max(gaps) < (1e-2 if case.function.__name__ == "noisy" else 1e-12)
    else:
        assert max(gaps) > 1e-5
