"""A layer that can be called: its inputs by role, and its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from attn_exp.arrays import Array


@dataclass(frozen=True)
class Layer:
    """A user's layer, bound to example inputs.

    `inputs` gives the axes of each array by role, such as `{"x": "btm"}` or `{"q": "btm", "k": "bsm", "v": "bsm"}`: b
    batch, t queries, s keys, m width, h heads, d head size, c channels (instead of m in `bct` and `bchw`). Roles are
    `x` (self-attention), `memory` (cross-attention), `q`, `k`, `v`. `sizes` are the known fixed sizes: m, h,
    g (key/value heads), d, r (rotated dimensions per head). `keywords` gives the argument of each other role: mask,
    padding, causal, positions, cache and the like; `defaults` holds default values. `call` takes arrays of the library
    and keyword values, both by role, and returns the layer's result. `lengths` are those of the trial call: b,
    t, s; for images h and w (rows and columns) and t = h w. A factory sets `weights`, `mask_true` (mask polarity:
    True `attends` or `hides`, or the mask is `added`); `is_fixed` means that the number of tokens cannot change.
    `widths` are those of each role, if they differ from m.
    `fixed` names the arrays of unknown role that a factory passes, `axes_told` is False if it did not say the layout.
    `dropout_error` is the error of a class built with dropout. `convert` turns a NumPy array into one of the library,
    float64 if possible. `made` is the constructor call, `settings` its arguments and the fields of its configuration;
    `said` lists the extra arguments for the user. `unknown` are optional arguments of unknown meaning.
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
    dropout_error: str = ""
    is_fixed: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    axes_told: bool = True
