"""The heads and the matrices of a layer: cut, shared, put together or projected wrongly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead, together

# Cut into heads, and put together again


def cut_as_it_lies(flat: Array, count: int) -> Array:
    """Cut `[b t h*d]` with a view alone: it is read as `[b h t d]`."""
    return flat.reshape(len(flat), count, flat.shape[1], -1)


def merge_as_it_lies(at: At, context: Array) -> Array:
    """Put heads together with a view alone: `[b h t d]` is read as `[b t h*d]`."""
    return context.reshape(at.batch, at.rows, -1)


def cut_some_as_they_lie(sides: str) -> Change:
    """Return the change that cuts some of q, k and v with a view alone, and the others rightly."""

    def place(step: Step, at: At, own: str, heads: Array, positions: Any) -> Any:
        if own in sides:
            heads = cut_as_it_lies(steps.join_heads(heads), heads.shape[1])
        return step(at, own, heads, positions)

    return around("place", place)


def heads_as_tokens(recipe: Recipe) -> Recipe:
    """Return the recipe that leaves heads `[b t h d]`, where those of one token are each other's keys."""

    def place(at: At, side: str, heads: Array, positions: Any) -> Any:
        return recipe.place(at, side, heads, positions).swapaxes(1, 2)

    def allowed(at: At) -> Any:
        return np.asarray(recipe.allowed(replace(at, rows=at.heads, keys=at.heads)))

    def gather(at: At, context: Array) -> Any:
        return recipe.gather(at, context.swapaxes(1, 2))

    return instead(place=place, allowed=allowed, gather=gather)(recipe)


def cut_by_stride(flat: Array, count: int) -> Array:
    """Give head i the numbers i, i + h, i + 2h and so on."""
    return flat.reshape(*flat.shape[:2], -1, count).transpose(0, 3, 1, 2)


def merge_by_stride(at: At, context: Array) -> Array:
    """Put the heads together with their numbers in turns."""
    return context.transpose(0, 2, 3, 1).reshape(at.batch, at.rows, -1)


def gathered(combine: Callable[[At, Array], Array]) -> Change:
    """Return the change that makes one head of all; W_o then lends its first rows, as many as there are numbers."""

    def finish(step: Step, at: At, merged: Array, weight: Array | None, bias: Array | None) -> Array:
        return np.asarray(step(at, merged, None if weight is None else weight[: merged.shape[-1]], bias))

    fitting = around("finish", finish)
    return lambda recipe: instead(gather=combine)(fitting(recipe))


def combined(reduce: Callable[..., Array], place: Callable[[Array, Array], Array]) -> Change:
    """Return the change that reduces the heads to one and places that."""
    return gathered(lambda at, context: place(reduce(context, axis=1, keepdims=True), context))


PLACES: tuple[Callable[[Array, Array], Array], ...] = (
    lambda one, context: np.broadcast_to(one, context.shape),  # instead of each head
    lambda one, context: one,  # as the only head
    lambda one, context: one[:, 0],  # without an axis of heads
)


def averaged_weights(after: Step, at: At, weights: Array, allowed: Array) -> Array:
    """Give every head the mean of the weights of all."""
    every = after(at, weights, allowed)
    return np.broadcast_to(every.mean(axis=1, keepdims=True), every.shape)


def entries_with_heads(at: At, context: Array) -> Array:
    """Return heads `[b h t e]` as if they lay `[h b t e]`."""
    return context.swapaxes(0, 1).reshape(context.shape)


def merge_in_order(*order: int) -> Step:
    """Return what puts heads together that are read as if they lay `[h b t e]`, in another order of these axes."""

    def merge(at: At, context: Array) -> Array:
        return context.reshape(context.swapaxes(0, 1).shape).transpose(*order).reshape(at.batch, at.rows, -1)

    return merge


def with_residual(recipe: Recipe) -> Recipe:
    """Return the recipe that adds its queries to the context, or x to the answer of a layer."""
    asked: dict[str, Array] = {}

    def project(side: str, x: Array, arrays: Mapping[str, Array]) -> Any:
        asked.setdefault("x", x) if side == "q" else None
        return recipe.project(side, x, arrays)

    def score(at: At, q: Array, k: Array) -> Any:
        asked["q"] = q
        return recipe.score(at, q, k)

    def mix(at: At, weights: Array, v: Array, k: Array) -> Any:
        context = recipe.mix(at, weights, v, k)
        return context if "x" in asked else context + asked["q"]

    def finish(at: At, merged: Array, weight: Array | None, bias: Array | None) -> Any:
        return recipe.finish(at, merged, weight, bias) + asked.pop("x")

    return instead(project=project, score=score, mix=mix, finish=finish)(recipe).changed(remembers=True)


