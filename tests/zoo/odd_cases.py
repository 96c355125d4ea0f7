"""Wrong functions in odd styles: what each was meant to compute, as in `cases.py`.

Their keywords, layouts and answers vary more than `calls.py` can call, so they are held to the checker's own oracle.
"""

from __future__ import annotations

from importlib.util import find_spec

from tests.zoo import odd_numpy as of_numpy
from tests.zoo import wide_heads
from tests.zoo.case import Case

TWO = ("head=2",)
ROPE = ("position=rope",)
WINDOW = ("mask=window", "mask.window.left=3", "mask.window.right=0")

ODD = [
    *wide_heads.WRONG,
    Case("no_scale", of_numpy.odd_letters, ("layout=bthd",), "a dictionary"),
    Case("no_scale", of_numpy.odd_letters, (), "the layout is not said"),
    Case("scale_by_d", of_numpy.ones_by_hand, ("layout=htd",), same_as=("scale_twice",)),
    Case("scale_by_sqrt_keys", of_numpy.flash_running),
    Case("softmax_base_2", of_numpy.running_without_rescaling),
    Case("causal_next", of_numpy.cumulative, ("mask=causal",)),
    Case("softmax_over_queries", of_numpy.log_space),
    Case("tail_dropped", of_numpy.tiles),
    Case("weights_transposed", of_numpy.lists, ("layout=td",)),
    Case("mask_small_fill", of_numpy.hidden_with_large_steps),
    Case("mask_inverted", of_numpy.forgets_not),
    Case("mask_after_softmax", of_numpy.zeroed_after),
    Case("mask_multiplied", of_numpy.multiplies_before),
    Case("mask_transposed", of_numpy.mask_turned),
    Case("causal_strict", of_numpy.last_diagonal),
    Case("causal_flipped", of_numpy.future_alone),
    Case("window_one_wide", of_numpy.wide_window),
    Case("window_one_narrow", of_numpy.narrow_band, WINDOW),
    Case("padding_one_long", of_numpy.filler_seen),
    Case("softcap_after_mask", of_numpy.capped_late),
    Case("softcap_before_scale", of_numpy.capped_raw, ("score=softcap", "score.softcap.cap=2.0")),
    Case("alibi_sign", of_numpy.far_is_near),
    Case("alibi_slopes", of_numpy.slopes_by_count, ("score=alibi",)),
    Case("rope_pairing", of_numpy.complex_rope, ROPE),
    Case("rope_off_by_one", of_numpy.cached_rope, ROPE),
    Case("kv_heads_tiled", of_numpy.groups_in_turn, ("head=6", "kv_head=2")),
    Case("heads_by_stride", of_numpy.split_by_stride, ("head=3",)),
    Case("single_head", of_numpy.one_large_head, ("head=3",)),
    Case("no_value_bias", of_numpy.biases_forgotten, ("bias=true",)),
    Case("projection_transposed", of_numpy.matrices_as_torch_has_them),
    Case("sum_normalized", of_numpy.shares_of_scores),
    Case("softmax_twice", of_numpy.softmax_of_softmax),
    Case("scale_after_softmax", of_numpy.scaled_weights),
    Case("softmax_over_all", of_numpy.every_place),
    Case("half_softmax", of_numpy.half_table),
]

if find_spec("torch"):
    from tests.zoo import odd_modules as of_modules
    from tests.zoo import odd_torch as of_torch

    LAYER = ("head=3", "bias=true")
    LLAMA = ("head=4", "kv_head=2", "position=rope", "mask=causal")
    ODD += [
        Case("no_scale", of_torch.baddbmm),
        Case("scale_by_sqrt_heads", of_torch.per_head),
        Case("scale_multiplied", of_torch.times_root),
        Case("softmax_over_queries", of_torch.log_softmax_queries),
        Case("softmax_over_heads", of_torch.over_heads, ("layout=bthd",)),
        Case("values_from_keys", of_torch.keys_for_values),
        Case("queries_keys_swapped", of_torch.kqv),
        Case("weights_transposed", of_torch.turned_weights),
        Case("no_softmax", of_torch.raw_scores),
        Case("softmax_base_2", of_torch.exp_two),
        Case("no_max_subtraction", of_torch.no_max),
        Case("mask_ignored", of_torch.ignores),
        Case("mask_small_fill", of_torch.tiny_fill),
        Case("causal_next", of_torch.sees_next, ("layout=bthd",)),
        Case("window_one_wide", of_torch.windows_fixed, WINDOW),
        Case("padding_one_short", of_torch.lengths_short),
        Case("softcap_missing", of_torch.softcap_lost),
        Case("sink_missing", of_torch.sinks_lost),
        Case("kv_heads_first", of_torch.first_group, ("head=6", "kv_head=2")),
        Case("kv_heads_tiled", of_torch.tiled_groups),
        Case("rope_on_values", of_torch.rope_all, ROPE),
        Case("half_accumulation", of_torch.half_inside),
        Case("no_scale", of_torch.half_out),
        Case("causal_strict", of_torch.bfloat_out),
        Case("batch_mixed", of_torch.mixed_entries),
        Case("dropout_on", of_torch.in_training),
        Case("heads_not_transposed", of_torch.heads_of_one_token, ("head=3",)),
        Case("heads_not_transposed", of_torch.heads_of_one_token_causal, ("head=3", "mask=causal")),
        Case("no_scale", of_modules.InNoScale, LAYER),
        Case("no_bias", of_modules.InNoBias, LAYER),
        Case("softmax_over_heads", of_modules.InOverHeads, LAYER),
        Case("heads_reversed", of_modules.InReversed, LAYER),
        Case("heads_merged_wrong", of_modules.InMerged, LAYER),
        Case("no_output_projection", of_modules.InNoOutput, LAYER),
        Case("qkv_order", of_modules.InPerHead, LAYER),
        Case("qkv_order", of_modules.InOrder, LAYER),
        Case("heads_not_transposed", of_modules.InViewed, LAYER),
        Case("kv_heads_tiled", of_modules.LlamaTiled, LLAMA),
        Case("rope_off_by_one", of_modules.LlamaOffByOne, LLAMA),
        Case("position_missing", of_modules.LlamaUnturned, LLAMA),
        Case("causal_ignored", of_modules.LlamaSeesAll, LLAMA),
        Case("no_value_bias", of_modules.BertValues, LAYER),
        Case("scale_by_sqrt_d_model", of_modules.BertWidth, LAYER),
        Case("output_projection_transposed", of_modules.BertDense, LAYER),
    ]

if find_spec("torch") and find_spec("jax"):
    ODD += [
        Case("scale_by_sqrt_d_model", of_torch.jax_vmapped, ("takes=jax",)),
        Case("causal_flipped", of_torch.jax_flipped, ("takes=jax", "layout=bthd")),
        Case("scale_by_d", of_torch.jax_scanned, ("takes=jax", "layout=htd"), same_as=("scale_twice",)),
    ]
