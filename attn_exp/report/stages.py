"""Each stage of attention: its symbol, axes, meaning and formula, and the settings that act on it.

`STAGES` says what a stage is in general. `explain` adapts this to a variant: with an additive rule, for example, the
formula of the scores becomes `S_ij = sum_n w_n tanh(Q_in + K_jn)`. `name_settings` names the settings that act on a
stage, such as `mask=causal, score=alibi`. `typeset` turns a formula into MathML.
"""

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
    """One stage in words; `axes` has the letters of its shape, such as `t d`, and `formula` is plain text."""

    symbol: str
    axes: str
    meaning: str
    formula: str

    @property
    def mathml(self) -> str:
        """The formula in MathML; empty if it is a bare symbol."""
        left, _, right = self.formula.partition(" = ")
        numerator, _, denominator = right.partition(" / ")
        fraction = f"<mfrac><mrow>{typeset(numerator)}</mrow><mrow>{typeset(denominator[1:-1])}</mrow></mfrac>"
        result = fraction if denominator else typeset(right)
        return f'<math display="block">{typeset(left)}<mo>=</mo>{result}</math>' if right else ""


PIECE = re.compile(  # one piece of a formula, which `piece_in_mathml` translates
    r"exp\((?P<power>[^)]*)\)|sum_(?P<index>\w)|(?P<text>right: |, .*)"
    r"|(?P<symbol>[^\W_]+′?)(?:_(?P<subscript>[^\W_]+))?(?P<transposed>\^T)?|(?P<sign>\.\.\.|[^\w\s])"
)


def typeset(formula: str) -> str:
    """Return one side of a formula, such as `A V` or `sum_k exp(L_ik)`, in MathML."""
    return "".join(map(piece_in_mathml, PIECE.finditer(formula)))


def piece_in_mathml(piece: re.Match[str]) -> str:
    if piece["power"]:
        return f"<msup><mi>e</mi><mrow>{typeset(piece['power'])}</mrow></msup>"
    if piece["index"]:
        return f"<munder><mo>∑</mo><mi>{piece['index']}</mi></munder>"
    if piece["text"]:
        return f"<mtext>{piece['text'].replace('-inf', '−∞').replace(': ', ':&#160;')}</mtext>"
    if piece["sign"]:
        return f"<mo>{piece['sign'].replace('...', '…').translate(ESCAPED)}</mo>"
    symbol, subscript = f"<mi>{piece['symbol']}</mi>", piece["subscript"]
    if subscript:
        letters = subscript if len(subscript) < 3 else [subscript]
        symbol = f"<msub>{symbol}<mrow>{''.join(f'<mi>{letter}</mi>' for letter in letters)}</mrow></msub>"
    return f'<msup>{symbol}<mi mathvariant="normal">T</mi></msup>' if piece["transposed"] else symbol


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
"""The axes that differ from those in `STAGES` if keys come from a `memory`, or also from `past` tokens."""

POOLED = {
    "first": "Only the first {heads.shared} of {heads.given} heads are used.",
    "mean": "The {heads.given} heads are averaged in {heads.shared} groups of adjacent heads.",
}


UNSCALED = "The scores are not scaled, so their spread grows with the head size."
SCALE_GIVEN = "The scores times a factor given in the settings."
NEVER_STORED = "Each query receives the weighted sum of the values. This form never stores the full matrix of weights."
PAIRED = {"additive": "S_ij = sum_n w_n tanh(Q_in + K_jn)"}


