"""The public functions: attention on arrays, with the semantics of the ONNX operator `Attention`.

`arrange` brings the inputs to one layout, the `read_` functions turn the attributes into `Rules`, a form computes the
stages, and the output gets the layout of the inputs again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attn_exp import forms
from attn_exp.arrays import Array, Shape, bfloat16
from attn_exp.errors import chosen
from attn_exp.errors import given as quote
from attn_exp.forms._blocks.plain import FEW_LOGITS, attend_at_once
from attn_exp.forms.steps import join_heads, split
from attn_exp.forms.trace import Trace
from attn_exp.rules.grid import broadcast_misfit
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import AllOf, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import Rules, part_grid
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.softcap import Softcap

REAL_TYPES = (int, float, np.integer, np.floating)
WHOLE_TYPES = (int, np.bool_, np.integer)
AXES = ("batch", "heads", "tokens", "size")
FINITE = np.finfo(np.float64).max
ONNX_TYPES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""ONNX's numbers for data types, as in its attribute `softmax_precision`."""
AUTO = "auto"
"""The name that selects the fastest form for the problem."""
NO_WINDOW = (-1, -1)
"""An unlimited window."""


@dataclass(frozen=True)
class Arranged:
    """The inputs in one layout, and what is needed to return the output in their original layout.

    - `query`, `key`, `value`: `[b h t d]`, `[b g s d]`, `[b g s e]`, past keys and values included.
    - `past`: the number of past keys.
    - `given_axes`: the number of axes that the inputs had, 2, 3 or 4.
    - `side_by_side`: whether the last axis of the inputs held all heads.
    """

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

    def restore_axes(self, array: Any) -> Any:
        """Return an array `[b h ...]`, or None, without batch and head axes if the inputs had none."""
        one_head = self.given_axes == 2 and not self.side_by_side
        return array.reshape(array.shape[-2:]) if one_head and array is not None else array


class Traced(NamedTuple):
    """Every stage of one call of `attention`; a stage that the form never computes is None.

    - `logits` (scaled), `capped`, `masked`, `weights`: `[b h t s]`, ONNX's `qk_matmul_output` in modes 0, 1, 2 and 3.
    - `output`: what `attention` returns.
    - `present_key` `[b g s d]`, `present_value` `[b g s e]`: past and new keys and values, which the next call takes as
      its past.
    """

    logits: Array | None
    capped: Array | None
    masked: Array | None
    weights: Array | None
    output: Array
    present_key: Array
    present_value: Array


def trace(  # noqa: PLR0913 - the inputs and attributes of the operator
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = 0.0,
    window: Sequence[int] | None = NO_WINDOW,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    nonpad_kv_seqlen: ArrayLike | None = None,
    softmax_precision: Any = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    form: str = "matrix",
) -> Traced:
    """Return every stage of `attention` with the same arguments.

    Raises:
        ValueError: as for `attention`.
    """
    inputs = arrange(query, key, value, past_key, past_value, q_num_heads, kv_num_heads)
    if nonpad_kv_seqlen is not None and inputs.past:
        raise ValueError("nonpad_kv_seqlen and past_key both say where the keys end; give only one")
    lengths = None if nonpad_kv_seqlen is None else read_lengths(nonpad_kv_seqlen, inputs)
    allowed, added = read_attn_mask(attn_mask, inputs)
    rules = Rules(
        scale=1 / math.sqrt(inputs.query.shape[-1] or 1) if scale is None else read_number(scale, "scale"),
        masks=(*read_masks(is_causal, NO_WINDOW if window is None else window, lengths), *allowed),
        scores=(*read_softcap(0.0 if softcap is None else softcap), *added),
        offset=np.asarray(lengths) - inputs.query.shape[2] if lengths else inputs.past,
        softmax_dtype=None if softmax_precision is None else read_precision(softmax_precision),
    )
    chosen_form = find_form(form, inputs, rules)
    with np.errstate(over="ignore", invalid="ignore"):  # `report_nan` locates the cause
        stages = attend(chosen_form, inputs, rules)
    assert stages.context is not None
    report_nan(stages.context, inputs, rules, chosen_form.leaks)
    return Traced(
        logits=inputs.restore_axes(stages.logits),
        capped=inputs.restore_axes(stages.capped),
        masked=inputs.restore_axes(stages.masked),
        weights=inputs.restore_axes(stages.weights),
        output=inputs.output(stages.context),
        present_key=inputs.restore_axes(inputs.key),
        present_value=inputs.restore_axes(inputs.value),
    )


