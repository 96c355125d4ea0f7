"""Judge a layer: read its weights from a trace, and compare its outputs with the definition.

`check_observed` judges one recorded call. It tries these in order, and stops when one explains the outputs:

1. `check_named_weights`: the layer may use a matrix for another purpose than its name says.
2. `check` with the weights that the operations use: the layer becomes a function of x (`Bound`), judged like any other.
3. `explain_layer`: settings that may be built into the layer, such as a mask or a rotation.
4. `check_inside`: only the attention inside the layer, on the layer's own queries, keys and values.

If the weights cannot be read, only 1 and 4 are tried (`check_unread`). If the plainest call is right, `FURTHER_CHECKS`
check the other calls that the layer's arguments allow.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attn_exp.diagnosis.asking.case import expected
from attn_exp.diagnosis.asking.names import every_parameter, is_required, plain, words_in
from attn_exp.diagnosis.asking.offer import KNOWN_LAYOUTS
from attn_exp.diagnosis.asking.questions import Inside, layer_cases
from attn_exp.diagnosis.asking.request import Request, with_settings
from attn_exp.diagnosis.bind.arguments import ROTARY
from attn_exp.diagnosis.bind.binding import bind_layer
from attn_exp.diagnosis.bind.construct import Bag
from attn_exp.diagnosis.bind.factory import is_factory
from attn_exp.diagnosis.bind.layer import Layer, kind_of
from attn_exp.diagnosis.bind.sizes import CONFIG, OTHER_VALUES, find_kind
from attn_exp.diagnosis.calling.call import Bound
from attn_exp.diagnosis.calling.conventions import BLOCKS, CAUSAL, report_under
from attn_exp.diagnosis.judging.bound_layers import (
    Observed,
    bound_function,
    bound_layer,
    leave_open,
    name_matrices,
    observe,
    read_inside,
)
from attn_exp.diagnosis.judging.inside import ROTATIONS, check_inside, find_own_words, has_own_mask
from attn_exp.diagnosis.judging.layer_passes import (
    PASSES,
    check_decoding,
    leave_cache_open,
    leave_learned_scale_open,
    leave_mistakes_open,
    leave_unplaced_parameters,
    name_by_trace,
    with_findings,
    with_unverified,
)
from attn_exp.diagnosis.judging.unasked import HARMLESS
from attn_exp.diagnosis.observe.matrices import UnreadMatricesError, answer_rows, are_close
from attn_exp.diagnosis.recipes.candidates import what_mistakes_compute
from attn_exp.errors import UncalledError
from attn_exp.experiment.verdict import BROKEN, HELD, Finding, Verdict, make_unfinished
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction

Check = Callable[[Bound, Request], Verdict]
"""Checks a callable with known arguments under the settings of a request."""

HEADS = "which columns form `heads` (every h-th: right if the weights were trained that way, otherwise wrong)"
ROTATED = "`positions` of queries and keys (the rotation is not that of RoPE with base 10000)"
"""Points that the check cannot decide."""
STRIDED, DROPPED = "heads_by_stride", "dropout_on"
"""Mistakes that this file reports or turns into an open point."""
WITH_MEMORY = "keys of another input"
"""The row of the report about cross-attention."""


def is_layer(function: Any) -> bool:
    """Return whether a target is a class, an object or a factory rather than a function of arrays."""
    if inspect.isclass(function) or is_factory(function):
        return True
    is_function = (
        inspect.isroutine(function)
        or hasattr(function, "__wrapped__")
        or hasattr(function, "func")
        or type(function).__name__ == "ScriptFunction"  # TorchScript
    )
    return not is_function and type(function).__module__.partition(".")[0] not in ("jax", "jaxlib", "numpy")


def bind_readable_layer(own: OwnFunction, request: Request) -> Bound | None:
    """Bind a layer as a function; None if its weights cannot be read.

    Raises:
        UncalledError: the layer cannot be built or called.
    """
    layer = bind_layer(own, request)
    if takes_heads(layer):
        return bound_function(layer)
    try:
        return bound_layer(layer, read_inside(observe(layer))[0])
    except UnreadMatricesError:
        return None


def takes_heads(layer: Layer) -> bool:
    """Return whether a layer takes q, k and v of one head size, and has no projections of its own."""
    return "m" not in layer.inputs.get("q", "m")


def check_layer(own: OwnFunction, request: Request, check: Check) -> Verdict:
    """Check a layer and, if it is right, all other calls that its arguments allow.

    Raises:
        UncalledError: the layer cannot be built or called, or no attention is found among its operations.
    """
    layer, verdict = check_built(own, request, check)
    is_mixed = "batch_mixed" in verdict.mistakes
    is_swapped = (is_mixed or verdict.unexplained) and passes_with_swapped_axes(own, layer, request, check, is_mixed)
    if is_swapped or (is_mixed and "w" in next(iter(layer.inputs.values()))):  # w: columns of an image
        return make_unfinished(own.name, "the token axis of its input is not known: set `layout`", request.words)
    if verdict.mistakes == (STRIDED,) and layer.inputs.keys() <= {"x", "memory"}:
        verdict = leave_mistakes_open(verdict, "attention in which each head takes every h-th column", HEADS)
        return replace(verdict, alike=((STRIDED,),))
    if STRIDED in verdict.mistakes and layer.inputs.keys() <= {"x", "memory"}:
        names = tuple(sorted({*verdict.mistakes} - {STRIDED}))
        verdict = replace(verdict, mistakes=names, computes=what_mistakes_compute(names))
    for check_further in FURTHER_CHECKS:
        verdict = check_further(verdict, own, layer, request, check) if verdict.passed else verdict
    return verdict


def passes_with_swapped_axes(own: OwnFunction, layer: Layer, request: Request, check: Check, is_mixed: bool) -> bool:
    """Return whether a layer is right with batch and token axes swapped; False if its factory gives a layout.

    `is_mixed` means that the layer mixed the examples of a batch. If it did not, the check with swapped axes must also
    leave nothing unverified.
    """
    if layer.axes_told or set(layer.inputs.values()) != {"btm"}:
        return False
    lengths = {**layer.lengths, "b": layer.lengths["t"], "t": layer.lengths["b"]}
    swapped = replace(layer, inputs=dict.fromkeys(layer.inputs, "tbm"), lengths=lengths)
    verdict = check_bound(own, swapped, request, check)
    return verdict.passed and (is_mixed or not verdict.not_verified)


# Building the layer: with dropout if it has any, and with values chosen for required arguments


def check_built(own: OwnFunction, request: Request, check: Check) -> tuple[Layer, Verdict]:
    """Check a layer built with dropout; if that fails, check it without dropout to see whether dropout is the cause."""
    layer = bind_layer(own, request)
    has_dropout = any(find_kind(str(name)) == "dropout" and value for name, value in layer.settings.items())
    try:
        verdict = check_bound(own, layer, request, check)
    except UncalledError as error:
        if not has_dropout:
            raise
        layer = replace(bind_layer(own, request, drops=False), dropout_error=str(error))
        verdict = check_bound(own, layer, request, check)
    else:
        if has_dropout and not verdict.passed:
            verdict = blame_dropout(verdict, own, layer, request, check)
    verdict = with_unverified(verdict, *list_chosen_arguments(own, layer))
    if layer.dropout_error:
        verdict = with_unverified(verdict, f"`dropout` in evaluation (built with dropout, {layer.dropout_error})")
    return layer, verdict


def blame_dropout(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    """Check a wrong layer without dropout; if it is then right, blame dropout, or leave it open if off by default."""
    is_default = drops_by_default(own.function, layer)
    if is_default and DROPPED in verdict.mistakes:
        return verdict
    without_dropout = check_bound(own, bind_layer(own, request, drops=False), request, check)
    if not without_dropout.passed:
        return verdict
    if is_default:
        return replace(
            verdict, mistakes=(DROPPED,), computes=what_mistakes_compute((DROPPED,)), stage="", unexplained=False
        )
    return with_unverified(
        without_dropout, "`dropout` (right with its default, 0; above 0, it drops weights in evaluation too)"
    )


def drops_by_default(owner: Any, layer: Layer) -> bool:
    """Return whether dropout is on by default: some rate of a class or its configuration does not default to 0.

    Also True if no dropout rate is found.
    """
    configs = [type(value) for name, value in layer.settings.items() if CONFIG.match(plain(str(name)))]
    owners = [kind for kind in (owner, *configs) if inspect.isclass(kind) and inspect.isfunction(kind.__init__)]
    rates = [parameter.default for kind in owners for parameter in every_parameter(kind, "")
             if find_kind(parameter.name) == "dropout"]  # fmt: skip
    return not rates or any(rate is inspect.Parameter.empty or rate for rate in rates)


def list_chosen_arguments(own: OwnFunction, layer: Layer) -> list[str]:
    """Describe the constructor arguments whose value the check had to choose: other values stay unverified."""
    chosen = {name for bag in layer.settings.values() if isinstance(bag, Bag) for name in bag}
    if layer.constructor_call:
        chosen |= {one.name for one in every_parameter(own.function, own.name) if is_required(one)}
    return [f"argument `{name}` (built only with {value!r})" for name, value in layer.settings.items()
            if name in chosen and plain(name) not in OTHER_VALUES
            and (isinstance(value, str) or (isinstance(value, int) and not find_kind(name)))]  # fmt: skip


# One call of a layer


def check_bound(own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    """Check one call of a layer: as a function of q, k and v, or else by recording it and reading its weights."""
    request = add_layer_settings(request, own, layer)
    if not takes_heads(layer):
        return check_observed(own, observe(layer), request, check)
    if "c" in layer.inputs["q"] or len(set(map(len, layer.inputs.values()))) > 1:
        reason = "q, k and v must have the same axes, [b h t d] in any order; let the callable add missing axes"
        return make_unfinished(own.name, reason, request.words)
    verdict = check(bound_function(layer), request)
    heads = layer.sizes.get("h")
    if verdict.unexplained and not layer.axes_told and heads:
        verdict = check(bound_function(layer), with_settings(request, f"head={heads}"))
    if not verdict.unexplained or layer.axes_told:
        return verdict
    reason = "its outputs differ from the definition, and the axes of its inputs are guessed: set `layout`"
    return make_unfinished(own.name, reason, request.words)


def add_layer_settings(request: Request, own: OwnFunction, layer: Layer) -> Request:
    """Add a layer's library to the request and, if it comes from a factory, its layout, heads and mask polarity."""
    request = replace(request, takes=request.takes or layer.library)
    if not is_factory(own.function):
        return request
    axes = layer.inputs.get("q", "m") if layer.axes_told else ""
    heads, groups = (layer.sizes.get(letter) if "h" in axes else None for letter in "hg")
    has_layout = axes in KNOWN_LAYOUTS and "m" not in axes and not request.layout
    settings = {"convention": {"hides": BLOCKS, "attends": "convention=none"}.get(layer.mask_true, ""),
                "head": f"head={heads}" if heads else "",
                "kv_head": f"kv_head={groups}" if groups not in (None, heads) else "",
                "layout": f"layout={axes}" if has_layout else ""}  # fmt: skip
    return with_settings(
        request, " ".join(word for name, word in settings.items() if word and name not in request.names_typed)
    )