def explain(stage: str, comparison: Comparison, settled: Settled) -> Explained:
    problem, rules, stages = comparison.problem, settled.rules, changing_stages(comparison.traces[settled.name])
    # where keys come from, if not from the same tokens as queries
    key_source = "memory" if problem.memory is not None else "past" if problem.past else ""
    default, is_single, scale = STAGES.get(stage, Explained(stage, "", "", "")), settled.head == 1, settled.scale
    is_mixed = settled.output_projection and "W_o" in problem.projections
    logit = "M" if "masked" in stages and stage != "masked" else "L′" if "capped" in stages else "L"
    missing = "" if "logits" in stages else ", of logits that this form never stores as a full matrix"
    # the stages whose meaning or formula depends on the run; only the entries of `stage` are used
    meanings = {
        "W_o": "Turns the context into the output." if is_single else default.meaning,
        "scores": default.meaning if rules.pairing is None else default.meaning.replace("product", "score"),
        "logits": default.meaning if scale is True else UNSCALED if scale is False else SCALE_GIVEN,
        "lse": f"{default.meaning}{missing}: it allows partial results to be merged.",
        "context": default.meaning if "weights" in stages else NEVER_STORED,
        "output": f"{default.meaning}: {'its context' if is_single else 'the heads side by side'}"
        f"{', mixed by the output projection' if is_mixed else ''}.",
    }
    formulas = {
        "scores": default.formula if rules.pairing is None else PAIRED.get(registry.name_of(rules.pairing), "S"),
        "logits": "L = S" if scale is False else default.formula,
        "lse": "Z" if missing else f"Z_i = log sum_j exp({logit}_ij)",
        "context": default.formula if "weights" in stages else "C",
        "output": f"Y = {'C' if is_single else '[C_1 ... C_h]'}"
        + (f" W_o{' + b_o' if 'b_o' in problem.projections else ''}" if is_mixed else ""),
    }
    explainers = {**dict.fromkeys("qkv", explain_projection), "masked": explain_masked, "weights": explain_weights}
    meaning, formula = meanings.get(stage, default.meaning), formulas.get(stage, default.formula)
    if stage in explainers:
        meaning, formula = explainers[stage](stage, logit, comparison, settled)
    return default._replace(meaning=meaning, formula=formula, axes=AXES.get((key_source, stage), default.axes))


def explain_projection(stage: str, logit: str, comparison: Comparison, settled: Settled) -> tuple[str, str]:
    problem, default, heads = comparison.problem, STAGES[stage], settled.heads
    if problem.x is None:
        return default.meaning, default.formula
    source = "X_new" if problem.past and stage == "q" else "X′" if problem.memory is not None and stage != "q" else "X"
    if any(position.changes_x for position in settled.positions):
        source = f"({source} + P)"
    formula = f"{source} W_{stage}{f' + b_{stage}' if f'b_{stage}' in problem.projections else ''}"
    is_pooled = stage != "q" and heads.shared < heads.given
    rotating = [position for position in settled.positions if not position.changes_x and stage != "v"]
    rotations = " ".join(map(registry.name_of, rotating))
    for function in filter(None, (heads.pool if is_pooled else "", rotations)):
        formula = f"{function}({formula})"
    pooling = f" {POOLED[heads.pool].format(heads=heads)}" if is_pooled else ""
    return f"{default.meaning}{pooling}", f"{default.symbol} = {formula}"


def explain_masked(stage: str, logit: str, comparison: Comparison, settled: Settled) -> tuple[str, str]:
    """Return the meaning and the formula of masked logits, which some conventions cap after masking."""
    has_masks, has_bias = bool(settled.rules.masks), bool(name_acting_scores(comparison, settled, "bias"))
    caps_last = settled.rules.bend_last and name_acting_scores(comparison, settled, "bend")
    hiding = "minus infinity where masked"
    meaning = {
        (True, True): f"The logits plus the biases of rules, {hiding}.",
        (True, False): f"The logits, {hiding}.",
        (False, True): "The logits plus the bias of a rule.",
    }.get((has_masks, has_bias), STAGES[stage].meaning)
    formula = f"{logit} + bias" if has_bias else logit
    condition = f", -inf {'before the bend ' if caps_last else ''}where masked" if has_masks else ""
    if caps_last:
        return f"{meaning} A rule then caps them.", f"M = bend({formula}){condition}"
    return meaning, f"M = {formula}{condition}"


def explain_weights(stage: str, logit: str, comparison: Comparison, settled: Settled) -> tuple[str, str]:
    meaning, normalizer = STAGES[stage].meaning, settled.rules.normalizer
    if comparison.problem.weights is not None:
        return "The given weights: how much of each value a query receives.", "A, given"
    if not normalizer.exponential:
        return f"{normalizer.name} turns each row of logits into weights.", f"A = {normalizer.name}({logit})"
    has_extra = any(rule.extra(0) is not None for rule in settled.rules.scores)
    if has_extra:
        meaning = f"{meaning.removesuffix(' that sum to 1.')}; an extra logit z takes a share but adds no value."
    return meaning, f"A_ij = exp({logit}_ij) / (sum_k exp({logit}_ik){' + exp(z)' if has_extra else ''})"