def attention(  # noqa: PLR0913 - the inputs and attributes of the operator
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = 0.0,
    window: Sequence[int] | None = NO_WINDOW,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    nonpad_kv_seqlen: ArrayLike | None = None,
    softmax_precision: Any = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
    form: str = AUTO,
) -> Array:
    """Return `softmax(mask(cap(scale * query key^T))) value`.

    `query` `[b h t d]`, `key` `[b g s d]`, `value` `[b g s e]` give `[b h t e]`; query head i reads key/value head
    `i // (h / g)`. With `q_num_heads` and `kv_num_heads` they are `[b t h*d]`, `[b s g*d]`, `[b s g*e]`, heads side by
    side, and give `[b t h*e]`. `[t d]`, `[s d]`, `[s e]` are one head of one sequence, as in notebooks.

    - `attn_mask`: booleans, True = may attend, or numbers added to the logits. It broadcasts to `[b h t s]` from the
      right; a shorter last axis forbids the keys past its end (a last axis of length 1 applies to every key).
    - `is_causal`: query i sees key j iff `j <= i + offset`. A query sees a key only if every given mask allows it.
    - `scale`: the factor of the scores, `1 / sqrt(d)` if None.
    - `softcap`: c replaces each logit by `c tanh(logit / c)`, before any mask; 0 is off.
    - `window`: `(left, right)` allows `i + offset - left <= j <= i + offset + right`; a side of -1 has no limit.
    - `past_key`, `past_value` `[b g p d]`, `[b g p e]`: earlier keys and values (the KV cache). The offset is then p.
    - `nonpad_kv_seqlen` `[b]`: the number of keys that are not padding. The offset is then that number minus t. Without
      past keys or lengths, the offset is 0.
    - `softmax_precision`: the dtype of the softmax, as a NumPy dtype or ONNX's number; the input's if None.
    - `form`: the implementation, a name in `attn_exp/forms/`; `auto` selects the fastest, and uses all cores for large
      problems. The function is safe to call from several threads and in process pools.

    In float16 and bfloat16, every stage is rounded, but sums are formed in float32. Queries and keys are each
    multiplied by the square root of the scale before their product, as the operator defines it.

    Compared with `torch.nn.functional.scaled_dot_product_attention`:

    | | PyTorch | here |
    | --- | --- | --- |
    | shared key/value heads | `enable_gqa=True` | always |
    | `attn_mask` and `is_causal` together | an error | both apply |
    | a float mask of -inf over a NaN key or value | NaN | that key is ignored |
    | a query that sees no key | 0 (NaN before 2.5) | 0 |
    | NaN in a key or value that a query attends to | NaN | `ValueError` with the position of the NaN |
    | past keys, windows, soft-cap, padding lengths | other functions | arguments |
    | dropout, gradients, devices | yes | no |

    Source: ONNX, operator `Attention`, opsets 23 to 25; where its text and its reference code differ, we follow the
    text.

    Raises:
        ValueError: shapes do not match (the message gives the axis and both lengths), a side of the window is below -1,
            or a query can see NaN.
    """
    has_no_mask_or_past = attn_mask is past_key is past_value is nonpad_kv_seqlen is None
    if (
        has_no_mask_or_past
        and softmax_precision is q_num_heads is kv_num_heads is None
        and type(form) is str
        and form == AUTO
    ):
        answer = (
            attend_at_once(query, key, value, scale, is_causal) if is_plain(scale, is_causal, softcap, window) else None
        )
        if answer is not None:
            return answer
    return trace(
        query,
        key,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        softcap=softcap,
        window=window,
        past_key=past_key,
        past_value=past_value,
        nonpad_kv_seqlen=nonpad_kv_seqlen,
        softmax_precision=softmax_precision,
        q_num_heads=q_num_heads,
        kv_num_heads=kv_num_heads,
        form=form,
    ).output


def is_plain(scale: Any, is_causal: Any, softcap: Any, window: Any) -> bool:
    is_scale_plain = scale is None or (isinstance(scale, REAL_TYPES) and not isinstance(scale, bool))
    has_no_cap = softcap is None or (isinstance(softcap, REAL_TYPES) and softcap == 0)
    has_no_window = window is None or (isinstance(window, tuple | list) and tuple(window) == NO_WINDOW)
    return (
        is_scale_plain and has_no_cap and has_no_window and isinstance(is_causal, WHOLE_TYPES) and is_causal in (0, 1)
    )


