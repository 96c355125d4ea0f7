"""What people call their arrays: `W_q`, `Wq`, `q_proj.weight`, `attention.self.query.bias`, and which array each is.

A name is read from its end, so that `layers.0.attn.W_q.weight` is W_q. Capitals do not count.

- matrices: W_q, Wq, W_query, q_proj, query_proj, to_q, q_lin, linear_q, query, q; and with .weight, _weight or .kernel
- of the output: W_o, Wo, W_out, o_proj, out_proj, to_out.0, out_lin, c_proj, dense, output
- biases: b_q, bq, bias_q, q_bias, beta_q, and .bias after the name of a matrix
- three in one: in_proj_weight, in_proj_bias, c_attn, qkv, qkv_proj, Wqkv, to_qkv
- x: x, X, embeddings, embedding, vectors, inputs, hidden_states
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LETTERS = {
    "q": "q|query|queries",
    "k": "k|key|keys",
    "v": "v|value|values|val",
    "o": "o|out|output|c_proj|dense|fc_out",
    "qkv": "qkv|in_proj|c_attn",
}
BEFORE = r"(?:w|weight|weights|kernel|omega|linear|lin|to|attn|proj)_?"
AFTER = r"_?(?:proj|projection|linear|lin|layer|weights?|kernel|matrix)(?:_(?:weights?|kernel))?"
MATRIX = {
    letter: re.compile(f"{BEFORE}(?:{words})(?:{AFTER})?|(?:{words}){AFTER}") for letter, words in LETTERS.items()
}
BARE = {letter: re.compile(words) for letter, words in LETTERS.items()}
BIAS = {
    letter: re.compile(f"(?:b|bias|beta)_?(?:{words})|(?:{words})(?:_?(?:proj|lin|linear))?_?(?:b|bias)")
    for letter, words in LETTERS.items()
}
STARTS = {
    "x": re.compile(r"x|embeddings?|vectors?|inputs?|input_embeddings|hidden_states?"),
    "weights": re.compile(r"weights|attention_weights|attn_weights"),
} | {letter: BARE[letter] for letter in "qkv"}


def parts_of(name: str) -> list[str]:
    """Return the parts of a name that say something, in small letters: numbers of layers at its end are none."""
    several = [part for part in re.split(r"[./\s]+", name.strip().lower()) if part]
    kinds = ("weight", "weights", "kernel", "bias", "w", "b")
    while len(several) > 1 and (several[-1].isdigit() or (several[-1] in kinds and several[-2].isdigit())):
        several.pop(-1 if several[-1].isdigit() else -2)
    return several


def meant_projection(name: str) -> tuple[str, int] | None:
    """Return which array a name means, `W_q` or `b_qkv` and so on, and how sure that is: 0 before 1; None for none."""
    several = parts_of(name)
    if not several:
        return None
    last, before = several[-1], several[-2] if len(several) > 1 else ""
    for letter in LETTERS:
        whole = any(form[letter].fullmatch(before) for form in (MATRIX, BARE))
        if BIAS[letter].fullmatch(last) or (last in ("bias", "b") and whole):
            return f"b_{letter}", 0
        if MATRIX[letter].fullmatch(last) or (last in ("weight", "weights", "kernel", "w") and whole):
            return f"W_{letter}", 0
        if BARE[letter].fullmatch(last):
            return f"W_{letter}", 1
    return None


def by_projection(names: Iterable[str]) -> dict[str, list[str]]:
    """Return, for each array of projections, the names that mean it; a sure one leaves out the others."""
    roles: dict[str, dict[int, list[str]]] = {}
    for name in names:
        meaning = meant_projection(name)
        if meaning:
            roles.setdefault(meaning[0], {}).setdefault(meaning[1], []).append(name)
    return {role: several[min(several)] for role, several in roles.items()}


def meant_start(name: str) -> str | None:
    """Return which start of a run a name means: `x`, `q`, `k`, `v` or `weights`."""
    several = parts_of(name) or [""]
    last = several[-2] if several[-1] in ("weight", "kernel") and len(several) > 1 else several[-1]
    return next((start for start, words in STARTS.items() if words.fullmatch(last)), None)


def by_start(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Return, for each start of a run, the names that mean it."""
    roles: dict[str, list[str]] = {}
    for name in names:
        roles.setdefault(meant_start(name) or "", []).append(name)
    return roles
