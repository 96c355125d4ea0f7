"""The layers around attention inside a user's layer: norms before and after it, norms of heads, and residuals.

All of it is data: the kind of each norm, its gain and its shift. So the expected output can be computed step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from attn_exp.arrays import Array


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm along the last axis: `(z - mean) / sqrt(var + eps) * gain + shift`.

    `kind`: "LayerNorm"; "RMSNorm" has no mean, and uses the mean of squares for var; "L2" divides by the length, at
    least `eps`; "GroupNorm" normalizes `groups` of features over all tokens together; "affine" divides by nothing. Gain
    and shift have the shape `[m]`, or that of heads `[h t d]` with length 1 for t. `joined`: the heads are normed side
    by side.
    """

    kind: str
    gain: Array
    shift: Array
    eps: float = 1e-5
    groups: int = 1
    joined: bool = False

    def __call__(self, z: Array) -> Array:
        return np.asarray(normed(self.kind, z, self.eps, self.groups) * self.gain + self.shift)

    def of_heads(self, heads: Array) -> Array:
        """Return normed heads `[b h t d]`."""
        if not self.joined:
            return self(heads)
        batch, count, tokens, size = heads.shape
        wide = self(heads.swapaxes(1, 2).reshape(batch, tokens, -1))
        return wide.reshape(batch, tokens, count, size).swapaxes(1, 2)


def normed(kind: str, z: Array, eps: float, groups: int = 1) -> Array:
    """Return z normed along the last axis, without gain and shift."""
    if kind == "affine":
        return z
    if kind == "GroupNorm":
        batch, tokens, width = z.shape
        parts = z.reshape(batch, tokens, groups, width // groups)
        mean, var = parts.mean(axis=(1, 3), keepdims=True), parts.var(axis=(1, 3), keepdims=True)
        return np.asarray((parts - mean) / np.sqrt(var + eps)).reshape(z.shape)
    if kind == "L2":
        return np.asarray(z / np.maximum(np.sqrt((z * z).sum(axis=-1, keepdims=True)), eps))
    if kind == "RMSNorm":
        return np.asarray(z / np.sqrt((z * z).mean(axis=-1, keepdims=True) + eps))
    return np.asarray((z - z.mean(axis=-1, keepdims=True)) / np.sqrt(z.var(axis=-1, keepdims=True) + eps))


@dataclass(frozen=True, eq=False)
class Around:
    """The layers that surround attention: `y = after(f (r x + inner(attention(before(x)))))`.

    `before` is the norm of x, `of_memory` that of the cross-attention memory, `heads` those of q, k or v. `inner` and
    `last` follow W_o, before and after the residual `r`: 0, or 1 for x, or, with `of_normed`, 1 for the output of the
    first norm. f is the `factor`; `then` is one more norm, after a layer that was left out.
    """

    before: Norm | None = None
    of_memory: Norm | None = None
    heads: Mapping[str, Norm] = field(default_factory=dict)
    inner: Norm | None = None
    last: Norm | None = None
    then: Norm | None = None
    residual: bool = False
    of_normed: bool = False
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
        inner = output if self.inner is None else self.inner(output)
        start = self.x(x) if self.of_normed else x
        inner = start + inner if self.residual and start.shape == inner.shape else inner
        inner = inner * self.factor
        inner = inner if self.last is None else self.last(inner)
        return inner if self.then is None else self.then(inner)

    def __str__(self) -> str:
        heads = next(iter(self.heads.values()), None)
        parts = (
            self.before and f"{self.before.kind} before",
            self.of_memory and f"{self.of_memory.kind} of the memory",
            heads and f"{heads.kind} of {' and '.join(sorted(self.heads))}",
            self.inner and f"{self.inner.kind} after",
            self.residual and "a residual after",
            self.last and f"{self.last.kind} after {'it' if self.residual else 'all'}",
            self.then and f"{self.then.kind} after that",
            self.factor != 1.0 and f"all times {self.factor:.4g}",
        )
        *most, last = [part for part in parts if part] or [""]
        return f"{', '.join(most)} and {last}" if most else last