def find_form(name: str, inputs: Arranged, rules: Rules) -> forms.Form:
    """Return the form of that name; `auto` is `matrix` for few logits, `blockwise` for many.

    Half precision, and a softmax with its own dtype, need `matrix`, which rounds every stage.
    """
    name = chosen(name, (AUTO, *forms.names()), "form")
    if name == AUTO:
        rounds_stages = inputs.query.dtype.itemsize <= 2 or rules.softmax_dtype is not None
        name = "matrix" if rounds_stages or math.prod(inputs.logits_shape) <= FEW_LOGITS else "blockwise"
    refusal = forms.refuses(name, rules)
    if refusal:
        raise ValueError(f"form={name} cannot compute this: {refusal}")
    return forms.form(name)


def attend(form: forms.Form, inputs: Arranged, rules: Rules) -> Trace:
    """Return the trace of a form.

    In half precision, q and k are each multiplied by the square root of the scale before their product.
    """
    q, k = inputs.query, inputs.key
    if q.dtype.itemsize > 2:
        return form.attend(q, k, inputs.value, rules)
    root = q.dtype.type(math.sqrt(abs(rules.scale)))
    sign = q.dtype.type(math.copysign(1, rules.scale))
    return form.attend(q * root * sign, k * root, inputs.value, replace(rules, scale=1.0))


POSITION_AXES = ("batch", "head", "token", "entry")


def report_nan(context: Array, inputs: Arranged, rules: Rules, leaks: str | None = None) -> None:
    """Raise an error that locates the NaN or infinity in the input, if the output contains NaN.

    Two cases give only a warning:

    - The NaN or infinity is at a masked key, and `leaks` says why it can reach the output of this form.
    - The inputs are finite, but an intermediate result overflows if it is computed as the operator defines it.

    Raises:
        ValueError: a query attends to the NaN or infinity.
    """
    wide = context.astype(np.float32, copy=False) if context.dtype.itemsize < 4 else context
    if not np.isnan(wide.min(initial=0)):  # min propagates NaN
        return
    batch, head, row, _ = np.argwhere(np.isnan(wide))[0].tolist()
    _, heads, rows, keys = inputs.logits_shape
    group = head * inputs.key.shape[1] // heads
    grid = part_grid(rules, batch, head, row, np.arange(keys), (heads, rows, keys))
    sees_key = np.broadcast_to(AllOf(rules.masks).allows(grid), keys)
    if culprit := find_nonfinite("query", inputs.query, (batch, head), [row]):
        raise ValueError(f"{culprit}; mask it or fix it")
    keys_and_values = {"key": inputs.key, "value": inputs.value}
    for name, array in keys_and_values.items():
        if culprit := find_nonfinite(name, array, (batch, group), np.flatnonzero(sees_key)):
            raise ValueError(f"{culprit}, which query {row} may see; mask it or fix it")
    hidden_culprits = (
        find_nonfinite(name, array, (batch, group), np.flatnonzero(~sees_key))
        for name, array in keys_and_values.items()
        if leaks
    )
    hidden_culprit = next(filter(None, hidden_culprits), None)
    reason = (
        f"{hidden_culprit}, which query {row} may not see; {leaks}"
        if hidden_culprit
        else f"logits overflow {context.dtype}"
    )
    warnings.warn(f"{reason}: the output contains NaN", RuntimeWarning, stacklevel=4)


def find_nonfinite(name: str, array: Array, head_index: tuple[int, int], tokens: Iterable[int]) -> str | None:
    for token in tokens:
        indices = np.flatnonzero(~np.isfinite(array[(*head_index, token)]))
        if len(indices):
            position = ", ".join(
                f"{axis} {index}" for axis, index in zip(POSITION_AXES, (*head_index, token, indices[0]), strict=True)
            )
            return f"{name} holds {array[(*head_index, token, indices[0])]} at {position}"
    return None


