"""The wrong functions and layers that need PyTorch."""

from __future__ import annotations

from tests.zoo import wrong_modules, wrong_torch, wrong_torch_masks
from tests.zoo.case import Case

CAUSAL = ("mask=causal",)
ROPE = ("position=rope",)
CAP = ("score=softcap", "score.softcap.cap=2.0")
WINDOW = ("mask=window", "mask.window.left=2", "mask.window.right=0")
LAYER = ("head=3", "bias=true")

CORE = [
    Case("no_scale", wrong_torch.no_scale),
    Case("scale_by_d", wrong_torch.by_size, same_as=("scale_twice",)),
    Case("scale_by_sqrt_d_model", wrong_torch.by_model),
    Case(
        "scale_twice",
        wrong_torch.scaled_twice,
        source="q scaled for a function that scales",
        same_as=("scale_by_d",),
    ),
    Case("softmax_over_queries", wrong_torch.softmax_queries),
    Case("softmax_over_heads", wrong_torch.softmax_heads, source="dim=1"),
    Case("weights_transposed", wrong_torch.weights_turned),
    Case("queries_keys_swapped", wrong_torch.swapped),
    Case("values_from_keys", wrong_torch.keys_again),
    Case("heads_reversed", wrong_torch.heads_reversed),
    Case("kv_heads_tiled", wrong_torch.groups_tiled, ("kv_head=2",), "repeat for repeat_interleave"),
    Case("kv_heads_first", wrong_torch.groups_first, ("kv_head=2",)),
    Case("rope_pairing", wrong_torch.rope_interleaved, ROPE),
    Case("rope_off_by_one", wrong_torch.rope_keys_late, ROPE),
    Case("rope_on_values", wrong_torch.rope_everything, ROPE),
    Case("softcap_missing", wrong_torch.cap_missing, CAP),
    Case("softcap_before_scale", wrong_torch.cap_first, CAP),
    Case("sink_missing", wrong_torch.sink_missing, ("score=sink",)),
    Case("half_softmax", wrong_torch.half_softmax),
    Case("half_accumulation", wrong_torch.half_products),
    Case("dropout_on", wrong_torch.dropout_on, source="F.dropout without training="),
    Case("dropout_on", wrong_torch.dropout_sdpa, source="dropout_p holds in evaluation too"),
    Case("changes_inputs", wrong_torch.scales_in_place),
    Case("tail_dropped", wrong_torch.key_tail),
]

MASKS = [
    Case("mask_inverted", wrong_torch_masks.inverted, source="MultiheadAttention's polarity"),
    Case("mask_ignored", wrong_torch_masks.not_assigned, source="masked_fill for masked_fill_"),
    Case("mask_after_softmax", wrong_torch_masks.after),
    Case("mask_multiplied", wrong_torch_masks.multiplied),
    Case("mask_small_fill", wrong_torch_masks.filled_small),
    Case("mask_transposed", wrong_torch_masks.turned),
    Case("causal_ignored", wrong_torch_masks.causal_lost, CAUSAL),
    Case("causal_flipped", wrong_torch_masks.causal_flipped, CAUSAL),
    Case("causal_strict", wrong_torch_masks.causal_strict, CAUSAL),
    Case("causal_next", wrong_torch_masks.causal_next, CAUSAL),
    Case(
        "causal_top_left",
        wrong_torch_masks.causal_first,
        ("mask=causal", "align=bottom_right"),
        "is_causal with a cache",
    ),
    Case("causal_bottom_right", wrong_torch_masks.causal_last, CAUSAL),
    Case("padding_one_long", wrong_torch_masks.padding_long, ("mask=padding", "mask.padding.lengths=4")),
    Case("window_one_wide", wrong_torch_masks.window_wide, WINDOW),
    Case("softcap_after_mask", wrong_torch_masks.cap_last, (*CAP, *CAUSAL)),
    Case("nan_leaks", wrong_torch_masks.nan_through),
    Case("empty_row_nan", wrong_torch_masks.empty_rows),
]

MODULES = [
    Case("heads_not_transposed", wrong_modules.HeadsViewed, LAYER, "view(b, h, t, d)"),
    Case("heads_merged_wrong", wrong_modules.HeadsMergedByView, LAYER),
    Case("heads_by_stride", wrong_modules.HeadsByStride, LAYER),
    Case("scale_by_sqrt_d_model", wrong_modules.ScaledByModel, LAYER),
    Case("softmax_over_heads", wrong_modules.SoftmaxOverHeads, LAYER),
    Case("no_output_projection", wrong_modules.OutputForgotten, LAYER),
    Case("output_projection_transposed", wrong_modules.OutputTurned, LAYER),
    Case("projection_transposed", wrong_modules.ProjectionsTurned, LAYER, "x @ weight without .T"),
    Case("heads_averaged", wrong_modules.WeightsAveraged, LAYER),
    Case("single_head", wrong_modules.OneHead, LAYER),
    Case("dropout_on", wrong_modules.DropoutInside, LAYER, "dropout_p whatever self.training says"),
    Case("no_bias", wrong_modules.BiasForgotten, LAYER, "in_proj_bias is never added"),
    Case("no_value_bias", wrong_modules.ValueBiasForgotten, LAYER),
    Case("qkv_order", wrong_modules.OrderMixed, LAYER, "q, v, k out of in_proj_weight"),
]

CASES = [*CORE, *MASKS, *MODULES]
