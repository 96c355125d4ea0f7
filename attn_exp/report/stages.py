"""What each stage of attention is: its symbol, its formula, what it means, and which settings made it so.

A formula in MathML is written here and not by a template, so that it stands beside the same one in plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.heads import Heads
from attn_exp.report import words
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.scores.score import Score


class Explained(NamedTuple):
    """One stage in words: `formula` in plain text, `mathml` for pages, `axes` as letters of `[t d]`."""

    symbol: str
    axes: str
    meaning: str
    formula: str
    mathml: str


def math(inner: str) -> str:
    """Return a formula in MathML."""
    return f'<math display="block">{inner}</math>'


def name(symbol: str, *subscript: str) -> str:
    """Return a symbol, with a subscript where given."""
    bare = f"<mi>{symbol}</mi>"
    return (
        f"<msub>{bare}<mrow>{''.join(f'<mi>{letter}</mi>' for letter in subscript)}</mrow></msub>"
        if subscript
        else bare
    )


def transposed(symbol: str) -> str:
    """Return the formula of a transposed matrix."""
    return f'<msup><mi>{symbol}</mi><mi mathvariant="normal">T</mi></msup>'


RIGHT = f"<mtext>{words.SHOULD_BE.format(what='').strip()}&#160;</mtext>"
EQUALS, PLUS = "<mo>=</mo>", "<mo>+</mo>"


class Marked(NamedTuple):
    """What else happens to a projection: marks are `added` to x, it is `turned` by a position, or `fewer` key/value
    heads are used than it has."""

    added: bool = False
    turned: str = ""
    fewer: Heads | None = None


PLAIN = Marked()
POOLED = {
    "first": "It uses the first {heads.shared} of its {heads.given} heads.",
    "mean": "Its {heads.given} heads are averaged in {heads.shared} groups of neighbors.",
}


def projected(result: str, meaning: str, bias: bool, apart: str, marked: Marked = PLAIN) -> Explained:
    """Explain one of the three projections of x, or of the memory; after a past only new tokens have queries."""
    small = result.lower()
    memory, new = apart == "memory" and result != "Q", apart == "past" and result == "Q"
    source, plain = (name("X", "new"), "X_new") if new else (name("X′"), "X'") if memory else (name("X"), "X")
    if marked.added:
        source, plain = f"<mo>(</mo>{source}{PLUS}{name('P')}<mo>)</mo>", f"({plain} + P)"
    formula = f"{plain} W_{small}{f' + b_{small}' if bias else ''}"
    inner = source + name("W", small) + (PLUS + name("b", small) if bias else "")
    pools = list[str]()
    if marked.fewer:
        meaning = f"{meaning} {POOLED[marked.fewer.pool].format(heads=marked.fewer)}"
        pools = [marked.fewer.pool]
    for function in (*pools, *([marked.turned] if marked.turned else [])):
        formula, inner = f"{function}({formula})", f"<mi>{function}</mi><mo>(</mo>{inner}<mo>)</mo>"
    return Explained(
        symbol=result,
        axes="t d" if result == "Q" else "s e" if result == "V" else "s d",
        meaning=meaning,
        formula=f"{result} = {formula}",
        mathml=math(name(result) + EQUALS + inner),
    )


def concatenated(mixed: bool, bias: bool, alone: bool) -> Explained:
    """Explain the output: the heads side by side, or the only one `alone`, mixed by W_o where the variant does."""
    heads = name("C") if alone else "<mo>[</mo>" + name("C", "1") + "<mo>…</mo>" + name("C", "h") + "<mo>]</mo>"
    after = name("W", "o") + (PLUS + name("b", "o") if bias else "") if mixed else ""
    plain = f" W_o{' + b_o' if bias else ''}" if mixed else ""
    parts = "its context" if alone else "the heads side by side"
    return Explained(
        symbol="Y",
        axes="t m",
        meaning=f"What each token leaves with: {parts}{', mixed by the output projection' if mixed else ''}.",
        formula=f"Y = {'C' if alone else '[C_1 ... C_h]'}{plain}",
        mathml=math(name("Y") + EQUALS + heads + after),
    )


def scaled(scale: bool | float) -> Explained:
    """Explain the logits: the scores as they are, divided by the root of d, or times a number of the user's own."""
    if scale is False:
        return LOGITS._replace(
            meaning="The scores as they are. Without scaling their spread grows with the size of a head.",
            formula="L = S",
            mathml=math(name("L") + EQUALS + name("S")),
        )
    return LOGITS if scale is True else LOGITS._replace(meaning="The scores times one number, which the settings give.")


def contexts(weighed: bool) -> Explained:
    """Explain the context; without a formula of the weights where the form never holds them."""
    if weighed:
        return STAGES["context"]
    meaning = "Each query receives the values, weighed. This form never holds the weights as a table."
    return STAGES["context"]._replace(meaning=meaning, formula="C", mathml="")


