"""Decoding with a KV cache: tokens one at a time must give the rows of one causal pass over all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import expected
from attn_exp.diagnosis.asking.questions import layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.layer import Layer
from attn_exp.diagnosis.calling.bound import Bound
from attn_exp.diagnosis.code.libraries import join, library
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.locate.recording import lay, unlay
from attn_exp.experiment.verdict import BROKEN, HELD, Finding, Verdict
from attn_exp.own_code import held
from attn_exp.rules.masks.causal import Causal

Step = Callable[[int, Any], dict[str, Any]]
"""Returns the keywords to pass with token number i, given what the previous call returned."""
RUNG = "decoding with a cache"
TOKENS = 5
CLOSE = 1e-5
"""Relative tolerance: a cache may be float32."""


def check_decoding(verdict: Verdict, layer: Layer, bound: Bound, request: Request) -> Verdict:
    """Feed a layer that takes a cache one token at a time, and compare with the causal rows of the definition."""
    names = [layer.keywords[role] for role in ("cache", "start") if role in layer.keywords]
    if not verdict.passed or not names or set(layer.inputs) != {"x"}:
        return verdict
    assert bound.offer is not None
    masks = request.masks if request.is_causal else (*request.masks, Causal())
    case = next(layer_cases(replace(request, masks=masks), bound.offer, True, bound.inside))
    assert case.given.x is not None
    x = case.given.x[:, :TOKENS]
    case = replace(case, given=replace(case.given, x=x))
    right, problem = expected(case)["output"], ""
    alone = decode(layer, x, lambda at, last: positions_at(layer, 0))
    for step in find_ways(layer):
        made = decode(layer, x, step)
        if made is None or made.shape != right.shape:
            continue
        gap = float(np.abs(made - right).max() / max(np.abs(right).max(), 1e-30))
        if gap < CLOSE:
            return replace(verdict, findings=(*verdict.findings, Finding(RUNG, HELD)))
        if alone is None or not np.allclose(made[:, 1:], alone[:, 1:]):
            problem = problem or f"a token is off by {gap:.2g} of the largest number"
    if not problem:
        left = f"cache `{names[0]}` (no way to pass one was found)"
        return replace(verdict, not_verified=(*verdict.not_verified, left))
    computes = f"{verdict.computes}; but with `{names[0]}`, one token at a time gives other rows than all at once"
    finding = Finding(RUNG, BROKEN, problem)
    return replace(verdict, passed=False, unexplained=True, stage="k", right_under="", computes=computes,
                   findings=(*verdict.findings, finding))  # fmt: skip


def positions_at(layer: Layer, at: int) -> dict[str, Any]:
    """Return the position keywords that a layer takes, for one token."""
    said = {"start": at, "position_ids": library(layer.library).into(np.array([[at]]), "float64")}
    return {role: value for role, value in said.items() if role in layer.keywords}


def find_ways(layer: Layer) -> Iterator[Step]:
    """Yield ways to pass a cache: kept by the layer, returned by each call, in one dictionary, or in an object."""

    def beside(at: int, cache: Any) -> dict[str, Any]:
        switch = {"use_cache": True} if "use_cache" in layer.keywords else {}
        return {**positions_at(layer, at), **switch, **({"cache": cache} if "cache" in layer.keywords else {})}

    if "cache" not in layer.keywords:
        yield pass_start(layer)
        return
    yield lambda at, last: beside(at, None if last is None else returned_cache(last))
    yield grown(beside)
    kept: dict[str, Any] = {}
    yield lambda at, last: beside(at, kept)
    kind = getattr(sys.modules.get("transformers"), "DynamicCache", None)
    if kind is not None:
        object_kept = kind()
        yield lambda at, last: beside(at, object_kept)


def grown(beside: Callable[[int, Any], dict[str, Any]]) -> Step:
    """Concatenate the returned caches of all previous calls, for layers that return only those of the new token."""
    known = list[Any]()

    def step(at: int, last: Any) -> dict[str, Any]:
        known[:] = known if last is None else [join_tokens(known[0], one) if known else one
                                               for one in [returned_cache(last)]]  # fmt: skip
        return beside(at, known[0] if known else None)

    return step


def join_tokens(before: Any, new: Any) -> Any:
    """Concatenate caches of earlier tokens and a new one along the axis before the last."""
    if isinstance(before, tuple | list):
        return type(before)(join_tokens(*pair) for pair in zip(before, new, strict=True))
    return join([before, new], len(before.shape) - 2)


def pass_start(layer: Layer) -> Step:
    return lambda at, last: positions_at(layer, at)


def returned_cache(returned: Any) -> Any:
    """Return the cache among what a call returned: arrays in a tuple, list or dictionary, or an object."""
    parts = (
        list(returned.values())
        if isinstance(returned, Mapping)
        else list(returned)
        if isinstance(returned, tuple)
        else []
    )
    others = [one for one in parts[1:] if one is not None]
    nested = [one for one in others if isinstance(one, tuple | list | dict) or not hasattr(one, "shape")]
    return next(iter([*nested, *others[::-1]]), None)


def decode(layer: Layer, x: Array, step: Step) -> Array | None:
    """Return the output rows of tokens passed one at a time; None if a call raises an error."""
    axes, last, rows = layer.inputs["x"], None, list[Array]()
    try:
        with held():
            for at in range(x.shape[1]):
                last = layer.call({"x": layer.convert(lay(x[:, at : at + 1], axes))}, step(at, last))
                first = unlay(next(iter(parts_of(last).values())), axes)
                rows.append(np.asarray(first.detach() if hasattr(first, "detach") else first, float))
    except Exception:  # whatever the layer raises
        return None
    made = np.concatenate(rows, axis=1) if all(one.ndim == len("btm") for one in rows) else None
    return made if made is not None and np.isfinite(made).all() else None
