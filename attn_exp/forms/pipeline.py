"""Attention as a list of replaceable steps on whole arrays `[... h t s]`.

The steps are plain functions in the fields of `Recipe`. The form `matrix` runs the list, for one problem, a batch or
all seeds of a sweep at once. Each layer of a model runs it too. A mistake is the list with some steps replaced, and
several mistakes can be chained. The first argument of most steps is a `Setup`, which has the rules and all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.forms import steps
from attn_exp.forms.trace import Trace
from attn_exp.rules.grid import Grid
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules, whole_grid

Step = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm along the last axis: `(z - mean) / sqrt(var + eps) * gain + shift`.

    - `kind`: "LayerNorm" is the formula above. "RMSNorm" subtracts no mean, and its var is the mean of squares. "L2"
      divides by the length, or by `eps` if `eps` is larger. "GroupNorm" takes mean and var over all tokens, for each of
      `groups` groups of features. "affine" only applies gain and shift.
    - `gain`, `shift`: `[m]`, or for heads `[h 1 d]`.
    - `eps`: the number in the formula.
    - `groups`: the number of groups of "GroupNorm".
    - `joined`: whether all heads of a token are normed together, side by side.
    """

    kind: str
    gain: Array
    shift: Array
    eps: float = 1e-5
    groups: int = 1
    joined: bool = False

    def __call__(self, z: Array) -> Array:
        return apply_norm(self.kind, z, self.eps, self.groups) * self.gain + self.shift

    def of_heads(self, heads: Array) -> Array:
        """Return the normalized heads `[b h t d]`."""
        if not self.joined:
            return self(heads)
        batch, count, tokens, size = heads.shape
        wide = self(heads.swapaxes(1, 2).reshape(batch, tokens, -1))
        return wide.reshape(batch, tokens, count, size).swapaxes(1, 2)