def unit(array: Array) -> Array:
    """Return vectors of length 1."""
    return np.asarray(array / np.maximum(np.sqrt((array * array).sum(axis=-1, keepdims=True)), 1e-300))


def root_mean_square(array: Array, epsilon: float) -> Array:
    return np.asarray(array / np.sqrt((array * array).mean(axis=-1, keepdims=True) + epsilon))


def centred(array: Array, epsilon: float) -> Array:
    """Return what a layer norm without weights gives."""
    return root_mean_square(array - array.mean(axis=-1, keepdims=True), epsilon)


NORMS: tuple[Callable[[Array], Array], ...] = (
    unit,
    *(partial(norm, epsilon=epsilon) for norm in (centred, root_mean_square) for epsilon in (1e-5, 1e-6, 1e-8, 0.0)),
)

PLACES_OF_A_NORM: tuple[Callable[[Any], Change], ...] = (
    lambda norm: around("score", lambda score, at, q, k: score(at, norm(q), norm(k))),
    lambda norm: around("project", lambda project, side, x, arrays: project(side, norm(x), arrays)),
    lambda norm: around("finish", lambda finish, at, merged, weight, bias: norm(finish(at, merged, weight, bias))),
    lambda norm: around("mix", lambda mix, at, weights, v, k: norm(mix(at, weights, v, k))),
)

# How many heads there are


def one_head(recipe: Recipe) -> Recipe:
    """Return the recipe with one head of full width, scaled by its own size."""
    wider = around("scaled", lambda scaled, at, scores: scaled(at, scores) / math.sqrt(recipe.heads))
    return wider(one_head_of_the_same_scale(recipe))


def one_head_of_the_same_scale(recipe: Recipe) -> Recipe:
    """Return the recipe with one head of full width, scaled by the size of the heads that it should have had."""

    def add_up(score: Step, at: At, q: Array, k: Array) -> Array:
        """Add up the scores of all heads, where these were given apart."""
        scores = score(at, q, k)
        return np.asarray(np.broadcast_to(scores.sum(axis=1, keepdims=True), scores.shape))

    return around("score", add_up)(replace(recipe, heads=1, groups=1))


def shared(group_of: Callable[[At], Array]) -> Change:
    """Return the change that gives the query heads other key/value heads."""
    return instead(share=lambda at, heads: heads[:, group_of(at)])