def weighted(logit: str, normalizer: Normalizer, extra: bool) -> Explained:
    """Explain the weights: what the normalizer makes of the logits, whose symbol is `logit`."""
    if not normalizer.exponential:
        word = normalizer.name
        return Explained(
            symbol="A",
            axes="t s",
            meaning=f"{word} turns each row of logits into weights.",
            formula=f"A = {word}({logit})",
            mathml=math(name("A") + EQUALS + f"<mi>{word}</mi><mo>(</mo>" + name(logit) + "<mo>)</mo>"),
        )
    rest = PLUS + "<msup><mi>e</mi><mi>z</mi></msup>" if extra else ""
    below = f"<mrow>{SUM.format('k')}{POWER.format(logit, 'k')}{rest}</mrow>"
    plain = f"{logit}_ij) / (sum_k exp({logit}_ik){' + exp(z)' if extra else ''})"
    return Explained(
        symbol="A",
        axes="t s",
        meaning=(
            "Softmax turns each row into shares of attention; one more logit z takes its share and gives no value."
        )
        if extra
        else "Softmax turns each row into shares of attention that sum to 1.",
        formula=f"A_ij = exp({plain}",
        mathml=math(name("A", "i", "j") + EQUALS + f"<mfrac>{POWER.format(logit, 'j')}{below}</mfrac>"),
    )


def masked(logit: str, closes: bool, adds: bool, bends: bool) -> Explained:
    """Explain the masked logits, made of those whose symbol is `logit`: what masks close and score rules add.

    `bends`: a rule bends the logits after that, as old code did.
    """
    closed = "minus infinity where a query may not look"
    meaning = {
        (True, True): f"The logits with what rules add to them: {closed}.",
        (True, False): f"The logits, {closed}.",
        (False, True): "The logits with what a rule adds to them.",
    }.get((closes, adds), "The logits after the rules.")
    sum_, shown = (f"{logit} + bias", name(logit) + PLUS + "<mi>bias</mi>") if adds else (logit, name(logit))
    if bends:
        meaning, sum_ = f"{meaning} A rule bends them after that.", f"bend({sum_})"
        shown = f"<mi>bend</mi><mo>(</mo>{shown}<mo>)</mo>"
    less = (", -inf before the bend where masked" if bends else ", -inf where masked") if closes else ""
    return Explained(
        symbol="M",
        axes="t s",
        meaning=meaning,
        formula=f"M = {sum_}{less}".replace("′", "'"),
        mathml=math(name("M") + EQUALS + shown + (f"<mtext>{less.replace('-inf', '−∞')}</mtext>" if closes else "")),
    )


def summed(logit: str, held: bool) -> Explained:
    """Explain the logarithm of each row's sum; `held` says whether the form holds the logits that it is made of."""
    of = "" if held else ", of logits that this form never holds as a table"
    return Explained(
        symbol="Z",
        axes="h t",
        meaning=f"The logarithm of each row's sum of exponentials{of}: with it, parts of an answer can be merged.",
        formula=f"Z_i = log sum_j exp({logit.replace('′', chr(39))}_ij)" if held else "Z",
        mathml=math(name("Z", "i") + EQUALS + "<mi>log</mi>" + SUM.format("j") + POWER.format(logit, "j"))
        if held
        else "",
    )


def wrongly(stated: Explained, said: Sequence[tuple[str, str]]) -> Explained:
    """Return the words for a stage that mistakes make otherwise: what each is, and what would be right."""
    made = " ".join(words.MADE_BY.format(mistake=mistake, says=says) for mistake, says in said) or words.MADE_OTHERWISE
    right = stated.mathml.replace(">", f">{RIGHT}", 1)
    return stated._replace(meaning=made, formula=words.SHOULD_BE.format(what=stated.formula), mathml=right)


def paired(rule: str) -> Explained:
    """Return the words for scores that are no products, but what a rule makes of a query and a key."""
    return ADDED if rule == "additive" else ADDED._replace(formula="S", mathml="")


def elsewhere(stated: Explained, stage: str, apart: str) -> Explained:
    """Return the words for a stage where a `memory` or a `past` parts the keys' tokens from the queries'."""
    return stated._replace(axes=AXES.get((apart, stage), stated.axes))


POWER = "<msup><mi>e</mi><mrow><msub><mi>{}</mi><mrow><mi>i</mi><mi>{}</mi></mrow></msub></mrow></msup>"
SUM = "<munder><mo>∑</mo><mi>{}</mi></munder>"

