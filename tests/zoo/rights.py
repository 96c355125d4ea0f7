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
    Case("", right.online, style="online"),
    Case("", right.blocks, style="blocks with a tail"),
    Case("", right.scale_on_query, source="the scale on q"),
    Case("", right.scale_on_both, source="half of the scale on each"),
    Case("", right.log_space, style="logaddexp"),
    Case("", right.powers_of_two, style="exp2", source="log2(e) inside the scale"),
    Case("", right.wide_sums, source="sums in float32 or more"),
    Case("", right.scalars, style="loops"),
    Case("", right.no_product, style="broadcasting"),
    Case("", right.keys_as_rows, style="tokens as columns"),
    Case("", right.keys_reversed, source="keys and values in another order"),
    Case("", right.two_halves, style="split keys", source="two parts, merged by their sums"),
    Case("", right.decoding, CAUSAL, "decode loop"),
    Case("", right.grouped_reshape, ("kv_head=2",), "reshape"),
    Case("", right.grouped_einsum, ("kv_head=2",), "einsum"),
    Case("", right.minus_infinity_added, source="-inf added"),
    Case("", right.least_number, ("convention=jax",), source="the least number of the type"),
    Case("", right.picked_keys, style="loops", source="only the keys that may be seen"),
    Case("", right.last_beside_last, ("convention=flash",), source="the last query beside the last key"),
    Case("", right.cut_to_length, style="slices"),
    Case("", right.banded, style="slices"),
    Case("", right_scores.rope_from_a_hundred, ("position=rope",), "complex", "positions from 100"),
    Case("", right_scores.rope_by_distance, ("position=rope", "position.rope.interleaved=true"), "complex"),
    Case("", right_scores.alibi_without_the_query, (*ALIBI, *CAUSAL), source="a constant per row less"),
    Case("", right_scores.alibi_given, ALIBI),
    Case("", right_scores.cap_without_tanh, ("score=softcap", "score.softcap.cap=2.0")),
    Case("", right_scores.softmax_plus_one, ("score=sink",)),
    Case("", right_scores.sink_as_a_key, ("score=sink", "score.sink.logit=0.5")),
    Case("", right_scores.outputs_summed, ("head=3",), "layer", "a W_o for each head, summed"),
    Case("", right_scores.tokens_in_columns, style="layer", source="K^T Q"),
    Case("", right_scores.scale_in_the_matrix, ("head=3",), "layer", "W_q W_k^T as one matrix"),
    Case("", right_scores.heads_and_output_permuted, ("head=3",), "layer", "heads in another order, W_o alike"),
    Case("", right_scores.key_bias_left_out, ("bias=true",), "layer", "b_k moves no weight"),
]

if find_spec("torch"):
    from tests.zoo import right_modules, right_torch

    LAYER = ("head=3", "bias=true")
    RIGHT += [
        Case("", right_torch.sdpa, style="torch"),
        Case("", right_torch.one_product, style="torch", source="baddbmm"),
        Case("", right_torch.mapped, style="torch", source="vmap"),
        Case("", right_torch.log_weights, style="torch"),
        Case("", right_torch.least_number, ("convention=jax",), "torch"),
        Case("", right_torch.Multihead, LAYER, "module"),
        Case("", right_modules.Four, LAYER, "module"),
        Case("", right_modules.Fused, LAYER, "module"),
    ]
