"""Passes that refine the verdict on a layer: learned scales, unused parameters, ignored masks, and decoding.

`PASSES` run in order, each on the verdict of the pass before. Most only add points that could not be verified.
`check_decoding` calls the layer again, token by token, with its KV cache.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, islice, pairwise
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case, expected
from attn_exp.diagnosis.asking.libraries import collect_arrays, load_library
from attn_exp.diagnosis.asking.questions import layer_cases
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.arguments import OFFSET, ROTARY
from attn_exp.diagnosis.bind.layer import Layer, leave_out
from attn_exp.diagnosis.calling.call import Bound
from attn_exp.diagnosis.calling.conventions import BLOCKS
from attn_exp.diagnosis.judging.bound_layers import (
    Observed,
    leave_open,
    parameters_of_layer,
    read_inside,
    sum_to_one,
)
from attn_exp.diagnosis.judging.inside import is_normed
from attn_exp.diagnosis.judging.unasked import with_state
from attn_exp.diagnosis.observe.cores import Pair, find_constant_ratio, find_factor, is_split_mixed
from attn_exp.diagnosis.observe.matrices import (
    UnreadMatricesError,
    are_close,
    read_projection,
)
from attn_exp.diagnosis.observe.recording import NONE, Recording, from_axes, to_axes
from attn_exp.diagnosis.observe.trace import find_ancestors
from attn_exp.diagnosis.recipes.candidates import what_mistakes_compute
from attn_exp.errors import NOT_VERIFIED
from attn_exp.experiment.verdict import BROKEN, HELD, REMARK, Finding, Verdict
from attn_exp.own_code import OwnFunction, guard_process
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal

Step = Callable[[int, Any], dict[str, Any]]
"""A function that returns the keywords to pass with token i, given the result of the previous call."""

CAUSAL = "causal_ignored"
SCALE = ("scale_by", "scale_other", "scale_fixed", "scale_multiplied", "scale_twice")
"""Prefixes of the names of mistakes that change the factor of the scores, not that of the weights."""
OUTSIDE = ("`projections`", "`scores`")
"""The first words of open points about layers that the definition does not cover."""
DECODING = "decoding with a cache"
"""The row of the report about decoding."""
CACHE_ROLES = ("cache", "start", "use_cache")
"""Roles of arguments with which a layer is decoded token by token."""
TOKENS, PROMPT = 9, 3
"""Number of tokens to decode, and how many of them one call takes as the prompt."""
CLOSE = 1e-5
"""Relative tolerance, which allows for a cache in float32."""


def with_findings(verdict: Verdict, *findings: Finding) -> Verdict:
    return replace(verdict, findings=(*verdict.findings, *findings))


def with_unverified(verdict: Verdict, *points: str) -> Verdict:
    return replace(verdict, not_verified=(*verdict.not_verified, *points))


def leave_mistakes_open(verdict: Verdict, computes: str, point: str) -> Verdict:
    """Return the verdict as passed, with an open point instead of its mistakes: the layer is right for some weights."""
    polarity = [f"what True means in its mask ({BLOCKS})"] if BLOCKS in verdict.computes else []
    return replace(with_state(verdict, REMARK, point, *polarity), passed=True, mistakes=(), alike=(), smallest=None,
                   computes=computes)  # fmt: skip


def name_by_trace(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Name the mistakes that the recorded operations prove, if the definition does not explain the layer."""
    is_open = verdict.outcome == NOT_VERIFIED or any(point.startswith(OUTSIDE) for point in verdict.not_verified)
    if verdict.mistakes or not (verdict.unexplained or is_open):
        return verdict
    names = tuple(list_proven_mistakes(verdict, observed, request))
    return replace(
        with_findings(verdict, Finding("operations inside", BROKEN, "they cannot be those of attention")),
        passed=False, mistakes=names, unexplained=False, stage="", outcome="", reason="",
        computes=what_mistakes_compute(names),
    ) if names else verdict  # fmt: skip