def along_tokens(at: At, heads: Array) -> Array:
    """Repeat each token in place of each head, and cut the rows into heads."""
    rows = np.repeat(heads, at.heads // at.groups, axis=2)
    return rows.reshape(len(heads), at.heads, *heads.shape[2:])


def tokens_in_turns(at: At, heads: Array) -> Array:
    """Repeat all tokens `[b s g d]` in place of the heads, and cut the rows into heads."""
    rows = np.tile(heads.swapaxes(1, 2), (1, at.heads // at.groups, 1, 1))
    return rows.reshape(len(heads), heads.shape[2], at.heads, heads.shape[3]).swapaxes(1, 2)


# The projections of a layer

Arrays = Mapping[str, Array]


def without_bias(sides: str) -> Change:
    """Return the change that leaves out the biases of these sides."""

    def project(step: Step, side: str, x: Array, arrays: Arrays) -> Any:
        kept = {name: array for name, array in arrays.items() if name != f"b_{side}"}
        return step(side, x, kept if side in sides else arrays)

    return around("project", project)


without_output_bias = around("finish", lambda finish, at, merged, weight, bias: finish(at, merged, weight, None))


def projected_by(sides: str, other: Callable[[Array], Array]) -> Change:
    """Return the change that projects these sides by what `other` makes of their matrices."""

    def project(step: Step, side: str, x: Array, arrays: Arrays) -> Any:
        name = f"W_{side}"
        return step(side, x, {**arrays, name: other(arrays[name])} if side in sides else arrays)

    return around("project", project)


def finished_by(other: Callable[[Array], Array]) -> Change:
    """Return the change that multiplies the merged heads by what `other` makes of W_o."""

    def finish(step: Step, at: At, merged: Array, weight: Array | None, bias: Array | None) -> Any:
        return step(at, merged, None if weight is None else other(weight), bias)

    return around("finish", finish)


def diagonal(matrix: Array) -> Array:
    return np.diag(np.diagonal(matrix))


def output_through(side: str) -> Change:
    """Return the change that multiplies the merged heads by the matrix of queries, keys or values."""

    def change(recipe: Recipe) -> Recipe:
        known: dict[str, Array] = {}

        def project(own: str, x: Array, arrays: Arrays) -> Any:
            known.update(arrays)
            return recipe.project(own, x, arrays)

        def finish(at: At, merged: Array, weight: Array | None, bias: Array | None) -> Any:
            return recipe.finish(at, merged, known[f"W_{side}"], known.get(f"b_{side}"))

        return instead(project=project, finish=finish)(recipe).changed(remembers=True)

    return change


# How tokens lie in x


def tokens_viewed(view: Callable[[Array], Array], back: Callable[[Array], Array] | None) -> Change:
    """Return the change that reads x as if its tokens lay otherwise, and puts the answer back so, or not."""

    def project(step: Step, side: str, x: Array, arrays: Mapping[str, Array]) -> Any:
        return step(side, view(x), arrays)

    def put_back(step: Step, at: At, *given: Any) -> Any:
        return (back or np.asarray)(step(at, *given))

    read = around("project", project)
    return lambda recipe: around("finish" if recipe.output_projection else "merge", put_back)(read(recipe))


def columns_as_rows(x: Array) -> Array:
    """Return `[b m t]`, of which x is the transpose, read as `[b t m]` with a view alone."""
    return x.swapaxes(1, 2).reshape(x.shape)


def rows_as_columns(answer: Array) -> Array:
    """Return what `columns_as_rows` makes into this."""
    batch, rows, width = answer.shape
    return answer.reshape(batch, width, rows).swapaxes(1, 2)


def ordered(order: str) -> Change:
    """Return the change that takes these projections, or these of the heads that are given, for q, k and v."""
    taken, places = dict(zip("qkv", order, strict=True)), ["qkv".index(side) for side in order]

    def exchanged(step: Step, *heads: Array) -> Any:
        return step(*(heads[place] for place in places))

    projected = around("project", lambda project, side, x, arrays: project(taken[side], x, arrays))
    return together(projected, around("order", exchanged))


def fused(x: Array, arrays: Arrays) -> Array:
    """Return x times the three matrices side by side, `[b t 3*h*d]`."""
    return np.concatenate([x @ arrays[f"W_{name}"] + arrays.get(f"b_{name}", 0.0) for name in "qkv"], axis=-1)


def read_per_head(recipe: Recipe) -> Recipe:
    """Return the recipe that reads the fused matrix as [q | k | v] of each head in turn, as GPT-NeoX has them."""

    def project(side: str, x: Array, arrays: Arrays) -> Array:
        every = fused(x, arrays)
        heads = every.reshape(*x.shape[:-1], recipe.heads, 3, every.shape[-1] // (3 * recipe.heads))
        return np.asarray(heads[..., "qkv".index(side), :].reshape(*x.shape[:-1], -1))

    return instead(project=project)(recipe)


MISTAKES = {
    "heads_not_transposed": Mistake(
        says="Tokens and heads are not exchanged: tokens and features are mixed, or the heads of one token attend to "
        "each other.",
        fix="reshape to [t, h, d] and transpose to [h, t, d]",
        seen="jsbaan/transformer-from-scratch PR 6; ajhalthor PR 4; hyunwoongko issue 15",
        stage="q",
        changes=(
            instead(split=cut_as_it_lies, merge=merge_as_it_lies),
            instead(split=cut_as_it_lies),
            heads_as_tokens,
            lambda recipe: instead(merge=merge_as_it_lies)(heads_as_tokens(recipe)),
            *map(cut_some_as_they_lie, ("q", "k", "v", "qk", "kv")),
        ),
        needs=("layer",),
    ),
    "tokens_not_transposed": Mistake(
        says="Tokens are cut out of x by a reshape where its axes should change places: rows hold parts of several.",
        fix="bring the numbers of a token to the last axis by a transpose or a permute before the reshape",
        seen="images [b c h w] reshaped to [b h*w c]; frames reshaped to [b*h*w f c]; Open-Sora-Plan issue 257",
        stage="q",
        changes=(
            tokens_viewed(columns_as_rows, rows_as_columns),
            tokens_viewed(columns_as_rows, None),
            tokens_viewed(rows_as_columns, columns_as_rows),
        ),
        needs=("layer",),
        of_code=True,
    ),
    "heads_by_stride": Mistake(
        says="Head i owns every h-th column instead of its own block of columns.",
        fix="reshape the last axis to [h, d], not [d, h]",
        seen="reshape(t, d, h) in several ports",
        stage="q",
        changes=(instead(split=cut_by_stride), instead(split=cut_by_stride, merge=merge_by_stride)),
        needs=("layer",),
    ),
    "heads_merged_wrong": Mistake(
        says="Heads are put together with a view alone: the numbers of tokens and heads are mixed.",
        fix="transpose [h, t, d] to [t, h, d] before the reshape",
        seen="dfdx issue 158; Trans2Seg issue 4",
        stage="output",
        changes=(
            instead(merge=merge_as_it_lies),
            instead(merge=merge_by_stride),
            instead(
                merge=lambda at, context: context.reshape(at.batch, -1, at.rows).swapaxes(1, 2)
            ),  # tokens are columns
        ),
        needs=("layer",),
    ),
    "weights_averaged": Mistake(
        says="The weights are averaged over the heads, and every head uses the mean.",
        fix="each head has weights of its own; average only a copy that is shown",
        seen="attn.mean(dim=1, keepdim=True) before the product; need_weights taken for the weights",
        stage="weights",
        changes=(around("after", averaged_weights),),
        of_code=True,
    ),
    "entries_and_heads_mixed": Mistake(
        says="Heads are put together in the wrong order of entries and heads: entries get heads of each other.",
        fix="keep the batch first: [b, h, t, d] to [b, t, h, d] before the reshape",
        seen="torch.cat(split(...)) over the batch, and a view back; QAnet-pytorch",
        stage="output",
        changes=(
            instead(gather=entries_with_heads),
            instead(gather=lambda at, context: context.reshape(context.swapaxes(0, 1).shape).swapaxes(0, 1)),
            instead(merge=lambda at, context: steps.join_heads(entries_with_heads(at, context))),
            instead(merge=lambda at, context: context.swapaxes(0, 1).reshape(at.batch, at.rows, -1)),
            instead(merge=merge_in_order(0, 2, 1, 3)),
            instead(merge=merge_in_order(2, 1, 0, 3)),
        ),
        needs=("batch",),
        of_code=True,
    ),
    "residual_inside": Mistake(
        says="A residual stands inside: the queries, or x, are added to the answer.",
        fix="attention alone; add the residual outside",
        seen="return self.norm(x + attention(x)) in a function that is called attention",
        stage="output",
        changes=(with_residual,),
        of_code=True,
    ),
    "norm_inside": Mistake(
        says="A norm stands inside: of queries and keys, of x, or of the answer.",
        fix="attention alone; norms stand outside, or are asked for",
        seen="cosine attention; a LayerNorm that moved into the attention",
        stage="scores",
        changes=tuple(place(norm) for place in PLACES_OF_A_NORM for norm in NORMS),
        of_code=True,
    ),
    "heads_reversed": Mistake(
        says="The heads are put together in the reverse order.",
        fix="head 0 first, head h - 1 last",
        seen="a list of heads that is built from its end",
        stage="output",
        changes=(around("gather", lambda gather, at, context: gather(at, context)[:, ::-1]),),
    ),
    "heads_averaged": Mistake(
        says="The heads are averaged or added instead of put side by side.",
        fix="concatenate the heads",
        seen="d2l-en PR 439; Kyubyong/transformer issue 117",
        stage="output",
        changes=tuple(combined(reduce, place) for reduce in (np.mean, np.sum) for place in PLACES),
    ),
    "single_head": Mistake(
        says="The number of heads is ignored: one head does all the work.",
        fix="cut q, k and v into heads before the scores",
        seen="num_heads stored and never used",
        stage="q",
        changes=(one_head, one_head_of_the_same_scale),
    ),
    "kv_heads_tiled": Mistake(
        says="Shared key/value heads are taken in turns: query head i reads i mod g instead of i // (h / g).",
        fix="repeat each key/value head h / g times; do not tile them",
        seen="onnx PR 7274; axlearn PR 842; ONNXim PR 34",
        stage="k",
        changes=(shared(lambda at: np.arange(at.heads) % at.groups),),
        needs=("shared",),
    ),
    "kv_heads_first": Mistake(
        says="Every query head reads the first key/value head.",
        fix="query head i reads key/value head i // (h / g)",
        seen="broadcast of k[:, :1]; tiny-universe issue 21",
        stage="k",
        changes=(
            shared(lambda at: np.zeros(at.heads, np.int64)),
            shared(lambda at: np.minimum(np.arange(at.heads), at.groups - 1)),
        ),
        needs=("shared",),
    ),
    "kv_tokens_repeated": Mistake(
        says="Shared keys and values are repeated along the tokens, not the heads: each head sees some tokens alone.",
        fix="repeat the axis of heads: k.repeat_interleave(h / g, dim=1) of [b g s d]; nothing is reshaped then",
        seen="k.unsqueeze(3).expand(...).reshape(b, h, s, d) for unsqueeze(2)",
        stage="k",
        changes=(instead(share=along_tokens), instead(share=tokens_in_turns)),
        needs=("shared",),
    ),
    "projection_transposed": Mistake(
        says="A projection is transposed: x W^T instead of x W.",
        fix="q = x @ W_q; nn.Linear stores the transpose",
        seen="x @ in_proj_weight without .T; AutoGPTQ PR 139",
        stage="q",
        changes=tuple(projected_by(sides, np.transpose) for sides in ("qkv", "q", "k", "v", "qk", "kv", "qv")),
        needs=("layer",),
    ),
    "qkv_order": Mistake(
        says="Queries, keys and values, or their matrices, are taken in the wrong order.",
        fix="look up the order that the function or the fused matrix wants: [q | k | v], or as the model has it",
        seen="mlxcel PR 928; NeMo-RL PR 2802; Odyssey issue 5648; keras.layers.Attention takes [query, value, key]",
        stage="q",
        changes=(
            *(ordered(order) for order in ("vkq", "qvk", "kvq", "vqk")),
            read_per_head,
            instead(project=lambda side, x, arrays: fused(x, arrays)[..., "qkv".index(side) :: 3]),  # in turns
        ),
    ),
    "projections_unused": Mistake(
        says="Projections are made and never used: x itself is the queries, the keys or the values, or all of them.",
        fix="q = x @ W_q, k = x @ W_k, v = x @ W_v before the heads are cut",
        seen="self.queries, self.keys and self.values made in the constructor and never called in forward",
        stage="q",
        changes=(instead(project=lambda side, x, arrays: x),),
        needs=("layer",),
        of_code=True,
    ),
    "no_bias": Mistake(
        says="The biases of the projections are missing.",
        fix="q = x @ W_q + b_q, and so for k and v",
        seen="Fast-LLM PR 398; candle-vllm PR 167; Qwen2 loaded as Llama",
        stage="q",
        changes=(
            lambda recipe: without_bias("qkv")(without_output_bias(recipe)),
            *(without_bias(sides) for sides in ("qkv", "q", "k", "qk")),
            without_output_bias,
        ),
        needs=("bias",),
    ),
    "no_value_bias": Mistake(
        says="The bias of the values is missing.",
        fix="v = x @ W_v + b_v",
        seen="ANEForge PR 253",
        stage="v",
        changes=(without_bias("v"),),
        needs=("bias",),
    ),
    "no_output_projection": Mistake(
        says="The output projection W_o is missing.",
        fix="output = concatenated heads @ W_o",
        seen="sequence_labeling_tf PR 83; LLMs-from-scratch issue 67",
        stage="output",
        changes=(
            instead(finish=lambda at, merged, weight, bias: merged),
            instead(finish=lambda at, merged, weight, bias: merged if bias is None else merged + bias),
        ),
        needs=("output",),
    ),
    "output_projection_transposed": Mistake(
        says="The output projection W_o is transposed.",
        fix="output = concatenated heads @ W_o; nn.Linear stores the transpose",
        seen="weights moved between libraries",
        stage="output",
        changes=(finished_by(np.transpose),),
        needs=("output",),
    ),
    "output_through_another": Mistake(
        says="The output goes through the matrix of the queries, keys or values instead of W_o.",
        fix="output = concatenated heads @ W_o",
        seen="linears[-1] of a list that holds W_q, W_k and W_v alone",
        stage="output",
        changes=tuple(output_through(side) for side in "vqk"),
        needs=("output",),
        of_code=True,
    ),
    "projection_diagonal": Mistake(
        says="Only the diagonal of a projection is used: no number of a token reaches another of its own.",
        fix="two letters for the two axes of a matrix: einsum('btd,de->bte', heads, W_o)",
        seen="einsum('bsd,dd->bsd', heads, W_o) in several ports",
        stage="output",
        changes=(finished_by(diagonal), *(projected_by(sides, diagonal) for sides in ("qkv", "q", "k", "v"))),
        needs=("layer",),
        of_code=True,
    ),
}
