"""More modules of PyTorch: shared key/value heads, positions inside, lists of heads, images, windows, whole blocks.

What stands in each way of writing is drawn from the seed, as in `modules.py`; a mistake is one line that is exchanged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tools.layers._written import Written

SCALES = (
    "no_scale", "scale_by_d", "scale_by_sqrt_d_model", "scale_multiplied", "scale_by_sqrt_heads", "scale_after_softmax",
)  # fmt: skip
SOFTMAX = ("softmax_over_queries", "softmax_twice", "no_softmax")
CAUSAL = ("causal_strict", "causal_next", "causal_flipped")
MASKS = ("mask_after_softmax", "mask_small_fill", "mask_ignored", "mask_multiplied", "mask_inverted")
SIDES = ("keys_from_queries", "values_from_keys", "values_from_queries")
MERGED = ("heads_not_transposed", "heads_merged_wrong", "no_output_projection", "weights_transposed")
GROUPS, TURNS = ("kv_heads_tiled", "kv_heads_first"), ("rope_pairing", "rope_on_values", "rope_off_by_one")
MISTAKES = (
    *SCALES, *SOFTMAX, *CAUSAL, *MASKS, *SIDES, *MERGED, *GROUPS, *TURNS, *GROUPS, *TURNS,
    "alibi_sign", "softmax_over_heads",
)  # fmt: skip
NAMES = (
    ("q_proj", "k_proj", "v_proj", "o_proj"), ("wq", "wk", "wv", "wo"), ("to_q", "to_k", "to_v", "to_out"),
    ("Wq", "Wk", "Wv", "Wo"), ("query", "key", "value", "proj"), ("W_query", "W_key", "W_value", "out_proj"),
    ("q_lin", "k_lin", "v_lin", "out_lin"), ("linear_q", "linear_k", "linear_v", "linear_out"),
)  # fmt: skip
SIZES = (
    ("dim", "n_heads", "n_kv_heads"), ("hidden_size", "num_attention_heads", "num_key_value_heads"),
    ("d_model", "num_heads", "num_kv_heads"), ("n_embd", "n_head", "n_kv_head"),
)  # fmt: skip
"""What people call the size of the model, the heads, and those of keys and values."""
IMPORTS = """
import copy
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


"""
HALVES = """
def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


def apply_rope(x, cos, sin):
    return x * cos + rotate_half(x) * sin


"""
PAIRS = """
def rotate_every_two(x):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


def apply_rope(x, cos, sin):
    return x * cos + rotate_every_two(x) * sin


"""
COMPLEX = """
def apply_rotary_emb(x, freqs_cis):
    xc = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(xc * freqs_cis).flatten(-2).type_as(x)


"""
RMS = """
class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


"""
REPEAT = """
def repeat_kv(x, n_rep):
    b, g, t, d = x.shape
    if n_rep == 1:
        return x
    return x[:, :, None].expand(b, g, n_rep, t, d).reshape(b, g * n_rep, t, d)


"""


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, without those of which nothing but spaces is left."""
    return [line for line in text.removeprefix("\n").splitlines() if line.strip() or not line]


def within(lines: Sequence[str], depth: int = 2) -> str:
    """Return lines as they stand in a method, but for the spaces before the first."""
    return ("\n" + depth * "    ").join(lines)


