"""The public functions: attention on arrays, with the meaning of the ONNX operator `Attention`."""

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
from attn_exp.arrays import Array
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
"""The word for "whichever form is fastest here"."""
OPEN = (-1, -1)
"""The window without sides."""


class Traced(NamedTuple):
    """Every stage of one call of `attention`; None where the form never forms it.

    `logits` (scaled), `capped`, `masked`, `weights` `[b h t s]` are ONNX's `qk_matmul_output` in modes 0, 1, 2 and 3.
    `present_key`, `present_value` `[b g s d]` are the past and new keys and values together: the next call's past.
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
        raise ValueError("nonpad_kv_seqlen and past_key are two ways to say where the keys end; give one of them")
    lengths = None if nonpad_kv_seqlen is None else read_lengths(nonpad_kv_seqlen, given)
    allowed, added = read_attn_mask(attn_mask, given)
    rules = Rules(
        scale=1 / math.sqrt(given.query.shape[-1] or 1) if scale is None else read_number(scale, "scale"),
        masks=(*read_masks(is_causal, window, lengths), *allowed),
        scores=(*read_softcap(softcap), *added),
        offset=np.asarray(lengths) - given.query.shape[2] if lengths else given.past,
        softmax_dtype=None if softmax_precision is None else read_precision(softmax_precision),
    )
    computed = able(form, given, rules)
    with np.errstate(over="ignore", invalid="ignore"):  # `blame` finds what was wrong, and says where
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
    """Show a function as one with the arguments of another, and with another default of `form`."""
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
    side, and give `[b t h*e]`. `[t d]`, `[s d]`, `[s e]` are one head of one sequence, as notebooks have it.

    - `attn_mask`: booleans, True = may attend, or numbers added to the logits. It broadcasts to `[b h t s]` from the
      right; a shorter last axis forbids the keys past its end (one of length 1 serves every key).
    - `is_causal`: query i sees key j iff `j <= i + offset`. Every mask given must allow a place.
    - `scale`: what scores are multiplied by, `1 / sqrt(d)` where None.
    - `softcap`: c bends each logit to `c tanh(logit / c)`, before any mask; 0 is off.
    - `window`: `(left, right)`, `i + offset - left <= j <= i + offset + right`; -1 leaves a side open.
    - `past_key`, `past_value` `[b g p d]`, `[b g p e]`: keys and values before these; offset is p.
    - `nonpad_kv_seqlen` `[b]`: how many keys are no filler; offset is that less t. Without past or lengths it is 0.
    - `softmax_precision`: the type of the softmax, as a NumPy type or ONNX's number; the input's where None.
    - `form`: how it is computed, a name in `attn_exp/forms/`; `auto` takes the fastest, on as many threads as there are
      cores where the problem is worth it. It is safe to call from several threads and in process pools.

    float16 and bfloat16 are rounded after every stage, and the square root of the scale goes to queries and keys before
    their product, as the operator defines it. Their sums are formed in float32.

    For people who know `torch.nn.functional.scaled_dot_product_attention`:

    | | PyTorch | here |
    | --- | --- | --- |
    | shared key/value heads | `enable_gqa=True` | always |
    | `attn_mask` and `is_causal` together | an error | both hold |
    | a float mask of -inf over a NaN key or value | NaN | that key counts for nothing |
    | a query that sees no key | 0 (NaN before 2.5) | 0 |
    | NaN where a query looks | NaN | `ValueError` that names the place |
    | past keys, windows, soft-cap, padding lengths | other functions | settings |
    | dropout, gradients, devices | yes | no |

    Source: ONNX, operator `Attention`, opsets 23 to 25; where its text and its reference code differ, the text.

    Raises:
        ValueError: inputs that do not fit (which axis, expected, got), a window below -1, NaN that a query can see.
    """
    if type(form) is str and form == AUTO and is_plain(scale, is_causal, settings):
        answer = at_once(query, key, value, scale, is_causal)
        if answer is not None:
            return answer
    given = {name: value for name, value in settings.items() if value is not None}
    return trace(query, key, value, is_causal=is_causal, scale=scale, form=form, **given).output


