"""Mistakes in the heads and weight matrices of a layer: split, shared, merged or projected wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Recipe, Setup, Step, apply_norm
from attn_exp.mistakes.mistake import Change, Mistake, around, instead, together

# Splitting and merging heads


def view_as_heads(flat: Array, count: int) -> Array:
    """View `[b t h*d]` as `[b h t d]`, without a transpose."""
    return flat.reshape(len(flat), count, flat.shape[1], -1)


def view_as_merged(setup: Setup, context: Array) -> Array:
    """View `[b h t d]` as `[b t h*d]`, without a transpose."""
    return context.reshape(setup.batch, setup.rows, -1)


def view_some_as_heads(affected: str) -> Change:

    def place(step: Step, setup: Setup, side: str, heads: Array, positions: Any) -> Any:
        if side in affected:
            heads = view_as_heads(steps.join_heads(heads), heads.shape[1])
        return step(setup, side, heads, positions)

    return around("place", place)


def swap_heads_and_tokens(recipe: Recipe) -> Recipe:
    """Leave the heads as `[b t h d]`; the heads of one token then attend to each other."""

    def place(setup: Setup, side: str, heads: Array, positions: Any) -> Any:
        return recipe.place(setup, side, heads, positions).swapaxes(1, 2)

    def allowed(setup: Setup) -> Any:
        return recipe.allowed(replace(setup, rows=setup.heads, keys=setup.heads))

    def gather(setup: Setup, context: Array) -> Any:
        return recipe.gather(setup, context.swapaxes(1, 2))

    return instead(place=place, allowed=allowed, gather=gather)(recipe)


def split_by_stride(flat: Array, count: int) -> Array:
    """Give head i the features i, i + h, i + 2h and so on."""
    return flat.reshape(*flat.shape[:2], -1, count).transpose(0, 3, 1, 2)


def merge_by_stride(setup: Setup, context: Array) -> Array:
    return context.transpose(0, 2, 3, 1).reshape(setup.batch, setup.rows, -1)


def combine_heads(combine: Callable[[Setup, Array], Array]) -> Change:
    """Combine all heads, and multiply the features that are left by as many rows of W_o."""

    def finish(step: Step, setup: Setup, merged: Array, weight: Array | None, bias: Array | None) -> Array:
        return np.asarray(step(setup, merged, None if weight is None else weight[: merged.shape[-1]], bias))

    cut_projection = around("finish", finish)
    return lambda recipe: instead(gather=combine)(cut_projection(recipe))


def reduce_heads(reduce: Callable[..., Array], put_back: Callable[[Array, Array], Array]) -> Change:
    return combine_heads(lambda setup, context: put_back(reduce(context, axis=1, keepdims=True), context))


REDUCED_SHAPES: tuple[Callable[[Array, Array], Array], ...] = (
    lambda one, context: np.broadcast_to(one, context.shape),  # in place of each head
    lambda one, context: one,  # as the only head
    lambda one, context: one[:, 0],  # without a head axis
)
"""The ways in which a single combined head replaces all heads of the context."""


def average_weights(after: Step, setup: Setup, weights: Array, allowed: Array) -> Array:
    all_weights = after(setup, weights, allowed)
    return np.broadcast_to(all_weights.mean(axis=1, keepdims=True), all_weights.shape)


def swap_batch_and_heads(setup: Setup, context: Array) -> Array:
    """Read heads `[b h t e]` as if they were `[h b t e]`."""
    return context.swapaxes(0, 1).reshape(context.shape)


def merge_in_order(*order: int) -> Step:
    """Read heads `[b h t e]` as if they were `[h b t e]`, permute these axes into this order, and merge."""

    def merge(setup: Setup, context: Array) -> Array:
        return context.reshape(context.swapaxes(0, 1).shape).transpose(*order).reshape(setup.batch, setup.rows, -1)

    return merge


def add_residual(recipe: Recipe) -> Recipe:
    """Add the queries to the context, or x to the output of a layer."""
    inputs: dict[str, Array] = {}

    def project(side: str, x: Array, arrays: Arrays) -> Any:
        inputs.setdefault("x", x) if side == "q" else None
        return recipe.project(side, x, arrays)

    def score(setup: Setup, q: Array, k: Array) -> Any:
        inputs["q"] = q
        return recipe.score(setup, q, k)

    def mix(setup: Setup, weights: Array, v: Array, k: Array) -> Any:
        context = recipe.mix(setup, weights, v, k)
        return context if "x" in inputs else context + inputs["q"]

    def finish(setup: Setup, merged: Array, weight: Array | None, bias: Array | None) -> Any:
        return recipe.finish(setup, merged, weight, bias) + inputs.pop("x", 0.0)

    return instead(project=project, score=score, mix=mix, finish=finish)(recipe)


NORMS = (
    partial(apply_norm, "L2", eps=1e-300),
    *(partial(apply_norm, kind, eps=eps) for kind in ("LayerNorm", "RMSNorm") for eps in (1e-5, 1e-6, 1e-8, 0.0)),
)

NORM_CHANGES: tuple[Callable[[Any], Change], ...] = (
    lambda norm: around("score", lambda score, setup, q, k: score(setup, norm(q), norm(k))),
    lambda norm: around("project", lambda project, side, x, arrays: project(side, norm(x), arrays)),
    lambda norm: around(
        "finish", lambda finish, setup, merged, weight, bias: norm(finish(setup, merged, weight, bias))
    ),
    lambda norm: around("mix", lambda mix, setup, weights, v, k: norm(mix(setup, weights, v, k))),
)

# The number of heads


def use_one_head(recipe: Recipe) -> Recipe:
    """Use one head of full width, and divide by the square root of that width."""
    scaled_down = around("scaled", lambda scaled, setup, scores: scaled(setup, scores) / math.sqrt(recipe.heads))
    return scaled_down(use_one_head_keep_scale(recipe))


def use_one_head_keep_scale(recipe: Recipe) -> Recipe:
    """Use one head of full width, but keep the scale of a small head. Its scores are sums over all small heads."""

    def add_up(score: Step, setup: Setup, q: Array, k: Array) -> Array:
        scores = score(setup, q, k)
        return np.broadcast_to(scores.sum(axis=1, keepdims=True), scores.shape)

    return around("score", add_up)(replace(recipe, heads=1, groups=1))


def share_groups(group_of: Callable[[Setup], Array]) -> Change:
    return instead(share=lambda setup, heads: heads[:, group_of(setup)])


def repeat_tokens(setup: Setup, heads: Array) -> Array:
    repeated = np.repeat(heads, setup.heads // setup.groups, axis=2)
    return repeated.reshape(len(heads), setup.heads, *heads.shape[2:])


def tile_tokens(setup: Setup, heads: Array) -> Array:
    """Tile the tokens of `[b s g d]` instead of the heads, and reshape into heads."""
    tiled = np.tile(heads.swapaxes(1, 2), (1, setup.heads // setup.groups, 1, 1))
    return tiled.reshape(len(heads), heads.shape[2], setup.heads, heads.shape[3]).swapaxes(1, 2)


# The projections of a layer


def drop_bias(affected: str) -> Change:

    def project(step: Step, side: str, x: Array, arrays: Arrays) -> Any:
        kept = {name: array for name, array in arrays.items() if name != f"b_{side}"}
        return step(side, x, kept if side in affected else arrays)

    return around("project", project)


drop_output_bias = around("finish", lambda finish, setup, merged, weight, bias: finish(setup, merged, weight, None))


def change_projections(affected: str, transform: Callable[[Array], Array]) -> Change:

    def project(step: Step, side: str, x: Array, arrays: Arrays) -> Any:
        name = f"W_{side}"
        return step(side, x, {**arrays, name: transform(arrays[name])} if side in affected else arrays)

    return around("project", project)


def change_output_projection(transform: Callable[[Array], Array]) -> Change:

    def finish(step: Step, setup: Setup, merged: Array, weight: Array | None, bias: Array | None) -> Any:
        return step(setup, merged, None if weight is None else transform(weight), bias)

    return around("finish", finish)


def keep_diagonal(matrix: Array) -> Array:
    return np.diag(np.diagonal(matrix))


def project_output_by(side: str) -> Change:

    def change(recipe: Recipe) -> Recipe:
        layer_arrays: dict[str, Array] = {}

        def project(own_side: str, x: Array, arrays: Arrays) -> Any:
            layer_arrays.update(arrays)
            return recipe.project(own_side, x, arrays)

        def finish(setup: Setup, merged: Array, weight: Array | None, bias: Array | None) -> Any:
            return recipe.finish(setup, merged, layer_arrays[f"W_{side}"], layer_arrays.get(f"b_{side}"))

        return instead(project=project, finish=finish)(recipe)

    return change


# The layout of tokens in x


def view_tokens(view: Callable[[Array], Array], back: Callable[[Array], Array] | None) -> Change:
    """Apply `view` to x, and `back`, if given, to the output."""

    def project(step: Step, side: str, x: Array, arrays: Arrays) -> Any:
        return step(side, view(x), arrays)

    def put_back(step: Step, setup: Setup, *arguments: Any) -> Any:
        return (back or np.asarray)(step(setup, *arguments))

    view_inputs = around("project", project)
    return lambda recipe: around("finish" if recipe.output_projection else "merge", put_back)(view_inputs(recipe))


def view_columns_as_rows(x: Array) -> Array:
    """Transpose x to `[b m t]`, and view that as `[b t m]`."""
    return x.swapaxes(1, 2).reshape(x.shape)


def view_rows_as_columns(answer: Array) -> Array:
    """Invert `view_columns_as_rows`."""
    batch, rows, width = answer.shape
    return answer.reshape(batch, width, rows).swapaxes(1, 2)


def permute_sides(order: str) -> Change:
    """Permute the projections, or the given q, k and v; "vkq" swaps q and v."""
    source_of, indices = dict(zip("qkv", order, strict=True)), ["qkv".index(side) for side in order]

    def permute(step: Step, *heads: Array) -> Any:
        return step(*(heads[index] for index in indices))

    permute_projections = around("project", lambda project, side, x, arrays: project(source_of[side], x, arrays))
    return together(permute_projections, around("order", permute))


def project_fused(x: Array, arrays: Arrays) -> Array:
    """Return q, k and v side by side, `[b t 3*h*d]`."""
    return np.concatenate([x @ arrays[f"W_{name}"] + arrays.get(f"b_{name}", 0.0) for name in "qkv"], axis=-1)


def split_fused_per_head(recipe: Recipe) -> Recipe:
    """Read the fused matrix as [q | k | v] for each head in turn, as in GPT-NeoX."""

    def project(side: str, x: Array, arrays: Arrays) -> Array:
        fused = project_fused(x, arrays)
        heads = fused.reshape(*x.shape[:-1], recipe.heads, 3, fused.shape[-1] // (3 * recipe.heads))
        return heads[..., "qkv".index(side), :].reshape(*x.shape[:-1], -1)

    return instead(project=project)(recipe)


MISTAKES = {
    "heads_not_transposed": Mistake(
        says="The token and head axes are not transposed: tokens and features are mixed, or the heads of one token "
        "attend to each other.",
        fix="reshape to [t, h, d] and transpose to [h, t, d]",
        seen="jsbaan/transformer-from-scratch PR 6; ajhalthor PR 4; hyunwoongko issue 15",
        stage="q",
        changes=(
            instead(split=view_as_heads, merge=view_as_merged),
            instead(split=view_as_heads),
            swap_heads_and_tokens,
            lambda recipe: instead(merge=view_as_merged)(swap_heads_and_tokens(recipe)),
            *map(view_some_as_heads, ("q", "k", "v", "qk", "kv")),
        ),
        needs=("layer",),
    ),
    "tokens_not_transposed": Mistake(
        says="x is reshaped where it should be transposed: each row holds parts of several tokens.",
        fix="move the features to the last axis with transpose or permute before the reshape",
        seen="images [b c h w] reshaped to [b h*w c]; frames reshaped to [b*h*w f c]; Open-Sora-Plan issue 257",
        stage="q",
        changes=(
            view_tokens(view_columns_as_rows, view_rows_as_columns),
            view_tokens(view_columns_as_rows, None),
            view_tokens(view_rows_as_columns, view_columns_as_rows),
        ),
        needs=("layer",),
        of_code=True,
    ),
    "heads_by_stride": Mistake(
        says="Head i gets every h-th column instead of its own block of columns.",
        fix="reshape the last axis to [h, d], not [d, h]",
        seen="reshape(t, d, h) in several ports",
        stage="q",
        changes=(instead(split=split_by_stride), instead(split=split_by_stride, merge=merge_by_stride)),
        needs=("layer",),
    ),
    "heads_merged_wrong": Mistake(
        says="Heads are merged by a view without a transpose, which mixes tokens and heads.",
        fix="transpose [h, t, d] to [t, h, d] before the reshape",
        seen="dfdx issue 158; Trans2Seg issue 4",
        stage="output",
        changes=(
            instead(merge=view_as_merged),
            instead(merge=merge_by_stride),
            # tokens as columns
            instead(merge=lambda setup, context: context.reshape(setup.batch, -1, setup.rows).swapaxes(1, 2)),
        ),
        needs=("layer",),
    ),
    "weights_averaged": Mistake(
        says="The weights are averaged over the heads, and every head uses the mean.",
        fix="keep separate weights for each head; average only a copy for display",
        seen="attn.mean(dim=1, keepdim=True) before the product; the averages returned by need_weights used as weights",
        stage="weights",
        changes=(around("after", average_weights),),
        of_code=True,
    ),
    "entries_and_heads_mixed": Mistake(
        says="Heads are merged with the batch and head axes in the wrong order: examples get each other's heads.",
        fix="keep the batch first: [b, h, t, d] to [b, t, h, d] before the reshape",
        seen="torch.cat(split(...)) over the batch, then a view; QAnet-pytorch",
        stage="output",
        changes=(
            instead(gather=swap_batch_and_heads),
            instead(gather=lambda setup, context: context.reshape(context.swapaxes(0, 1).shape).swapaxes(0, 1)),
            instead(merge=lambda setup, context: steps.join_heads(swap_batch_and_heads(setup, context))),
            instead(merge=lambda setup, context: context.swapaxes(0, 1).reshape(setup.batch, setup.rows, -1)),
            instead(merge=merge_in_order(0, 2, 1, 3)),
            instead(merge=merge_in_order(2, 1, 0, 3)),
        ),
        needs=("batch",),
        of_code=True,
    ),
    "residual_inside": Mistake(
        says="The function adds a residual: the queries, or x, are added to the output.",
        fix="return only the attention; add the residual outside",
        seen="return self.norm(x + attention(x)) in a function called attention",
        stage="output",
        changes=(add_residual,),
        of_code=True,
    ),
    "norm_inside": Mistake(
        says="The function applies a norm: to queries and keys, to x, or to the output.",
        fix="return only the attention; apply norms outside",
        seen="cosine attention; a LayerNorm moved inside the attention function",
        stage="scores",
        changes=tuple(place(norm) for place in NORM_CHANGES for norm in NORMS),
        of_code=True,
    ),
    "heads_reversed": Mistake(
        says="The heads are concatenated in reverse order.",
        fix="put head 0 first and head h - 1 last",
        seen="a list of heads built from the end",
        stage="output",
        changes=(around("gather", lambda gather, setup, context: gather(setup, context)[:, ::-1]),),
    ),
    "heads_averaged": Mistake(
        says="The heads are averaged or summed instead of concatenated.",
        fix="concatenate the heads",
        seen="d2l-en PR 439; Kyubyong/transformer issue 117",
        stage="output",
        changes=tuple(reduce_heads(reduce, place) for reduce in (np.mean, np.sum) for place in REDUCED_SHAPES),
    ),
    "single_head": Mistake(
        says="The number of heads is ignored: one head does all the work.",
        fix="split q, k and v into heads before computing the scores",
        seen="num_heads stored and never used",
        stage="q",
        changes=(use_one_head, use_one_head_keep_scale),
    ),
    "kv_heads_tiled": Mistake(
        says="Shared key/value heads are tiled: query head i reads key/value head i mod g instead of i // (h / g).",
        fix="repeat each key/value head h / g times; do not tile them",
        seen="onnx PR 7274; axlearn PR 842; ONNXim PR 34",
        stage="k",
        changes=(share_groups(lambda setup: np.arange(setup.heads) % setup.groups),),
        needs=("shared",),
    ),
    "kv_heads_first": Mistake(
        says="Every query head reads the first key/value head.",
        fix="query head i reads key/value head i // (h / g)",
        seen="broadcast of k[:, :1]; tiny-universe issue 21",
        stage="k",
        changes=(
            share_groups(lambda setup: np.zeros(setup.heads, np.int64)),
            share_groups(lambda setup: np.minimum(np.arange(setup.heads), setup.groups - 1)),
        ),
        needs=("shared",),
    ),
    "kv_tokens_repeated": Mistake(
        says="Shared keys and values are repeated along the tokens, not the heads: each head sees only some tokens.",
        fix="repeat the head axis: k.repeat_interleave(h / g, dim=1) of [b g s d]; no reshape is needed",
        seen="k.unsqueeze(3).expand(...).reshape(b, h, s, d), with unsqueeze(3) instead of unsqueeze(2)",
        stage="k",
        changes=(instead(share=repeat_tokens), instead(share=tile_tokens)),
        needs=("shared",),
    ),
    "projection_transposed": Mistake(
        says="A projection is transposed: x W^T instead of x W.",
        fix="q = x @ W_q; nn.Linear stores the transpose",
        seen="x @ in_proj_weight without .T; AutoGPTQ PR 139",
        stage="q",
        changes=tuple(change_projections(sides, np.transpose) for sides in ("qkv", "q", "k", "v", "qk", "kv", "qv")),
        needs=("layer",),
    ),
    "qkv_order": Mistake(
        says="Queries, keys and values, or their matrices, are taken in the wrong order.",
        fix="use the order that the function or the fused matrix expects: [q | k | v], or the model's own",
        seen="mlxcel PR 928; NeMo-RL PR 2802; Odyssey issue 5648; keras.layers.Attention takes [query, value, key]",
        stage="q",
        changes=(
            *(permute_sides(order) for order in ("vkq", "qvk", "kvq", "vqk")),
            split_fused_per_head,
            instead(project=lambda side, x, arrays: project_fused(x, arrays)[..., "qkv".index(side) :: 3]),  # strided
        ),
    ),
    "projections_unused": Mistake(
        says="The projections are never used: x itself serves as queries, keys, values, or all three.",
        fix="q = x @ W_q, k = x @ W_k, v = x @ W_v before splitting into heads",
        seen="self.queries, self.keys and self.values created in the constructor and never called in forward",
        stage="q",
        changes=(instead(project=lambda side, x, arrays: x),),
        needs=("layer",),
        of_code=True,
    ),
    "no_bias": Mistake(
        says="The biases of the projections are missing.",
        fix="q = x @ W_q + b_q, and likewise for k and v",
        seen="Fast-LLM PR 398; candle-vllm PR 167; Qwen2 loaded as Llama",
        stage="q",
        changes=(
            lambda recipe: drop_bias("qkv")(drop_output_bias(recipe)),
            *(drop_bias(sides) for sides in ("qkv", "q", "k", "qk")),
            drop_output_bias,
        ),
        needs=("bias",),
    ),
    "no_value_bias": Mistake(
        says="The bias of the values is missing.",
        fix="v = x @ W_v + b_v",
        seen="ANEForge PR 253",
        stage="v",
        changes=(drop_bias("v"),),
        needs=("bias",),
    ),
    "no_output_projection": Mistake(
        says="The output projection W_o is missing.",
        fix="output = concatenated heads @ W_o",
        seen="sequence_labeling_tf PR 83; LLMs-from-scratch issue 67",
        stage="output",
        changes=(
            instead(finish=lambda setup, merged, weight, bias: merged),
            instead(finish=lambda setup, merged, weight, bias: merged if bias is None else merged + bias),
        ),
        needs=("output",),
    ),
    "output_projection_transposed": Mistake(
        says="The output projection W_o is transposed.",
        fix="output = concatenated heads @ W_o; nn.Linear stores the transpose",
        seen="weights copied from one library to another",
        stage="output",
        changes=(change_output_projection(np.transpose),),
        needs=("output",),
    ),
    "output_through_another": Mistake(
        says="The output is multiplied by W_q, W_k or W_v instead of W_o.",
        fix="output = concatenated heads @ W_o",
        seen="linears[-1] of a list that holds only W_q, W_k and W_v",
        stage="output",
        changes=tuple(project_output_by(side) for side in "vqk"),
        needs=("output",),
        of_code=True,
    ),
    "projection_diagonal": Mistake(
        says="Only the diagonal of a projection is used: features are scaled but never mixed.",
        fix="use two letters for the axes of the matrix: einsum('btd,de->bte', heads, W_o)",
        seen="einsum('bsd,dd->bsd', heads, W_o) in several ports",
        stage="output",
        changes=(
            change_output_projection(keep_diagonal),
            *(change_projections(sides, keep_diagonal) for sides in ("qkv", "q", "k", "v")),
        ),
        needs=("layer",),
        of_code=True,
    ),
}