class Ways:
    """What is drawn from a seed, and how scores, weights and their mix are written with a mistake or none."""

    def __init__(self, seed: int, mistake: str) -> None:
        self.chance, self.mistake = random.Random(f"more {seed} {mistake}"), mistake
        self.q, self.k, self.v, self.o = self.chance.choice(NAMES)
        self.bias = self.drawn("", ", bias=False")

    def drawn(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def has(self, *mistakes: str) -> bool:
        return self.mistake in mistakes

    def factor(self, head: str, size: str, heads: str) -> str:
        """Return what the scores are multiplied by."""
        wrong = {
            "no_scale": "1.0", "scale_by_d": f"{head} ** -1.0", "scale_by_sqrt_d_model": f"{size} ** -0.5",
            "scale_multiplied": f"{head} ** 0.5", "scale_by_sqrt_heads": f"{heads} ** -0.5",
            "scale_after_softmax": "1.0",
        }  # fmt: skip
        right = self.drawn(f"{head} ** -0.5", f"(1 / math.sqrt({head}))", f"(1.0 / {head} ** 0.5)")
        return wrong.get(self.mistake, right)

    def low(self) -> str:
        if self.has("mask_small_fill"):
            return self.drawn("1e-9", "-1e-9", "-1.0")
        return self.drawn("-1e9", "float('-inf')", "torch.finfo(scores.dtype).min", "-torch.inf")

    def tril(self, rows: str) -> str:
        moved = {"causal_strict": ", -1", "causal_next": ", 1"}.get(self.mistake, "")
        return f"torch.{'triu' if self.has('causal_flipped') else 'tril'}(torch.ones({rows}, {rows}){moved})"

    def masked(self, word: str, shown: str) -> list[str]:
        """Return the lines that hide keys by an argument; `shown` is it as it fits, True where one may attend."""
        if self.has("mask_after_softmax"):
            return []
        hidden = f"scores.masked_fill({shown} {'!=' if self.has('mask_inverted') else '=='} 0, {self.low()})"
        other = {"mask_ignored": hidden, "mask_multiplied": f"scores = scores * {shown}"}
        return [f"if {word} is not None:", f"    {other.get(self.mistake, f'scores = {hidden}')}"]

    def weighed(self, head: str, word: str = "", shown: str = "") -> list[str]:
        """Return the lines from scores to weights, `attn`."""
        dim = {"softmax_over_queries": "-2", "softmax_over_heads": "1"}.get(self.mistake, "-1")
        shares = self.drawn(
            f"F.softmax(scores, dim={dim})", f"scores.softmax(dim={dim})", f"torch.softmax(scores, {dim})"
        )
        lines = [f"attn = {'scores' if self.has('no_softmax') else shares}"]
        more = {
            "softmax_twice": ["attn = attn.softmax(dim=-1)"],
            "scale_after_softmax": [f"attn = attn / math.sqrt({head})"],
            "mask_after_softmax": [f"if {word} is not None:", f"    attn = attn.masked_fill({shown} == 0, 0.0)"],
        }
        return lines + more.get(self.mistake, [])

    def mixed(self) -> str:
        return "attn.transpose(-2, -1)" if self.has("weights_transposed") else "attn"

    def output(self, call: str, out: str = "out") -> str:
        return out if self.has("no_output_projection") else call

    def sides(self) -> tuple[str, str, str]:
        """Return which matrix makes queries, keys and values."""
        values = {"values_from_keys": self.k, "values_from_queries": self.q}.get(self.mistake, self.v)
        return self.q, self.q if self.has("keys_from_queries") else self.k, values


class Grouped:
    """A layer of a language model: heads that share keys and values, positions, norms, masks, gates, a block around."""

    def __init__(self, w: Ways) -> None:
        self.w = w
        self.name = w.drawn("Attention", "GroupedQueryAttention", "CausalSelfAttention", "MultiHeadAttention")
        turns, groups = w.has(*TURNS), w.has(*GROUPS)
        self.turn = w.drawn("halves", "pairs") if turns else w.drawn("", "halves", "pairs", "complex", "halves")
        self.turn = "complex" if w.has("rope_on_values") and w.often(0.3) else self.turn
        self.tables = w.drawn("buffers", "made", *([] if turns else ["given"]))
        if w.has("rope_off_by_one") or self.turn == "complex":
            self.tables = "buffers" if turns else w.drawn("buffers", "given")
        self.groups = groups or (w.often(0.6) and not w.has("heads_not_transposed", *SIDES))
        self.added = "alibi" if w.has("alibi_sign") else "" if self.turn else w.drawn("", "alibi", "relative", "table")
        self.norm = "" if w.has(*SCALES) else w.drawn("", "", "RMSNorm", "nn.LayerNorm")
        self.causal = w.drawn("inline", "buffer") if w.has("alibi_sign", *CAUSAL) else w.drawn("", "inline", "buffer")
        self.masked = w.has(*MASKS) or (not w.mistake and w.often(0.35))
        wrong = w.has(*SCALES, *SOFTMAX, *MERGED, *CAUSAL, "softmax_over_heads")
        self.whole = not (self.masked or self.added or wrong) and w.often(0.4)
        apart = self.tables != "given"
        mixed = w.has("heads_not_transposed", "heads_merged_wrong")  # entries too, of what has tokens first
        self.gated, self.major = w.often(0.15), w.often(0.15) and apart and not mixed
        self.block = w.often(0.2) and apart and not self.masked
        self.c = w.drawn("config.", "args.") if w.often(0.5) else ""
        self.dim, self.h, self.g = w.chance.choice(SIZES)
        self.head = w.drawn("self.head_dim", "self.head_size", "self.d_head")
        self.kv = f"self.{self.g if self.groups else self.h}"
        self.most, self.x = f"{self.c}max_seq_len", w.drawn("x", "x", "hidden_states")
        self.word = w.drawn("mask", "attn_mask", "attention_mask")
        self.way = w.drawn("interleave", "repeat") if w.mistake else w.drawn("expand", "interleave", "repeat")
        more = [f"{self.g}=2" if w.often(0.3) else self.g] if self.groups else []
        self.given = self.c[:-1] or ", ".join([self.dim, self.h, *more, "max_seq_len=128"])
        is_halves = (self.turn == "halves") != w.has("rope_pairing")
        self.both = "torch.cat((freqs, freqs), dim=-1)" if is_halves else "freqs.repeat_interleave(2, dim=-1)"

    def lines(self) -> list[str]:
        """Return the lines of the file."""
        text = IMPORTS + {"halves": HALVES, "pairs": PAIRS, "complex": COMPLEX}.get(self.turn, "")
        text += RMS if self.norm == "RMSNorm" else ""
        text += REPEAT if self.groups and self.way == "expand" else ""
        shared = f"    {self.g}: int = 2\n" if self.groups else ""
        sizes = f"    {self.dim}: int = 64\n    {self.h}: int = 8\n{shared}    max_seq_len: int = 128\n"
        text += f"@dataclass\nclass ModelArgs:\n{sizes}    rope_theta: float = 10000.0\n\n\n" if self.c else ""
        told = {"complex": ["freqs_cis"], "": []}.get(self.turn, ["cos", "sin"]) if self.tables == "given" else []
        given = ", ".join([self.x, *told, *([f"{self.word}=None"] if self.masked else [])])
        text += f"""
class {self.name}(nn.Module):
    def __init__(self, {self.given}):
        super().__init__()
        {within([*self.matrices(), *self.buffers()])}

    def forward(self, {given}):
        {within([*self.projected(), *self.turned(), *self.repeated(), *self.weighed(), *self.merged()])}
"""
        return lines_of(text + (self.around() if self.block else ""))

    def matrices(self) -> list[str]:
        c, w = self.c, self.w
        lines = [f"self.{self.h} = {c}{self.h}", *([f"self.{self.g} = {c}{self.g}"] if self.groups else [])]
        lines += [f"{self.head} = {c}{self.dim} // {c}{self.h}"]
        lines += [f"self.n_rep = self.{self.h} // self.{self.g}"] if self.groups else []
        for one, count in ((w.q, f"{c}{self.h}"), (w.k, self.kv), (w.v, self.kv)):
            lines.append(f"self.{one} = nn.Linear({c}{self.dim}, {count} * {self.head}{w.bias})")
        lines.append(f"self.{w.o} = nn.Linear({c}{self.h} * {self.head}, {c}{self.dim}{w.bias})")
        lines += [f"self.{one}_norm = {self.norm}({self.head})" for one in "qk" if self.norm]
        return lines + ([f"self.gate = nn.Linear({c}{self.dim}, {c}{self.h} * {self.head})"] if self.gated else [])

    def buffers(self) -> list[str]:
        base = f"{self.c}rope_theta" if self.c else "10000.0"
        rest, lines = ", persistent=False)", list[str]()
        if self.turn and self.tables != "given":
            lines += [f"inv_freq = 1.0 / ({base} ** (torch.arange(0, {self.head}, 2).float() / {self.head}))"]
            both = [f"emb = {self.both}"]
            both += [f"self.register_buffer('{one}', emb.{one}(){rest}" for one in ("cos", "sin")]
            polar = f"self.register_buffer('freqs_cis', torch.polar(torch.ones_like(freqs), freqs){rest}"
            kept = [f"freqs = torch.outer(torch.arange({self.most} + 1).float(), inv_freq)"]
            kept += [polar] if self.turn == "complex" else both
            lines += [f"self.register_buffer('inv_freq', inv_freq{rest}"] if self.tables == "made" else kept
        slopes = f"torch.tensor([2 ** (-8 * (i + 1) / self.{self.h}) for i in range(self.{self.h})])"
        lines += {
            "alibi": [f"slopes = {slopes}", f"self.register_buffer('slopes', slopes.view(1, self.{self.h}, 1, 1))"],
            "relative": [
                f"self.rel_bias = nn.Embedding(2 * {self.most} - 1, self.{self.h})",
                f"self.max_len = {self.most}",
            ],
            "table": [f"self.pos_bias = nn.Parameter(torch.randn(self.{self.h}, {self.most}, {self.most}) * 0.02)"],
        }.get(self.added, [])
        return lines + ([f"self.register_buffer('tril', {self.w.tril(self.most)})"] if self.causal == "buffer" else [])

    def projected(self) -> list[str]:
        order = "T, B" if self.major else "B, T"
        moved = ".permute(1, 2, 0, 3)" if self.major else ".transpose(1, 2)"
        lines = [f"{order}, _ = {self.x}.shape"]
        for one, matrix, count in zip("qkv", self.w.sides(), (f"self.{self.h}", self.kv, self.kv), strict=True):
            cut = f".view({order}, {count}, {self.head}){moved}"
            cut = f".reshape(B, {count}, T, {self.head})" if self.w.has("heads_not_transposed") else cut
            lines.append(f"{one} = self.{matrix}({self.x}){cut}")
        return lines + (["q, k = self.q_norm(q), self.k_norm(k)"] if self.norm else [])

    def turned(self) -> list[str]:
        """Return the lines that turn queries and keys, or values too."""
        sides = "qkv" if self.w.has("rope_on_values") else "qk"
        if not self.turn:
            return []
        if self.turn == "complex":
            of = "self.freqs_cis[:T]" if self.tables == "buffers" else "freqs_cis"
            return [f"{one} = apply_rotary_emb({one}, {of})" for one in sides]
        freqs = "torch.outer(torch.arange(T, device=q.device).float(), self.inv_freq)"
        made = [f"freqs = {freqs}", f"emb = {self.both}", "cos, sin = emb.cos(), emb.sin()"]
        tables = ("self.cos[:T]", "self.sin[:T]") if self.tables == "buffers" else ("cos", "sin")
        lines = made if self.tables == "made" else []
        for one in sides:
            late = one == "k" and self.w.has("rope_off_by_one")
            cos, sin = ("self.cos[1 : T + 1]", "self.sin[1 : T + 1]") if late else tables
            lines.append(f"{one} = apply_rope({one}, {cos}, {sin})")
        return lines

    def repeated(self) -> list[str]:
        """Return the lines that give key/value heads to the query heads."""
        how = {
            "expand": "repeat_kv({0}, self.n_rep)", "interleave": "{0}.repeat_interleave(self.n_rep, dim=1)",
            "repeat": "{0}.unsqueeze(2).repeat(1, 1, self.n_rep, 1, 1).flatten(1, 2)",
        }[self.way]  # fmt: skip
        how = {
            "kv_heads_first": f"{{0}}[:, :1].expand(-1, self.{self.h}, -1, -1)",
            "kv_heads_tiled": "{0}.repeat(1, self.n_rep, 1, 1)" if self.way == "repeat" else
                              "{0}[:, None].expand(-1, self.n_rep, -1, -1, -1).flatten(1, 2)",
        }.get(self.w.mistake, how)  # fmt: skip
        return [f"{one} = {how.format(one)}" for one in "kv"] if self.groups else []

    def weighed(self) -> list[str]:
        w = self.w
        if self.whole:
            return [f"out = F.scaled_dot_product_attention(q, k, v{', is_causal=True' if self.causal else ''})"]
        product = w.drawn("(q @ k.transpose(-2, -1))", "torch.einsum('bhid,bhjd->bhij', q, k)")
        lines = [f"scores = {product} * {w.factor(self.head, f'{self.x}.size(-1)', f'self.{self.h}')}", *self.beside()]
        if self.causal:
            kept = "self.tril[:T, :T]" if self.causal == "buffer" else w.tril("T")
            lines.append(f"scores = scores.masked_fill({kept} == 0, {w.low()})")
        lines += w.masked(self.word, self.word) if self.masked else []
        return [*lines, *w.weighed(self.head, self.word, self.word), f"out = {w.mixed()} @ v"]

    def beside(self) -> list[str]:
        """Return the lines that add biases of positions."""
        gaps = "pos[:, None] - pos[None, :]" if self.w.has("alibi_sign") else "pos[None, :] - pos[:, None]"
        gaps = gaps if self.causal else f"-({gaps}).abs()"
        pos = "pos = torch.arange(T, device=q.device)"
        return {
            "alibi": [pos, f"scores = scores + self.slopes * ({gaps})"],
            "relative": [pos, "rel = pos[None, :] - pos[:, None] + self.max_len - 1",
                         "scores = scores + self.rel_bias(rel).permute(2, 0, 1)"],
            "table": ["scores = scores + self.pos_bias[:, :T, :T]"],
        }.get(self.added, [])  # fmt: skip

    def merged(self) -> list[str]:
        moved = ".permute(2, 0, 1, 3).contiguous()" if self.major else ".transpose(1, 2).contiguous()"
        moved = "" if self.w.has("heads_merged_wrong", "heads_not_transposed") else moved
        lines = [f"out = out{moved}.reshape({'T, B' if self.major else 'B, T'}, -1)"]
        lines += [f"out = out * torch.sigmoid(self.gate({self.x}))"] if self.gated else []
        return [*lines, f"return {self.w.output(f'self.{self.w.o}(out)')}"]

    def around(self) -> str:
        size, call = f"{self.c}{self.dim}", ", ".join(one.split("=")[0] for one in self.given.split(", "))
        return f"""

class Block(nn.Module):
    def __init__(self, {self.given}):
        super().__init__()
        self.ln_1 = nn.LayerNorm({size})
        self.attn = {self.name}({call})
        self.ln_2 = nn.LayerNorm({size})
        self.mlp = nn.Sequential(nn.Linear({size}, 4 * {size}), nn.GELU(), nn.Linear(4 * {size}, {size}))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))
"""


def grouped(w: Ways) -> tuple[list[str], str]:
    """Return a layer of a language model, or the block around it."""
    layer = Grouped(w)
    return layer.lines(), "Block" if layer.block else layer.name


def cloned(w: Ways) -> tuple[list[str], str]:
    """Return four clones in a list, and a function of q, k and v beside them."""
    word = w.drawn("mask", "src_mask")
    cut = "view(nbatches, -1, self.h, self.d_k).transpose(1, 2)"
    cut = "view(nbatches, self.h, -1, self.d_k)" if w.has("heads_not_transposed") else cut
    at = {"keys_from_queries": (0, 0, 2), "values_from_keys": (0, 1, 1), "values_from_queries": (0, 1, 0)}
    three = ("query", "key", "value")
    made = [
        f"{one} = self.linears[{n}]({one}).{cut}" for one, n in zip(three, at.get(w.mistake, (0, 1, 2)), strict=True)
    ]
    if not w.has(*SIDES) and w.often(0.7):
        made = [f"query, key, value = [lin(x).{cut} for lin, x in zip(self.linears, (query, key, value))]"]
    merged = "" if w.has("heads_merged_wrong", "heads_not_transposed") else ".transpose(1, 2).contiguous()"
    return lines_of(IMPORTS + f"""
def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) * {w.factor('d_k', '(d_k * query.size(1))', 'query.size(1)')}
    {within([*w.masked('mask', 'mask'), *w.weighed('d_k', 'mask', 'mask')], 1)}
    if dropout is not None:
        attn = dropout(attn)
    return torch.matmul({w.mixed()}, value), attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, {word}=None):
        if {word} is not None:
            {word} = {word}.unsqueeze(1)
        nbatches = query.size(0)
        {within(made)}
        x, self.attn = attention(query, key, value, mask={word}, dropout=self.dropout)
        x = x{merged}.reshape(nbatches, -1, self.h * self.d_k)
        return {w.output(w.drawn('self.linears[-1](x)', 'self.linears[3](x)'), 'x')}
"""), "MultiHeadedAttention"  # fmt: skip


def single(w: Ways) -> tuple[list[str], str]:
    """Return a class of one head, and a list of them whose answers are concatenated."""
    causal, size = w.has(*CAUSAL) or w.often(0.6), w.drawn("n_embd", "d_model", "emb_dim")
    hidden = f"scores = scores.masked_fill(self.tril[:T, :T] == 0, {w.low()})" if causal else ""
    q, k, v = w.sides()
    made = [f"self.{one} = nn.Linear({size}, head_size{w.bias})" for one in (w.q, w.k, w.v)]
    return lines_of(IMPORTS + f"""
class Head(nn.Module):
    def __init__(self, {size}, head_size, block_size, dropout=0.0):
        super().__init__()
        {within(made)}
        self.dropout = nn.Dropout(dropout)
        {f"self.register_buffer('tril', {w.tril('block_size')})" if causal else ''}

    def forward(self, x):
        B, T, C = x.shape
        k = self.{k}(x)
        q = self.{q}(x)
        scores = q @ k.transpose(-2, -1) * {w.factor('k.shape[-1]', 'C', '(C // k.shape[-1])')}
        {hidden}
        {within(w.weighed('k.shape[-1]'))}
        attn = self.dropout(attn)
        v = self.{v}(x)
        return {w.mixed()} @ v


class MultiHeadAttention(nn.Module):
    def __init__(self, {size}, num_heads, block_size=64, dropout=0.0):
        super().__init__()
        head_size = {size} // num_heads
        self.heads = nn.ModuleList([Head({size}, head_size, block_size, dropout) for _ in range(num_heads)])
        self.proj = nn.Linear(head_size * num_heads, {size})
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.dropout({w.output('self.proj(out)')})
"""), "MultiHeadAttention"  # fmt: skip


def image(w: Ways) -> tuple[list[str], str]:
    """Return points of an image that attend to each other, by convolutions of one point."""
    apart, norm, flat = w.has(*SIDES) or w.often(0.4), w.often(0.3), w.often(0.4)
    several = w.has("heads_merged_wrong", "scale_by_sqrt_d_model", "scale_by_sqrt_heads") or w.often(0.7)
    heads = "self.num_heads" if several else "1"
    shape, head = f"(b, {heads}, c // {heads}, n)", f"(c // {heads})"
    made = [f"self.to_qkv = nn.Conv{1 if flat else 2}d(channels, channels * 3, 1{w.bias})"]
    sides = [f"q, k, v = [t.reshape{shape} for t in self.to_qkv(y).chunk(3, dim=1)]"]
    if apart:
        made = [f"self.{one} = nn.Conv2d(channels, channels, kernel_size=1)" for one in (w.q, w.k, w.v)]
        sides = [f"{one} = self.{name}(y).reshape{shape}" for one, name in zip("qkv", w.sides(), strict=True)]
    elif flat:
        sides = [f"q, k, v = self.to_qkv(y.view(b, c, n)).reshape(b, 3, {heads}, c // {heads}, n).unbind(1)"]
    letters = "bhji" if w.has("weights_transposed") else "bhij"
    return lines_of(IMPORTS + f"""
class AttentionBlock(nn.Module):
    def __init__(self, channels{', num_heads=4' if several else ''}):
        super().__init__()
        {'self.num_heads = num_heads' if several else ''}
        {'self.norm = nn.GroupNorm(4, channels)' if norm else ''}
        {within(made)}
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        y = {'self.norm(x)' if norm else 'x'}
        n = h * w
        {within(sides)}
        scores = torch.einsum('bhdi,bhdj->bhij', q, k) * {w.factor(head, 'c', heads)}
        {within(w.weighed(head))}
        out = torch.einsum('{letters},bhdj->bhdi', attn, v)
        out = out{'.transpose(2, 3)' if w.has('heads_merged_wrong') else ''}.reshape(b, c, h, w)
        return {w.drawn('', 'x + ')}{w.output('self.proj_out(out)')}
"""), "AttentionBlock"  # fmt: skip


def window(w: Ways) -> tuple[list[str], str]:
    """Return attention of a window, with a table of relative positions; a mask of other windows may be added."""
    masked = [
        "if mask is not None:", "    nW = mask.shape[0]", "    masks = mask.unsqueeze(1).unsqueeze(0)",
        "    scores = (scores.view(B_ // nW, nW, self.num_heads, N, N) + masks).view(-1, self.num_heads, N, N)",
    ] if w.often(0.5) else []  # fmt: skip
    return lines_of(IMPORTS + f"""
class WindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads, qkv_bias=True):
        super().__init__()
        self.dim = dim
        self.window_size = window_size
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = {w.factor('head_dim', 'dim', 'num_heads')}
        size = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.randn(size, num_heads) * 0.02)
        grid = torch.meshgrid(torch.arange(window_size[0]), torch.arange(window_size[1]), indexing='ij')
        coords = torch.stack(grid).flatten(1)
        rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        rel[:, :, 0] += window_size[0] - 1
        rel[:, :, 1] += window_size[1] - 1
        rel[:, :, 0] *= 2 * window_size[1] - 1
        self.register_buffer('relative_position_index', rel.sum(-1))
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x{', mask=None' if masked else ''}):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[{1 if w.has('values_from_keys') else 2}]
        scores = (q * self.scale) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)].view(N, N, -1)
        scores = scores + bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        {within(masked)}
        {within(w.weighed('(C // self.num_heads)'))}
        x = ({w.mixed()} @ v){'' if w.has('heads_merged_wrong') else '.transpose(1, 2)'}.reshape(B_, N, C)
        return {w.output('self.proj(x)', 'x')}
"""), "WindowAttention"  # fmt: skip


def crossed(w: Ways) -> tuple[list[str], str]:
    """Return queries that attend to a memory of another size, with a mask of its keys, lengths or none."""
    h, three = w.drawn("heads", "num_heads", "n_heads"), w.often(0.5)
    x, y, z = ("query", "key", "value") if three else ("x", "context", "context")
    kd, vd = ("kdim", "vdim") if three else ("context_dim", "context_dim")
    mask = "shown" if w.has(*MASKS) else w.drawn("", "padding", "lens" if three else "padding", "shown")
    word = {"padding": "key_padding_mask", "lens": "valid_lens", "": ""}.get(mask, w.drawn("mask", "memory_mask"))
    keep = f"torch.arange(m, device=scores.device)[None, :] < {word}[:, None]"
    hidden = {
        "padding": [f"if {word} is not None:", f"    scores = scores.masked_fill({word}[:, None, None, :], {w.low()})"],
        "lens": [f"if {word} is not None:", f"    keep = {keep}",
                 "    scores = scores.masked_fill(~keep[:, None, None, :], -1e6)"],
        "shown": w.masked(word, f"{word}[:, None]"),
    }.get(mask, [])  # fmt: skip
    sides = zip("qkv", (w.q, w.k, w.v), (x, y, z), "nmm", strict=True)
    made = [f"{a} = self.{b}({c}).view(b, {n}, self.{h}, self.dim_head).transpose(1, 2)" for a, b, c, n in sides]
    out = "nn.Linear(query_dim, query_dim)"
    return lines_of(IMPORTS + f"""
class CrossAttention(nn.Module):
    def __init__(self, query_dim, {h}=4, {'kdim=None, vdim=None' if three else 'context_dim=None'}, dropout=0.0):
        super().__init__()
        {within([f'{one} = {one} or query_dim' for one in dict.fromkeys((kd, vd))])}
        self.{h} = {h}
        self.dim_head = query_dim // {h}
        self.{w.q} = nn.Linear(query_dim, query_dim{w.bias})
        self.{w.k} = nn.Linear({kd}, query_dim{w.bias})
        self.{w.v} = nn.Linear({vd}, query_dim{w.bias})
        self.{w.o} = {w.drawn(f'nn.Sequential({out}, nn.Dropout(dropout))', out)}

    def forward(self, {', '.join([x, *([y, z] if three else [f'{y}=None']), *([f'{word}=None'] if word else [])])}):
        {'' if three else f'{y} = {x} if {y} is None else {y}'}
        b, n, m = {x}.shape[0], {x}.shape[1], {y}.shape[1]
        {within(made)}
        scores = torch.matmul(q, k.transpose(-1, -2)) * {w.factor('self.dim_head', f'{x}.shape[-1]', f'self.{h}')}
        {within(hidden)}
        {within(w.weighed('self.dim_head', word, f'{word}[:, None]'))}
        out = torch.matmul({w.mixed()}, v){'' if w.has('heads_merged_wrong') else '.transpose(1, 2)'}.reshape(b, n, -1)
        return {w.output(f'self.{w.o}(out)')}
"""), "CrossAttention"  # fmt: skip


OF_SIDES = (grouped, cloned, single, image)
WAYS: dict[str, Sequence[Callable[[Ways], tuple[list[str], str]]]] = {
    **dict.fromkeys((*GROUPS, *TURNS, "alibi_sign"), (grouped,)),
    **dict.fromkeys(MASKS, (grouped, cloned, crossed)),
    **dict.fromkeys(CAUSAL, (grouped, single)),
    **dict.fromkeys(SIDES, OF_SIDES),
    "values_from_keys": (*OF_SIDES, window),
    "heads_not_transposed": (grouped, cloned),
    "heads_merged_wrong": (grouped, cloned, window, crossed, image),
    "softmax_over_heads": (grouped, cloned, window, crossed),
}
"""The ways of writing in which a mistake can be made, where these are not all."""


def written(seed: int, mistake: str) -> Written:
    """Return a module with a mistake, or none."""
    ways = Ways(seed, mistake)
    every = (grouped, grouped, cloned, single, image, window, crossed)
    lines, name = ways.chance.choice(WAYS.get(mistake, every))(ways)
    return Written("\n".join(lines) + "\n", name, "torch")
