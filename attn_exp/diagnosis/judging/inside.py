"""Compare the attention inside a layer with the definition on the layer's own queries, keys and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Asked, Case, differs, expected, without_blind
from attn_exp.diagnosis.asking.libraries import library
from attn_exp.diagnosis.asking.names import plain
from attn_exp.diagnosis.asking.offer import MASKINGS, PADDINGS, Masking
from attn_exp.diagnosis.asking.request import Request, with_words
from attn_exp.diagnosis.bind.layer import Layer
from attn_exp.diagnosis.calling.conventions import BLOCKS, CAUSAL, INVERTED, UNSCALED, are_open
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.judging.bound_layers import BATCH, Observed, leave_open
from attn_exp.diagnosis.observe.cores import Core, MixedTokensError, arrange_core, find_pairs
from attn_exp.diagnosis.observe.matrices import find_output, output_inputs, read_projection
from attn_exp.diagnosis.observe.recording import FINE as EXACT
from attn_exp.diagnosis.observe.recording import record_layer
from attn_exp.diagnosis.recipes.candidates import RULES, Explained, explained, what_mistakes_compute
from attn_exp.experiment.verdict import BROKEN, HELD, Finding, Verdict
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Given, Recipe
from attn_exp.own_code import OwnFunction
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

FINE, COARSE = 44, 22
"""Number of bits to which the attention inside a layer must agree: in pure float64, or if any step is in float32."""
INSIDE = "attention inside"
ADDED = "`logit_bias` (the layer adds its own bias to the logits, or its own sink to the softmax)"


@dataclass(frozen=True, eq=False)
class Reading:
    """One interpretation of the attention inside a layer.

    `words` are the settings that it assumes, and `request` includes them. `wrong` lists the cases that contradict this
    interpretation, `others` the rest. `added` is true if the layer adds its own numbers to the logits.
    """

    words: str
    request: Request
    wrong: Sequence[Asked]
    others: Sequence[Asked]
    added: bool = False


def check_inside(own: OwnFunction, seen: Observed, request: Request, reason: str) -> tuple[Verdict, Reading | None]:
    """Compare the attention inside a layer with the definition on the layer's own queries, keys and values.

    `reason` says why the projections are not verified.
    """
    try:
        core = arrange_core(seen.recording, seen.pairs)
    except MixedTokensError as error:
        return leave_open(own, seen, request.words, f"inside {own.name}, {error}"), None
    readings = list[Reading]()
    for one in read_core(core, seen, request):
        readings.append(one)
        if not one.wrong:
            break
    chosen, found = readings[-1], Explained()
    of_mask = compare_own_mask(core, seen, request) if chosen.wrong and hides_keys(core) else None
    readings += [of_mask] if of_mask is not None and of_mask.wrong else []
    for one in sorted(readings, key=lambda one: not one.added) if chosen.wrong else ():
        found = explained(Answers([*one.wrong, *one.others], required_bits(seen), required_bits(seen)))
        chosen = one
        if found.names:
            break
    is_right, names = not chosen.wrong, found.names
    if names == ("softmax_over_queries",) and all(pair.is_transposed for pair in seen.pairs):
        names = ("weights_transposed",)  # the left side of q k^T gives the queries, as a rule
    chosen = chosen if is_right or names else readings[0]
    lost = ", ".join(dict.fromkeys(case.rung for case, _ in chosen.wrong))
    finding = Finding(INSIDE, HELD if is_right else BROKEN, "" if is_right else f"the context differs in: {lost}")
    computes = "attention with its own queries, keys and values" if is_right else "something else"
    stage = "" if is_right or names else first_difference(core, chosen.wrong[0][0])
    stage = "masked" if stage and of_mask is not None and not of_mask.wrong else stage
    left = (f"`projections` to queries, keys and values ({reason})",) if reason else ()
    verdict = Verdict(
        own.name, is_right, names, what_mistakes_compute(names) if names else computes, (finding,), request.words,
        alike=found.alike, unexplained=bool(stage), stage=stage,
        not_verified=(*left, *((ADDED,) if chosen.added else ())),
    )  # fmt: skip
    if is_right and BLOCKS in chosen.words:  # the caller must say what True means
        verdict = replace(verdict, passed=False, alike=((INVERTED,),))
    return replace(verdict, right_under=chosen.words) if is_right else verdict, chosen


def read_core(core: Core, seen: Observed, request: Request) -> Iterator[Reading]:
    words = ["", CAUSAL] if not request.masks and hides_keys(core) else [""]
    if are_open(request) and {"mask", "padding"} & {*seen.layer.keywords}:
        words += [f"{one} {BLOCKS}".strip() for one in words]
    scores = list(find_score_words(seen, request))
    for one in [*words, *(f"{one} {score}".strip() for score in scores for one in words)]:
        under = with_words(request, one) if one else request
        yield compare_reading(one, under, [ask_core(core, under), *ask_with_masks(seen, under)], required_bits(seen))
    scaled = [UNSCALED, *scores] if are_open(request, "scale") else []
    for one in [*words, *(f"{one} {scale}".strip() for scale in scaled for one in words)]:
        under = with_words(request, one) if one else request
        added = find_added(core, under)
        if added is not None:
            other = replace(under, scores=(*under.scores, added))
            pairs = [ask_core(core, other), *ask_with_masks(seen, other)]
            yield replace(compare_reading(one, other, pairs, required_bits(seen)), added=True)


def compare_reading(words: str, request: Request, pairs: Sequence[Asked], bits: int) -> Reading:
    wrong = [one for one in pairs if is_wrong(*one, bits)]
    return Reading(words, request, wrong, [one for one in pairs if one not in wrong])


def compare_own_mask(core: Core, seen: Observed, request: Request) -> Reading:
    """Compare under whatever mask the layer applies, to find the mistakes beside it."""
    mask = Allowed(core.weights != 0)
    return compare_reading("", request, [ask_core(core, request, (mask,))], required_bits(seen))


def required_bits(seen: Observed) -> int:
    return FINE if seen.recording.tolerance == EXACT else COARSE


def hides_keys(core: Core) -> bool:
    return bool((core.weights == 0).any()) or any(bool((array < LOWEST).any()) for array in core.between)


def has_own_mask(seen: Observed) -> bool:
    try:
        return hides_keys(arrange_core(seen.recording, seen.pairs))
    except MixedTokensError:
        return False


def find_added(core: Core, request: Request) -> Score | None:
    """Return the sink or logit bias that a layer adds, the same for every example; None if it adds none."""
    case, _ = ask_core(core, request)
    right = expected(case)
    logits, total = right["masked"], core.weights.sum(axis=-1)
    if core.weights.shape == logits.shape and (total > 0).all() and (total < 1 - CLOSE).all():
        sinks = np.logaddexp.reduce(logits, axis=-1) + np.log(1 / total - 1)
        if np.allclose(sinks, sinks[:1, :, :1], rtol=0, atol=CLOSE):
            return Sink([float(one) for one in sinks[0, :, 0]])
    for array in reversed(core.between) if len(logits) > 1 else ():  # a batch of one cannot show that they are constant
        if array.shape == logits.shape:
            known = np.isfinite(array) & (array > LOWEST)
            added = np.where(known, array - find_scale(array, right["scores"], known) * right["scores"], 0.0)
            if np.allclose(added, added[:1], rtol=0, atol=CLOSE) and np.abs(added).max() > CLOSE:
                return Added(added[0])
    return None


def find_scale(logits: Array, scores: Array, known: Array) -> float:
    """Fit the scale of the scores to logits that contain the same bias in every example."""
    gaps = [np.where(known.all(axis=0), one - one[:1], 0.0) for one in (logits, scores)]
    return float((gaps[0] * gaps[1]).sum() / max((gaps[1] * gaps[1]).sum(), 1e-300))


CLOSE = 1e-6
"""Tolerance within which the logits of all examples count as equal."""
LOWEST = -1e4
"""Logits below this belong to hidden keys."""


def is_wrong(case: Case, answer: Answer, bits: int) -> bool:
    """Return whether the attention inside a layer is wrong; queries that see no key are ignored."""
    right = expected(case)
    assert answer.output is not None
    kept = {**right, "output": without_blind(right["output"], right)}
    return differs(without_blind(answer.output, right), kept, bits)


def ask_core(core: Core, request: Request, masks: tuple[Mask, ...] = (), rung: str = "values") -> Asked:
    heads, rows, keys, size = core.q.shape[1], core.q.shape[2], core.k.shape[2], core.q.shape[3]
    rules = replace(request.rules(size, rows, keys), masks=(*request.masks, *masks))
    case = Case(rung, Recipe(rules, heads, heads), Given(core.q, core.k, core.v))
    return case, Answer(core.context, {"weights": core.weights})


def ask_with_masks(seen: Observed, request: Request) -> Iterator[Asked]:
    """Yield a case and answer for each mask argument of a layer.

    The mask is written in the first format that hides the right keys, or else in the first that the layer accepts.
    """
    for role in ("mask", "padding"):
        if role in seen.layer.keywords:
            pairs = [("mask", one) for one in MASKINGS[:MOST_MASKS]] if role == "mask" else []
            first = None
            for kind, masking in [*pairs, *(("padding", one) for one in PADDINGS[:MOST_MASKS])]:
                asked = ask_with_mask(seen, request, (role, kind), masking)
                first = first or asked
                if asked is not None and not is_wrong(*asked, required_bits(seen)):
                    first = asked
                    break
            if first is not None:
                yield first


MOST_MASKS = 16


def ask_with_mask(
    seen: Observed, request: Request, role: tuple[str, str], masking: Masking
) -> Asked | None:  # fmt: skip
    """Return a case with a mask for the attention inside a layer, and its answer; None if the layer rejects the mask.

    `role` is the role of the argument and the kind of mask: per query ("mask") or per example ("padding").
    """
    first = seen.recording.given[0]
    rows, keys = next(iter(first.values())).shape[1], list(first.values())[-1].shape[1]
    allowed = np.random.default_rng(3).random((BATCH, 1, 1 if role[1] == "padding" else rows, keys)) < 0.6
    allowed[..., 0] = True
    heads = seen.layer.sizes.get("h", 1)
    at = At(Recipe(request.rules(1, rows, keys)).rules, BATCH, heads, heads, rows, keys, 1, heads)
    if role[1] == "mask":  # a caller combines the requested masks
        allowed = allowed & steps.allowed(at)[:, :1]
    said = np.broadcast_to(allowed ^ request.blocks, (BATCH, 1, rows, keys))  # True hides under this convention
    value = masking.write(said, at, request.blocks)
    lent = library(seen.layer.library)
    given = lent.into(value, "float64") if isinstance(value, np.ndarray) else value
    try:
        masked = record_layer(seen.layer, BATCH, rows, keys, {role[0]: given})
        core = arrange_core(masked, find_pairs(masked))
    except Exception:  # whatever the layer raises
        return None
    return ask_core(core, request, (Allowed(np.broadcast_to(allowed, (BATCH, 1, rows, keys))),), "masks")


def find_own_steps(seen: Observed) -> Iterator[str]:
    """Yield the steps before the output projection that change the context rather than only rearrange it."""
    output = find_output(seen.recording, seen.pairs)
    context = np.concatenate([pair.context.ravel() for pair in seen.pairs])
    if output is None:
        return
    rows = output_inputs(seen.recording, output)[0].ravel()
    if rows.size == context.size and not np.allclose(np.sort(rows), np.sort(context), rtol=0, atol=1e-6):
        last = max(pair.second for pair in seen.pairs)
        names = dict.fromkeys(one.name for one in seen.recording.first.operations[last + 1 : output.operation])
        yield f"`context` before the output projection (it is changed by {', '.join(names)})"


def first_difference(core: Core, case: Case) -> str:
    """Return the first stage inside a layer that differs from the definition."""
    right = expected(case)
    if core.weights.shape == right["weights"].shape and np.allclose(core.weights, right["weights"], atol=1e-9):
        return "context"
    with np.errstate(divide="ignore", invalid="ignore"):
        is_softmax = np.allclose(core.weights.sum(-1), 1) and any(
            close_rows(one, np.log(core.weights)) for one in core.between
        )
    has_logits = any(close_rows(one, right["masked"]) for one in core.between)
    return "weights" if has_logits and not is_softmax else "logits"


def close_rows(logits: Array, right: Array) -> bool:
    if logits.shape != right.shape:
        return False
    known = np.isfinite(logits) & np.isfinite(right)
    gap = np.where(known, logits - right, np.nan)
    return bool(known.any() and np.nanmax(np.nanmax(gap, -1) - np.nanmin(gap, -1)) < 1e-9)


# Settings built into a layer: a mask, a rotation, a scale or a logit cap of its configuration

ROTATIONS = ("position=rope", "position=rope position.rope.interleaved=true")
OF_NORMS = re.compile("norm|sqrt")
"""Names of operations that normalize queries and keys."""


def find_own_words(seen: Observed, request: Request, *, is_masked: bool, turns: bool) -> Iterator[str]:
    masks = [CAUSAL] if is_masked and not request.masks else []
    positions = [*ROTATIONS] if turns and not request.positions else []
    scores = list(find_score_words(seen, request))
    for words in product(("", *masks), ("", *positions), ("", *scores)):
        if any(words):
            yield " ".join(word for word in words if word)


def find_score_words(seen: Observed, request: Request) -> Iterator[str]:
    """Yield scales and logit caps that may be built into a layer, as settings.

    A scale of 1 is common with normalized queries and keys, and with a distance bias.
    """
    if not are_open(request, "scale"):
        return
    caps, scales = [""], list[str]()
    is_off = any(value is False and re.fullmatch("(use_?)?scal(e|ed|ing)", str(name)) for name, value in
                 seen.layer.settings.items())  # fmt: skip
    if is_off or any("bias" in plain(name) for name in seen.layer.unknown) or is_normed(seen):
        scales.append(UNSCALED)
    if any(one.name.startswith("tanh") for one in seen.recording.first.operations):
        caps += [words for words, rule in RULES if isinstance(rule, Softcap)]
    for name, value in numeric_settings(seen.layer):
        if re.search("soft_?cap", name) and value > 0:
            caps.append(f"score=softcap score.softcap.cap={value:g}")
        elif re.search("multiplier|scalar|scal(e|ing)$", name) and value > 0:
            scales += [f"scale={one!r}" for one in (value, value**-0.5) if one != 1]
    for scale, cap in product(("", *scales), caps):
        if scale or cap:
            yield f"{scale} {cap}".strip()


def numeric_settings(layer: Layer) -> Iterator[tuple[str, float]]:
    for name, value in layer.settings.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield str(name), float(value)


def is_normed(seen: Observed) -> bool:
    return all(is_normed_side(seen, pair.first, side.place) for pair in seen.pairs for side in (pair.q, pair.k))


def is_normed_side(seen: Observed, product_of: int, place: int) -> bool:
    """Return whether an input of a product was normalized after its projection."""
    operations = seen.recording.first.operations
    ahead, met = [operations[product_of].producers[place]], set[int]()
    while ahead:
        one = ahead.pop()
        if isinstance(one, int) and one not in met and read_projection(seen.recording, one) is None:
            met.add(one)
            if OF_NORMS.search(operations[one].name) and any(
                seen.recording.is_live(one, at) for at in range(len(operations[one].inputs))
            ):
                return True
            ahead += operations[one].producers
    return False
