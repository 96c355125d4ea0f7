"""Infer which of q, k, v, x or a layer's matrices a name means, by its parts: `queries_BHTD`, `xq`, `key_layer`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attn_exp.diagnosis.asking.offer import BY_NAME, plain

SIDES = {"q": ("q", "query", "queries", "quer", "qs", "xq", "qq", "querys", "qry"),
         "k": ("k", "key", "keys", "ks", "xk", "kk"),
         "v": ("v", "value", "values", "val", "vals", "vs", "xv", "vv"),
         "o": ("o", "out", "output", "wo", "p", "last", "final"),
         "qkv": ("qkv", "qvk", "kqv", "attn", "in"),
         "kv": ("kv", "keysvalues", "context", "keyvalue", "keyvalues", "memory"),
         "x": ("x", "hidden", "input", "inputs", "embedding", "embeddings", "emb", "tokens", "xs", "sequence", "seq",
               "inp", "features", "residual", "source", "src")}  # fmt: skip
"""Parts of names, by what they mean."""
WEIGHT = ("w", "weight", "weights", "kernel", "proj", "projection", "matrix", "mat", "linear", "params", "param", "c",
          "lin", "fc", "to", "dense", "net")  # fmt: skip
FILLING = ("state", "states", "layer", "heads", "head", "tensor", "array", "arr", "all", "multi", "split", "vec",
           "vector", "vectors", "bhtd", "bthd", "bhld", "blhd", "btd", "btnh", "bshd", "bhsd", "bnsd", "mat",
           "projected", "new", "rot", "full", "ref", "block", "chunk", "embed", "hat", "np", "jnp", "in", "raw", "data",
           "seq", "input", "inputs", "the", "my", "and", "x", "1", "2", "0", "packed", "mixed", "fused",
           "tensors", "matrix", "matrices", "proj", "antecedent", "code", "feat", "features", "map",
           "maps")  # fmt: skip


def parts_of_name(name: str) -> list[str]:
    """Return the parts of a name in lower case: `queryStates_BHTD` has three."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def side_of_name(name: str) -> str:
    """Return q, k, v, x, qkv or kv, a matrix or bias such as W_q, W_qkv or b_q, or an empty string."""
    known = BY_NAME.get(plain(name), "")
    if known:
        return known if known in ("q", "k", "v", "x") or known[:2] in ("W_", "b_") else ""
    parts = parts_of_name(name)
    joined = "".join(part for part in parts if part not in FILLING)
    is_weight = any(part in WEIGHT for part in parts) or (len(joined) > 1 and joined[0] == "w")
    core = [part for part in parts if part not in FILLING and part not in WEIGHT]
    if is_weight and len(joined) > 1 and joined[0] == "w" and len(core) == 1:
        core = [core[0].removeprefix("w") or core[0]]
    if not core:
        core = [part for part in parts if part in ("x", "in", "input", "inputs", "features", "proj", "out")][:1]
    core = core if len(core) == 1 else [part for part in core if part not in ("src", "source", "tgt")]
    if len(core) == 2 and set(core) == {"key", "value"}:
        core = ["kv"]
    side = next((side for side, words in SIDES.items() if len(core) == 1 and core[0].rstrip("s") in strip(words)), "")
    if is_weight:
        return f"W_{side}" if side in ("q", "k", "v", "o", "qkv", "kv") else "W" if not side else ""
    return side if side in ("q", "k", "v", "x", "qkv", "kv") else ""


def strip(words: tuple[str, ...]) -> set[str]:
    """Return words without the plural s."""
    return {word.rstrip("s") for word in words}


SAYS_WEIGHT, SAYS_BIAS = ("w", "weight", "weights", "kernel", "kernels", "matrix"), ("b", "bias", "biases")


def biases_of(names: Sequence[str]) -> dict[str, str]:
    """Map each bias among the names to its matrix: the two names differ only in the word for bias or weight."""
    matrices = {stem: name for name in reversed(names) if (stem := stem_without(name, SAYS_WEIGHT)) is not None}
    biases = {name: stem for name in names if (stem := stem_without(name, SAYS_BIAS)) is not None}
    return {name: matrices[stem] for name, stem in biases.items() if stem in matrices}


def stem_without(name: str, words: Sequence[str]) -> str | None:
    """Return a name without one of the words, or the letter for it (`c_attn_w`, `Wq`); None if it has neither."""
    parts = parts_of_name(name)
    rest = [part for part in parts if part not in words]
    if len(rest) < len(parts):
        return "".join(rest)
    if name in parts or name.lower() in parts:
        return name.lower()[1:] if len(name) <= SHORT and name[0].lower() == words[0] else None
    return None


SHORT = 4
"""Maximum length of a name such as `wq` or `bqkv`, whose first letter says what it is."""