def list_proven_mistakes(verdict: Verdict, observed: Observed, request: Request) -> Iterator[str]:
    """Yield the mistakes that the operations of a layer prove, whatever its projections and surrounding steps are.

    If the layer is right under some settings, its scale is not questioned.
    """
    recording, pairs = observed.recording, observed.pairs
    if any(map(is_split_mixed, pairs)):
        yield "heads_not_transposed"
    # weights `[m t s]` that sum to 1 over the queries t, but not over the keys s
    if all(sum_to_one(pair.weights, 1) and not sum_to_one(pair.weights, 2) and pair.q.tokens.min() > NONE
           for pair in pairs):  # fmt: skip
        yield "weights_transposed" if pairs[0].is_transposed else "softmax_over_queries"
    width = observed.layer.sizes["m"]
    scales = [read_scale(recording, pair) for pair in pairs]
    if not verdict.right_under and np.allclose(scales, width**-0.5) and pairs[0].q.values[0].shape[-1] < width:
        yield "scale_by_sqrt_d_model"
    if request.positions and set(observed.layer.inputs) == {"x"} and ignores_order(observed):
        yield "position_missing"


def ignores_order(observed: Observed) -> bool:
    """Return whether the outputs of later tokens depend on the first two tokens, but not on their order."""
    x = next(iter(observed.recording.inputs_by_run[0].values()))
    swapped = np.concatenate([x[:, 1::-1], x[:, 2:]], axis=1)
    changed = np.concatenate([-x[:, :2], x[:, 2:]], axis=1)
    outputs = [call_once(observed.layer, one, {}) for one in (x, swapped, changed)]
    right, after_swap, after_change = (None if output is None else output[:, 2:] for output in outputs)
    return right is not None and after_swap is not None and after_change is not None and (
        are_close(after_swap, right, CLOSE) and not are_close(after_change, right, CLOSE)
    )  # fmt: skip


def read_scale(recording: Recording, pair: Pair) -> float:
    """Return the factor of the scores, whatever is added to them."""
    ratios = [find_constant_ratio(after, before) or 1.0 for before, after in pairwise(pair.between)]
    return float(np.prod([find_factor(recording, pair.q), find_factor(recording, pair.k), *ratios]))


