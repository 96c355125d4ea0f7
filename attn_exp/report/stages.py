"""Each stage of attention: its symbol, axes, meaning and formula, and the settings that shaped it."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from attn_exp import mistakes, registry
from attn_exp.arrays import Array
from attn_exp.config.inputs import DISTRIBUTIONS
from attn_exp.experiment.row import Comparison
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.report.escapes import ESCAPED
from attn_exp.rules.scores.score import Score


class Explained(NamedTuple):
    """One stage in words: `axes` are the letters of its shape, such as `t d`; `formula` is plain text."""

    symbol: str
    axes: str
    meaning: str
    formula: str

    @property
    def mathml(self) -> str:
        """The formula in MathML; empty if it is a bare symbol."""
        left, _, right = self.formula.partition(" = ")
        above, _, below = right.partition(" / ")
        fraction = f"<mfrac><mrow>{typeset(above)}</mrow><mrow>{typeset(below[1:-1])}</mrow></mfrac>"
        made = fraction if below else typeset(right)
        return f'<math display="block">{typeset(left)}<mo>=</mo>{made}</math>' if right else ""


PIECE = re.compile(
    r"exp\((?P<power>[^)]*)\)|sum_(?P<over>\w)|(?P<text>right: |, .*)"
    r"|(?P<symbol>[^\W_]+′?)(?:_(?P<below>[^\W_]+))?(?P<turned>\^T)?|(?P<sign>\.\.\.|[^\w\s])"
)


def typeset(formula: str) -> str:
    """Return one side of a formula, such as `A V` or `sum_k exp(L_ik)`, in MathML."""
    return "".join(map(piece_in_mathml, PIECE.finditer(formula)))


def piece_in_mathml(piece: re.Match[str]) -> str:
    if piece["power"]:
        return f"<msup><mi>e</mi><mrow>{typeset(piece['power'])}</mrow></msup>"
    if piece["over"]:
        return f"<munder><mo>∑</mo><mi>{piece['over']}</mi></munder>"
    if piece["text"]:
        return f"<mtext>{piece['text'].replace('-inf', '−∞').replace(': ', ':&#160;')}</mtext>"
    if piece["sign"]:
        return f"<mo>{piece['sign'].replace('...', '…').translate(ESCAPED)}</mo>"
    made, below = f"<mi>{piece['symbol']}</mi>", piece["below"]
    if below:
        letters = below if len(below) < 3 else [below]
        made = f"<msub>{made}<mrow>{''.join(f'<mi>{letter}</mi>' for letter in letters)}</mrow></msub>"
    return f'<msup>{made}<mi mathvariant="normal">T</mi></msup>' if piece["turned"] else made


STAGES = {
    "x": Explained("X", "t m", "The tokens as vectors, one row each: all that attention knows about them.", "X"),
    "memory": Explained("X′", "s n", "The memory as vectors: keys and values come only from these.", "X′"),
    "W_q": Explained("W_q", "m d", "Turns a token's vector into its query: what it looks for.", "W_q"),
    "W_k": Explained("W_k", "m d", "Turns a token's vector into its key: what it offers to queries.", "W_k"),
    "W_v": Explained("W_v", "m e", "Turns a token's vector into its value: what other tokens get from it.", "W_v"),
    "W_o": Explained("W_o", "e m", "Mixes the concatenated heads into one vector.", "W_o"),
    "b_q": Explained("b_q", "d", "A bias that is added to every query.", "b_q"),
    "b_k": Explained("b_k", "d", "A bias that is added to every key.", "b_k"),
    "b_v": Explained("b_v", "e", "A bias that is added to every value.", "b_v"),
    "b_o": Explained("b_o", "m", "A bias that is added to every output.", "b_o"),
    "q": Explained("Q", "t d", "A query says what its token looks for.", "Q, given"),
    "k": Explained("K", "s d", "A key says what its token offers to queries.", "K, given"),
    "v": Explained("V", "s e", "A value is what a token passes to the tokens that attend to it.", "V, given"),
    "scores": Explained(
        "S", "t s", "Each query is compared with each key: the larger the product, the better they match.", "S = Q K^T"
    ),
    "logits": Explained(
        "L",
        "t s",
        "The scores times a scale factor, so that their spread does not grow with the head size.",
        "L = c S",
    ),
    "capped": Explained("L′", "t s", "The logits after a rule that caps each of them separately.", "L′ = bend(L)"),
    "masked": Explained("M", "t s", "The logits after all rules.", "M = L"),
    "weights": Explained("A", "t s", "Softmax turns each row into shares of attention that sum to 1.", ""),
    "lse": Explained("Z", "h t", "The logarithm of each row's sum of exponentials", "Z"),
    "context": Explained(
        "C", "t e", "Each query receives the sum of the values, each multiplied by its weight.", "C = A V"
    ),
    "output": Explained("Y", "t m", "The result for each token", ""),
}

AXES = {("past", "x"): "s m", ("memory", "W_k"): "n d", ("memory", "W_v"): "n e"}
"""The axes of some stages if queries and keys come from different tokens."""

POOLED = {
    "first": "Only the first {heads.shared} of {heads.given} heads are used.",
    "mean": "The {heads.given} heads are averaged in {heads.shared} groups of adjacent heads.",
}


UNSCALED = "The scores are not scaled, so their spread grows with the head size."
SCALE_GIVEN = "The scores times a factor given in the settings."
NEVER_HELD = "Each query receives the weighted sum of the values. This form never stores the full matrix of weights."
PAIRED = {"additive": "S_ij = sum_n w_n tanh(Q_in + K_jn)"}


def explain(stage: str, comparison: Comparison, settled: Settled) -> Explained:
    problem, rules, formed = comparison.problem, settled.rules, stages_of(comparison.traces[settled.name])
    apart = "memory" if problem.memory is not None else "past" if problem.past else ""
    stated, is_alone, scale = STAGES.get(stage, Explained(stage, "", "", "")), settled.head == 1, settled.scale
    is_mixed = settled.output_projection and "W_o" in problem.projections
    logit = "M" if "masked" in formed and stage != "masked" else "L′" if "capped" in formed else "L"
    held = "" if "logits" in formed else ", of logits that this form never stores as a full matrix"
    meanings = {
        "W_o": "Turns the context into the output." if is_alone else stated.meaning,
        "scores": stated.meaning if rules.pairing is None else stated.meaning.replace("product", "score"),
        "logits": stated.meaning if scale is True else UNSCALED if scale is False else SCALE_GIVEN,
        "lse": f"{stated.meaning}{held}: it allows partial results to be merged.",
        "context": stated.meaning if "weights" in formed else NEVER_HELD,
        "output": f"{stated.meaning}: {'its context' if is_alone else 'the heads side by side'}"
        f"{', mixed by the output projection' if is_mixed else ''}.",
    }
    formulas = {
        "scores": stated.formula if rules.pairing is None else PAIRED.get(registry.name_of(rules.pairing), "S"),
        "logits": "L = S" if scale is False else stated.formula,
        "lse": "Z" if held else f"Z_i = log sum_j exp({logit}_ij)",
        "context": stated.formula if "weights" in formed else "C",
        "output": f"Y = {'C' if is_alone else '[C_1 ... C_h]'}"
        + (f" W_o{' + b_o' if 'b_o' in problem.projections else ''}" if is_mixed else ""),
    }
    more = {"q": explain_projection, "k": explain_projection, "v": explain_projection}
    more |= {"masked": explain_masked, "weights": explain_weights}
    meaning, formula = meanings.get(stage, stated.meaning), formulas.get(stage, stated.formula)
    if stage in more:
        meaning, formula = more[stage](stage, logit, comparison, settled)
    return stated._replace(meaning=meaning, formula=formula, axes=AXES.get((apart, stage), stated.axes))


def explain_projection(stage: str, logit: str, comparison: Comparison, settled: Settled) -> tuple[str, str]:
    problem, stated, shares = comparison.problem, STAGES[stage], settled.heads
    if problem.x is None:
        return stated.meaning, stated.formula
    source = "X_new" if problem.past and stage == "q" else "X′" if problem.memory is not None and stage != "q" else "X"
    if any(position.changes_x for position in settled.positions):
        source = f"({source} + P)"
    formula = f"{source} W_{stage}{f' + b_{stage}' if f'b_{stage}' in problem.projections else ''}"
    is_pooled = stage != "q" and shares.shared < shares.given
    turns = " ".join(registry.name_of(one) for one in settled.positions if not one.changes_x and stage != "v")
    for function in filter(None, (shares.pool if is_pooled else "", turns)):
        formula = f"{function}({formula})"
    pooled = f" {POOLED[shares.pool].format(heads=shares)}" if is_pooled else ""
    return f"{stated.meaning}{pooled}", f"{stated.symbol} = {formula}"


def explain_masked(stage: str, logit: str, comparison: Comparison, settled: Settled) -> tuple[str, str]:
    """Return the meaning and the formula of masked logits; some conventions cap them after masking."""
    closes, adds = bool(settled.rules.masks), bool(name_acting_scores(comparison, settled, "bias"))
    bends = settled.rules.bend_last and name_acting_scores(comparison, settled, "bend")
    hidden = "minus infinity where masked"
    meaning = {
        (True, True): f"The logits plus the biases of rules, {hidden}.",
        (True, False): f"The logits, {hidden}.",
        (False, True): "The logits plus the bias of a rule.",
    }.get((closes, adds), STAGES[stage].meaning)
    formula = f"{logit} + bias" if adds else logit
    less = f", -inf {'before the bend ' if bends else ''}where masked" if closes else ""
    if bends:
        return f"{meaning} A rule then caps them.", f"M = bend({formula}){less}"
    return meaning, f"M = {formula}{less}"


def explain_weights(stage: str, logit: str, comparison: Comparison, settled: Settled) -> tuple[str, str]:
    meaning, normalizer = STAGES[stage].meaning, settled.rules.normalizer
    if comparison.problem.weights is not None:
        return "The given weights: how much of each value a query receives.", "A, given"
    if not normalizer.exponential:
        return f"{normalizer.name} turns each row of logits into weights.", f"A = {normalizer.name}({logit})"
    has_more = any(rule.extra(0) is not None for rule in settled.rules.scores)
    if has_more:
        meaning = f"{meaning.removesuffix(' that sum to 1.')}; an extra logit z takes a share but adds no value."
    return meaning, f"A_ij = exp({logit}_ij) / (sum_k exp({logit}_ik){' + exp(z)' if has_more else ''})"


def explain_mistake(stated: Explained, stage: str, settled: Settled) -> Explained:
    """Explain a stage that departs from the definition, with the mistakes that begin there or else with all of them.

    A user's own function has no named mistakes, and a stored run may have mistakes that no longer exist.
    """
    made = {name: mistakes.mistake(name) for name in settled.mistakes if name in mistakes.names()}
    here = {name: mistake for name, mistake in made.items() if mistake.stage == stage} or made
    said = " ".join(f"Changed by mistake={name}: {mistake.says}" for name, mistake in here.items())
    meaning = said or "This function departs from the definition here."
    return stated._replace(meaning=meaning, formula=f"right: {stated.formula}")


def stages_of(trace: Trace) -> dict[str, Array]:
    found = {}
    last = None
    for stage, array in trace.stages():
        if stage not in ("capped", "masked") or last is None or not np.array_equal(array, last):
            found[stage] = array
        last = array
    return found


BLIND_GETS = {"zeros": "0", "nan": "NaN", "mean": "all equal"}
"""The weights of a query that sees no key, by convention."""


RANDOM = (*DISTRIBUTIONS, "torch_linear", "torch_mha")
"""The sources that draw projections at random."""


def remark(stage: str, comparison: Comparison, settled: Settled) -> str:
    trace, positions = comparison.traces[settled.name], settled.words["position"]
    if is_random(stage, comparison):
        return "Random numbers drawn from a seed, not learned."
    if stage == "logits":
        why = ": no scaling" if settled.scale is False else ""
        size = trace.q.shape[-1] if trace.q is not None and settled.scale is True else 0
        return f"c = {f'1/sqrt(d) = 1/sqrt({size}) = ' if size else ''}{settled.multiplier:.6g}{why}"
    if stage in ("q", "k", "v") and positions != "none":
        named = zip(settled.positions, positions.split(" + "), strict=False)
        here = [
            word for position, word in named if position.changes_x or stage != "v"
        ]  # rotations of q and k do not change v
        return f"with position={' + '.join(here)}" if here else ""
    if stage == "weights" and trace.masked is not None and not settled.mistakes and settled.empty in BLIND_GETS:
        is_blind = np.isneginf(trace.masked).all(axis=-1).any()
        return f"{BLIND_GETS[settled.empty]} where a query may see no key" if is_blind else ""
    act = {"scores": "pair", "capped": "bend", "masked": "bias"}.get(stage, "")
    mask = settled.words["mask"] if stage == "masked" else "none"
    acting = name_acting_scores(comparison, settled, act) if act else ""
    return ", ".join(filter(None, [f"mask={mask}" if mask != "none" else "", acting]))


def is_random(stage: str, comparison: Comparison) -> bool:
    """Return whether x or a weight matrix is drawn at random."""
    if stage == "x":
        return comparison.config.embeddings.distribution is not None
    names, projections = comparison.problem.projections, comparison.config.projections
    is_given = stage in projections.given or stage in projections.printed
    return stage[:2] == "W_" and stage in names and not is_given and projections.source in RANDOM


def name_acting_scores(comparison: Comparison, settled: Settled, act: str) -> str:
    """Name the score rules with the effect `act`, such as those that `bend` the logits or add a `bias`."""
    named = zip(settled.rules.scores, settled.words["score"].split(" + "), strict=False)
    acting = [word for rule, word in named if has_effect(rule, act, comparison.traces[settled.name])]
    return f"score={' + '.join(acting)}" if acting else ""


def has_effect(rule: Score, act: str, trace: Trace) -> bool:
    """Return whether a score rule has the effect `act`.

    The code of a rule from outside the package may be unavailable. Such a rule has the effect if two successive stages
    differ in a number that is not masked.
    """
    if type(rule).__module__.startswith(Score.__module__.removesuffix("score")):
        return getattr(type(rule), act) is not getattr(Score, act)
    before, after = {"bend": (trace.logits, trace.capped), "bias": (trace.capped, trace.masked)}.get(act, (None, None))
    if before is None or after is None:
        return False
    return bool((np.isfinite(after) & (before != after)).any())
