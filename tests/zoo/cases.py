"""Every wrong function of the zoo: its mistake, what it was meant to compute, how it is written, where it was seen.

`CASES` has every mistake at least once. Keywords have the names of the wild:
`mask`, `attn_mask` (True = may attend), `is_causal`, `causal`, `scale`, `sm_scale`, `window_size` (before, after;
-1 = open), `lengths`, `seq_lens` `[b]`, `softcap`, `alibi_slopes` `[h]`, `sinks` `[h]`, `enable_gqa`, `num_heads`,
`n_heads`, `head`. A function without a keyword for what its settings ask does it by itself, as its writer thought
right; one with a mask alone is given the causal mask as that.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.zoo import (
    wrong_behaviour,
    wrong_causal,
    wrong_groups,
    wrong_heads,
    wrong_masks,
    wrong_positions,
    wrong_precision,
    wrong_products,
    wrong_projections,
    wrong_ranges,
    wrong_scale,
    wrong_scores,
    wrong_softmax,
)
from tests.zoo.case import Case

SQUARE = "needs as many queries as keys"
WINDOW = ("mask=window", "mask.window.left=2", "mask.window.right=0")
PADDING = ("mask=padding", "mask.padding.lengths=4")
CAP = ("score=softcap", "score.softcap.cap=2.0")
HEADS = ("head=3",)

SCALE = [
    Case("no_scale", wrong_scale.unscaled, source="the Annotated Transformer's formula without its root"),
    Case("no_scale", wrong_scale.unscaled_einsum),
    Case("no_scale", wrong_scale.unscaled_layer, source="Understanding Deep Learning, notebook 12.1"),
    Case("scale_by_d", wrong_scale.by_size, same_as=("scale_twice",)),
    Case("scale_by_d", wrong_scale.by_size_loops, same_as=("scale_twice",)),
    Case("scale_by_sqrt_d_model", wrong_scale.by_model, source="d_model for d_k"),
    Case("scale_by_sqrt_d_model", wrong_scale.by_model_layer, HEADS, "d_model for d_k"),
    Case("scale_by_sqrt_heads", wrong_scale.by_heads, source="the wrong one of B, H, T, D"),
    Case("scale_by_sqrt_heads", wrong_scale.by_heads_axis, source="the wrong axis of shape"),
    Case("scale_by_sqrt_keys", wrong_scale.by_keys, source="shape[-2] for shape[-1]"),
    Case("scale_by_sqrt_keys", wrong_scale.by_keys_columns),
    Case("scale_multiplied", wrong_scale.multiplied),
    Case("scale_multiplied", wrong_scale.multiplied_loops),
    Case("scale_twice", wrong_scale.twice),
    Case("scale_twice", wrong_scale.twice, ("scale=0.3",)),
    Case("scale_twice", wrong_scale.twice_loops, ("scale=0.3",)),
    Case("scale_after_softmax", wrong_scale.late),
    Case("scale_after_softmax", wrong_scale.late_einsum),
]

SOFTMAX = [
    Case("softmax_over_queries", wrong_softmax.columns, source="axis=-2"),
    Case("softmax_over_queries", wrong_softmax.columns_loops),
    Case(
        "softmax_over_queries",
        wrong_softmax.columns_layer,
        source="axis=0, as tokens in columns have it",
    ),
    Case("softmax_over_heads", wrong_softmax.heads, source="softmax without a dim takes the second axis of four"),
    Case("softmax_over_heads", wrong_softmax.heads_layer, HEADS),
    Case("softmax_over_all", wrong_softmax.everything),
    Case("softmax_over_all", wrong_softmax.everything_sum),
    Case("no_softmax", wrong_softmax.linear),
    Case("no_softmax", wrong_softmax.linear_loops),
    Case("sum_normalized", wrong_softmax.by_sum),
    Case("sum_normalized", wrong_softmax.by_sum_einsum),
    Case("softmax_twice", wrong_softmax.twice, source="a layer's softmax before a loss that has its own"),
    Case("softmax_twice", wrong_softmax.twice_rows),
    Case("softmax_base_2", wrong_softmax.base_2, source="kernels with exp2 whose scale lacks the factor log2(e)"),
    Case("softmax_base_2", wrong_softmax.base_2_online),
    Case("log_softmax", wrong_softmax.logarithms, source="F.log_softmax, as it stands before a loss"),
    Case("log_softmax", wrong_softmax.logarithm_of_shares),
    Case("no_max_subtraction", wrong_softmax.raw_exp),
    Case("no_max_subtraction", wrong_softmax.raw_exp_loops),
]

PRODUCTS = [
    Case("weights_transposed", wrong_products.weights_turned, source=SQUARE),
    Case("weights_transposed", wrong_products.weights_turned_einsum, source=SQUARE),
    Case("weights_transposed", wrong_products.weights_turned_columns, source="notebook 12.1's columns"),
    Case("queries_keys_swapped", wrong_products.swapped, source=SQUARE),
    Case("queries_keys_swapped", wrong_products.swapped_einsum, source=SQUARE),
    Case("queries_keys_swapped", wrong_products.swapped_layer, HEADS, "W_q and W_k read the wrong way round"),
    Case("values_from_keys", wrong_products.keys_again),
    Case("values_from_keys", wrong_products.keys_again_layer),
]

MASKS = [
    Case("mask_inverted", wrong_masks.inverted, source="PyTorch's two polarities"),
    Case("mask_inverted", wrong_masks.inverted_loops),
    Case("mask_ignored", wrong_masks.ignored),
    Case("mask_ignored", wrong_masks.ignored_copy, source="np.where's result is dropped"),
    Case("mask_after_softmax", wrong_masks.after),
    Case("mask_after_softmax", wrong_masks.after_einsum),
    Case("mask_multiplied", wrong_masks.multiplied, source="0 where -inf is meant"),
    Case("mask_multiplied", wrong_masks.multiplied_rows),
    Case("mask_small_fill", wrong_masks.minus_ten),
    Case("mask_small_fill", wrong_masks.bias_of_ten, source="(1 - mask) * -10 on top of the score"),
    Case("mask_transposed", wrong_masks.turned, source=SQUARE),
    Case("mask_transposed", wrong_masks.turned_columns, source=SQUARE),
]

CAUSAL = [
    Case("causal_ignored", wrong_causal.lost, ("mask=causal",)),
    Case("causal_ignored", wrong_causal.lost_layer, ("mask=causal",)),
    Case("causal_flipped", wrong_causal.flipped, ("mask=causal",), source="triu for tril"),
    Case("causal_flipped", wrong_causal.flipped_loops, ("mask=causal",)),
    Case("causal_strict", wrong_causal.strict, ("mask=causal",), source="tril(k=-1)"),
    Case("causal_strict", wrong_causal.strict_loops, ("mask=causal",)),
    Case("causal_next", wrong_causal.next_token, ("mask=causal",), source="tril(k=1)"),
    Case("causal_next", wrong_causal.next_token_triu, ("mask=causal",), source="triu(k=2) blocked"),
    Case("causal_top_left", wrong_causal.first_beside_first, ("mask=causal", "align=bottom_right")),
    Case("causal_top_left", wrong_causal.first_beside_first_loops, ("mask=causal", "align=bottom_right")),
    Case("causal_bottom_right", wrong_causal.last_beside_last, ("mask=causal",), source="FlashAttention since 2.1"),
    Case("causal_bottom_right", wrong_causal.last_beside_last_loops, ("mask=causal",)),
    Case("padding_one_long", wrong_ranges.padding_long, PADDING, source="<= for <"),
    Case("padding_one_long", wrong_ranges.padding_long_loops, PADDING),
    Case("padding_one_short", wrong_ranges.padding_short, PADDING),
    Case("padding_one_short", wrong_ranges.padding_short_loops, PADDING, "the end token taken for filler"),
    Case("window_one_wide", wrong_ranges.window_wide, WINDOW, source="a window of w that sees w + 1 keys"),
    Case("window_one_wide", wrong_ranges.window_wide_fixed, WINDOW, source="Mistral's window in FlashAttention"),
    Case("window_one_narrow", wrong_ranges.window_narrow, WINDOW),
    Case("window_one_narrow", wrong_ranges.window_narrow_loops, WINDOW),
]

LAYERS = [
    Case("heads_not_transposed", wrong_heads.not_turned, HEADS, "a view for a transpose, in many tutorials"),
    Case("heads_not_transposed", wrong_heads.not_turned_loops, HEADS),
    Case("heads_by_stride", wrong_heads.by_stride, HEADS),
    Case("heads_by_stride", wrong_heads.by_stride_slices, HEADS),
    Case("heads_merged_wrong", wrong_heads.merged_flat, HEADS, "reshape without the transpose back"),
    Case("heads_merged_wrong", wrong_heads.merged_flat_einsum, HEADS),
    Case("heads_reversed", wrong_heads.reversed_order, HEADS),
    Case("heads_reversed", wrong_heads.reversed_order_loops, HEADS),
    Case("heads_averaged", wrong_heads.averaged),
    Case("heads_averaged", wrong_heads.averaged_layer, HEADS),
    Case("heads_averaged", wrong_heads.averaged_small, HEADS, "gives [t d] where [t h*d] is meant"),
    Case("single_head", wrong_heads.one_head, HEADS, "the number of heads is never used"),
    Case("single_head", wrong_heads.one_head_core),
    Case("kv_tokens_repeated", wrong_groups.repeated_tokens, ("kv_head=2",), source="the repeat stands behind tokens"),
    Case("kv_tokens_repeated", wrong_groups.repeated_tokens_side_by_side, ("kv_head=2",), source="repeat(1, n, 1, 1)"),
    Case("kv_heads_tiled", wrong_groups.tiled, ("kv_head=2",), source="tile for repeat"),
    Case("kv_heads_tiled", wrong_groups.tiled_loops, ("kv_head=2",), "h % g for h // (H / g)"),
    Case("kv_heads_tiled", wrong_groups.tiled_grouped, ("kv_head=2",)),
    Case("kv_heads_first", wrong_groups.first_only, ("kv_head=2",)),
    Case("kv_heads_first", wrong_groups.first_only_loops, ("kv_head=2",)),
    Case("no_output_projection", wrong_projections.no_output, HEADS, "Kyubyong/transformer"),
    Case("no_output_projection", wrong_projections.no_output_loops, HEADS),
    Case("output_projection_transposed", wrong_projections.output_turned, HEADS, "needs a square W_o"),
    Case("output_projection_transposed", wrong_projections.output_turned_einsum, HEADS, "needs a square W_o"),
    Case("projection_transposed", wrong_projections.turned, HEADS, "PyTorch keeps matrices as [out in]"),
    Case("projection_transposed", wrong_projections.turned_columns, source="W X for W^T X"),
    Case("no_bias", wrong_projections.no_biases, ("bias=true",)),
    Case("no_bias", wrong_projections.no_biases_heads, ("bias=true", *HEADS)),
    Case("no_value_bias", wrong_projections.no_value_bias, ("bias=true", *HEADS)),
    Case("no_value_bias", wrong_projections.no_value_bias_loops, ("bias=true",)),
    Case("qkv_order", wrong_projections.order_fused, HEADS, "q, v, k out of one matrix"),
    Case("qkv_order", wrong_projections.order_stacked, HEADS, "v, q, k out of one matrix"),
]

POSITIONS = [
    Case(
        "rope_pairing",
        wrong_positions.pairs_side_by_side,
        ("position=rope",),
        source="Llama's pairs, Hugging Face's weights",
    ),
    Case("rope_pairing", wrong_positions.pairs_complex, ("position=rope",)),
    Case("rope_pairing", wrong_positions.pairs_of_halves, ("position=rope", "position.rope.interleaved=true")),
    Case("rope_off_by_one", wrong_positions.query_one_late, ("position=rope",), source="queries start at 1, keys at 0"),
    Case("rope_off_by_one", wrong_positions.query_one_late_loops, ("position=rope",)),
    Case("rope_on_values", wrong_positions.values_too, ("position=rope",)),
    Case("rope_on_values", wrong_positions.values_too_fused, ("position=rope",)),
    Case("position_missing", wrong_positions.unplaced, ("position=rope",)),
    Case("position_missing", wrong_positions.unplaced_cos_sin, ("position=rope",)),
    Case("position_missing", wrong_positions.unplaced_layer, ("position=sinusoidal",)),
    Case(
        "alibi_slopes", wrong_scores.slopes_closed, ("score=alibi",), source="the closed formula, heads no power of 2"
    ),
    Case("alibi_slopes", wrong_scores.slopes_from_one, ("score=alibi",), "exponents from 0"),
    Case("alibi_sign", wrong_scores.sign_turned, ("score=alibi",)),
    Case("alibi_sign", wrong_scores.sign_turned_given, ("score=alibi",)),
    Case("position_bias_missing", wrong_scores.unbiased, ("score=alibi",), source="a call without the slopes"),
    Case("position_bias_missing", wrong_scores.unbiased_causal, ("score=alibi", "mask=causal")),
    Case("softcap_missing", wrong_scores.uncapped, CAP, source="Gemma 2 in engines that dropped it"),
    Case("softcap_missing", wrong_scores.uncapped_plain, CAP),
    Case("softcap_after_mask", wrong_scores.capped_last, (*CAP, "mask=causal"), source="ONNX up to 1.21"),
    Case("softcap_after_mask", wrong_scores.capped_last_causal, (*CAP, "mask=causal")),
    Case("softcap_before_scale", wrong_scores.capped_first, CAP),
    Case("softcap_before_scale", wrong_scores.capped_first_loops, CAP),
    Case("sink_missing", wrong_scores.sinkless, ("score=sink", "score.sink.logit=0.5")),
    Case("sink_missing", wrong_scores.sinkless_dropped, ("score=sink", "score.sink.logit=0.5")),
]

BEHAVIOUR = [
    Case("half_accumulation", wrong_precision.half_products),
    Case("half_accumulation", wrong_precision.half_sums_loops),
    Case("half_softmax", wrong_precision.half_exponentials),
    Case("half_softmax", wrong_precision.half_exponentials_rows),
    Case("dropout_on", wrong_behaviour.dropout),
    Case("dropout_on", wrong_behaviour.dropout_layer),
    Case("not_deterministic", wrong_behaviour.shuffled_sum, source="sums in the order that blocks end"),
    Case("not_deterministic", wrong_behaviour.noisy),
    Case("batch_mixed", wrong_behaviour.first_entry_keys),
    Case("batch_mixed", wrong_behaviour.flattened_wrong),
    Case("tail_dropped", wrong_behaviour.key_tail, source="blocks of 4 keys"),
    Case("tail_dropped", wrong_behaviour.query_tail, source="blocks of 4 queries"),
    Case("changes_inputs", wrong_behaviour.scales_in_place, source="q is scaled where it lies"),
    Case("changes_inputs", wrong_behaviour.scales_keys_in_place),
    Case("reuses_output", wrong_behaviour.one_buffer),
    Case("reuses_output", wrong_behaviour.one_buffer_default, source="a default argument that lives on"),
    Case("nan_leaks", wrong_behaviour.nan_through, source="0 times NaN; PyTorch's own does it too"),
    Case("nan_leaks", wrong_behaviour.nan_through_bias),
    Case("empty_row_nan", wrong_behaviour.empty_rows, source="softmax of -inf alone; PyTorch before 2.5"),
    Case("empty_row_nan", wrong_behaviour.empty_rows_loops),
]

CASES = [*SCALE, *SOFTMAX, *PRODUCTS, *MASKS, *CAUSAL, *LAYERS, *POSITIONS, *BEHAVIOUR]

if find_spec("torch"):
    from tests.zoo import torch_cases

    CASES += torch_cases.CASES
