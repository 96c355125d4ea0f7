"""The public functions: attention on arrays, with the semantics of the ONNX operator `Attention`."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attn_exp import forms
from attn_exp.arrays import Array, Shape
from attn_exp.errors import chosen
from attn_exp.forms._blocks.plain import FEW, at_once
from attn_exp.forms._operator.inputs import (
    Arranged,
    arrange,
    read_attn_mask,
    read_lengths,
    read_masks,
    read_number,
    read_precision,
    read_softcap,
)
from attn_exp.forms.trace import Trace
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import Rules

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

REAL = (int, float, np.integer, np.floating)
WHOLE = (int, np.bool_, np.integer)
AUTO = "auto"
"""Selects the fastest form for the problem."""
OPEN = (-1, -1)
"""An unlimited window."""


class Traced(NamedTuple):
    """Every stage of one call of `attention`; a stage that the form never computes is None.

    `logits` (scaled), `capped`, `masked`, `weights` `[b h t s]` are ONNX's `qk_matmul_output` in modes 0, 1, 2 and 3.
    `present_key`, `present_value` `[b g s d]` concatenate past and new keys and values: the past of the next call.
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
    softcap: float = 0.0,
    window: Sequence[int] = OPEN,
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
        ValueError: as `attention` does.
    """
    given = arrange(query, key, value, past_key, past_value, q_num_heads, kv_num_heads)
    if nonpad_kv_seqlen is not None and given.past:
        raise ValueError("nonpad_kv_seqlen and past_key both say where the keys end; give only one")
    lengths = None if nonpad_kv_seqlen is None else read_lengths(nonpad_kv_seqlen, given)
    allowed, added = read_attn_mask(attn_mask, given)
    rules = Rules(
        scale=1 / math.sqrt(given.query.shape[-1] or 1) if scale is None else read_number(scale, "scale"),
        masks=(*read_masks(is_causal, window, lengths), *allowed),
        scores=(*read_softcap(softcap), *added),
        offset=np.asarray(lengths) - given.query.shape[2] if lengths else given.past,
        softmax_dtype=None if softmax_precision is None else read_precision(softmax_precision),
    )
    computed = find_form(form, given, rules)
    with np.errstate(over="ignore", invalid="ignore"):  # `blame` locates the cause
        stages = attend(computed, given, rules)
    assert stages.context is not None
    blame(stages.context, given, rules, computed.leaks)
    return Traced(
        logits=given.laid(stages.logits),
        capped=given.laid(stages.capped),
        masked=given.laid(stages.masked),
        weights=given.laid(stages.weights),
        output=given.output(stages.context),
        present_key=given.laid(given.key),
        present_value=given.laid(given.value),
    )


def like(other: Callable[Arguments, Any], form: str) -> Callable[[Callable[..., Answer]], Callable[Arguments, Answer]]:
    """Give a function the signature of another, with a different default of `form`."""
    arguments = dict(inspect.signature(other).parameters)
    arguments["form"] = arguments["form"].replace(default=form)

    def shown(function: Callable[..., Answer]) -> Callable[Arguments, Answer]:
        own = inspect.signature(function)
        function.__signature__ = own.replace(parameters=list(arguments.values()))  # type: ignore[attr-defined] # Python reads it
        return function

    return shown


@like(trace, form=AUTO)
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    form: str = AUTO,
    **settings: Any,
) -> Array:
    """Return `softmax(mask(cap(scale * query key^T))) value`.

    `query` `[b h t d]`, `key` `[b g s d]`, `value` `[b g s e]` give `[b h t e]`; query head i reads key/value head
    `i // (h / g)`. With `q_num_heads` and `kv_num_heads` they are `[b t h*d]`, `[b s g*d]`, `[b s g*e]`, heads side by
    side, and give `[b t h*e]`. `[t d]`, `[s d]`, `[s e]` are one head of one sequence, as in notebooks.

    - `attn_mask`: booleans, True = may attend, or numbers added to the logits. It broadcasts to `[b h t s]` from the
      right; a shorter last axis forbids the keys past its end (one of length 1 serves every key).
    - `is_causal`: query i sees key j iff `j <= i + offset`. A place must be allowed by every mask given.
    - `scale`: the factor of the scores, `1 / sqrt(d)` if None.
    - `softcap`: c replaces each logit by `c tanh(logit / c)`, before any mask; 0 is off.
    - `window`: `(left, right)`, `i + offset - left <= j <= i + offset + right`; -1 leaves a side open.
    - `past_key`, `past_value` `[b g p d]`, `[b g p e]`: earlier keys and values (the KV cache); offset is p.
    - `nonpad_kv_seqlen` `[b]`: keys that are not padding; offset is that minus t. Without past or lengths it is 0.
    - `softmax_precision`: the type of the softmax, as a NumPy dtype or ONNX's number; the input's if None.
    - `form`: the implementation, a name in `attn_exp/forms/`; `auto` takes the fastest, and uses all cores for large
      problems. The function is safe to call from several threads and in process pools.

    float16 and bfloat16 are rounded after every stage, and the square root of the scale goes to queries and keys before
    their product, as the operator defines it. Their sums are formed in float32.

    Compared with `torch.nn.functional.scaled_dot_product_attention`:

    | | PyTorch | here |
    | --- | --- | --- |
    | shared key/value heads | `enable_gqa=True` | always |
    | `attn_mask` and `is_causal` together | an error | both apply |
    | a float mask of -inf over a NaN key or value | NaN | that key is ignored |
    | a query that sees no key | 0 (NaN before 2.5) | 0 |
    | NaN in a key or value that a query attends to | NaN | `ValueError` that names the place |
    | past keys, windows, soft-cap, padding lengths | other functions | arguments |
    | dropout, gradients, devices | yes | no |

    Source: ONNX, operator `Attention`, opsets 23 to 25; where its text and its reference code differ, we follow the
    text.

    Raises:
        ValueError: shapes that do not match (which axis, expected, got), a window below -1, NaN that a query can see.
    """
    if type(form) is str and form == AUTO and is_plain(scale, is_causal, settings):
        answer = at_once(query, key, value, scale, is_causal)
        if answer is not None:
            return answer
    given = {name: value for name, value in settings.items() if value is not None}
    return trace(query, key, value, is_causal=is_causal, scale=scale, form=form, **given).output


def is_plain(scale: Any, is_causal: Any, settings: dict[str, Any]) -> bool:
    plain = scale is None or (isinstance(scale, REAL) and not isinstance(scale, bool))
    off = (
        value is None
        or (name == "softcap" and isinstance(value, REAL) and value == 0)
        or (name == "window" and isinstance(value, tuple | list) and tuple(value) == OPEN)
        for name, value in settings.items()
    )
    return plain and isinstance(is_causal, WHOLE) and is_causal in (0, 1) and all(off)


def fastest(logits: Shape, dtype: np.dtype[Any], rules: Rules) -> str:
    """Return the fastest form for logits of that shape: `matrix` for few of them, `blockwise` for many.

    Half precision is rounded stage by stage, as is a softmax with its own dtype: only `matrix` has the stages.
    """
    staged = dtype.itemsize <= 2 or rules.softmax_dtype is not None
    return "matrix" if staged or math.prod(logits) <= FEW else "blockwise"


def find_form(name: str, given: Arranged, rules: Rules) -> forms.Form:
    name = chosen(name, (AUTO, *forms.names()), "form")
    name = fastest(given.logits_shape, given.query.dtype, rules) if name == AUTO else name
    refusal = forms.refuses(name, rules)
    if refusal:
        raise ValueError(f"form={name} cannot compute this: {refusal}")
    return forms.form(name)


def attend(form: forms.Form, given: Arranged, rules: Rules) -> Trace:
    """Compute the form; in half precision the square root of the scale goes to both factors of the product."""
    q, k = given.query, given.key
    if q.dtype.itemsize > 2:
        return form.attend(q, k, given.value, rules)
    root = q.dtype.type(math.sqrt(abs(rules.scale)))
    sign = q.dtype.type(math.copysign(1, rules.scale))
    return form.attend(q * root * sign, k * root, given.value, replace(rules, scale=1.0))


PLACE = ("batch", "head", "token", "entry")


def blame(context: Array, given: Arranged, rules: Rules, leaks: str | None = None) -> None:
    """Raise an error for the NaN or infinity in the input that made the output NaN; do nothing if no output is NaN.

    Two cases are warnings. With `leaks`, a form declares that values at masked keys can reach its output, and why. If
    finite inputs gave NaN, an intermediate result overflowed, as the operator defines it.

    Raises:
        ValueError: a query attends to the NaN or infinity.
    """
    wide = context.astype(np.float32, copy=False) if context.dtype.itemsize < 4 else context
    if not np.isnan(wide.min(initial=0)):  # min propagates NaN
        return
    batch, head, row, _ = np.argwhere(np.isnan(wide))[0].tolist()
    _, heads, rows, keys = given.logits_shape
    group, offset = head * given.key.shape[1] // heads, np.asarray(rules.offset)
    grid = Grid(
        batch, head, row, row + int(offset[batch] if offset.ndim else offset), np.arange(keys), heads, rows, keys
    )
    seen = np.broadcast_to(AllOf(rules.masks).allows(grid), keys)
    if culprit := find_nonfinite("query", given.query, (batch, head), [row]):
        raise ValueError(f"{culprit}; mask it or fix it")
    memory = {"key": given.key, "value": given.value}
    for name, array in memory.items():
        if culprit := find_nonfinite(name, array, (batch, group), np.flatnonzero(seen)):
            raise ValueError(f"{culprit}, which query {row} may see; mask it or fix it")
    found = (
        find_nonfinite(name, array, (batch, group), np.flatnonzero(~seen)) for name, array in memory.items() if leaks
    )
    hidden = next(filter(None, found), None)
    reason = f"{hidden}, which query {row} may not see; {leaks}" if hidden else f"logits overflow {context.dtype}"
    warnings.warn(f"{reason}: the output holds NaN", RuntimeWarning, stacklevel=4)


def find_nonfinite(name: str, array: Array, place: tuple[int, int], tokens: Iterable[int]) -> str | None:
    for token in tokens:
        bad = np.flatnonzero(~np.isfinite(array[(*place, token)]))
        if len(bad):
            where = ", ".join(f"{axis} {index}" for axis, index in zip(PLACE, (*place, token, bad[0]), strict=True))
            return f"{name} holds {array[(*place, token, bad[0])]} at {where}"
    return None