def check_observed(own: OwnFunction, observed: Observed, request: Request, check: Check) -> Verdict:
    """Check a recorded layer in the ways that the docstring of this file lists.

    Raises:
        UncalledError: no attention is found among its operations.
    """
    if not observed.pairs:
        verdict = leave_open(own, observed, request.words, "its operations include no product of queries and keys")
        if verdict.passed:
            return verdict
        raise UncalledError(f"{own.name}: neither scores nor weights were found among its operations")
    counts = [array.shape[1] for array in observed.recording.inputs_by_run[0].values()]
    if "memory" in observed.layer.inputs and observed.pairs[0].weights.shape[-1] == sum(counts):
        return leave_open(own, observed, request.words, "its keys are those of the memory and of x together")
    try:
        inside, rotated = read_inside(observed)
    except UnreadMatricesError as error:
        return check_unread(own, observed, request, check, str(error))
    verdict_by_names = check_named_weights(observed, inside, request, check)
    if verdict_by_names is not None:
        return verdict_by_names
    bound = bound_layer(observed.layer, inside)
    verdict = check(bound, request)
    if verdict.uncalled and not inside.tokens:  # its mask has a fixed size
        bound = bound_layer(observed.layer, replace(inside, tokens=observed.layer.lengths.get("t", 0)))
        verdict = check(bound, request)
    is_of_scale = not verdict.passed and any("scale" in name for name in verdict.mistakes)
    if verdict.unexplained or verdict.uncalled or is_of_scale:
        verdict = explain_layer(own, observed, bound, rotated, request, check, verdict)
    verdict = check_decoding(  # with the settings that are built into the layer
        verdict, observed.layer, bound, with_settings(request, " ".join(re.findall(r"\S+=\S+", verdict.right_under)))
    )
    for refine in PASSES:
        verdict = refine(verdict, observed, own, request)
    return verdict


