"""A layer that can be called: what it is given by role, and in which library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attn_exp.arrays import Array


@dataclass(frozen=True)
class Layer:
    """A layer of somebody's, bound to example inputs.

    `inputs` gives the axes of each array by role, such as `{"x": "btm"}` or `{"q": "btm", "k": "bsm", "v": "bsm"}`: b
    batch, t queries, s keys, m width, h heads, d head size, c channels that stand for m in `bct` and `bchw`. Roles are
    `x` (self-attention), `memory` (cross-attention), `q`, `k`, `v`. `sizes` are the lengths of the letters that the
    layer fixes, as far as they are known: m, h, g (key/value heads), d, r (how many numbers of a head rotate).
    `keywords` gives the argument of each other role that it takes: mask, padding, causal, positions, cache and the
    like; `defaults` holds the default values. `call` takes arrays of the library by role, and the values of keywords by
    role, and returns what the layer returns. `lengths` are those of the call that was tried: b, t, s; of images h and w
    (rows and columns) and t = h w. `weights`, `mask_true` (what True in a mask says: `attends`, `hides`, or the mask is
    `added`) and `vary` (a function of sizes that returns other inputs) are what a factory said; `is_fixed` says that it
        takes no other number of tokens. `widths` are those of each role, where they are not m. `default_error` is
    what the call raised with all optional arguments at their     defaults, where only more of them helped.
    `dropout_error` is what a class raised that was built with dropout.     `convert` turns a NumPy array into one of
    the library, float64 where it can be. `made` is the constructor call,     `settings` what it was given, also the
    fields of its configuration; `said` says in words what other arguments are     given. `unknown` are optional
    arguments whose meaning is not known.
    """

    name: str
    library: str
    target: Any
    inputs: Mapping[str, str]
    sizes: Mapping[str, int]
    call: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
    convert: Callable[[Array], Any]
    keywords: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    made: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    lengths: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    mask_true: str = ""
    default_error: str = ""
    dropout_error: str = ""
    vary: Callable[..., Any] | None = None
    is_fixed: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