def is_plain(scale: Any, is_causal: Any, settings: dict[str, Any]) -> bool:
    """Say whether nothing is asked that needs a closer look: settings of `trace` are at their defaults."""
    plain = scale is None or (isinstance(scale, REAL) and not isinstance(scale, bool))
    off = (
        value is None
        or (name == "softcap" and isinstance(value, REAL) and value == 0)
        or (name == "window" and isinstance(value, tuple | list) and tuple(value) == OPEN)
        for name, value in settings.items()
    )
    return plain and isinstance(is_causal, WHOLE) and is_causal in (0, 1) and all(off)


def fastest(logits: tuple[int, ...], dtype: np.dtype[Any], rules: Rules) -> str:
    """Return the form for logits of that shape: `matrix` for few of them, `blockwise` for many.

    Half precision is rounded stage by stage, and so is a softmax in a type of its own: only `matrix` has the stages.
    """
    staged = dtype.itemsize <= 2 or rules.softmax_dtype is not None
    return "matrix" if staged or math.prod(logits) <= FEW else "blockwise"


def able(name: str, given: Arranged, rules: Rules) -> forms.Form:
    """Return the form of that name, if it can compute this."""
    name = chosen(name, (AUTO, *forms.names()), "form")
    name = fastest(given.logits_shape, given.query.dtype, rules) if name == AUTO else name
    refusal = forms.refuses(name, rules)
    if refusal:
        raise ValueError(f"form={name} cannot compute this: {refusal}")
    return forms.form(name)


def attend(form: forms.Form, given: Arranged, rules: Rules) -> Trace:
    """Compute the form; half precision has the root of the scale on both sides of the product."""
    q, k = given.query, given.key
    if q.dtype.itemsize > 2:
        return form.attend(q, k, given.value, rules)
    root = q.dtype.type(math.sqrt(abs(rules.scale)))
    sign = q.dtype.type(math.copysign(1, rules.scale))
    return form.attend(q * root * sign, k * root, given.value, replace(rules, scale=1.0))


PLACE = ("batch", "head", "token", "entry")


def blame(context: Array, given: Arranged, rules: Rules, leaks: str | None = None) -> None:
    """Name the NaN or infinity in the input that made the output NaN; pass where every output is a number.

    Two cases are warnings. A form may say that what masked keys hold `leaks`, and why. Where finite inputs made NaN,
    something overflowed on the way, and the operator defines it so.

    Raises:
        ValueError: the input holds it where a query looks.
    """
    wide = context.astype(np.float32, copy=False) if context.dtype.itemsize < 4 else context
    if not np.isnan(wide.min(initial=0)):  # the smallest of numbers and a NaN is NaN
        return
    batch, head, row, _ = np.argwhere(np.isnan(wide))[0].tolist()
    _, heads, rows, keys = given.logits_shape
    group, offset = head * given.key.shape[1] // heads, np.asarray(rules.offset)
    grid = Grid(
        batch, head, row, row + int(offset[batch] if offset.ndim else offset), np.arange(keys), heads, rows, keys
    )
    seen = np.broadcast_to(AllOf(rules.masks).allows(grid), keys)
    if culprit := strange("query", given.query, (batch, head), [row]):
        raise ValueError(f"{culprit}, mask it or mend it")
    memory = {"key": given.key, "value": given.value}
    for name, array in memory.items():
        if culprit := strange(name, array, (batch, group), np.flatnonzero(seen)):
            raise ValueError(f"{culprit}, which query {row} may see; mask it or mend it")
    found = (strange(name, array, (batch, group), np.flatnonzero(~seen)) for name, array in memory.items() if leaks)
    hidden = next(filter(None, found), None)
    reason = f"{hidden}, which query {row} may not see; {leaks}" if hidden else f"logits overflow {context.dtype}"
    warnings.warn(f"{reason}: the output holds NaN", RuntimeWarning, stacklevel=4)


def strange(name: str, array: Array, place: tuple[int, int], tokens: Iterable[int]) -> str | None:
    """Say where one of these tokens holds a number that is not finite, and which, or None where all are."""
    for token in tokens:
        bad = np.flatnonzero(~np.isfinite(array[(*place, token)]))
        if len(bad):
            where = ", ".join(f"{axis} {index}" for axis, index in zip(PLACE, (*place, token, bad[0]), strict=True))
            return f"{name} holds {array[(*place, token, bad[0])]} at {where}"
    return None
