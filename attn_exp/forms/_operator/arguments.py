"""What the arguments of the public functions mean as rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_exp.arrays import Array
from attn_exp.errors import given
from attn_exp.forms._operator.arrange import Arranged, array_of
from attn_exp.rules.grid import broadcast_misfit
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.softcap import Softcap

FINITE = float(np.finfo(np.float64).max)

ONNX_TYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""The numbers that ONNX gives to types, as its attribute `softmax_precision` holds them."""


def masks(is_causal: bool, window: Sequence[int], lengths: tuple[int, ...] | None) -> list[Mask]:
    """Return the masks that settings ask for; a batch without entries has no lengths, and needs no mask for them."""
    sides = np.asarray(window, dtype=object) if isinstance(window, tuple | list | np.ndarray) else np.empty(0)
    if sides.shape != (2,):
        shown = tuple(window) if isinstance(window, tuple | list) else given(window)
        raise ValueError(f"window={shown}: expected (left, right)")
    left, right = sides.tolist()
    asked: list[Mask] = [Causal()] if switch(is_causal, "is_causal") else []
    asked += [] if left == right == -1 else [Window(left, right)]
    return [*asked, Padding(lengths)] if lengths else asked


def capped(softcap: float) -> list[Score]:
    """Return the rule for a soft-cap, none where it is off; a ValueError where it is no such number."""
    if not 0 <= number(softcap, "softcap", math.inf) < math.inf:
        raise ValueError(f"softcap={softcap}: expected a number of at least 0, where 0 is off")
    return [Softcap(softcap)] if softcap else []


def number(value: Any, name: str, most: float = FINITE) -> float:
    """Return an argument as a number; one that is not finite is refused unless it may be.

    Raises:
        ValueError: no number.
    """
    alone = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf"
    if not alone and (isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating)):
        raise ValueError(f"{name}={given(value)}: expected a number")
    if abs(float(value)) > most or math.isnan(value):
        raise ValueError(f"{name}={value}: expected a finite number")
    return float(value)


def switch(value: Any, name: str) -> bool:
    """Return an argument that is true or false, or 1 or 0 as ONNX has it.

    Raises:
        ValueError: neither.
    """
    if not isinstance(value, bool | np.bool_ | int | np.integer) or value not in (0, 1):
        raise ValueError(f"{name}={given(value)}: expected True or False")
    return bool(value)


def key_lengths(lengths_given: ArrayLike, arranged: Arranged) -> tuple[int, ...]:
    """Read how many keys of each sequence are no filler."""
    lengths = array_of(lengths_given, "nonpad_kv_seqlen").reshape(-1)
    batches, _, _, keys = arranged.logits_shape
    if len(lengths) != batches or (batches and lengths.dtype.kind not in "iu"):
        raise ValueError(
            f"nonpad_kv_seqlen={lengths.tolist()}: expected one whole number for each of {batches} sequences"
        )
    if (lengths < 0).any() or (lengths > keys).any():
        raise ValueError(f"nonpad_kv_seqlen={lengths.tolist()}: expected lengths from 0 to {keys}, the number of keys")
    return tuple(int(length) for length in lengths)


def from_mask(attn_mask: ArrayLike | None, arranged: Arranged) -> tuple[list[Mask], list[Score]]:
    """Return what an attention mask forbids and what it adds; -inf forbids, so that nothing behind it can leak."""
    if attn_mask is None:
        return [], []
    mask = array_of(attn_mask, "attn_mask")
    if mask.dtype.kind not in "biuf" and mask.dtype.name != "bfloat16":
        raise ValueError(f"attn_mask holds {mask.dtype}; expected booleans or real numbers")
    mask = mask if mask.ndim else mask[None]
    missing = arranged.key.shape[2] - mask.shape[-1]
    if missing > 0 and mask.shape[-1] != 1:
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=nothing(mask))
    if misfit := broadcast_misfit("attn_mask", mask.shape, *arranged.logits_shape):
        raise ValueError(misfit)
    if mask.dtype == np.bool_:
        return [Allowed(mask)], []
    values = mask if mask.dtype in (np.float32, np.float64) else mask.astype(np.float64)
    if np.isnan(values).any():
        raise ValueError(f"attn_mask holds NaN at {np.argwhere(np.isnan(values))[0].tolist()}")
    forbidden = np.isneginf(values)
    allowed: list[Mask] = [Allowed(~forbidden)] if forbidden.any() else []
    return allowed, [Added(np.where(forbidden, 0.0, values))]


def nothing(mask: Array) -> Any:
    """Return what a mask of this type says where nothing may be seen."""
    return False if mask.dtype == np.bool_ else -np.inf


def precision(asked: Any) -> Any:
    """Return the NumPy type that a name, a type or ONNX's number means."""
    name: Any = ONNX_TYPES.get(asked, asked) if isinstance(asked, int) else asked
    name = np.sctypeDict.get(name, name) if isinstance(name, str) else name if isinstance(name, type | np.dtype) else ""
    if name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - needed for bfloat16 alone

        return np.dtype(ml_dtypes.bfloat16)
    try:
        kind: np.dtype[Any] = np.dtype(name)
    except TypeError:
        kind = np.dtype(object)
    if kind.kind != "f" and kind.name != "bfloat16":
        raise ValueError(f"softmax_precision={given(asked)}: expected a type of real numbers, or one of 1, 10, 11, 16")
    return kind