def check_unread(own: OwnFunction, observed: Observed, request: Request, check: Check, reason: str) -> Verdict:
    """Check a layer whose weights cannot be read from its operations; `reason` says why."""
    verdict = check_named_weights(observed, None, request, check) or check_inside(own, observed, request, reason)[0]
    verdict = leave_learned_scale_open(name_by_trace(verdict, observed, own, request), observed, own, request)
    return leave_unplaced_parameters(leave_cache_open(verdict, observed.layer), observed, own, request)


def check_named_weights(observed: Observed, inside: Inside | None, request: Request, check: Check) -> Verdict | None:
    """Check a layer with the weights that its parameter names suggest; return a verdict only if it names a mistake."""
    named = name_matrices(observed.layer, inside)
    if named is None:
        return None
    verdict = check(bound_layer(observed.layer, named), request)
    return verdict if verdict.mistakes and not verdict.passed and not verdict.unexplained else None


# Explaining a layer that is wrong with the weights that were read


def explain_layer(
    own: OwnFunction, observed: Observed, bound: Bound, rotated: frozenset[str], request: Request, check: Check,
    verdict: Verdict,
) -> Verdict:  # fmt: skip
    """Try settings that may be built into the layer, then the attention inside it.

    `verdict` is the one without these settings: it blames the scale, is unexplained, or says that the layer could not
    be called. `rotated` names those of q, k and v that the layer rotates.
    """
    explained = None
    for setting in find_own_words(observed, request, is_masked=has_own_mask(observed), rotates=bool(rotated)):
        other = check(bound, with_settings(request, setting))
        if other.passed:
            return report_under(other, request, setting)
        is_fewer = explained is None or len(other.mistakes) < len(explained.mistakes)
        if other.mistakes and not other.unexplained and is_fewer:
            explained = report_under(other, request, setting)
    if not verdict.unexplained and not verdict.uncalled:
        return verdict
    return explained or explain_inside(own, observed, bound, rotated, request, verdict)