STAGES = {
    "x": Explained("X", "t m", "The tokens as vectors, one row each: all that attention knows of them.", "X", ""),
    "memory": Explained("X′", "s n", "The memory as vectors: keys and values are made of them alone.", "X'", ""),
    "W_q": Explained("W_q", "m d", "Turns a token's vector into its query: what it looks for.", "W_q", ""),
    "W_k": Explained("W_k", "m d", "Turns a token's vector into its key: what it can be found by.", "W_k", ""),
    "W_v": Explained("W_v", "m e", "Turns a token's vector into its value: what it hands over when found.", "W_v", ""),
    "W_o": Explained("W_o", "e m", "Mixes the heads, side by side, back into one vector.", "W_o", ""),
    "b_q": Explained("b_q", "d", "Is added to every query.", "b_q", ""),
    "b_k": Explained("b_k", "d", "Is added to every key.", "b_k", ""),
    "b_v": Explained("b_v", "e", "Is added to every value.", "b_v", ""),
    "b_o": Explained("b_o", "m", "Is added to every output.", "b_o", ""),
    "scores": Explained(
        "S",
        "t s",
        "Every query meets every key: the larger the product, the better they fit.",
        "S = Q K^T",
        math(name("S") + EQUALS + name("Q") + transposed("K")),
    ),
    "capped": Explained(
        "L′",
        "t s",
        "The logits after a rule that bends each of them by itself.",
        "L' = bend(L)",
        math(name("L′") + EQUALS + "<mi>bend</mi><mo>(</mo>" + name("L") + "<mo>)</mo>"),
    ),
    "context": Explained(
        "C",
        "t e",
        "Each query receives the values, each as much as its weight says.",
        "C = A V",
        math(name("C") + EQUALS + name("A") + name("V")),
    ),
}

LOGITS = Explained(
    "L",
    "t s",
    "The scores times one number, so that their spread does not grow with the size of a head.",
    "L = c S",
    math(name("L") + EQUALS + name("c") + name("S")),
)
"""The logits where scaling is that of the definition."""

ADDED = Explained(
    "S",
    "t s",
    "Every query meets every key: the larger the score, the better they fit.",
    "S_ij = sum_n w_n tanh(Q_in + K_jn)",
    math(
        name("S", "i", "j") + EQUALS + SUM.format("n") + name("w", "n") + "<mi>tanh</mi><mo>(</mo>"
        + name("Q", "i", "n") + PLUS + name("K", "j", "n") + "<mo>)</mo>"
    ),
)  # fmt: skip
"""Scores that weigh sums, where those of others are products."""

AXES = {("past", "x"): "s m", ("memory", "W_k"): "n d", ("memory", "W_v"): "n e"}
"""The axes of stages that are others where the keys' tokens are not the queries'."""

PROJECTED = {
    "q": "A query says what its token looks for.",
    "k": "A key says what its token can be found by.",
    "v": "A value is what a token hands to those who attend to it.",
}


BLIND_GETS = {"zeros": "0", "nan": "NaN", "mean": "all alike"}
"""What a row of weights holds whose query may see no key, by the word of its convention."""


def remark(stage: str, comparison: Comparison, settled: Settled) -> str:
    """Say which settings made a stage what it is."""
    settings = {key: f"{key}={word}" for key, word in settled.words.items() if word != "none"}
    if stage == "logits":
        return scaling(comparison, settled)
    if stage in ("q", "k", "v") and "position" in settings:
        named = zip(settled.positions, settled.words["position"].split(" + "), strict=False)
        here = [word for position, word in named if position.changes_x or stage != "v"]  # what turns q and k leaves v
        return f"with position={' + '.join(here)}" if here else ""
    if stage == "scores":
        return scores_that(comparison, settled, "pair")
    if stage == "capped":
        return scores_that(comparison, settled, "bend")
    if stage == "weights":
        masked = comparison.traces[settled.name].masked
        blind = masked is not None and not settled.mistakes and bool(np.isneginf(masked).all(axis=-1).any())
        return words.BLIND_ROW.format(gets=BLIND_GETS[settled.empty]) if blind and settled.empty in BLIND_GETS else ""
    added = (settings.get("mask", ""), scores_that(comparison, settled, "bias"))
    return ", ".join(filter(None, added)) if stage == "masked" else ""


def scores_that(comparison: Comparison, settled: Settled, act: str) -> str:
    """Return the score rules that do something: `bend` logits, say, or add a `bias` to them."""
    named = zip(settled.rules.scores, settled.words["score"].split(" + "), strict=False)
    acting = [word for rule, word in named if acts(rule, act, comparison.traces[settled.name])]
    return f"score={' + '.join(acting)}" if acting else ""


def acts(rule: Score, act: str, trace: Trace) -> bool:
    """Say whether a rule does something; of one from outside the numbers tell it, as its code may not be at hand.

    Then those of a stage are others than those of the one before, places that are masked aside.
    """
    if type(rule).__module__.startswith(Score.__module__.removesuffix("score")):
        return getattr(type(rule), act) is not getattr(Score, act)
    pairs = {"bend": (trace.logits, trace.capped), "bias": (trace.capped, trace.masked)}
    before, after = pairs.get(act, (None, None))
    if before is None or after is None:
        return False
    return bool((np.isfinite(after) & (before != after)).any())


def scaling(comparison: Comparison, settled: Settled) -> str:
    """Say what the scores are multiplied by, and why."""
    queries = comparison.traces[settled.name].q
    if settled.scale is True and queries is not None:
        size = queries.shape[-1]
        return f"c = 1/sqrt(d) = 1/sqrt({size}) = {settled.multiplier:.6g}"
    return ("c = {c:.6g}: no scaling" if settled.scale is False else "c = {c:.6g}").format(c=settled.multiplier)