def explain_mistake(default: Explained, stage: str, settled: Settled) -> Explained:
    """Return the explanation of a stage that departs from the definition, with the mistakes that cause this.

    It names the mistakes that begin at this stage; if none begins here, all mistakes. It names none if the variant is a
    user's own function, or if a stored run has a mistake that no longer exists.
    """
    known = {name: mistakes.mistake(name) for name in settled.mistakes if name in mistakes.names()}
    relevant = {name: mistake for name, mistake in known.items() if mistake.stage == stage} or known
    meaning = " ".join(f"Changed by mistake={name}: {mistake.says}" for name, mistake in relevant.items())
    text = meaning or "This function departs from the definition here."
    return default._replace(meaning=text, formula=f"right: {default.formula}")


def changing_stages(trace: Trace) -> dict[str, Array]:
    # the stages of a trace, but without capped and masked logits that equal the stage before them
    stages = dict(trace.stages())
    before = dict(zip(list(stages)[1:], stages.values(), strict=False))
    equal = [name for name in ("capped", "masked") if name in before and np.array_equal(stages[name], before[name])]
    return {name: array for name, array in stages.items() if name not in equal}


WITHOUT_KEYS = {"zeros": "0", "nan": "NaN", "mean": "all equal"}
"""The weights of a query that sees no key, in words, for each value of `Convention.empty` that a note explains."""


RANDOM = (*DISTRIBUTIONS, "torch_linear", "torch_mha")
"""The sources that draw projections at random."""


def name_settings(stage: str, comparison: Comparison, settled: Settled) -> str:
    """Return a note on the settings that act on a stage, such as `mask=causal`; empty if there is nothing to say."""
    trace, positions = comparison.traces[settled.name], settled.words["position"]
    if is_random(stage, comparison):
        return "Random numbers drawn from a seed, not learned."
    if stage == "logits":
        reason = ": no scaling" if settled.scale is False else ""
        size = trace.q.shape[-1] if trace.q is not None and settled.scale is True else 0
        return f"c = {f'1/sqrt(d) = 1/sqrt({size}) = ' if size else ''}{settled.multiplier:.6g}{reason}"
    if stage in ("q", "k", "v") and positions != "none":
        positions_in_words = zip(settled.positions, positions.split(" + "), strict=False)
        # rotations of q and k do not change v
        names = [word for position, word in positions_in_words if position.changes_x or stage != "v"]
        return f"with position={' + '.join(names)}" if names else ""
    if stage == "weights" and trace.masked is not None and not settled.mistakes and settled.empty in WITHOUT_KEYS:
        sees_nothing = np.isneginf(trace.masked).all(axis=-1).any()
        return f"{WITHOUT_KEYS[settled.empty]} where a query may see no key" if sees_nothing else ""
    # the method of a score rule that makes this stage
    method = {"scores": "pair", "capped": "bend", "masked": "bias"}.get(stage, "")
    mask = settled.words["mask"] if stage == "masked" else "none"
    scores = name_acting_scores(comparison, settled, method) if method else ""
    return ", ".join(filter(None, [f"mask={mask}" if mask != "none" else "", scores]))


def is_random(stage: str, comparison: Comparison) -> bool:
    if stage == "x":
        return comparison.config.embeddings.distribution is not None
    names, projections = comparison.problem.projections, comparison.config.projections
    is_given = stage in projections.given or stage in projections.printed
    return stage[:2] == "W_" and stage in names and not is_given and projections.source in RANDOM


def name_acting_scores(comparison: Comparison, settled: Settled, method: str) -> str:
    """Return the score rules that act through a method, `bend`, `bias` or `pair`, in words: `score=alibi + cap`."""
    named_rules = zip(settled.rules.scores, settled.words["score"].split(" + "), strict=False)
    names = [word for rule, word in named_rules if has_effect(rule, method, comparison.traces[settled.name])]
    return f"score={' + '.join(names)}" if names else ""


def has_effect(rule: Score, method: str, trace: Trace) -> bool:
    """Return whether a score rule overrides a method of `Score`, such as `bend`.

    The code of a rule from outside the package may be unavailable. Such a rule counts as overriding the method if the
    stages before and after it differ in a number that is not masked.
    """
    if type(rule).__module__.startswith(Score.__module__.removesuffix("score")):
        return getattr(type(rule), method) is not getattr(Score, method)
    stages = {"bend": (trace.logits, trace.capped), "bias": (trace.capped, trace.masked)}
    before, after = stages.get(method, (None, None))
    if before is None or after is None:
        return False
    return bool((np.isfinite(after) & (before != after)).any())