def explain_inside(
    own: OwnFunction, observed: Observed, bound: Bound, rotated: frozenset[str], request: Request, verdict: Verdict
) -> Verdict:  # fmt: skip
    """Refine an unexplained verdict by checking the attention inside the layer.

    This may reveal a mistake, an added bias that explains the whole output, or steps that the definition lacks.
    """
    inside, reading = check_inside(own, observed, request, "")
    if reading is None or not (inside.mistakes or inside.passed):
        return verdict if verdict.stage == "masked" else replace(verdict, stage=inside.stage or verdict.stage)
    if inside.mistakes:
        return replace(inside, findings=(*verdict.findings, *inside.findings))
    if reproduces_output(observed, bound, reading.request):
        return inside if reading.added or verdict.uncalled else verdict
    wrong = () if request.positions else name_wrong_rotations(rotated)
    if wrong:
        return replace(verdict, mistakes=wrong, computes=what_mistakes_compute(wrong), unexplained=False, stage="")
    if rotated and not request.positions:
        return with_unverified(inside, ROTATED)
    return replace(verdict, stage="q" if request.positions else "output")


def name_wrong_rotations(rotated: frozenset[str]) -> tuple[str, ...]:
    """Return mistakes that show whatever the angles are: rotated values, or only one of queries and keys rotated."""
    is_made = {"position_missing": len(rotated & {"q", "k"}) == 1, "rope_on_values": "v" in rotated}
    return tuple(name for name, is_so in is_made.items() if is_so)


def reproduces_output(observed: Observed, bound: Bound, request: Request) -> bool:
    """Return whether the definition under these settings gives the recorded output of the layer."""
    assert bound.inside is not None
    inputs = list(observed.recording.inputs_by_run[0].values())
    answer = answer_rows(observed.recording)
    case = next(layer_cases(request, bound.offer, True, bound.inside))
    given = replace(case.given, x=inputs[0], memory=inputs[-1] if len(inputs) > 1 else None)
    right = expected(replace(case, given=given))["output"]
    return answer is not None and are_close(right.reshape(-1, right.shape[-1]), answer[0], 1e-5)


# Further calls of a layer whose plainest call is right; what they cannot check is reported as not verified


