"""The arguments of the public functions: arrays arranged as `[b h t d]`, settings read as rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from attn_exp.arrays import Array, Shape
from attn_exp.errors import given
from attn_exp.forms.steps import join_heads, split
from attn_exp.rules.grid import broadcast_misfit
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.softcap import Softcap

AXES = ("batch", "heads", "tokens", "size")
FINITE = np.finfo(np.float64).max
ONNX_TYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""ONNX's numbers for data types, as in its attribute `softmax_precision`."""


@dataclass(frozen=True)
class Arranged:
    """Queries `[b h t d]`, keys `[b g s d]` and values `[b g s e]`, with the past, and the layout they came in."""

    query: Array
    key: Array
    value: Array
    past: int
    given_axes: int
    side_by_side: bool

    @property
    def logits_shape(self) -> tuple[int, int, int, int]:
        return *self.query.shape[:3], self.key.shape[2]

    def output(self, context: Array) -> Array:
        context = join_heads(context) if self.side_by_side else context
        return context if context.ndim == self.given_axes else context.reshape(context.shape[-2:])

    def laid(self, array: Any) -> Any:
        """Drop the batch and head axes of an array `[b h ...]` if the inputs had none; None stays None."""
        one_head = self.given_axes == 2 and not self.side_by_side
        return array.reshape(array.shape[-2:]) if one_head and array is not None else array


def arrange(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
) -> Arranged:
    """Check the inputs of attention against each other and bring them to one layout.

    Raises:
        ValueError: an axis that does not match, named with the expected and the actual length.
    """
    q, k, v = read_numbers(query, "query"), read_numbers(key, "key"), read_numbers(value, "value")
    axes, past = q.ndim, 0
    if axes not in (2, 3, 4) or not k.ndim == v.ndim == axes:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in (("query", q), ("key", k), ("value", v)))
        raise ValueError(
            f"query, key and value must all be [batch, heads, tokens, size], all [batch, tokens, heads*size] or all "
            f"[tokens, size]; got {shapes}"
        )
    side_by_side = are_side_by_side(axes, q_num_heads, kv_num_heads)
    q = split_heads(q, "query", "q_num_heads", q_num_heads)
    k, v = (split_heads(one, name, "kv_num_heads", kv_num_heads) for one, name in ((k, "key"), (v, "value")))
    if (past_key is None) != (past_value is None):
        missing = "past_key" if past_key is None else "past_value"
        raise ValueError(f"past_key and past_value go together: {missing} is missing")
    if past_key is not None and past_value is not None:
        k, v, new = join_past(past_key, k, "key"), join_past(past_value, v, "value"), k.shape[2]
        past = k.shape[2] - new
    for name, array, axis, other, as_in in (
        ("key", k, 0, q, "query"),
        ("value", v, 0, q, "query"),
        ("key", k, 3, q, "query"),
        ("value", v, 1, k, "key"),
        ("value", v, 2, k, "key"),
    ):
        check_axis(name, array, axis, other.shape[axis], as_in)
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"{k.shape[1]} key/value heads do not divide {q.shape[1]} query heads")
    kind = np.result_type(q, k, v)
    q, k, v = (array.astype(kind, copy=False) for array in (q, k, v))
    return Arranged(q, k, v, past, axes, side_by_side)


def read_array(value: Any, name: str) -> Array:
    """Return an argument as an array.

    Raises:
        ValueError: rows of different lengths.
    """
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} has rows of different lengths; expected an array") from error


def read_numbers(value: ArrayLike, name: str) -> Array:
    """Return an array of floats; integers and booleans become float64."""
    array = read_array(value, name)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ValueError(f"{name} holds {array.dtype}; expected real numbers")
    return array.astype(np.float64) if array.dtype.kind in "biu" else array


def are_side_by_side(axes: int, q_num_heads: int | None, kv_num_heads: int | None) -> bool:
    said = q_num_heads is not None, kv_num_heads is not None
    if axes == 4 and any(said):
        raise ValueError("q_num_heads and kv_num_heads are for 3-D inputs; 4-D inputs have an axis for their heads")
    if any(said) and not all(said):
        raise ValueError("q_num_heads and kv_num_heads go together; only one is given")
    if axes == 3 and not all(said):
        raise ValueError("3-D inputs hold heads side by side: give q_num_heads and kv_num_heads, 1 for a single head")
    return axes != 4 and all(said)


def split_heads(array: Array, name: str, setting: str, count: int | None) -> Array:
    """Return `[b h t d]` from `[b t h*d]`, `[t h*d]` or `[t d]`."""
    if array.ndim == 4:
        return array
    heads = 1 if count is None else count
    if heads < 1 or array.shape[-1] % heads:
        raise ValueError(f"{setting}={heads} does not divide the last axis of {name}, {array.shape[-1]}")
    return split(array if array.ndim == 3 else array[None], heads)


