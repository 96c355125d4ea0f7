"""Passes that refine the verdict on a layer: learned scales, unused parameters, ignored masks, and decoding."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case, expected
from attn_exp.diagnosis.asking.libraries import library, parts_of
from attn_exp.diagnosis.asking.names import source_of
from attn_exp.diagnosis.asking.questions import layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import ROTARY
from attn_exp.diagnosis.bind.layer import Layer, leave_out
from attn_exp.diagnosis.bind.sizes import modules_of
from attn_exp.diagnosis.calling.call import Bound
from attn_exp.diagnosis.calling.conventions import BLOCKS
from attn_exp.diagnosis.judging.bound_layers import (
    Observed,
    leave_open,
    parameters_of_layer,
    read_inside,
)
from attn_exp.diagnosis.judging.unasked import with_state
from attn_exp.diagnosis.observe.matrices import UnreadMatricesError, are_close, read_projection
from attn_exp.diagnosis.observe.recording import lay, unlay
from attn_exp.diagnosis.observe.trace import find_ancestors
from attn_exp.experiment.verdict import BROKEN, HELD, REMARK, Finding, Verdict
from attn_exp.own_code import OwnFunction, held
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal

Pass = Callable[[Verdict, Observed, OwnFunction, Request], Verdict]
CAUSAL, NO_OUTPUT = "causal_ignored", "no_output_projection"


def leave_unplaced_parameters(verdict: Verdict, seen: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Report an unexplained layer as not verified if it has parameters or arguments that the definition lacks.

    An example is a table of relative positions.
    """
    if not verdict.unexplained:
        return verdict
    names = [f"argument `{name}`" for name in seen.layer.fixed]
    with suppress(UnreadMatricesError):
        known = np.concatenate([array.ravel() for array in read_inside(seen)[0].arrays.values()])
        names += [f"parameter `{path}`" for path, array, _ in parameters_of_layer(seen.layer.target)
                  if array.ndim > 1 and not np.isin(array, known).all()]  # fmt: skip
    reason = f"its outputs differ from the definition, which has no place for {', '.join(names)}"
    return leave_open(own, seen, request.words, reason) if names else verdict


