"""Compare the attention inside a layer with the definition on the layer's own queries, keys and values.

The recorded queries, keys and values of a layer (`Core`) become a case, and the recorded context becomes its answer.
They are compared under several assumptions (`Reading`): settings that may be built into the layer, such as
`mask=causal`, with or without a sink or logit bias that the layer adds by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, CaseAnswer, differs, expected, without_blind
from attn_exp.diagnosis.asking.libraries import load_library
from attn_exp.diagnosis.asking.names import plain
from attn_exp.diagnosis.asking.offer import MASKINGS, PADDINGS, Masking
from attn_exp.diagnosis.asking.request import Request, with_settings
from attn_exp.diagnosis.calling.conventions import BLOCKS, CAUSAL, INVERTED, UNSCALED, are_open
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.judging.bound_layers import BATCH, Observed, leave_open
from attn_exp.diagnosis.observe.cores import Core, MixedTokensError, arrange_core, find_pairs
from attn_exp.diagnosis.observe.matrices import read_projection
from attn_exp.diagnosis.observe.recording import FINE, record_layer
from attn_exp.diagnosis.recipes.candidates import RULES, find_explanation, what_mistakes_compute
from attn_exp.experiment.verdict import BROKEN, HELD, Finding, Verdict
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Given, Recipe, Setup
from attn_exp.own_code import OwnFunction
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

FLOAT64_BITS, FLOAT32_BITS = 44, 22
"""Number of bits to which the attention inside a layer must agree: in pure float64, or if any step is in float32."""
CLOSE = 1e-6
"""Tolerance within which the logits of all examples count as equal."""
LOWEST = -1e4
"""Logits below this belong to hidden keys."""
OTHER_LENGTHS = (1, 37)
"""Numbers of tokens with which a layer is recorded again."""
MOST_MASKS = 16
"""Number of mask formats to try for one argument."""
INSIDE = "attention inside"
ROTATIONS = ("position=rope", "position=rope position.rope.interleaved=true")
"""The two pairings of RoPE."""
OF_NORMS = re.compile("norm|sqrt")
"""Names of operations that normalize queries and keys."""


@dataclass(frozen=True, eq=False)
class Reading:
    """One interpretation of the attention inside a layer.

    `words` are the settings that it assumes, and `request` includes them. `wrong` lists the cases that contradict this
    interpretation, `others` the rest. `added` means that the layer adds a bias or sink of its own.
    """

    words: str
    request: Request
    wrong: Sequence[CaseAnswer]
    others: Sequence[CaseAnswer]
    added: bool = False


def check_inside(own: OwnFunction, observed: Observed, request: Request, reason: str) -> tuple[Verdict, Reading | None]:
    """Compare the attention inside a layer with the definition on the layer's own queries, keys and values.

    Try readings until one of them is right; if none is, name the mistake under one of them. Return the verdict and
    the reading to which it applies. `reason` says why the projections are not verified.
    """
    try:
        core = arrange_core(observed.recording, observed.pairs)
    except MixedTokensError as error:
        return leave_open(own, observed, request.words, f"inside {own.name}, {error}"), None
    readings = list[Reading]()
    for reading in read_core(core, observed, request):
        readings.append(reading)
        if not reading.wrong:
            break
    if readings[-1].wrong:
        verdict, reading = explain_readings(own, core, observed, request, readings)
    else:
        computes = "attention with its own queries, keys and values"
        is_inverted = BLOCKS in reading.words
        verdict = Verdict(own.name, not is_inverted, (), computes, (Finding(INSIDE, HELD),), request.words,
                          alike=((INVERTED,),) if is_inverted else (), right_under=reading.words)  # fmt: skip
    unverified = [f"`projections` to queries, keys and values ({reason})"] if reason else []
    bias = "`logit_bias` (the layer adds its own bias to the logits, or its own sink to the softmax)"
    return replace(verdict, not_verified=(*unverified, *([bias] if reading.added else []))), reading


def explain_readings(
    own: OwnFunction, core: Core, observed: Observed, request: Request, readings: list[Reading]
) -> tuple[Verdict, Reading]:
    """Return the verdict if no reading is right, and the reading to which it applies.

    It names the mistake under the first reading that a mistake explains. If there is none, it gives the first stage
    that differs under the plainest reading.
    """
    bits = required_bits(observed)
    masked = compare_own_mask(core, observed, request) if hides_keys(core) else None
    candidates = sorted(readings, key=lambda reading: not reading.added)  # those with a bias or sink of the layer first
    candidates += [masked] if masked is not None and masked.wrong else []
    for reading in candidates:
        found = find_explanation(Answers([*reading.wrong, *reading.others], bits, bits))
        if found.names:
            break
    else:
        reading = readings[0]
    names = found.names
    if names == ("softmax_over_queries",) and all(pair.is_transposed for pair in observed.pairs):
        names = ("weights_transposed",)  # queries are usually the left factor of the first product
    stage = "" if names else find_first_difference(core, reading.wrong[0][0])
    if stage and masked is not None and not masked.wrong:
        stage = "masked"
    questions = ", ".join(dict.fromkeys(case.question for case, _ in reading.wrong))
    finding = Finding(INSIDE, BROKEN, f"the context differs in: {questions}")
    return Verdict(
        own.name, False, names, what_mistakes_compute(names) if names else "something else", (finding,),
        request.words, found.alike, unexplained=bool(stage), stage=stage,
    ), reading  # fmt: skip


def read_core(core: Core, observed: Observed, request: Request) -> Iterator[Reading]:
    """Yield readings, the plainest first; those in which the layer adds its own bias or sink come last."""
    masks = ["", CAUSAL] if not request.masks and hides_keys(core) else [""]
    if are_open(request) and {"mask", "padding"} & {*observed.layer.keywords}:
        masks += [f"{mask} {BLOCKS}".strip() for mask in masks]
    scores = list(find_score_words(observed, request))
    for score, mask in product(("", *scores), masks):
        words = f"{mask} {score}".strip()
        yield compare_reading(words, with_settings(request, words) if words else request, core, observed)
    scales = [UNSCALED, *scores] if are_open(request, "scale") else []
    for scale, mask in product(("", *scales), masks):
        words = f"{mask} {scale}".strip()
        assumed = with_settings(request, words) if words else request
        added = find_added(core, assumed)
        if added is not None:
            biased = replace(assumed, scores=(*assumed.scores, added))
            yield replace(compare_reading(words, biased, core, observed), added=True)


def compare_reading(words: str, request: Request, core: Core, observed: Observed) -> Reading:
    """Compare the recorded calls, with masks and at other lengths too, with the definition under this request."""
    pairs = [ask_core(core, request), *ask_with_masks(observed, request)]
    if not any(isinstance(score, Added) for score in request.scores):  # a bias has the size of the recorded call
        pairs += [
            ask_core(other, request, (), f"{other.q.shape[2]} tokens") for other in record_other_lengths(observed)
        ]
    wrong = [pair for pair in pairs if is_wrong(*pair, required_bits(observed))]
    return Reading(words, request, wrong, [pair for pair in pairs if pair not in wrong])


@lru_cache(maxsize=1)
def record_other_lengths(observed: Observed) -> list[Core]:
    """Return the attention inside a layer in calls of other lengths, as far as it accepts them."""
    cores = list[Core]()
    for tokens in OTHER_LENGTHS:
        with suppress(Exception):  # whatever the layer raises
            recording = record_layer(observed.layer, BATCH, tokens, tokens, {})
            cores.append(arrange_core(recording, find_pairs(recording)))
    return cores


def compare_own_mask(core: Core, observed: Observed, request: Request) -> Reading:
    """Compare under the mask that the layer applies, to find mistakes other than the mask."""
    pair = ask_core(core, request, (Allowed(core.weights != 0),))
    return Reading("", request, [pair] if is_wrong(*pair, required_bits(observed)) else [], [])


def required_bits(observed: Observed) -> int:
    return FLOAT64_BITS if observed.recording.tolerance == FINE else FLOAT32_BITS


def hides_keys(core: Core) -> bool:
    return bool((core.weights == 0).any()) or any(bool((array < LOWEST).any()) for array in core.between)


def has_own_mask(observed: Observed) -> bool:
    try:
        return hides_keys(arrange_core(observed.recording, observed.pairs))
    except MixedTokensError:
        return False


def find_added(core: Core, request: Request) -> Score | None:
    """Return the sink or logit bias that a layer adds to every example alike; None if it adds none."""
    case, _ = ask_core(core, request)
    right, total = expected(case), core.weights.sum(axis=-1)
    if core.weights.shape == right["masked"].shape and (total > 0).all() and (total < 1 - CLOSE).all():
        # with L = log(sum(e^logits)), a sink makes the weights sum to `total = e^L / (e^L + e^sink)`
        sinks = np.logaddexp.reduce(right["masked"], axis=-1) + np.log(1 / total - 1)
        if np.allclose(sinks, sinks[:1, :, :1], rtol=0, atol=CLOSE):
            return Sink([float(sink) for sink in sinks[0, :, 0]])
    # one example cannot show whether a bias is the same in every example
    for logits in reversed(core.between) if len(right["masked"]) > 1 else ():
        if logits.shape == right["masked"].shape:
            is_seen = np.isfinite(logits) & (logits > LOWEST)
            scale = find_scale(logits, right["scores"], is_seen)
            bias = np.where(is_seen, logits - scale * right["scores"], 0.0)
            if np.allclose(bias, bias[:1], rtol=0, atol=CLOSE) and np.abs(bias).max() > CLOSE:
                return Added(bias[0])
    return None


def find_scale(logits: Array, scores: Array, is_seen: Array) -> float:
    """Return the scale of the scores in logits, which may also contain a bias.

    A bias that is the same in every example cancels in the differences between examples, which are fitted.
    """
    y, x = (np.where(is_seen.all(axis=0), array - array[:1], 0.0) for array in (logits, scores))
    return float((y * x).sum() / max((x * x).sum(), 1e-300))


def is_wrong(case: Case, answer: Answer, bits: int) -> bool:
    """Return whether the attention inside a layer is wrong; queries that see no key are ignored."""
    right = expected(case)
    assert answer.output is not None
    kept = {**right, "output": without_blind(right["output"], right)}
    return differs(without_blind(answer.output, right), kept, bits)


def ask_core(core: Core, request: Request, masks: tuple[Mask, ...] = (), question: str = "values") -> CaseAnswer:
    """Return the attention inside a layer as a case under this request, and as its answer."""
    heads, rows, keys, size = core.q.shape[1], core.q.shape[2], core.k.shape[2], core.q.shape[3]
    rules = replace(request.rules(size, rows, keys), masks=(*request.masks, *masks))
    case = Case(question, Recipe(rules, heads, heads), Given(core.q, core.k, core.v))
    return case, Answer(core.context, {"weights": core.weights})


def ask_with_masks(observed: Observed, request: Request) -> Iterator[CaseAnswer]:
    """Yield a case and answer for each mask argument of a layer.

    The mask is written in the first format that hides the right keys, or else in the first that the layer accepts.
    """
    padding = [("padding", masking) for masking in PADDINGS[:MOST_MASKS]]
    masks = [("mask", masking) for masking in MASKINGS[:MOST_MASKS]]
    for role, formats in (("mask", [*masks, *padding]), ("padding", padding)):
        accepted = None
        for kind, masking in formats if role in observed.layer.keywords else ():
            pair = ask_with_mask(observed, request, role, kind, masking)
            is_right = pair is not None and not is_wrong(*pair, required_bits(observed))
            accepted = pair if is_right else accepted or pair
            if is_right:
                break
        if accepted is not None:
            yield accepted


def ask_with_mask(
    observed: Observed, request: Request, role: str, kind: str, masking: Masking
) -> CaseAnswer | None:  # fmt: skip
    """Return a case with a mask for the attention inside a layer, and its answer; None if the layer rejects the mask.

    `role` is the role of the argument, `kind` that of the mask: "mask" (per query) or "padding" (per example).
    """
    inputs = list(observed.recording.inputs_by_run[0].values())
    rows, keys = inputs[0].shape[1], inputs[-1].shape[1]
    allowed = np.random.default_rng(3).random((BATCH, 1, 1 if kind == "padding" else rows, keys)) < 0.6
    allowed[..., 0] = True
    heads = observed.layer.sizes.get("h", 1)
    setup = Setup(Recipe(request.rules(1, rows, keys)).rules, BATCH, heads, heads, rows, keys, 1, heads)
    if kind == "mask":  # a caller would combine it with the requested masks
        allowed = allowed & steps.allowed(setup)[:, :1]
    allowed = np.broadcast_to(allowed, (BATCH, 1, rows, keys))
    mask = masking.write(allowed ^ request.blocks, setup, request.blocks)  # with `blocks`, True means hidden
    if isinstance(mask, np.ndarray):
        mask = load_library(observed.layer.library).into(mask, "float64")
    try:
        masked = record_layer(observed.layer, BATCH, rows, keys, {role: mask})
        core = arrange_core(masked, find_pairs(masked))
    except Exception:  # whatever the layer raises
        return None
    is_of_input = core.k.shape[2] == keys  # a layer may have other keys before those of its input
    return ask_core(core, request, (Allowed(allowed),), "masks") if is_of_input else None


def find_first_difference(core: Core, case: Case) -> str:
    """Return the first stage inside a layer that differs from the definition."""
    right = expected(case)
    if core.weights.shape == right["weights"].shape and np.allclose(core.weights, right["weights"], atol=1e-9):
        return "context"
    has_logits = any(differ_by_constants(array, right["masked"]) for array in core.between)
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = np.log(core.weights)
    is_softmax = any(differ_by_constants(array, logits) for array in core.between) and np.allclose(
        core.weights.sum(-1), 1
    )
    return "weights" if has_logits and not is_softmax else "logits"


def differ_by_constants(logits: Array, right: Array) -> bool:
    """Return whether each row differs only by a constant, which softmax ignores."""
    if logits.shape != right.shape:
        return False
    is_finite = np.isfinite(logits) & np.isfinite(right)
    differences = np.where(is_finite, logits - right, np.nan)
    return bool(is_finite.any() and np.nanmax(np.nanmax(differences, -1) - np.nanmin(differences, -1)) < 1e-9)


# Settings built into a layer: a mask, a rotation, a scale or a logit cap of its configuration


def find_own_words(observed: Observed, request: Request, *, is_masked: bool, rotates: bool) -> Iterator[str]:
    """Yield combinations of settings that a layer may have built in, starting with a single one and ending with all."""
    masks = ["", CAUSAL] if is_masked and not request.masks else [""]
    positions = ["", *ROTATIONS] if rotates and not request.positions else [""]
    for words in product(masks, positions, ("", *find_score_words(observed, request))):
        if any(words):
            yield " ".join(word for word in words if word)


def find_score_words(observed: Observed, request: Request) -> Iterator[str]:
    """Yield scales and logit caps that may be built into a layer, as settings.

    A scale of 1 is common with normalized queries and keys, and with a distance bias.
    """
    if not are_open(request, "scale"):
        return
    layer = observed.layer
    is_off = any(value is False and re.fullmatch("(use_?)?scal(e|ed|ing)", str(name))
                 for name, value in layer.settings.items())  # fmt: skip
    has_bias = any("bias" in plain(name) for name in layer.unknown)
    scales = ["", UNSCALED] if is_off or has_bias or is_normed(observed) else [""]
    has_tanh = any(operation.name.startswith("tanh") for operation in observed.recording.first.operations)
    caps = ["", *(words for words, rule in RULES if has_tanh and isinstance(rule, Softcap))]
    for name, value in layer.settings.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if is_number and re.search("soft_?cap", str(name)):
            caps.append(f"score=softcap score.softcap.cap={float(value):g}")
        elif is_number and re.search("multiplier|scalar|scal(e|ing)$", str(name)):
            scales += [f"scale={scale!r}" for scale in (float(value), float(value) ** -0.5) if scale != 1]
    for scale, cap in product(scales, caps):
        if scale or cap:
            yield f"{scale} {cap}".strip()


def is_normed(observed: Observed) -> bool:
    return all(
        is_normed_side(observed, pair.first, side.input_index) for pair in observed.pairs for side in (pair.q, pair.k)
    )


def is_normed_side(observed: Observed, product_index: int, side: int) -> bool:
    """Return whether an input of a product is normalized between its projection and the product."""
    recording, operations = observed.recording, observed.recording.first.operations
    unvisited, visited = [operations[product_index].producers[side]], set[int]()
    while unvisited:
        index = unvisited.pop()
        if isinstance(index, int) and index not in visited and read_projection(recording, index) is None:
            visited.add(index)
            is_live = any(recording.is_live(index, place) for place in range(len(operations[index].inputs)))
            if is_live and OF_NORMS.search(operations[index].name):
                return True
            unvisited += operations[index].producers
    return False
