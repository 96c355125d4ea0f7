"""Plain functions and NumPy code: attention of q, k and v, of one query, of x and matrices, and classes of arrays.

The library, layouts, names, the softmax, the mask's convention and loops are drawn from the seed; a mistake is one
expression that is exchanged.
"""

from __future__ import annotations

import random
from textwrap import indent

from tools.layers._written import Written

NAMES = (
    "scaled_dot_product_attention", "attention", "self_attention", "dot_product_attention", "attend", "sdpa",
    "compute_attention", "attention_forward", "scaled_attention", "attn",
)  # fmt: skip
MULTI = ("multi_head_attention", "mha", "multihead_attention", "mha_forward", "multi_head_self_attention", "self_attn")
CLASSES = ("MultiHeadAttention", "SelfAttention", "Attention", "NumpyAttention", "MHA", "AttentionLayer")
TRIPLES = (
    ("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value"), ("queries", "keys", "values"),
    ("query", "keys", "values"),
)  # fmt: skip
MATRICES = (
    ("W_q", "W_k", "W_v", "W_o"), ("Wq", "Wk", "Wv", "Wo"), ("WQ", "WK", "WV", "WO"), ("w_q", "w_k", "w_v", "w_o"),
    ("wq", "wk", "wv", "wo"), ("W_Q", "W_K", "W_V", "W_O"), ("q_weight", "k_weight", "v_weight", "o_weight"),
    ("w_query", "w_key", "w_value", "w_out"), ("q_proj", "k_proj", "v_proj", "out_proj"),
)  # fmt: skip
HEADS = ("num_heads", "n_heads", "h", "heads", "n_head", "nhead")
OF_CORES = (
    "no_scale", "scale_by_d", "scale_multiplied", "scale_fixed", "scale_by_sqrt_keys", "scale_after_softmax",
    "softmax_over_queries", "softmax_twice", "no_softmax", "sum_normalized", "keepdims_missing", "values_from_keys",
    "keys_from_queries", "values_from_queries", "weights_transposed", "keys_viewed", "softmax_over_all",
    "queries_keys_swapped",
)  # fmt: skip
OF_MASKS = ("mask_after_softmax", "mask_small_fill", "mask_multiplied", "mask_sign", "mask_inverted", "mask_ignored")
OF_CAUSAL = ("causal_strict", "causal_next", "causal_flipped")
OF_HEADS = (
    "scale_by_sqrt_d_model", "scale_by_sqrt_heads", "softmax_over_heads", "heads_merged_wrong", "heads_not_transposed",
    "heads_by_stride", "heads_reversed", "no_output_projection", "projection_transposed",
    "output_projection_transposed",
    "heads_averaged", "single_head",
)  # fmt: skip
MISTAKES = (*OF_CORES, *OF_MASKS, *OF_CAUSAL, *OF_HEADS)
OF_SHAPES = ("projection_transposed", "output_projection_transposed", "no_output_projection", "heads_reversed",
             "heads_by_stride")  # fmt: skip
SCALES = ("no_scale", "scale_by_d", "scale_multiplied", "scale_fixed", "scale_after_softmax", "values_from_keys")