def leave_learned_scale_open(verdict: Verdict, seen: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Leave a scale open if it is a parameter (one for all heads or one per head), because training chooses it."""
    is_scale = verdict.mistakes and all(name == "no_scale" or name.startswith(SCALE) for name in verdict.mistakes)
    sizes = {1, seen.layer.sizes.get("h", 1)}
    names = [path for path, array, _ in parameters_of_layer(seen.layer.target) if is_scale
             and array.size in sizes and re.search("scale|temp|tau", path)]  # fmt: skip
    names += [*find_omitted_norms(seen)] if is_scale else []
    if verdict.passed or not names:
        return verdict
    left = f"scale `{names[0]}` (next to it, the scores are multiplied by a factor other than 1 / sqrt(d))"
    return leave_mistakes_open(verdict, "attention with a learned scale", left)


def leave_mistakes_open(verdict: Verdict, computes: str, left: str) -> Verdict:
    """Return a passing verdict with the point `left` open: the layer is right for some weights."""
    verdict = with_state(verdict, REMARK, left, *([f"{MASKS} ({BLOCKS})"] if BLOCKS in verdict.computes else []))
    return replace(verdict, passed=True, mistakes=(), alike=(), smallest=None, computes=computes)


def with_findings(verdict: Verdict, *findings: Finding) -> Verdict:
    return replace(verdict, findings=(*verdict.findings, *findings))


def with_unverified(verdict: Verdict, *points: str) -> Verdict:
    return replace(verdict, not_verified=(*verdict.not_verified, *points))


MASKS = "what True means in its mask"
SCALE = ("scale_by", "scale_other", "scale_fixed", "scale_multiplied", "scale_twice")
"""Prefixes of the names of mistakes that change the factor of the scores, not that of the weights."""


def report_unused_parameters(verdict: Verdict, seen: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Report parameters that no operation of the call reads: their values have no effect."""
    if not verdict.passed:
        return verdict
    unused = find_unused_parameters(seen)
    unused = [path for path in unused if not any(f"`{path}`" in one for one in verdict.not_verified)]
    left = [f"parameter `{path}` (the call never reads it)" for path in unused]
    if not unused and any(read_projection(seen.recording, place) for place in find_unused_operations(seen)):
        left.append("projection `unused` (its output is never used)")
    return replace(verdict, not_verified=(*verdict.not_verified, *left))


def find_unused_parameters(seen: Observed) -> list[str]:
    inputs = [one.ravel() for operation in seen.recording.first.operations for one in operation.inputs]
    read = np.unique(np.concatenate(inputs).astype(np.float32))  # a layer may cast its parameters
    left_out = tuple(f"{name}." for name in find_omitted_norms(seen))
    return [path for path, array, _ in parameters_of_layer(seen.layer.target) if array.size > 1
            and not path.startswith(left_out or "?") and not np.isin(array.astype(np.float32), read).all()]  # fmt: skip


def report_omitted_norms(verdict: Verdict, seen: Observed, own: OwnFunction, request: Request) -> Verdict:
    left = tuple(f"norm `{name}` (left out: only the attention is checked)"
                 for name, module in find_omitted_norms(seen).items()
                 if not KNOWN_NORM.match(str(type(module))))  # fmt: skip
    return replace(verdict, not_verified=(*verdict.not_verified, *left)) if verdict.passed else verdict


KNOWN_NORM = re.compile(r"<class 'torch\.nn\.\S*\.(LayerNorm|RMSNorm)'")
"""Norms of each row: the rest of the check may omit them."""


def report_missing_output_projection(
    verdict: Verdict, seen: Observed, own: OwnFunction, request: Request
) -> Verdict:  # fmt: skip
    """Report heads that are concatenated but not projected: right, but not complete multi-head attention."""
    if not verdict.passed or verdict.mistakes:
        return verdict
    inside = read_inside(seen)[0]
    is_missing = inside.heads > 1 and "W_o" not in inside.arrays
    return replace(verdict, mistakes=(NO_OUTPUT,)) if is_missing else verdict


def find_omitted_norms(seen: Observed) -> dict[str, Any]:
    modules: Any = getattr(seen.layer.target, "named_modules", dict)() or ()
    return {path: module for path, module in modules if vars(module).get("forward") is leave_out}


def find_unused_operations(seen: Observed) -> list[int]:
    trace = seen.recording.first
    used = find_ancestors(trace, tuple(producer for producer, _ in trace.outputs))
    return [place for place in range(len(trace.operations)) if place not in used]


def find_ignored_causal_mask(verdict: Verdict, seen: Observed, own: OwnFunction, request: Request) -> Verdict:
    is_told = request.masks or {"mask", "causal"} & set(seen.layer.keywords)
    if not verdict.passed or verdict.right_under or is_told:
        return verdict
    operations = seen.recording.first.operations
    unused = (operations[place] for place in find_unused_operations(seen))
    given = (pair for one in unused for pair in zip(one.inputs, one.producers, strict=True))
    is_lost = any(producer is None and is_triangle(array) for array, producer in given)
    buffers = [name for name, array in find_buffers(seen) if is_triangle(array)]
    kinds = [kind for one in modules_of(seen.layer.target) for kind in type(one).__mro__]
    source = "\n".join(source_of(kind) for kind in kinds if not kind.__module__.startswith("torch."))
    read = [name for name in buffers if re.search(rf"\.{name}\b(?!\s*=[^=])", source)]
    if read and not is_lost:  # in a branch that the call did not take
        left = tuple(f"buffer `{name}` (the call never reads it)" for name in read)
        return replace(verdict, not_verified=(*verdict.not_verified, *left))
    if not is_lost and not buffers:
        return verdict
    finding = Finding("a causal mask of its own", BROKEN, "the layer has one, but every query sees every key")
    return replace(
        verdict,
        passed=False,
        mistakes=(CAUSAL,),
        computes=f"{verdict.computes}, but look at: {CAUSAL}",
        findings=(*verdict.findings, finding),
    )


def find_buffers(seen: Observed) -> Iterator[tuple[str, Array]]:
    for path, tensor in getattr(seen.layer.target, "named_buffers", dict)() or ():
        yield path.rpartition(".")[2], tensor.detach().double().cpu().numpy()


def is_triangle(array: Array) -> bool:
    """Return whether each matrix has one value on one side of its diagonal and another value everywhere else."""
    if array.ndim < len("ts") or array.shape[-1] != array.shape[-2] or array.shape[-1] < len("qkv"):
        return False
    first = array.reshape(-1, *array.shape[-2:])
    later = np.triu(np.ones(array.shape[-2:], bool), 1)
    with np.errstate(all="ignore"):
        return any(
            (first == np.where(places, first[:, -1:, :1], first[:, :1, -1:])).all()
            and (first[:, 0, -1] != first[:, -1, 0]).all()
            for places in (~later, later.T)
        )


PASSES: tuple[Pass, ...] = (
    leave_unplaced_parameters,
    leave_learned_scale_open,
    report_unused_parameters,
    report_omitted_norms,
    report_missing_output_projection,
    find_ignored_causal_mask,
)


# Decoding with a KV cache: tokens one at a time must give the rows of one causal pass over all of them

Step = Callable[[int, Any], dict[str, Any]]
"""A function that returns the keywords to pass with token i, given the result of the previous call."""
RUNG = "decoding with a cache"
TOP_LEFT = "causal_top_left"
"""The mistake of a mask for one query and all keys, which lets a new token see only the first key."""
TOKENS = 5
PROMPT = 3
CLOSE = 1e-5
"""Relative tolerance, which allows for a cache in float32."""


def check_decoding(verdict: Verdict, layer: Layer, bound: Bound, request: Request) -> Verdict:
    """Decode with a layer's KV cache one token at a time, and compare with the causal rows of the definition."""
    names = [layer.keywords[role] for role in ("cache", "start") if role in layer.keywords]
    if not verdict.passed or not names or set(layer.inputs) != {"x"}:
        return verdict
    assert bound.offer is not None
    masks = request.masks if request.is_causal else (*request.masks, Causal())
    case = next(layer_cases(replace(request, masks=masks), bound.offer, True, bound.inside))
    assert case.given.x is not None
    x = case.given.x[:, :TOKENS]
    case = replace(case, given=replace(case.given, x=x))
    first = Allowed(np.arange(TOKENS)[None] == np.zeros((TOKENS, 1)))
    right, problem = expected(case)["output"], ""
    mistakes: tuple[str, ...] = ()
    alone = decode(layer, x, lambda at, last: positions_at(layer, 0))
    for place, step in enumerate(find_ways(layer)):
        made = decode(layer, x, step)
        if made is None or made.shape != right.shape:
            continue
        gap = float(np.abs(made - right).max() / max(np.abs(right).max(), 1e-30))
        if gap < CLOSE:
            verdict = replace(verdict, findings=(*verdict.findings, Finding(RUNG, HELD)))
            is_masked = request.is_causal and not {"mask", "position_ids"} & layer.keywords.keys()
            new = next(islice(find_ways(layer), place, None))  # with an empty cache
            return check_prompt(verdict, case, decode(layer, x, new, PROMPT) if is_masked else right)
        if alone is None or not np.allclose(made[:, 1:], alone[:, 1:]):
            is_first_key = are_close(made, expected(case.with_masks((first,)))["output"], CLOSE)
            mistakes = (TOP_LEFT,) if is_first_key else mistakes
            problem = problem or f"one token is off by {gap:.2g} of the largest number"
    tables = any(role in layer.keywords for role in ROTARY)
    if tables or not problem:
        left = f"cache `{names[0]}` ({'its caller applies the rotation' if tables else 'no way to pass one was found'})"
        return replace(verdict, not_verified=(*verdict.not_verified, left))
    computes = f"{verdict.computes}; but with `{names[0]}`, decoding token by token differs from one full pass"
    finding = Finding(RUNG, BROKEN, problem)
    return replace(verdict, passed=False, mistakes=mistakes, unexplained=not mistakes, stage="" if mistakes else "k",
                   right_under="", computes=computes, findings=(*verdict.findings, finding))  # fmt: skip


def check_prompt(verdict: Verdict, case: Case, made: Array | None) -> Verdict:
    """Judge the output for a prompt of several tokens, which fills an empty cache, and for single tokens after it."""
    right, x = expected(case)["output"], case.given.x
    if made is None or x is None or are_close(made, right, CLOSE):
        return verdict
    prompt = replace(case.with_masks(()), given=replace(case.given, x=x[:, :PROMPT]))
    if not are_close(made[:, :PROMPT], expected(prompt)["output"], CLOSE):
        return replace(verdict, not_verified=(*verdict.not_verified, "a prompt of several tokens with its `cache`"))
    findings = (*verdict.findings, Finding("a prompt with a cache", BROKEN, "its tokens see later tokens"))
    return replace(verdict, passed=False, mistakes=(CAUSAL,), right_under="", findings=findings,
                   computes=f"{verdict.computes}, but {CAUSAL} for a prompt with a cache")  # fmt: skip


def positions_at(layer: Layer, at: int) -> dict[str, Any]:
    said = {"start": at, "position_ids": library(layer.library).into(np.array([[at]]), "float64")}
    return {role: value for role, value in said.items() if role in layer.keywords}


def find_ways(layer: Layer) -> Iterator[Step]:
    """Yield ways to pass a cache: the layer keeps it, each call returns it, or it is a dictionary or other object."""

    def beside(at: int, cache: Any) -> dict[str, Any]:
        switch = {"use_cache": True} if "use_cache" in layer.keywords else {}
        return {**positions_at(layer, at), **switch, **({"cache": cache} if "cache" in layer.keywords else {})}

    if "cache" not in layer.keywords:
        yield lambda at, last: positions_at(layer, at)
        return
    yield lambda at, last: beside(at, None if last is None else find_cache(last))
    names = vars(sys.modules.get(type(layer.target).__module__, sys))
    kinds = [one for name, one in names.items() if inspect.isclass(one) and name.endswith("Cache")]
    for kind in [dict, getattr(sys.modules.get("transformers"), "DynamicCache", object), *kinds]:
        with suppress(Exception):  # it may need arguments
            yield pass_object(beside, kind())


def pass_object(beside: Callable[[int, Any], dict[str, Any]], cache: Any) -> Step:
    return lambda at, last: beside(at, cache)


def find_cache(returned: Any) -> Any:
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


def decode(layer: Layer, x: Array, step: Step, first: int = 1) -> Array | None:
    """Return the outputs `[b t m]` of the `first` tokens at once, and of the rest one by one; None if a call fails."""
    axes, last, rows = layer.inputs["x"], None, list[Array]()
    try:
        with held():
            for at, end in pairwise([0, *range(first, x.shape[1] + 1)]):
                last = layer.call({"x": layer.convert(lay(x[:, at:end], axes))}, step(at, last))
                output = unlay(next(iter(parts_of(last).values())), axes)
                rows.append(np.asarray(output.detach() if hasattr(output, "detach") else output, float))
    except Exception:  # whatever the layer raises
        return None
    made = np.concatenate(rows, axis=1) if all(one.ndim == len("btm") for one in rows) else None
    return made if made is not None and np.isfinite(made).all() else None