def leave_unplaced_parameters(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Report an unexplained layer as not verified if it has parameters or arguments that the definition lacks.

    An example is a table of relative positions.
    """
    if not verdict.unexplained:
        return verdict
    names = [f"argument `{name}`" for name in observed.layer.fixed]
    with suppress(UnreadMatricesError):
        known = np.concatenate([array.ravel() for array in read_inside(observed)[0].arrays.values()])
        names += [f"parameter `{path}`" for path, array, _ in parameters_of_layer(observed.layer.target)
                  if array.ndim > 1 and not np.isin(array, known).all()]  # fmt: skip
        inputs = (pair for operation in observed.recording.first.operations if observed.layer.library == "jax"
                  for pair in zip(operation.inputs, operation.producers, strict=True))  # fmt: skip
        names += [f"`constant` {list(array.shape)}" for array, producer in inputs  # a mask repeats numbers
                  if producer is None and array.ndim > 1 and array.dtype.kind == "f"
                  and len(np.unique(array)) == array.size and not np.isin(array, known).all()]  # fmt: skip
    reason = f"its outputs differ from the definition, which has no place for {', '.join(names)}"
    return leave_open(own, observed, request.words, reason) if names else verdict


def leave_learned_scale_open(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Leave a scale open if it is learned: a parameter (for all heads or per head), or a norm of queries or keys."""
    is_scale = all(name == "no_scale" or name.startswith(SCALE) for name in verdict.mistakes)
    if verdict.passed or not verdict.mistakes or not is_scale:
        return verdict
    sizes = {1, observed.layer.sizes.get("h", 1)}
    names = [path for path, array, _ in parameters_of_layer(observed.layer.target)
             if array.size in sizes and re.search("scale|temp|tau", path)]  # fmt: skip
    names += [path for path in find_omitted_norms(observed)  # of queries or keys, such as `q_norm`
              if re.search(r"(?i)(?:^|[._])(?:qk?|k|query|key)(?:_|norm|ln|$)", path)]  # fmt: skip
    names += ["scale"] if is_normed(observed) else []
    if not names:
        return verdict
    point = f"scale `{names[0]}` (it is learned, or q and k are normalized, so it differs from 1 / sqrt(d))"
    return leave_mistakes_open(verdict, "attention with a learned scale", point)


def report_unused_parameters(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Report parameters that no operation of the call reads: their values have no effect."""
    if not verdict.passed:
        return verdict
    paths = [path for path in find_unused_parameters(observed) if f"`{path}`" not in " ".join(verdict.not_verified)]
    points = [f"parameter `{path}` (the call never reads it)" for path in paths]
    if not paths and any(read_projection(observed.recording, index) for index in find_unused_operations(observed)):
        points.append("projection `unused` (its output is never used)")
    return with_unverified(verdict, *points)


def find_unused_parameters(observed: Observed) -> list[str]:
    inputs = [array.ravel() for operation in observed.recording.first.operations for array in operation.inputs]
    read = np.unique(np.concatenate(inputs).astype(np.float32))  # a layer may cast its parameters
    omitted = tuple(f"{name}." for name in find_omitted_norms(observed)) or "?"  # no path starts with a question mark
    return [path for path, array, _ in parameters_of_layer(observed.layer.target) if array.size > 1
            and not path.startswith(omitted) and not np.isin(array.astype(np.float32), read).all()]  # fmt: skip


def report_omitted_norms(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    points = [f"norm `{name}` (left out: only the attention is checked)" for name in find_omitted_norms(observed)]
    return with_unverified(verdict, *points) if verdict.passed else verdict


def report_missing_output_projection(
    verdict: Verdict, observed: Observed, own: OwnFunction, request: Request
) -> Verdict:  # fmt: skip
    """Report heads that are concatenated but not projected: right, but not complete multi-head attention."""
    if not verdict.passed or verdict.mistakes:
        return verdict
    inside = read_inside(observed)[0]
    is_missing = inside.heads > 1 and "W_o" not in inside.arrays
    return replace(verdict, mistakes=("no_output_projection",)) if is_missing else verdict


def report_shared_matrices(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Report two projections with the same matrix, which may be intended."""
    if not verdict.passed:
        return verdict
    arrays = read_inside(observed)[0].arrays
    return with_unverified(verdict, *(
        f"`projections` ({one} and {other} are the same matrix)"
        for one, other in combinations(("W_q", "W_k", "W_v"), 2) if are_close(arrays[one], arrays[other], CLOSE)
    ))  # fmt: skip


def report_return_switch(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Leave open an argument such as `need_weights` that changes the output, not only what else is returned."""
    layer, x = observed.layer, next(iter(observed.recording.inputs_by_run[0].values()))
    if not verdict.passed or "return_weights" not in layer.keywords or set(layer.inputs) != {"x"}:
        return verdict
    off, on = (call_once(layer, x, {"return_weights": value}) for value in (False, True))
    is_same = off is None or on is None or are_close(off, on, CLOSE)
    point = f"argument `{layer.keywords['return_weights']}` (with True the output differs)"
    return verdict if is_same else with_unverified(verdict, point)


def find_omitted_norms(observed: Observed) -> dict[str, Any]:
    modules: Any = getattr(observed.layer.target, "named_modules", dict)() or ()
    return {path: module for path, module in modules if vars(module).get("forward") is leave_out}


def find_unused_operations(observed: Observed) -> list[int]:
    trace = observed.recording.first
    used = find_ancestors(trace, tuple(producer for producer, _ in trace.outputs))
    return [index for index in range(len(trace.operations)) if index not in used]


def find_ignored_causal_mask(verdict: Verdict, observed: Observed, own: OwnFunction, request: Request) -> Verdict:
    """Report a causal mask that a layer applies without using the result.

    If the layer only stores a matrix that looks like a causal mask, leave that open.
    """
    has_mask = request.masks or {"mask", "causal"} & set(observed.layer.keywords)
    if not verdict.passed or verdict.right_under or has_mask:
        return verdict
    unused = [observed.recording.first.operations[index] for index in find_unused_operations(observed)]
    if any(is_mask(array) for operation in unused for array in operation.inputs):
        finding = Finding("a causal mask of its own", BROKEN, "the layer has one, but every query sees every key")
        return replace(with_findings(verdict, finding), passed=False, mistakes=(CAUSAL,),
                       computes=what_mistakes_compute((CAUSAL,)))  # fmt: skip
    named: Any = getattr(observed.layer.target, "named_buffers", dict)() or ()
    buffers = [path for path, tensor in named if is_mask(tensor.detach().double().cpu().numpy())]
    return with_unverified(verdict, *(f"buffer `{path}` (it may be a causal mask)" for path in buffers))


def is_mask(array: Array) -> bool:
    """Return whether matrices are square and consist of two values."""
    return array.shape[-2:-1] == array.shape[-1:] and len(np.unique(array)) == 2


PASSES = (
    name_by_trace,
    leave_unplaced_parameters,
    leave_learned_scale_open,
    report_unused_parameters,
    report_omitted_norms,
    report_missing_output_projection,
    report_shared_matrices,
    report_return_switch,
    find_ignored_causal_mask,
)


# Decoding with a KV cache: tokens one at a time must give the rows of one causal pass over all of them


def check_decoding(verdict: Verdict, layer: Layer, bound: Bound, request: Request) -> Verdict:
    """Decode with a layer's KV cache one token at a time, and compare with the causal output of the definition.

    The layer is right if one way to pass the cache (`find_ways`) gives this output. If the output is that of each token
    by itself, the cache was not passed at all, which proves nothing.
    """
    names = [layer.keywords[role] for role in CACHE_ROLES if role in layer.keywords]
    if not verdict.passed or not names or set(layer.inputs) != {"x"}:
        return verdict
    case, x = make_decoding_case(bound, request)
    right, problem = expected(case)["output"], ""
    full_pass = call_once(layer, x, positions_at(layer, 0))
    definitions = [expected(one)["output"] for one in (case, case.with_masks(()))]
    takes_ids = "position_ids" in layer.keywords
    if full_pass is not None and not takes_ids and not any(are_close(full_pass, one, CLOSE) for one in definitions):
        return leave_cache_open(verdict, layer)  # such as a layer with a rotation of its own
    mistakes: tuple[str, ...] = ()
    uncached = decode(layer, x, lambda position, last: positions_at(layer, 0))
    for index, step in enumerate(find_ways(layer)):
        output = decode(layer, x, step)
        if output is None or output.shape != right.shape:
            continue
        difference = float(np.abs(output - right).max() / max(np.abs(right).max(), 1e-30))
        if difference < CLOSE:
            return check_prompt(with_findings(verdict, Finding(DECODING, HELD)), layer, case, request, index)
        if uncached is None or not np.allclose(output[:, 1:], uncached[:, 1:]):
            first_key = case.with_masks((Allowed(np.eye(1, x.shape[1], dtype=bool).repeat(x.shape[1], axis=0)),))
            # a causal mask for one query and all keys, aligned top left, shows only the first key
            if are_close(output, expected(first_key)["output"], CLOSE):
                mistakes = ("causal_top_left",)
            problem = problem or f"one token is off by {difference:.2g} times the largest number"
    has_tables = any(role in layer.keywords for role in ROTARY)  # perhaps those of all keys, not of the new ones
    if not problem or (has_tables and not mistakes):
        reason = "its caller applies the rotation" if problem else "no way to fill it was found"
        return with_unverified(verdict, f"cache `{names[0]}` ({reason})")
    computes = f"{verdict.computes}; but with `{names[0]}`, decoding token by token differs from one full pass"
    return replace(
        with_findings(verdict, Finding(DECODING, BROKEN, problem)), passed=False, mistakes=mistakes,
        unexplained=not mistakes, stage="" if mistakes else "k", right_under="", computes=computes,
    )  # fmt: skip


def leave_cache_open(verdict: Verdict, layer: Layer) -> Verdict:
    """Leave the cache of a layer open, because no definition gives outputs to compare decoding with."""
    names = [layer.keywords[role] for role in CACHE_ROLES if role in layer.keywords and verdict.passed]
    points = (f"cache `{name}` (no definition gives the outputs of the layer)" for name in names[:1])
    return with_unverified(verdict, *points)


def make_decoding_case(bound: Bound, request: Request) -> tuple[Case, Array]:
    """Return a causal case of a few tokens, and its x."""
    masks = request.masks if request.is_causal else (*request.masks, Causal())
    case = next(layer_cases(replace(request, masks=masks), bound.offer, True, bound.inside))
    assert case.given.x is not None
    x = case.given.x[:, :TOKENS]
    return replace(case, given=replace(case.given, x=x)), x


def check_prompt(verdict: Verdict, layer: Layer, case: Case, request: Request, way: int) -> Verdict:
    """Judge the output for a prompt of several tokens with an empty cache, and for the single tokens after it.

    `way` is the index in `find_ways` of the way to pass a cache that was right for single tokens. The verdict is
    unchanged unless the layer applies its causal mask by itself.
    """
    right, x = expected(case)["output"], case.given.x
    # a cache that `use_cache` fills keeps the tokens of earlier calls
    is_emptied = bool({"cache", "start"} & layer.keywords.keys())
    is_masked_by_caller = "mask" in layer.keywords and "mask=causal" not in verdict.right_under
    if not (is_emptied and request.is_causal) or x is None or is_masked_by_caller or "position_ids" in layer.keywords:
        return verdict
    empty_again = (next(islice(find_ways(layer), way, None)) for _ in range(2))  # a new way has an empty cache
    later = decode(layer, x, next(empty_again), (0, 1, 2, x.shape[1]))
    if later is not None and not are_close(later, right, CLOSE):
        verdict = with_unverified(verdict, "several tokens at once after other tokens, with its `cache`")
    output = decode(layer, x, next(empty_again), (0, *range(PROMPT, x.shape[1] + 1)))
    if output is None or are_close(output, right, CLOSE):
        return verdict
    unmasked = replace(case.with_masks(()), given=replace(case.given, x=x[:, :PROMPT]))
    if not are_close(output[:, :PROMPT], expected(unmasked)["output"], CLOSE):
        return with_unverified(verdict, "a prompt of several tokens with its `cache`")
    finding = Finding("a prompt with a cache", BROKEN, "its tokens see later tokens")
    return replace(with_findings(verdict, finding), passed=False, mistakes=(CAUSAL,), right_under="",
                   computes=f"{verdict.computes}, but {CAUSAL} for a prompt with a cache")  # fmt: skip


def positions_at(layer: Layer, position: int) -> dict[str, Any]:
    ids = load_library(layer.library).into(np.array([[position]]), "float64")
    values = {"start": position, "position_ids": ids}
    return {OFFSET: position, **{role: value for role, value in values.items() if role in layer.keywords}}


def find_ways(layer: Layer) -> Iterator[Step]:
    """Yield ways to pass a cache.

    The layer keeps the cache itself, or each call returns it for the next, or every call gets the same object.
    """
    switch = {"use_cache": True} if "use_cache" in layer.keywords else {}
    if "cache" not in layer.keywords:
        yield lambda position, last: {**positions_at(layer, position), **switch}
        return

    def pass_cache(position: int, last: Any, cache: Any = None) -> dict[str, Any]:
        cache = find_cache(last) if cache is None and last is not None else cache
        return {**positions_at(layer, position), **switch, "cache": cache}

    yield pass_cache
    names = vars(sys.modules.get(type(layer.target).__module__, sys))
    kinds = [kind for name, kind in names.items() if inspect.isclass(kind) and name.endswith("Cache")]
    for kind in [dict, getattr(sys.modules.get("transformers"), "DynamicCache", object), *kinds]:
        with suppress(Exception):  # it may need arguments
            yield partial(pass_cache, cache=kind())


def find_cache(returned: Any) -> Any:
    """Return the cache among the results of a call: the first container after the output, else the last result."""
    results = returned.values() if isinstance(returned, Mapping) else returned if isinstance(returned, tuple) else ()
    others = [result for result in list(results)[1:] if result is not None]
    nested = [result for result in others if isinstance(result, tuple | list | dict) or not hasattr(result, "shape")]
    return next(iter([*nested, *others[::-1]]), None)


def call_once(layer: Layer, x: Array, keywords: Mapping[str, Any]) -> Array | None:
    return decode(layer, x, lambda _, last: {**keywords}, (0, x.shape[1]))


def decode(layer: Layer, x: Array, step: Step, bounds: Sequence[int] = ()) -> Array | None:
    """Call a layer once per pair of adjacent `bounds`, or once per token, and return all outputs `[b t m]`.

    Return None if a call fails.
    """
    axes, last, outputs = layer.inputs["x"], None, list[Array]()
    try:
        with guard_process():
            for start, end in pairwise(bounds or range(x.shape[1] + 1)):
                last = layer.call({"x": layer.convert(to_axes(x[:, start:end], axes))}, step(start, last))
                output = from_axes(next(iter(collect_arrays(last).values())), axes)
                outputs.append(np.asarray(output.detach() if hasattr(output, "detach") else output, float))
    except Exception:  # whatever the layer raises
        return None
    is_complete = all(output.ndim == len("btm") and np.isfinite(output).all() for output in outputs)
    return np.concatenate(outputs, axis=1) if is_complete else None