def join_past(past_given: ArrayLike, new: Array, name: str) -> Array:
    past = read_numbers(past_given, f"past_{name}")
    past = past.reshape((1,) * (4 - past.ndim) + past.shape)
    for axis in (0, 1, 3):
        check_axis(f"past_{name}", past, axis, new.shape[axis], name)
    return np.concatenate([past, new], axis=2)


def check_axis(name: str, array: Array, axis: int, expected: int, as_in: str) -> None:
    if array.shape[axis] != expected:
        raise ValueError(
            f"{name} of shape {list(array.shape)} [batch, heads, tokens, size] has {array.shape[axis]} in axis {axis} "
            f"({AXES[axis]}); expected {expected}, as in {as_in}"
        )


def read_masks(is_causal: Any, window: Any, lengths: Shape | None) -> list[Mask]:
    """Return the masks that the settings describe; an empty batch has no lengths and needs no padding mask."""
    if not isinstance(window, tuple | list | np.ndarray) or len(window) != 2:
        raise ValueError(f"window={given(window)}: expected (left, right)")
    if not isinstance(is_causal, int | np.bool_ | np.integer) or is_causal not in (0, 1):
        raise ValueError(f"is_causal={given(is_causal)}: expected True or False")
    left, right = np.asarray(window, dtype=object).tolist()
    asked: list[Mask] = [Causal()] if is_causal else []
    asked += [] if left == right == -1 else [Window(left, right)]
    return [*asked, Padding(lengths)] if lengths else asked


def read_softcap(softcap: float) -> list[Score]:
    if read_number(softcap, "softcap") < 0:
        raise ValueError(f"softcap={softcap}: expected a number of at least 0, where 0 is off")
    return [Softcap(softcap)] if softcap else []


def read_number(value: Any, name: str) -> float:
    """Return an argument as a finite number.

    Raises:
        ValueError: not a finite number.
    """
    alone = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf"
    if not alone and (isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating)):
        raise ValueError(f"{name}={given(value)}: expected a number")
    if not abs(value) <= FINITE:
        raise ValueError(f"{name}={value}: expected a finite number")
    return float(value)


def read_lengths(lengths_given: ArrayLike, arranged: Arranged) -> Shape:
    lengths = read_array(lengths_given, "nonpad_kv_seqlen").reshape(-1)
    batches, _, _, keys = arranged.logits_shape
    said = f"nonpad_kv_seqlen={lengths.tolist()}"
    if len(lengths) != batches or (batches and lengths.dtype.kind not in "iu"):
        raise ValueError(f"{said}: expected one whole number for each of {batches} sequences")
    if (lengths < 0).any() or (lengths > keys).any():
        raise ValueError(f"{said}: expected lengths from 0 to {keys}, the number of keys")
    return tuple(map(int, lengths))


def read_attn_mask(attn_mask: ArrayLike | None, arranged: Arranged) -> tuple[list[Mask], list[Score]]:
    """Return the mask and the bias of an `attn_mask`; -inf becomes a mask, so that masked values cannot leak."""
    if attn_mask is None:
        return [], []
    mask = np.atleast_1d(read_array(attn_mask, "attn_mask"))
    if mask.dtype.kind not in "biuf" and mask.dtype.name != "bfloat16":
        raise ValueError(f"attn_mask holds {mask.dtype}; expected booleans or real numbers")
    missing = arranged.key.shape[2] - mask.shape[-1]
    if missing > 0 and mask.shape[-1] != 1:
        hidden: Any = False if mask.dtype == np.bool_ else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=hidden)
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


def read_precision(asked: Any) -> Any:
    """Return the NumPy dtype for a name, a type or an ONNX number."""
    name: Any = ONNX_TYPES.get(asked, asked) if isinstance(asked, int) else asked
    name = np.sctypeDict.get(name, name) if isinstance(name, str) else name
    if isinstance(name, str) and name == "bfloat16":
        import ml_dtypes  # noqa: PLC0415 - needed for bfloat16 alone

        return np.dtype(ml_dtypes.bfloat16)
    try:
        kind: np.dtype[Any] = np.dtype(name if isinstance(name, str | type | np.dtype) else object)
    except (TypeError, ValueError, SyntaxError):
        kind = np.dtype(object)
    if kind.kind != "f" and kind.name != "bfloat16":
        raise ValueError(f"softmax_precision={given(asked)}: expected a type of real numbers, or one of 1, 10, 11, 16")
    return kind