def check_rotary_tables(
    verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check
) -> Verdict:  # fmt: skip
    """Pass tables of cosines and sines in both pairings of RoPE: the layer must be right with one of them."""
    tables = [layer.keywords[role] for role in ROTARY if role in layer.keywords]
    if request.positions or not tables:
        return verdict
    requests = [with_settings(request, setting) for setting in ROTATIONS]
    rotated = [check_observed(own, observe(bind_layer(own, one)), one, check) for one in requests]
    if any(other.passed for other in rotated):
        return with_findings(verdict, Finding("with rotary tables", HELD))
    wrong = next((other for other in rotated if len(other.mistakes) == 1
                  and mistake(other.mistakes[0]).group == "positions"
                  and other.mistakes[0] != "position_missing"), None)  # fmt: skip
    return wrong or with_unverified(verdict, f"rotation by `{tables[0]}` (its layout is not known)")


def check_causal(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    """Check a class with its causal switch on, if it was built with the switch off."""
    is_off = any(value is False and (find_kind(str(name)) == "causal" or name == "mask")
                 for name, value in layer.settings.items())  # fmt: skip
    if request.masks or CAUSAL in verdict.right_under or not inspect.isclass(own.function) or not is_off:
        return verdict
    with_mask = with_settings(request, CAUSAL)
    try:
        causal = check_bound(own, bind_layer(own, with_mask), with_mask, check)
    except UncalledError:  # it cannot be causal
        return verdict
    return (
        with_findings(verdict, Finding("made causal", HELD)) if causal.passed else report_under(causal, request, CAUSAL)
    )


def check_cross_attention(
    verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check
) -> Verdict:  # fmt: skip
    """Check cross-attention, if a layer accepts a memory or separate keys and values but was called with x alone."""
    roles = ["memory"] if "memory" in layer.keywords else ["k", "v"]
    if len(layer.inputs) > 1 or not all(layer.keywords.get(role) for role in roles):
        return verdict
    try:
        other = check_bound(own, bind_layer(own, request, with_memory=True), request, check)
    except UncalledError as error:
        return with_unverified(verdict, f"`{layer.keywords[roles[0]]}` ({error})")
    if other.passed:
        points = (point for point in other.not_verified if point not in verdict.not_verified)
        return with_unverified(with_findings(verdict, Finding(WITH_MEMORY, HELD)), *points)
    others = [finding for finding in other.findings if finding.question != WITH_MEMORY]
    return replace(other, findings=(*others, Finding(WITH_MEMORY, BROKEN)))


def check_grouped_heads(
    verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check
) -> Verdict:  # fmt: skip
    """Check a class with two query heads per key/value head.

    This applies only if the class was built with one key/value head in all, or with one per query head.
    """
    heads = layer.sizes.get("h", 1)
    takes_groups = layer.constructor_call and "g" in map(find_kind, map(str, layer.settings))
    is_grouped = request.kv_head or layer.sizes.get("g", 1) not in (1, heads)
    if not takes_groups or is_grouped or heads % 4:
        return verdict
    setting = f"kv_head={heads // 2}"
    try:
        grouped = check_built(own, with_settings(request, setting), check)[1]
    except UncalledError:  # it has no such heads
        return verdict
    if grouped.mistakes and not grouped.unexplained:
        return report_under(grouped, request, setting)
    if grouped.passed:
        return with_findings(verdict, Finding("shared key/value heads", HELD))
    return with_unverified(verdict, f"`kv_heads` ({grouped.computes})")


def list_options(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    """Add a finding with the options of a class that are off by default, because the check leaves them off."""
    if not inspect.isclass(own.function) or kind_of(own.function) not in ("torch", "plain"):
        return verdict
    off = [f"`{one.name}`" for one in every_parameter(own.function, "")
           if one.default is False
           and find_kind(one.name) not in ("bias", "causal", "dropout", "training", "evaluation")
           and plain(one.name) not in OTHER_VALUES
           and not HARMLESS & {plain(one.name), *words_in(one.name)}]  # fmt: skip
    finding = Finding("options that are off", HELD, f"never built with {', '.join(off)}")
    return with_findings(verdict, finding) if off else verdict


FURTHER_CHECKS = (check_rotary_tables, check_causal, check_cross_attention, check_grouped_heads, list_options)
"""Checks to run in this order, until one of them fails."""