# Reading the arguments: arrays arranged as [b h t d], settings as rules


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
        ValueError: an axis does not match; the message gives its name and the expected and actual lengths.
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
    k, v = (split_heads(array, name, "kv_num_heads", kv_num_heads) for array, name in ((k, "key"), (v, "value")))
    if (past_key is None) != (past_value is None):
        missing = "past_key" if past_key is None else "past_value"
        raise ValueError(f"past_key and past_value go together: {missing} is missing")
    if past_key is not None and past_value is not None:
        k, v, new_keys = join_past(past_key, k, "key"), join_past(past_value, v, "value"), k.shape[2]
        past = k.shape[2] - new_keys
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
    dtype = np.result_type(q, k, v)
    q, k, v = (array.astype(dtype, copy=False) for array in (q, k, v))
    return Arranged(q, k, v, past, axes, side_by_side)


def read_array(value: Any, name: str) -> Array:
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
    given = q_num_heads is not None, kv_num_heads is not None
    if axes == 4 and any(given):
        raise ValueError("q_num_heads and kv_num_heads are for 3-D inputs; 4-D inputs have an axis for their heads")
    if any(given) and not all(given):
        raise ValueError("q_num_heads and kv_num_heads go together; only one is given")
    if axes == 3 and not all(given):
        raise ValueError("3-D inputs hold heads side by side: give q_num_heads and kv_num_heads, 1 for a single head")
    return axes != 4 and all(given)


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
    """Return the masks that the settings describe; without `lengths` there is no padding mask."""
    if not isinstance(window, tuple | list | np.ndarray) or len(window) != 2:
        raise ValueError(f"window={quote(window)}: expected (left, right)")
    if not isinstance(is_causal, int | np.bool_ | np.integer) or is_causal not in (0, 1):
        raise ValueError(f"is_causal={quote(is_causal)}: expected True or False")
    left, right = np.asarray(window, dtype=object).tolist()
    masks: list[Mask] = [Causal()] if is_causal else []
    masks += [] if left == right == -1 else [Window(left, right)]
    return [*masks, Padding(lengths)] if lengths else masks


def read_softcap(softcap: float) -> list[Score]:
    if read_number(softcap, "softcap") < 0:
        raise ValueError(f"softcap={softcap}: expected 0 (off) or a positive number")
    return [Softcap(softcap)] if softcap else []


def read_number(value: Any, name: str) -> float:
    is_scalar_array = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf"
    if not is_scalar_array and (
        isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating)
    ):
        raise ValueError(f"{name}={quote(value)}: expected a number")
    if not abs(value) <= FINITE:
        raise ValueError(f"{name}={value}: expected a finite number")
    return float(value)


def read_lengths(lengths_given: ArrayLike, arranged: Arranged) -> Shape:
    lengths = read_array(lengths_given, "nonpad_kv_seqlen").reshape(-1)
    batches, _, _, keys = arranged.logits_shape
    setting = f"nonpad_kv_seqlen={lengths.tolist()}"
    if len(lengths) != batches or (batches and lengths.dtype.kind not in "iu"):
        raise ValueError(f"{setting}: expected one whole number for each of {batches} sequences")
    if (lengths < 0).any() or (lengths > keys).any():
        raise ValueError(f"{setting}: expected lengths from 0 to {keys}, the number of keys")
    return tuple(map(int, lengths))


def read_attn_mask(attn_mask: ArrayLike | None, arranged: Arranged) -> tuple[list[Mask], list[Score]]:
    """Return the mask and the bias of an `attn_mask`; -inf entries become a mask, so that masked values cannot leak."""
    if attn_mask is None:
        return [], []
    mask = np.atleast_1d(read_array(attn_mask, "attn_mask"))
    if mask.dtype.kind not in "biuf" and mask.dtype.name != "bfloat16":
        raise ValueError(f"attn_mask holds {mask.dtype}; expected booleans or real numbers")
    missing = arranged.key.shape[2] - mask.shape[-1]
    if missing > 0 and mask.shape[-1] != 1:
        filler: Any = False if mask.dtype == np.bool_ else -np.inf
        mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=filler)
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


def read_precision(value: Any) -> Any:
    """Return the NumPy dtype for a name, a type or the number of an ONNX data type."""
    name = ONNX_TYPES.get(value, value) if isinstance(value, int) else value
    name = np.sctypeDict.get(name, name) if isinstance(name, str) else name
    if isinstance(name, str) and name == "bfloat16":
        return bfloat16()
    try:
        dtype = np.dtype(name if isinstance(name, str | type | np.dtype) else object)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(object)
    if dtype.kind != "f" and dtype.name != "bfloat16":
        raise ValueError(f"softmax_precision={quote(value)}: expected a float dtype, or ONNX type 1, 10, 11, 16")
    return dtype
