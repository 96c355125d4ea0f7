"""Judge a layer: read its weights from a trace, and compare its outputs with the definition.

If the weights cannot be read or do not explain the outputs, compare only the attention inside the layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attn_exp.diagnosis.asking.case import expected
from attn_exp.diagnosis.asking.names import every_parameter, is_required, plain, words_in
from attn_exp.diagnosis.asking.offer import KNOWN
from attn_exp.diagnosis.asking.questions import Inside, layer_cases
from attn_exp.diagnosis.asking.request import Request, with_words
from attn_exp.diagnosis.bind.arguments import ROTARY
from attn_exp.diagnosis.bind.binding import bind_layer
from attn_exp.diagnosis.bind.construct import Bag
from attn_exp.diagnosis.bind.factory import is_factory
from attn_exp.diagnosis.bind.layer import Layer, kind_of
from attn_exp.diagnosis.bind.sizes import CONFIG, FIXED, letter_of
from attn_exp.diagnosis.calling.call import Bound
from attn_exp.diagnosis.calling.conventions import BLOCKS, CAUSAL, under
from attn_exp.diagnosis.judging.bound_layers import (
    Observed,
    bound_function,
    bound_layer,
    leave_open,
    name_matrices,
    observe,
    read_inside,
)
from attn_exp.diagnosis.judging.inside import ROTATIONS, check_inside, find_own_steps, find_own_words, has_own_mask
from attn_exp.diagnosis.judging.layer_passes import (
    PASSES,
    check_decoding,
    leave_learned_scale_open,
    leave_mistakes_open,
    leave_unplaced_parameters,
)
from attn_exp.diagnosis.judging.unasked import HARMLESS
from attn_exp.diagnosis.observe.matrices import UnreadMatricesError, answer_rows, are_close
from attn_exp.diagnosis.recipes.candidates import what_mistakes_compute
from attn_exp.errors import UncalledError
from attn_exp.experiment.verdict import BROKEN, HELD, Finding, Verdict, unfinished
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction

Check = Callable[[Bound, Request], Verdict]


def is_layer(function: Any) -> bool:
    """Return whether a target is a class, an object or a factory rather than a function of arrays."""
    if inspect.isclass(function) or is_factory(function):
        return True
    is_function = inspect.isroutine(function) or hasattr(function, "__wrapped__") or hasattr(function, "func")
    is_function |= type(function).__name__ == "ScriptFunction"  # TorchScript
    return not is_function and type(function).__module__.partition(".")[0] not in ("jax", "jaxlib", "numpy")


def look(own: OwnFunction, request: Request) -> Bound | None:
    """Bind a layer for checking; None if its weights cannot be read.

    Raises:
        UncalledError: the layer cannot be built or called.
    """
    layer = bind_layer(own, request)
    if "q" in layer.inputs and "m" not in layer.inputs["q"]:
        return bound_function(layer)
    try:
        return bound_layer(layer, read_inside(observe(layer))[0])
    except UnreadMatricesError:
        return None


def check_layer(own: OwnFunction, request: Request, check: Check) -> Verdict:
    """Check a layer and, if it is right, all other calls that its arguments allow.

    Raises:
        UncalledError: the layer cannot be built or called, or no attention is found among its operations.
    """
    layer, verdict = check_built(own, request, check)
    axes = next(iter(layer.inputs.values()))
    is_mixed = "batch_mixed" in verdict.mistakes
    if (is_mixed and "w" in axes) or (
        (is_mixed or verdict.unexplained) and passes_with_swapped_axes(own, layer, request, check, is_mixed)
    ):
        return unfinished(own.name, "the token axis of its input is not known: set `layout`", request.words)
    if verdict.mistakes == (STRIDED,) and layer.inputs.keys() <= {"x", "memory"}:
        verdict = leave_mistakes_open(verdict, "attention in which each head takes every h-th column", HEADS)
        return replace(verdict, alike=((STRIDED,),))
    for one in WAYS:
        verdict = one(verdict, own, layer, request, check) if verdict.passed else verdict
    return verdict


def passes_with_swapped_axes(own: OwnFunction, layer: Layer, request: Request, check: Check, is_mixed: bool) -> bool:
    """Return whether a layer is right with batch and token axes swapped, if its factory gives no layout.

    Unless it mixes the examples of a batch, nothing may be left open then.
    """
    if layer.axes_told or set(layer.inputs.values()) != {"btm"}:
        return False
    lengths = {**layer.lengths, "b": layer.lengths["t"], "t": layer.lengths["b"]}
    swapped = replace(layer, inputs=dict.fromkeys(layer.inputs, "tbm"), lengths=lengths)
    verdict = check_bound(own, swapped, request, check)
    return verdict.passed and (is_mixed or not verdict.not_verified)


HEADS = "which columns form `heads` (every h-th: right if the weights were trained that way, otherwise wrong)"
STRIDED = "heads_by_stride"


def check_built(own: OwnFunction, request: Request, check: Check) -> tuple[Layer, Verdict]:
    """Check a layer built with dropout; if that fails, check it without dropout to see whether dropout is the cause."""
    layer = bind_layer(own, request)
    drops = any(letter_of(str(name)) == "dropout" and value for name, value in layer.settings.items())
    try:
        verdict = check_bound(own, layer, request, check)
    except UncalledError as error:
        if not drops:
            raise
        layer = replace(bind_layer(own, request, drops=False), dropout_error=str(error))
        verdict = check_bound(own, layer, request, check)
    else:
        by_default = drops_by_default(own.function, layer)
        if drops and not verdict.passed and not (by_default and DROPPED in verdict.mistakes):
            without = check_bound(own, bind_layer(own, request, drops=False), request, check)
            if without.passed and not by_default:
                said = "`dropout` (right with its default, 0; above 0, it drops weights in evaluation too)"
                verdict = replace(without, not_verified=(*without.not_verified, said))
            elif without.passed:
                computes = what_mistakes_compute((DROPPED,))
                verdict = replace(verdict, mistakes=(DROPPED,), computes=computes, stage="", unexplained=False)
    chosen = (
        {one.name for one in every_parameter(own.function, own.name) if is_required(one)}
        if layer.constructor_call
        else set()
    )
    chosen |= {name for bag in layer.settings.values() if isinstance(bag, Bag) for name in bag}
    verdict = replace(verdict, not_verified=(*verdict.not_verified, *(
        f"argument `{name}` (built only with {value!r})" for name, value in layer.settings.items()
        if name in chosen and (isinstance(value, str) or (isinstance(value, int) and not letter_of(name)))
        and plain(name) not in FIXED
    )))  # fmt: skip
    if layer.dropout_error:
        said = f"`dropout` in evaluation (built with dropout, {layer.dropout_error})"
        verdict = replace(verdict, not_verified=(*verdict.not_verified, said))
    return layer, verdict


def drops_by_default(owner: Any, layer: Layer) -> bool:
    """Return whether a class, or a configuration that it takes, has no dropout rate whose default is 0."""
    configs = [type(value) for name, value in layer.settings.items() if CONFIG.match(plain(str(name)))]
    owners = [one for one in (owner, *configs) if inspect.isclass(one) and inspect.isfunction(one.__init__)]
    rates = [
        given.default for one in owners for given in every_parameter(one, "") if letter_of(given.name) == "dropout"
    ]
    return not rates or any(one is inspect.Parameter.empty or one for one in rates)


def check_bound(own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    request = add_what_is_told(request, own, layer)
    if "q" in layer.inputs and "m" not in layer.inputs["q"]:
        if "c" in layer.inputs["q"] or len(set(map(len, layer.inputs.values()))) > 1:
            reason = "q, k and v must have the same axes, [b h t d] in any order; let the callable add missing axes"
            return unfinished(own.name, reason, request.words)
        verdict = check(bound_function(layer), request)
        heads = layer.sizes.get("h")
        if verdict.unexplained and not layer.axes_told and heads:
            verdict = check(bound_function(layer), with_words(request, f"head={heads}"))
        if not verdict.unexplained or layer.axes_told:
            return verdict
        reason = "its outputs differ from the definition, and the axes of its inputs are guessed: set `layout`"
        return unfinished(own.name, reason, request.words)
    return check_seen(own, observe(layer), request, check)


def add_what_is_told(request: Request, own: OwnFunction, layer: Layer) -> Request:
    """Add a layer's library to the request and, if it comes from a factory, its layout, heads and mask polarity."""
    request = replace(request, takes=request.takes or layer.library)
    if not is_factory(own.function):
        return request
    axes = layer.inputs.get("q", "m") if layer.axes_told else ""
    heads, groups = (layer.sizes.get(letter) if "h" in axes else None for letter in "hg")
    told = {"convention": {"hides": BLOCKS, "attends": "convention=none"}.get(layer.mask_true, ""),
            "head": f"head={heads}" if heads else "",
            "kv_head": f"kv_head={groups}" if groups not in (None, heads) else "",
            "layout": f"layout={axes}" if axes in KNOWN and "m" not in axes and not request.layout else ""}  # fmt: skip
    return with_words(request, " ".join(word for name, word in told.items() if word and name not in request.said))


