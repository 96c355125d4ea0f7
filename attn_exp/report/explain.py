"""What each stage of attention is: its symbol, its formula, and its meaning in one sentence."""

from __future__ import annotations

from typing import NamedTuple

from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.rules import Rules


class Explained(NamedTuple):
    """One stage in words: `formula` in plain text, `mathml` for pages, `axes` as letters of `[t d]`."""

    symbol: str
    axes: str
    meaning: str
    formula: str
    mathml: str


def spoken(stage: str) -> str:
    """Return a stage in a reader's words; none for the projections, whose symbols are their names."""
    return "" if stage[:2] in ("W_", "b_") else SPOKEN.get(stage, stage)


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
    return f'<msup><mi>{symbol}</mi><mi mathvariant="normal">T</mi></msup>'


EQUALS, PLUS = "<mo>=</mo>", "<mo>+</mo>"


def projected(result: str, meaning: str, bias: bool, apart: str) -> Explained:
    """Explain one of the three projections of x, or of the memory; after a past only new tokens have queries."""
    small = result.lower()
    memory, new = apart == "memory" and result != "Q", apart == "past" and result == "Q"
    source, plain = (name("X", "new"), "X_new") if new else (name("X′"), "X'") if memory else (name("X"), "X")
    return Explained(
        symbol=result,
        axes="t d" if result == "Q" else "s e" if result == "V" else "s d",
        meaning=meaning,
        formula=f"{result} = {plain} W_{small}{f' + b_{small}' if bias else ''}",
        mathml=math(name(result) + EQUALS + source + name("W", small) + (PLUS + name("b", small) if bias else "")),
    )


def concatenated(mixed: bool, bias: bool) -> Explained:
    """Explain the output: the heads side by side, mixed by W_o where the variant does."""
    heads = "<mo>[</mo>" + name("C", "1") + "<mo>…</mo>" + name("C", "h") + "<mo>]</mo>"
    after = name("W", "o") + (PLUS + name("b", "o") if bias else "") if mixed else ""
    plain = f" W_o{' + b_o' if bias else ''}" if mixed else ""
    meaning = "What each token leaves with: the heads side by side"
    return Explained(
        symbol="Y",
        axes="t m",
        meaning=f"{meaning}, mixed by the output projection." if mixed else f"{meaning}.",
        formula=f"Y = [C_1 ... C_h]{plain}",
        mathml=math(name("Y") + EQUALS + heads + after),
    )


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
    end = "; one more logit z takes its share and gives no value" if extra else " that sum to 1"
    plain = f"{logit}_ij) / (sum_k exp({logit}_ik){' + exp(z)' if extra else ''})"
    return Explained(
        symbol="A",
        axes="t s",
        meaning=f"Softmax turns each row into shares of attention{end}.",
        formula=f"A_ij = exp({plain}",
        mathml=math(name("A", "i", "j") + EQUALS + f"<mfrac>{POWER.format(logit, 'j')}{below}</mfrac>"),
    )


def explained(
    stage: str,
    *,
    given: bool = False,
    mixed: bool = False,
    bias: bool = False,
    logit: str = "L",
    normalizer: Normalizer = Rules.normalizer,
    extra: bool = False,
) -> Explained:
    """Return the words for a stage; without a formula where it is given, or where nothing is known of it."""
    if stage in PROJECTED:
        words = projected(stage.upper(), PROJECTED[stage], bias, "")
    elif stage == "output":
        words = concatenated(mixed, bias)
    elif stage == "weights":
        words = weighted(logit, normalizer, extra)
    else:
        words = STAGES.get(stage, Explained(stage, "", "", "", ""))
    return words._replace(formula=f"{words.symbol}, given", mathml="") if given else words


def elsewhere(words: Explained, stage: str, apart: str, bias: bool) -> Explained:
    """Return the words for a stage where a `memory` or a `past` parts the keys' tokens from the queries'."""
    if stage in PROJECTED and words.mathml:
        return projected(stage.upper(), PROJECTED[stage], bias, apart)
    return words._replace(axes=AXES.get((apart, stage), words.axes))


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
    "logits": Explained(
        "L",
        "t s",
        "The scores times one number, so that their spread does not grow with the size of a head.",
        "L = c S",
        math(name("L") + EQUALS + name("c") + name("S")),
    ),
    "capped": Explained(
        "L′",
        "t s",
        "The logits after a rule that bends each of them by itself.",
        "L' = bend(L)",
        math(name("L′") + EQUALS + "<mi>bend</mi><mo>(</mo>" + name("L") + "<mo>)</mo>"),
    ),
    "masked": Explained(
        "M",
        "t s",
        "What rules add to the logits; minus infinity where a query may not look.",
        "M = L + bias, -inf where masked",
        math(name("M") + EQUALS + name("L") + PLUS + "<mi>bias</mi>"),
    ),
    "lse": Explained(
        "Z",
        "h t",
        "The logarithm of each row's sum of exponentials: with it, parts of an answer can be merged.",
        "Z_i = log sum_j exp(M_ij)",
        math(name("Z", "i") + EQUALS + "<mi>log</mi>" + SUM.format("j") + POWER.format("M", "j")),
    ),
    "context": Explained(
        "C",
        "t e",
        "Each query receives the values, each as much as its weight says.",
        "C = A V",
        math(name("C") + EQUALS + name("A") + name("V")),
    ),
}

SPOKEN = {
    "x": "input",
    "q": "queries",
    "k": "keys",
    "v": "values",
    "capped": "bent logits",
    "masked": "masked logits",
    "lse": "log-sum-exp",
}
"""Stages whose names are not words, as a sentence or a heading says them."""

AXES = {("past", "x"): "s m", ("memory", "W_k"): "n d", ("memory", "W_v"): "n e"}
"""The axes of stages that are others where the keys' tokens are not the queries'."""

PROJECTED = {
    "q": "A query says what its token looks for.",
    "k": "A key says what its token can be found by.",
    "v": "A value is what a token hands to those who attend to it.",
}
