"""Every right function of the zoo, and what it computes.

A function that takes a keyword is right for whatever that asks; `settings` are what it does without being asked.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.zoo import right, right_scores
from tests.zoo.case import Case

ALIBI = ("score=alibi",)
CAUSAL = ("mask=causal",)
RIGHT = [
    Case("", right.online),
    Case("", right.blocks),
    Case("", right.scale_on_query, source="the scale on q"),
    Case("", right.scale_on_both, source="half of the scale on each"),
    Case("", right.log_space),
    Case("", right.powers_of_two, source="log2(e) inside the scale"),
    Case("", right.wide_sums, source="sums in float32 or more"),
    Case("", right.scalars),
    Case("", right.no_product),
    Case("", right.keys_as_rows),
    Case("", right.keys_reversed, source="keys and values in another order"),
    Case("", right.two_halves, source="two parts, merged by their sums"),
    Case("", right.decoding, CAUSAL),
    Case("", right.grouped_reshape, ("kv_head=2",)),
    Case("", right.grouped_einsum, ("kv_head=2",)),
    Case("", right.minus_infinity_added, source="-inf added"),
    Case("", right.least_number, ("convention=jax",), source="the least number of the type"),
    Case("", right.picked_keys, source="only the keys that may be seen"),
    Case("", right.last_beside_last, ("convention=flash",), source="the last query beside the last key"),
    Case("", right.cut_to_length),
    Case("", right.banded),
    Case("", right_scores.rope_from_a_hundred, ("position=rope",), "positions from 100"),
    Case("", right_scores.rope_by_distance, ("position=rope", "position.rope.interleaved=true")),
    Case("", right_scores.alibi_without_the_query, (*ALIBI, *CAUSAL), source="a constant per row less"),
    Case("", right_scores.alibi_given, ALIBI),
    Case("", right_scores.cap_without_tanh, ("score=softcap", "score.softcap.cap=2.0")),
    Case("", right_scores.softmax_plus_one, ("score=sink",)),
    Case("", right_scores.sink_as_a_key, ("score=sink", "score.sink.logit=0.5")),
    Case("", right_scores.outputs_summed, ("head=3",), "a W_o for each head, summed"),
    Case("", right_scores.tokens_in_columns, source="K^T Q"),
    Case("", right_scores.scale_in_the_matrix, ("head=3",), "W_q W_k^T as one matrix"),
    Case("", right_scores.heads_and_output_permuted, ("head=3",), "heads in another order, W_o alike"),
    Case("", right_scores.key_bias_left_out, ("bias=true",), "b_k moves no weight"),
]

if find_spec("torch"):
    from tests.zoo import right_modules, right_torch

    LAYER = ("head=3", "bias=true")
    RIGHT += [
        Case("", right_torch.sdpa),
        Case("", right_torch.one_product, source="baddbmm"),
        Case("", right_torch.mapped, source="vmap"),
        Case("", right_torch.log_weights),
        Case("", right_torch.least_number, ("convention=jax",)),
        Case("", right_torch.Multihead, LAYER),
        Case("", right_modules.Four, LAYER),
        Case("", right_modules.Fused, LAYER),
    ]