def ask_rotated(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    tables = [layer.keywords[role] for role in ROTARY if role in layer.keywords]
    if request.positions or not tables:
        return verdict
    asked = [with_words(request, words) for words in ROTATIONS]
    rotated = [check_seen(own, observe(bind_layer(own, one)), one, check) for one in asked]
    if any(one.passed for one in rotated):
        return replace(verdict, findings=(*verdict.findings, Finding("with rotary tables", HELD)))
    wrong = next((one for one in rotated if len(one.mistakes) == 1 and mistake(one.mistakes[0]).group == "positions"
                  and one.mistakes[0] != "position_missing"), None)  # fmt: skip
    left = f"rotation by `{tables[0]}` (its layout is not known)"
    return wrong or replace(verdict, not_verified=(*verdict.not_verified, left))


def ask_causal(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    switches = (value is False and (letter_of(str(name)) == "causal" or name == "mask")
                for name, value in layer.settings.items())  # fmt: skip
    if request.masks or CAUSAL in verdict.right_under or not inspect.isclass(own.function) or not any(switches):
        return verdict
    asked = with_words(request, CAUSAL)
    try:
        causal = check_bound(own, bind_layer(own, asked), asked, check)
    except UncalledError:  # it cannot be causal
        return verdict
    if causal.passed:
        return replace(verdict, findings=(*verdict.findings, Finding("made causal", HELD)))
    return under(causal, request, CAUSAL)


def ask_with_memory(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    roles = ["memory"] if "memory" in layer.keywords else ["k", "v"]
    words = [layer.keywords.get(role, "") for role in roles]
    if not all(words) or len(layer.inputs) > 1:
        return verdict
    rung = "keys of another input"
    try:
        other = check_bound(own, bind_layer(own, request, with_memory=True), request, check)
    except UncalledError as error:
        return replace(verdict, not_verified=(*verdict.not_verified, f"`{words[0]}` ({error})"))
    if other.passed:
        return replace(verdict, findings=(*verdict.findings, Finding(rung, HELD)))
    kept = [one for one in other.findings if one.rung != rung]
    return replace(other, findings=(*kept, Finding(rung, BROKEN)))


def list_options(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    """List the options of a class that are off by default; the check leaves them off."""
    if not inspect.isclass(own.function) or kind_of(own.function) not in ("torch", "plain"):
        return verdict
    off = [f"`{one.name}`" for one in every_parameter(own.function, "")
           if one.default is False and letter_of(one.name) not in ("bias", "causal", "dropout", "trains", "evaluates")
           and plain(one.name) not in FIXED and not HARMLESS & {plain(one.name), *words_in(one.name)}]  # fmt: skip
    findings = [Finding("options that are off", HELD, f"never built with {', '.join(off)}")] if off else []
    return replace(verdict, findings=(*verdict.findings, *findings))


def ask_grouped(verdict: Verdict, own: OwnFunction, layer: Layer, request: Request, check: Check) -> Verdict:
    """Ask a class with two query heads for each key/value head if it was built with one of them, or one of each."""
    heads = layer.sizes.get("h", 1)
    if (
        "g" not in map(letter_of, map(str, layer.settings))
        or request.kv_head
        or layer.sizes.get("g", 1) not in (1, heads)
        or heads % 4
        or not layer.constructor_call
    ):
        return verdict
    asked = with_words(request, f"kv_head={heads // 2}")
    try:
        grouped = check_built(own, asked, check)[1]
    except UncalledError:  # it has no such heads
        return verdict
    if grouped.mistakes and not grouped.unexplained:
        return under(grouped, request, f"kv_head={heads // 2}")
    if grouped.passed:
        return replace(verdict, findings=(*verdict.findings, Finding("shared key/value heads", HELD)))
    return replace(verdict, not_verified=(*verdict.not_verified, f"`kv_heads` ({grouped.computes})"))


DROPPED = "dropout_on"
WAYS = (
    ask_rotated, ask_causal, ask_with_memory, ask_grouped, list_options,
)  # fmt: skip
"""Further checks of a layer whose plainest call is right; they report what they cannot check as not verified."""


def check_seen(own: OwnFunction, seen: Observed, request: Request, check: Check) -> Verdict:
    if not seen.pairs:
        verdict = leave_open(own, seen, request.words, "its operations include no product of queries and keys")
        if verdict.passed:
            return verdict
        raise UncalledError(f"{own.name}: neither scores nor weights were found among its operations")
    try:
        inside, turns = read_inside(seen)
    except UnreadMatricesError as error:
        return check_unread(own, seen, request, check, str(error))
    bound = bound_layer(seen.layer, inside)
    named = check_named(seen, inside, request, check)
    if named is not None:
        return named
    verdict = check(bound, request)
    if verdict.uncalled and not inside.tokens:  # its mask is that small
        bound = bound_layer(seen.layer, replace(inside, tokens=seen.layer.lengths.get("t", 0)))
        verdict = check(bound, request)
    if verdict.unexplained or verdict.uncalled or names_scale_mistake(verdict):
        verdict = explain_layer(own, seen, (bound, turns), request, check, verdict)
    verdict = check_decoding(verdict, seen.layer, bound, request)
    for one in PASSES:
        verdict = one(verdict, seen, own, request)
    return verdict


def check_unread(own: OwnFunction, seen: Observed, request: Request, check: Check, reason: str) -> Verdict:
    verdict = check_named(seen, None, request, check) or check_inside(own, seen, request, reason)[0]
    verdict = leave_learned_scale_open(verdict, seen, own, request)
    return leave_unplaced_parameters(verdict, seen, own, request)


def check_named(seen: Observed, inside: Inside | None, request: Request, check: Check) -> Verdict | None:
    """Check with the weights that parameter names suggest; return the verdict only if it names a mistake."""
    named = name_matrices(seen.layer, inside)
    if named is None:
        return None
    verdict = check(bound_layer(seen.layer, named), request)
    return verdict if verdict.mistakes and not verdict.passed and not verdict.unexplained else None


def names_scale_mistake(verdict: Verdict) -> bool:
    return not verdict.passed and any("scale" in name for name in verdict.mistakes)


def explain_layer(
    own: OwnFunction, seen: Observed, read: tuple[Bound, frozenset[str]], request: Request, check: Check,
    verdict: Verdict,
) -> Verdict:  # fmt: skip
    """Try settings that may be built into the layer if the verdict is unexplained or blames the scale."""
    bound, turns = read
    explained = None
    for words in find_own_words(seen, request, is_masked=has_own_mask(seen), turns=bool(turns)):
        other = check(bound, with_words(request, words))
        if other.passed:
            return under(other, request, words)
        is_fewer = explained is None or len(other.mistakes) < len(explained.mistakes)
        if other.mistakes and not other.unexplained and is_fewer:
            explained = under(other, request, words)
    if not verdict.unexplained and not verdict.uncalled:
        return verdict
    return explained or explain_inside(own, seen, read, request, verdict)


def explain_inside(
    own: OwnFunction, seen: Observed, read: tuple[Bound, frozenset[str]], request: Request, verdict: Verdict
) -> Verdict:  # fmt: skip
    """Refine an unexplained verdict by checking the attention inside the layer.

    This may reveal a mistake, an added bias that explains the whole output, or steps that the definition lacks.
    """
    bound, turns = read
    inside, reading = check_inside(own, seen, request, "")
    if reading is None or not (inside.mistakes or inside.passed):
        return verdict if verdict.stage == "masked" else replace(verdict, stage=inside.stage or verdict.stage)
    if inside.mistakes:
        heads = {case.recipe.heads for case, _ in reading.wrong}
        is_told = any(letter_of(str(name)) == "h" and value != 1 for name, value in seen.layer.settings.items())
        mistakes = (("single_head",) if heads == {1} and is_told else ()) + inside.mistakes
        return replace(inside, mistakes=mistakes, findings=(*verdict.findings, *inside.findings))
    if reproduces_output(seen, bound, reading.request):
        return inside
    wrong = find_wrong_turns(turns)
    if wrong and not request.positions:
        return replace(verdict, mistakes=wrong, computes=what_mistakes_compute(wrong), unexplained=False, stage="")
    own_steps = [*([ROTATED] if turns and not request.positions else []), *find_own_steps(seen)]
    if own_steps:
        return replace(inside, not_verified=(*inside.not_verified, *own_steps))
    return replace(verdict, stage="q" if request.positions else "output")


def find_wrong_turns(turns: frozenset[str]) -> tuple[str, ...]:
    """Return the mistakes of a rotation, whatever its angles: of the values, or of only one of queries and keys."""
    found = {"position_missing": len(turns & {"q", "k"}) == 1, "rope_on_values": "v" in turns}
    return tuple(name for name, is_so in found.items() if is_so)


ROTATED = "`positions` of queries and keys (the rotation is not that of RoPE with base 10000)"


def reproduces_output(seen: Observed, bound: Bound, request: Request) -> bool:
    assert bound.inside is not None
    given, answer = list(seen.recording.given[0].values()), answer_rows(seen.recording)
    case = next(layer_cases(request, bound.offer, True, bound.inside))
    memory = given[-1] if len(given) > 1 else None
    right = expected(replace(case, given=replace(case.given, x=given[0], memory=memory)))["output"]
    return answer is not None and are_close(right.reshape(-1, right.shape[-1]), answer[0], 1e-5)