def apply_norm(kind: str, z: Array, eps: float, groups: int = 1) -> Array:
    """Return z normed along the last axis, without gain and shift."""
    if kind == "affine":
        return z
    if kind == "GroupNorm":
        batch, tokens, width = z.shape
        grouped = z.reshape(batch, tokens, groups, width // groups)
        mean, var = grouped.mean(axis=(1, 3), keepdims=True), grouped.var(axis=(1, 3), keepdims=True)
        return np.asarray((grouped - mean) / np.sqrt(var + eps)).reshape(z.shape)
    if kind == "L2":
        return np.asarray(z / np.maximum(np.sqrt((z * z).sum(axis=-1, keepdims=True)), eps))
    if kind == "RMSNorm":
        return np.asarray(z / np.sqrt((z * z).mean(axis=-1, keepdims=True) + eps))
    return np.asarray((z - z.mean(axis=-1, keepdims=True)) / np.sqrt(z.var(axis=-1, keepdims=True) + eps))


@dataclass(frozen=True, eq=False)
class Around:
    """The norms and the residual around attention: `y = last(factor (x + inner(attention(before(x)))))`.

    A norm is None if there is none.

    - `before`: the norm of x.
    - `of_memory`: the norm of the cross-attention memory.
    - `heads`: the norms of the heads of q, k and v, keyed by `q`, `k` and `v`.
    - `inner`: the norm after W_o.
    - `last`: the norm after the residual.
    - `residual`: whether x is added.
    - `residual_of_normed`: whether the residual is `before(x)` instead of x.
    - `factor`: a factor of the sum.
    """

    before: Norm | None = None
    of_memory: Norm | None = None
    heads: Mapping[str, Norm] = field(default_factory=dict)
    inner: Norm | None = None
    last: Norm | None = None
    residual: bool = False
    residual_of_normed: bool = False
    factor: float = 1.0

    def x(self, x: Array) -> Array:
        """Return the input of the query projection."""
        return x if self.before is None else self.before(x)

    def memory(self, memory: Array) -> Array:
        """Return the input of the key and value projections."""
        return memory if self.of_memory is None else self.of_memory(memory)

    def side(self, side: str, heads: Array) -> Array:
        """Return the heads of q, k or v, normed if there is a norm."""
        return self.heads[side].of_heads(heads) if side in self.heads else heads

    def finish(self, x: Array, output: Array) -> Array:
        result = output if self.inner is None else self.inner(output)
        added = self.x(x) if self.residual_of_normed else x
        result = added + result if self.residual and added.shape == result.shape else result
        result = result * self.factor
        return result if self.last is None else self.last(result)

    def __str__(self) -> str:
        heads = next(iter(self.heads.values()), None)
        parts = (
            self.before and f"{self.before.kind} before",
            self.of_memory and f"{self.of_memory.kind} of the memory",
            heads and f"{heads.kind} of {' and '.join(sorted(self.heads))}",
            self.inner and f"{self.inner.kind} after",
            self.residual and "a residual after",
            self.last and f"{self.last.kind} after {'it' if self.residual else 'all'}",
            self.factor != 1.0 and f"all times {self.factor:.4g}",
        )
        *earlier, last = [part for part in parts if part] or [""]
        return f"{', '.join(earlier)} and {last}" if earlier else last


@dataclass(frozen=True, eq=False)
class Given:
    """The input of attention: heads, or x and the arrays of a layer.

    - `q`, `k`, `v`: heads `[b h t d]`, if they are given.
    - `x`: the input of a layer, `[b t m]`.
    - `arrays`: the weight matrices and biases of the layer by name.
    - `memory`: the vectors `[b s n]` that keys and values are computed from, in cross-attention.
    - `past`: the number of tokens at the start of x that have no queries; `q` leaves them out.
    - `independent`: whether the examples of the batch are copies of one problem. A mistake that mixes the examples of
      a batch must then treat them separately.
    - `around`: the norms and the residual around attention in a user's layer.
    """

    q: Array | None = None
    k: Array | None = None
    v: Array | None = None
    x: Array | None = None
    arrays: Arrays = field(default_factory=dict)
    memory: Array | None = None
    past: int = 0
    independent: bool = False
    around: Around | None = None

    @property
    def keys(self) -> int:
        source = next(array for array in (self.k, self.memory, self.x) if array is not None)
        return int(source.shape[-2])


@dataclass(frozen=True)
class Setup:
    """The context of a step: the rules and all sizes.

    - `batch`: the number of examples, 1 without a batch axis.
    - `heads`, `groups`: the numbers of query heads and of key/value heads.
    - `rows`, `keys`: the numbers of queries and of keys.
    - `size`: the size of a head, d.
    - `width`: the width of x; if heads are given, the width of all query heads side by side.
    - `past`, `independent`: as in `Given`.
    - `batched`: whether the arrays have a batch axis.
    - `region`: the logits to compute; None for all.
    """

    rules: Rules
    batch: int
    heads: int
    groups: int
    rows: int
    keys: int
    size: int
    width: int
    past: int = 0
    independent: bool = False
    batched: bool = True
    region: Grid | None = None

    @classmethod
    def of_heads(
        cls, rules: Rules, q: Array, k: Array, region: Grid | None = None, given: Given | None = None
    ) -> Setup:
        """Return the context for queries `[... h t d]` and keys `[... g s d]`.

        `given` supplies the past and the width of x.
        """
        heads, rows, size = q.shape[-3:]
        batched = q.ndim == 4
        batch, groups, keys = len(q) if batched else 1, *k.shape[-3:-1]
        width = heads * size if given is None or given.x is None else given.x.shape[-1]
        past, independent = (0, False) if given is None else (given.past, given.independent)
        return cls(rules, batch, heads, groups, rows, keys, size, width, past, independent, batched, region)

    @property
    def grid(self) -> Grid:
        """The grid of the logits `[... h t s]`: `region` if it is set, otherwise the grid of the whole problem."""
        if self.region is not None:
            return self.region
        return whole_grid(self.rules, self.heads, self.rows, self.keys, batches=self.batch if self.batched else None)


@dataclass(frozen=True)
class Recipe:
    """The rules, positions and head counts of a computation, and its steps in the order in which they run.

    - `wide`: whether given heads are merged first, to `[b t h*d]`, and then split and merged like those of a layer.
    - `order`: returns given q, k and v in the order in which they are used.
    - `source`: chooses what q, k or v is projected from: x or the memory.
    - `project`, `split`: compute `x W + b`, and split it into heads.
    - `place`: encodes positions in q and k.
    - `share`: gives each query head its key/value head.
    - `score`, `scaled`, `bent`, `biased`: compute the scores `q k^T`, apply the scale, elementwise score rules, biases.
    - `allowed`, `forbid`: tell which keys a query may see, and set the other logits to -inf.
    - `normalize`: turns logits into weights.
    - `after`: returns the weights unchanged; some mistakes change them here.
    - `mix`: computes `weights v`.
    - `gather`: returns the contexts of the heads unchanged; some mistakes change them here.
    - `merge`, `finish`: put the heads side by side, and apply W_o.
    """

    rules: Rules
    heads: int = 1
    groups: int = 1
    positions: tuple[Position, ...] = ()
    output_projection: bool = True
    wide: bool = False
    order: Step = steps.order
    source: Step = steps.source
    project: Step = steps.project
    split: Step = steps.split
    place: Step = steps.place
    share: Step = steps.share
    score: Step = steps.score
    scaled: Step = steps.scaled
    bent: Step = steps.bent
    biased: Step = steps.biased
    allowed: Step = steps.allowed
    forbid: Step = steps.forbid
    normalize: Step = steps.normalize
    after: Step = steps.after
    mix: Step = steps.mix
    gather: Step = steps.gather
    merge: Step = steps.merge
    finish: Step = steps.finish

    def with_rules(self, **changes: Any) -> Recipe:
        return self.changed(rules=replace(self.rules, **changes))

    def changed(self, **fields: Any) -> Recipe:
        """Return a copy with changed fields.

        Thousands of copies are made, and this is ten times as fast as `replace`.
        """
        copy = object.__new__(Recipe)
        vars(copy).update(vars(self) | fields)
        return copy


def attend(recipe: Recipe, q: Array, k: Array, v: Array | None, region: Grid | None = None) -> Trace:
    """Return every stage that a recipe computes from heads `[... h t d]`, `[... g s d]` and `[... g s e]`.

    If the logits are part of a larger problem, `region` is their grid. Without values there is no context.
    """
    setup = Setup.of_heads(recipe.rules, q, k, region)
    stages = compute_heads(recipe, setup, q, recipe.share(setup, k), None if v is None else recipe.share(setup, v))
    return Trace(q=q, k=k, v=v).replace(**stages)


def compute(recipe: Recipe, given: Given) -> dict[str, Array]:
    """Return every stage by name, `[b h t ...]`; the last is `output`.

    If heads were given, `output` is their context. Otherwise it is the output of the layer, `[b t m]`.

    Raises:
        ValueError: the shapes do not fit a step, as when a transposed matrix is not square.
    """
    with np.errstate(all="ignore"):
        q, k, v = make_qkv(recipe, given)
        setup = Setup.of_heads(recipe.rules, q, k, None, given)
        q, k, v = (
            recipe.place(setup, side, heads, recipe.positions) for side, heads in zip("qkv", (q, k, v), strict=True)
        )
        k, v = recipe.share(setup, k), recipe.share(setup, v)
        stages = {"q": q, "k": k, "v": v} | compute_heads(recipe, setup, q, k, v)
        context = stages["context"]
        if given.x is None and not recipe.wide:
            return stages | {"output": context}
        merged = recipe.merge(setup, context)
        if given.x is None:
            return stages | {"output": steps.split(merged, setup.heads)}
        weight, bias = (given.arrays.get(name) for name in ("W_o", "b_o"))
        output = recipe.finish(setup, merged, weight, bias) if recipe.output_projection else merged
        if given.around is not None:
            output = given.around.finish(given.x[:, given.past :], output)
        return stages | {"output": output}


def make_qkv(recipe: Recipe, given: Given) -> tuple[Array, Array, Array]:
    """Return q `[b h t d]`, k and v `[b g s d]`."""
    if given.x is None:
        assert given.q is not None and given.k is not None and given.v is not None
        q, k, v = recipe.order(given.q, given.k, given.v)
        k, v = (recipe.source(side, q, heads) for side, heads in (("k", k), ("v", v)))
        return recut_heads(recipe, q), recut_heads(recipe, k), recut_heads(recipe, v)
    around = given.around
    x = embed_positions(recipe, given.x if around is None else around.x(given.x))
    if given.memory is not None:
        key_source = embed_positions(recipe, given.memory if around is None else around.memory(given.memory))
    else:
        key_source = x
    query_source = x[:, given.past :]
    projected = {
        side: recipe.project(side, recipe.source(side, query_source, key_source), given.arrays) for side in "qkv"
    }
    counts = {"q": recipe.heads, "k": recipe.groups, "v": recipe.groups}
    q, k, v = (recipe.split(projected[side], counts[side]) for side in "qkv")
    if around is not None and around.heads:
        q, k, v = (around.side(side, heads) for side, heads in zip("qkv", (q, k, v), strict=True))
    return q, k, v


def recut_heads(recipe: Recipe, heads: Array) -> Array:
    return recipe.split(steps.join_heads(heads), heads.shape[1]) if recipe.wide else heads


def embed_positions(recipe: Recipe, x: Array) -> Array:
    for position in recipe.positions:
        x = np.stack([position.embed(example) for example in x])
    return x


def compute_heads(recipe: Recipe, setup: Setup, q: Array, k: Array, v: Array | None) -> dict[str, Array]:
    """Return the stages from the scores to the context by name; without values there is no context.

    Each query head has its own k and v here. The values of masked keys, even NaN, have no effect.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scores = recipe.score(setup, q, k)
        logits = recipe.scaled(setup, scores)
        capped = logits if setup.rules.bend_last else recipe.bent(setup, logits)
        allowed = recipe.allowed(setup)
        masked = recipe.forbid(setup, recipe.biased(setup, capped), allowed)
        if setup.rules.bend_last:
            masked = recipe.bent(setup, masked)
    weights = recipe.after(setup, recipe.normalize(setup, masked), allowed)
    stages = {"scores": scores, "logits": logits, "capped": capped, "masked": masked, "weights": weights}
    if v is None:
        return stages
    return stages | {"context": np.asarray(recipe.gather(setup, recipe.mix(setup, weights, v, k)))}