class Code:
    """A file with a function or a class of attention: `source` is its text, and `name` what is checked in it."""

    def __init__(self, seed: int, mistake: str) -> None:
        self.chance, self.mistake = random.Random(f"functions {seed} {mistake}"), mistake
        self.library = self.drawn("numpy", "numpy", "numpy", "torch", "jax")
        self.xp = {"numpy": "np", "torch": "torch", "jax": "jnp"}[self.library]
        self.kind = self.drawn(
            "core", "core", "core", "wide", "query", "step", "matrices", "matrices", "params", "class"
        )
        if mistake in OF_MASKS:
            self.kind = self.drawn("core", "core", "matrices", "class")
        elif mistake in OF_CAUSAL:
            self.kind = self.drawn("core", "matrices", "class", "params")
        elif mistake in OF_HEADS:
            self.kind = self.drawn("matrices", "matrices", "params", "class")
            self.kind = (
                "matrices" if mistake in OF_SHAPES else self.kind
            )  # elsewhere nobody says which matrices are meant
        elif mistake in OF_CORES and mistake not in SCALES and self.kind in ("query", "step"):
            self.kind = "core"
        self.library = "numpy" if self.kind == "class" else self.library
        self.xp = "np" if self.kind == "class" else self.xp
        self.axes = (
            self.drawn("td", "btd", "bhtd", "bhtd", "bthd") if self.kind == "core" else self.drawn("htd", "bhtd")
        )
        if mistake == "keepdims_missing":
            self.axes, self.kind = "td", "core"
        if mistake == "keys_viewed":
            self.axes = "bhtd" if self.kind == "core" else self.axes
        self.batched = self.axes[0] == "b"
        self.loops = self.kind not in ("core", "query", "step") and mistake not in (*OF_HEADS, "mask_ignored")
        self.loops = self.loops and self.often(0.3)
        self.masked = (
            self.drawn("", "", "where", "equal", "added", "ones", "hide")
            if self.kind in ("core", "matrices", "class")
            else ""
        )
        if mistake in OF_MASKS:
            self.masked = "added" if mistake == "mask_sign" else self.drawn("where", "equal")
        self.causal = self.kind not in ("query", "step") and not self.masked and self.often(0.4)
        if mistake in OF_CAUSAL:
            self.masked, self.causal = "", True
        self.words = "convention=torch_mha" if self.masked == "hide" and not mistake else ""
        self.masked = "where" if self.masked == "hide" and mistake else self.masked
        self.asked = self.causal and self.often(0.6)  # causal where it is asked to be
        self.weights = self.often(0.3) and self.kind in ("core", "query", "matrices")
        self.mask_word = self.drawn("mask", "mask", "attn_mask", "attention_mask")
        self.causal_word = self.drawn("causal", "is_causal", "use_causal_mask")
        self.helper = self.drawn("softmax", "softmax", "stable_softmax", "_softmax")
        self.names = self.chance.choice(MATRICES)
        self.h, self.size = self.drawn(*HEADS), self.drawn("d_k", "head_dim", "d_head", "dk", "hd")
        self.is_turned = mistake not in OF_SHAPES and self.often(0.3)  # matrices as nn.Linear holds them
        self.dimension = "d"
        self.name, made = getattr(self, self.kind)()
        self.source = "\n".join([*self.imports(), *self.softmax(), *made]) + "\n"

    def drawn(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def imports(self) -> list[str]:
        lines = ["import math", ""]
        lines += {
            "numpy": ["import numpy as np"],
            "torch": ["import torch"],
            "jax": ["import jax", "import jax.numpy as jnp"],
        }[self.library]
        return [*lines, "", ""]

    def softmax(self) -> list[str]:
        """Return a softmax of one's own, or nothing where the library's is used."""
        dim, keep, xp = ("dim", "keepdim", "torch") if self.library == "torch" else ("axis", "keepdims", self.xp)
        self.dim = dim
        if self.library != "numpy" and self.mistake not in ("keepdims_missing", "softmax_over_all") and self.often(0.7):
            return []
        self.own = True
        if self.mistake == "softmax_over_all":
            return [
                f"def {self.helper}(x, {dim}=-1):",
                f"    e = {xp}.exp(x - x.max())",
                "    return e / e.sum()",
                "",
                "",
            ]
        most = (
            f"x.amax({dim}={dim}, {keep}=True)"
            if self.library == "torch"
            else f"{self.drawn('np.max(x, ', 'x.max(') if xp == 'np' else 'x.max('}axis=axis, keepdims=True)"
        )
        kept = "" if self.mistake == "keepdims_missing" else f", {keep}=True"
        sums = self.drawn(f"e.sum({dim}={dim}{kept})", f"{xp}.sum(e, {dim}={dim}{kept})")
        body = [f"e = {xp}.exp(x - {most})", f"return e / {sums}"]
        if kept and self.often(0.15):
            body = [f"e = {xp}.exp(x)", f"return e / {sums}"]  # without the largest: a remark
        elif self.often(0.2) and self.library == "numpy":
            body = [f"x = x - {most}", "e = np.exp(x)", f"return np.divide(e, {sums})"]
        return [f"def {self.helper}(x, {dim}=-1):", *("    " + one for one in body), "", ""]

    def shares(self, scores: str, axis: str) -> str:
        """Return a softmax of scores, its text."""
        if self.library == "numpy" or self.mistake in ("keepdims_missing", "softmax_over_all"):
            return self.drawn(
                f"{self.helper}({scores}, axis={axis})",
                f"{self.helper}({scores})" if axis == "-1" else f"{self.helper}({scores}, {axis})",
            ).replace("axis", "dim" if self.library == "torch" else "axis")
        return {"torch": f"torch.softmax({scores}, dim={axis})", "jax": f"jax.nn.softmax({scores}, axis={axis})"}[
            self.library
        ]

    def turned(self, k: str, axes: str) -> str:
        """Return the text of k with its last two axes exchanged."""
        if self.mistake == "keys_viewed":
            return f"{k}.reshape(*{k}.shape[:-2], {k}.shape[-1], {k}.shape[-2])"
        if len(axes) == 2 and self.often(0.6):
            return f"{k}.T"
        if self.library == "torch":
            return self.drawn(f"{k}.transpose(-2, -1)", f"{k}.transpose(-1, -2)", f"{k}.mT")
        full = {2: f"{k}.transpose(1, 0)", 3: f"{k}.transpose(0, 2, 1)", 4: f"{k}.transpose(0, 1, 3, 2)"}[len(axes)]
        return self.drawn(f"{k}.swapaxes(-1, -2)", f"{self.xp}.swapaxes({k}, -2, -1)", full)

    def scaled(self, scores: str, d: str, k: str, model: str = "d_model") -> str:
        """Return the text of scores divided by the root of d."""
        keys = f"{k}.shape[{'1' if self.axes == 'bthd' and self.kind == 'core' else '-2'}]"
        eighth = self.drawn(f"{scores} / 8.0", f"{scores} * 0.125", f"{scores} / math.sqrt(64)")
        wrong = {
            "no_scale": scores, "scale_after_softmax": scores, "scale_by_d": f"{scores} / {d}",
            "scale_multiplied": f"{scores} * math.sqrt({d})", "scale_fixed": eighth,
            "scale_by_sqrt_keys": f"{scores} / math.sqrt({keys})",
            "scale_by_sqrt_d_model": f"{scores} / math.sqrt({model})",
            "scale_by_sqrt_heads": f"{scores} / math.sqrt({self.h})",
        }  # fmt: skip
        root = f"np.sqrt({d})" if self.library == "numpy" else f"math.sqrt({d})"
        return wrong.get(self.mistake) or self.drawn(
            f"{scores} / {root}", f"{scores} / ({d} ** 0.5)", f"{scores} * ({d} ** -0.5)", f"{scores} / math.sqrt({d})"
        )

    def hidden(self, axes: str) -> list[str]:
        """Return the lines that hide keys from the scores."""
        xp, word = self.xp, self.mask_word
        low = self.drawn("-1e9", "float('-inf')", "-1e30")
        low = self.drawn("1e-9", "-1e-9", "-1.0") if self.mistake == "mask_small_fill" else low
        if self.causal:
            rows = self.drawn("(scores.shape[-2], scores.shape[-1])", "scores.shape[-2:]")
            moved = {"causal_strict": ", -1", "causal_next": ", 1"}.get(self.mistake, "")
            kind = "triu" if self.mistake == "causal_flipped" else "tril"
            lines = [
                f"allowed = {xp}.{kind}({xp}.ones({rows}){moved})",
                f"scores = {xp}.where(allowed == 0, {low}, scores)",
            ]
            if self.often(0.3) and not self.mistake:
                lines = [f"scores = scores + {xp}.triu({xp}.full({rows}, {low}), 1)"]
            return [f"if {self.causal_word}:", *("    " + one for one in lines)] if self.asked else lines
        if not self.masked or self.mistake == "mask_after_softmax":
            return []
        made = {
            "where": f"scores = {xp}.where({word}, scores, {low})",
            "equal": f"scores = {xp}.where({word} == 0, {low}, scores)",
            "added": f"scores = scores {'-' if self.mistake == 'mask_sign' else '+'} {word}",
            "ones": f"scores = scores + (1.0 - {word}) * -1e9",
            "hide": f"scores = {xp}.where({word}, {low}, scores)",
        }[self.masked]
        if self.library == "torch":
            made = {
                "equal": f"scores = scores.masked_fill({word} == 0, {low})",
                "hide": f"scores = scores.masked_fill({word}, {low})",
            }.get(self.masked, made)
        made = {
            "mask_inverted": f"scores = {xp}.where({word} == 0, scores, -1e9)",
            "mask_multiplied": f"scores = scores * {word}",
            "mask_ignored": made.replace("scores = ", "masked = ", 1),
        }.get(self.mistake, made)  # fmt: skip
        return [f"if {word} is not None:", "    " + made]

    def attended(self, q: str, k: str, v: str, axes: str, d: str = "") -> list[str]:
        """Return the lines from q, k and v to `weights` and `out`."""
        xp, model = self.xp, f"{d or 'd'} * 2"
        lines = [] if d else [f"{self.dimension} = {q}.shape[-1]"]
        d = d or self.dimension
        model = "d_model" if self.kind != "core" else model
        sides = {
            "keys_from_queries": (q, q, v),
            "values_from_keys": (q, k, k),
            "values_from_queries": (q, k, q),
            "queries_keys_swapped": (k, q, v),
        }
        a, b, c = sides.get(self.mistake, (q, k, v))
        letters = {
            "td": ("qd", "kd", "qk"),
            "btd": ("bqd", "bkd", "bqk"),
            "htd": ("hqd", "hkd", "hqk"),
            "bhtd": ("bhqd", "bhkd", "bhqk"),
            "bthd": ("bqhd", "bkhd", "bhqk"),
        }[axes]
        einsum = axes == "bthd" or (self.often(0.2) and self.mistake not in ("keys_viewed",))
        if einsum:
            product = f"{xp}.einsum('{letters[0]},{letters[1]}->{letters[2]}', {a}, {b})"
        else:
            t = self.turned(b, axes)
            product = self.drawn(
                f"{a} @ {t}",
                f"{xp}.matmul({a}, {t})",
                f"np.dot({a}, {t})" if len(axes) == 2 and xp == "np" else f"({a} @ {t})",
            )
        if self.often(0.3):
            lines += [f"scores = {product}", f"scores = {self.scaled('scores', d, k, model)}"]
        elif " @ " in product and product[0] != "(" and self.often(0.7):
            lines += [f"scores = {self.scaled(f'({product})', d, k, model)}"]
        else:
            lines += [f"scores = {self.scaled(product, d, k, model)}"]
        lines += self.hidden(axes)
        axis = {"softmax_over_queries": "-2", "softmax_over_heads": "-3"}.get(self.mistake, "-1")
        kind = {
            "no_softmax": "scores", "sum_normalized": "scores / scores.sum(-1)[..., None]",
        }.get(self.mistake) or self.shares("scores", axis)  # fmt: skip
        lines.append(f"weights = {kind}")
        lines += [f"weights = {self.shares('weights', '-1')}"] if self.mistake == "softmax_twice" else []
        lines += [f"weights = weights / math.sqrt({d})"] if self.mistake == "scale_after_softmax" else []
        if self.mistake == "mask_after_softmax":
            lines += [
                f"if {self.mask_word} is not None:",
                f"    weights = {xp}.where({self.mask_word} == 0, 0.0, weights)",
            ]
        w = "weights.swapaxes(-1, -2)" if self.mistake == "weights_transposed" else "weights"
        if axes == "bthd" or (einsum and self.often(0.5)):
            return [*lines, f"out = {xp}.einsum('{letters[2]},{letters[1]}->{letters[0]}', {w}, {c})"]
        return [*lines, f"out = {self.drawn(f'{w} @ {c}', f'{xp}.matmul({w}, {c})')}"]

    def core(self) -> tuple[str, list[str]]:
        name, (q, k, v) = self.drawn(*NAMES), self.chance.choice(TRIPLES)
        given = [q, k, v] if self.often(0.85) else self.chance.choice(([v, k, q], [k, q, v], [q, v, k], [k, v, q]))
        given += self.choices()
        if (
            self.axes == "td"
            and self.library == "numpy"
            and self.mistake in ("", *SCALES)
            and not self.masked
            and not self.causal
            and self.often(0.5)
        ):
            self.weights = False
            return name, [f"def {name}({', '.join(given)}):", *self.by_query(q, k, v)]
        return name, [
            f"def {name}({', '.join(given)}):",
            *self.inside(self.attended(q, k, v, self.axes)),
            self.returned(),
        ]

    def by_query(self, q: str, k: str, v: str) -> list[str]:
        d, values = f"{q}.shape[-1]", k if self.mistake == "values_from_keys" else v
        rows = [f"out = np.zeros(({q}.shape[0], {v}.shape[1]))", f"for i in range({q}.shape[0]):"]
        if self.often(0.5):
            rows += [
                f"    scores = np.array([{self.scaled(f'np.dot({q}[i], {k}[j])', d, k)} for j in range({k}.shape[0])])"
            ]
        else:
            rows += [
                f"    scores = np.zeros({k}.shape[0])",
                f"    for j in range({k}.shape[0]):",
                f"        scores[j] = {self.scaled(f'np.sum({q}[i] * {k}[j])', d, k)}",
            ]
        rows += [f"    weights = {self.shares('scores', '-1')}"]
        rows += [f"    weights = weights / math.sqrt({d})"] if self.mistake == "scale_after_softmax" else []
        added = [f"    for j in range({v}.shape[0]):", f"        out[i] += weights[j] * {values}[j]"]
        rows += added if self.often(0.5) else [f"    out[i] = weights @ {values}"]
        return self.inside([*rows, "return out"])

    def choices(self) -> list[str]:
        """Return the arguments that say what is hidden."""
        given = [f"{self.mask_word}=None"] if self.masked else []
        given += [f"{self.causal_word}={self.drawn('False', 'False', 'True')}"] if self.asked else []
        return ["*", *given] if given and self.often(0.2) else given

    @staticmethod
    def inside(lines: list[str]) -> list[str]:
        return indent("\n".join(lines), "    ").split("\n")

    def returned(self, out: str = "out") -> str:
        if not self.weights:
            return f"    return {out}"
        return f"    return {self.drawn(f'{out}, weights', f'{out}, weights', f'({out}, weights)')}"

    def query(self) -> tuple[str, list[str]]:
        """Return a function of one query."""
        name = self.drawn("attend", "attention", "attend_one", "single_query_attention")
        q, k, v = self.chance.choice((("q", "K", "V"), ("query", "keys", "values"), ("q", "k", "v")))
        values = k if self.mistake == "values_from_keys" else v
        lines = [
            f"d = {q}.shape[-1]",
            f"scores = {self.scaled(self.drawn(f'({k} @ {q})', f'{self.xp}.matmul({k}, {q})'), 'd', k)}",
        ]
        lines += [f"weights = {self.shares('scores', '-1')}"]
        lines += ["weights = weights / math.sqrt(d)"] if self.mistake == "scale_after_softmax" else []
        lines += [f"out = {self.drawn(f'weights @ {values}', f'(weights[:, None] * {values}).sum(0)')}"]
        return name, [f"def {name}({q}, {k}, {v}):", *self.inside(lines), self.returned()]

    def step(self) -> tuple[str, list[str]]:
        """Return a step of one token, with a cache of keys and values."""
        name = self.drawn("step", "decode_step", "attend_step", "attention_step")
        cat = "torch.cat" if self.library == "torch" else f"{self.xp}.concatenate"
        axis = "dim" if self.library == "torch" else "axis"
        values = "keys" if self.mistake == "values_from_keys" else "values"
        lines = [
            "d = q.shape[-1]",
            f"scores = {self.scaled('(keys @ q)', 'd', 'keys')}",
            f"weights = {self.shares('scores', '-1')}",
        ]
        lines += ["weights = weights / math.sqrt(d)"] if self.mistake == "scale_after_softmax" else []
        if self.often(0.5):
            joined = [
                f"keys = k[None] if cache is None else {cat}([cache[0], k[None]], {axis}=0)",
                f"values = v[None] if cache is None else {cat}([cache[1], v[None]], {axis}=0)",
            ]
            return name, [
                f"def {name}(q, k, v, cache=None):",
                *self.inside([*joined, *lines, f"return weights @ {values}, (keys, values)"]),
            ]
        joined = [
            f"keys = k[None] if k_cache is None else {cat}([k_cache, k[None]], {axis}=0)",
            f"values = v[None] if v_cache is None else {cat}([v_cache, v[None]], {axis}=0)",
        ]
        return name, [
            f"def {name}(q, k, v, k_cache=None, v_cache=None):",
            *self.inside([*joined, *lines, f"return weights @ {values}, keys, values"]),
        ]

    def wide(self) -> tuple[str, list[str]]:
        """Return a function of q, k and v with heads side by side."""
        name, (q, k, v) = self.drawn(*MULTI), self.chance.choice(TRIPLES)
        given = [q, k, v, self.h, *self.choices()]
        lines = [f"d_model = {q}.shape[-1]", f"{self.size} = d_model // {self.h}"]
        return name, [f"def {name}({', '.join(given)}):", *self.inside([*lines, *self.many(q, k, v)]), "    return out"]

    def many(self, q: str, k: str, v: str) -> list[str]:
        """Return the lines that split q, k and v in heads, attend and join."""
        h, size, xp = self.h, self.size, self.xp
        if self.loops:
            axes = "btd" if self.batched else "td"
            cat = "torch.cat(outs, dim=-1)" if self.library == "torch" else f"{xp}.concatenate(outs, axis=-1)"
            part = self.drawn(f"i * {size}:(i + 1) * {size}", "cols")
            lines = ["outs = []", f"for i in range({h}):"]
            lines += [f"    cols = slice(i * {size}, (i + 1) * {size})"] if part == "cols" else []
            self.weights = False
            inner = [f"{one}h = {one}[..., {part}]" for one in (q, k, v)]
            return [
                *lines,
                *self.inside([*inner, *self.attended(f"{q}h", f"{k}h", f"{v}h", axes, size), "outs.append(out)"]),
                f"out = {cat}",
            ]
        before = f"{q}.shape[0], " if self.batched else ""
        lines = []
        for one in (q, k, v):
            count = f"{one}.shape[-2]"
            back = f"{one}.reshape({before.replace(q, one, 1)}{count}, {h}, {size})"
            turn = {("torch", True): ".transpose(1, 2)", ("torch", False): ".transpose(0, 1)"}.get(
                (self.library, self.batched), ".transpose(0, 2, 1, 3)" if self.batched else ".transpose(1, 0, 2)"
            )
            if self.mistake == "heads_not_transposed":
                back, turn = f"{one}.reshape({before.replace(q, one, 1)}{h}, {count}, {size})", ""
            elif self.mistake == "heads_by_stride":
                back = f"{one}.reshape({before.replace(q, one, 1)}{count}, {size}, {h})"
                turn = {True: "(0, 3, 1, 2)", False: "(2, 0, 1)"}[self.batched]
                turn = f".permute{turn}" if self.library == "torch" else f".transpose{turn}"
            elif self.mistake == "single_head":
                back, turn = f"{one}.reshape({before.replace(q, one, 1)}1, {count}, {size} * {h})", ""
            lines.append(f"{one} = {back}{turn}")
        d = f"({size} * {h})" if self.mistake == "single_head" else size
        lines += self.attended(q, k, v, "bhtd" if self.batched else "htd", d)
        b, turn = ("out.shape[0], ", "1, 2") if self.batched else ("", "0, 1")
        turned = f"out.transpose({turn})" if self.library == "torch" else f"out.swapaxes({turn})"
        if self.mistake in ("heads_merged_wrong", "heads_not_transposed"):
            turned = "out"
        if self.mistake == "heads_reversed":
            turned = (
                f"torch.flip(out, [-3]).transpose({turn})"
                if self.library == "torch"
                else f"out[..., ::-1, :, :].swapaxes({turn})"
            )
        if self.mistake == "heads_averaged":
            cat = "torch.cat" if self.library == "torch" else f"{xp}.concatenate"
            return [*lines, f"out = {cat}([out.mean(-3)] * {h}, -1)"]
        return [*lines, f"out = {turned}.reshape({b}out.shape[-2], {h} * {size})"]

    def projected(self, x: str, names: tuple[str, ...]) -> list[str]:
        """Return the lines from x to q, k and v."""
        t = ".T" if self.is_turned != (self.mistake == "projection_transposed") else ""
        products = (self.drawn(f"{x} @ {name}{t}", f"{self.xp}.matmul({x}, {name}{t})") for name in names[:3])
        return [f"{one} = {product}" for one, product in zip("qkv", products, strict=True)]

    def matrices(self) -> tuple[str, list[str]]:
        """Return a function of x and matrices."""
        name, x = self.drawn(*MULTI), self.drawn("x", "x", "X", "inputs")
        given = [x, *self.names, self.h] if self.often(0.8) else [x, self.h, *self.names]
        return name, [
            f"def {name}({', '.join([*given, *self.choices()])}):",
            *self.inside(self.layer(x, self.names)),
            self.returned(),
        ]

    def layer(self, x: str, names: tuple[str, ...]) -> list[str]:
        lines = [f"d_model = {x}.shape[-1]", f"{self.size} = d_model // {self.h}"]
        lines += [*self.projected(x, names), *self.many("q", "k", "v")]
        t = ".T" if self.is_turned != (self.mistake == "output_projection_transposed") else ""
        if self.mistake != "no_output_projection":
            lines.append(f"out = out @ {names[3]}{t}")
        return lines

    def params(self) -> tuple[str, list[str]]:
        """Return a function of x and a dictionary of matrices."""
        name, x, p = (
            self.drawn(*MULTI),
            self.drawn("x", "x", "X", "inputs"),
            self.drawn("params", "p", "weights_dict", "state"),
        )
        given = [x, p, self.h] if self.often(0.8) else [p, x, self.h]
        names = tuple(f"{p}['{one}']" for one in self.names)
        return name, [
            f"def {name}({', '.join([*given, *self.choices()])}):",
            *self.inside(self.layer(x, names)),
            "    return out",
        ]

    def class_(self) -> tuple[str, list[str]]:
        """Return a class that holds its matrices."""
        name, x, call = (
            self.drawn(*CLASSES),
            self.drawn("x", "x", "X", "inputs"),
            self.drawn("forward", "__call__", "forward", "call"),
        )
        heads, self.weights = self.h, False
        self.h, self.size = f"self.{heads}", f"self.{self.size}"
        size = self.drawn("d_model", "embed_dim", "dim", "hidden_size")
        given = [size, heads] if self.often(0.8) else [f"{size}=16", f"{heads}=4"]
        given += ["seed=0"] if (seeded := self.often(0.5)) else []
        drawn = "rng.standard_normal" if seeded else "np.random.randn"
        shape = f"({size}, {size})" if seeded else f"{size}, {size}"
        lines = [f"self.{size} = {size}", f"{self.h} = {heads}", f"{self.size} = {size} // {heads}"]
        lines += ["rng = np.random.default_rng(seed)"] if seeded else []
        names = tuple(f"self.{one}" for one in self.names)
        if self.often(0.15):
            names = tuple(f"self.W[{i}]" for i in range(4))
            lines.append(f"self.W = [{drawn}({shape}) / np.sqrt({size}) for _ in range(4)]")
        else:
            lines += [
                f"{one} = {drawn}({shape}) {self.drawn(f'/ np.sqrt({size})', '* 0.1', f'* np.sqrt(2.0 / {size})')}"
                for one in names
            ]
        body = [one for one in self.layer(x, names) if not one.startswith(("self.", "d_model ="))]
        body = [one.replace("d_model", f"self.{size}") for one in body]
        arguments = ", ".join(["self", x, *self.choices()])
        return name, [
            f"class {name}:",
            f"    def __init__(self, {', '.join(given)}):",
            *self.inside(self.inside(lines)),
            "",
            f"    def {call}({arguments}):",
            *self.inside(self.inside([*body, "return out"])),
        ]


setattr(Code, "class", Code.class_)


def written(seed: int, mistake: str) -> Written:
    """Return a file of plain code with a mistake, or none."""
    made = Code(seed, mistake)
    return Written(made.source, made.name, made.library, made.words)
