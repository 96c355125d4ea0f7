"""Modules of PyTorch as many people write them: a class with matrices of its own, that is called with x, or q, k and v.

The names of sizes and matrices, how q, k and v are packed and heads are split, where the scale stands, which mask it
takes and what is around it are drawn from the seed; a mistake is one line that is exchanged.
"""

from __future__ import annotations

import random

from tools.layers._written import Written

SIZES = (
    ("d_model", "num_heads"), ("dim", "heads"), ("embed_dim", "num_heads"), ("hidden_size", "n_heads"),
    ("n_embd", "n_head"), ("emb_size", "heads"), ("model_dim", "nhead"), ("in_dim", "head_num"), ("d_model", "h"),
    ("embedding_dim", "num_attention_heads"), ("hid_dim", "n_heads"), ("channels", "num_heads"), ("d", "n_heads"),
    ("features", "nb_heads"), ("width", "heads"), ("input_dim", "n_head"), ("units", "num_heads"),
)  # fmt: skip
"""What people call the size of the model and the number of heads."""
HEAD_SIZES = ("head_dim", "d_k", "dim_head", "depth", "head_size", "d_head", "dk", "size_per_head")
NAMES = (
    ("q_proj", "k_proj", "v_proj", "out_proj"), ("W_q", "W_k", "W_v", "W_o"), ("query", "key", "value", "out"),
    ("to_q", "to_k", "to_v", "to_out"), ("fc_q", "fc_k", "fc_v", "fc_o"), ("wq", "wk", "wv", "wo"),
    ("w_qs", "w_ks", "w_vs", "fc"), ("queries", "keys", "values", "fc_out"), ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("query_layer", "key_layer", "value_layer", "output_layer"), ("WQ", "WK", "WV", "WO"), ("Wq", "Wk", "Wv", "proj"),
    ("lin_q", "lin_k", "lin_v", "lin_out"), ("q", "k", "v", "o"), ("toqueries", "tokeys", "tovalues", "unifyheads"),
    ("proj_q", "proj_k", "proj_v", "dense"), ("q_net", "k_net", "v_net", "o_net"),
)  # fmt: skip
"""What they call the matrices."""
PACKED = ("qkv", "c_attn", "to_qkv", "in_proj", "qkv_proj", "W_qkv", "query_key_value", "attn_in")
OUT = ("proj", "c_proj", "to_out", "out_proj", "o_proj", "W_o", "dense", "fc", "out")
CLASSES = ("MultiHeadAttention", "SelfAttention", "Attention", "MHA", "MultiHeadedAttention", "AttentionLayer")
MISTAKES = (
    "no_scale", "scale_by_d", "scale_by_sqrt_d_model", "scale_multiplied", "scale_twice", "scale_after_softmax",
    "scale_by_sqrt_heads", "scale_fixed", "softmax_over_queries", "softmax_over_heads", "softmax_twice", "no_softmax",
    "causal_strict", "causal_next", "causal_flipped", "mask_after_softmax", "mask_small_fill", "mask_ignored",
    "heads_not_transposed", "heads_merged_wrong", "keys_from_queries", "values_from_keys", "weights_transposed",
    "dropout_on", "no_output_projection", "keys_viewed", "projected_twice", "values_from_queries",
    "mask_multiplied", "mask_sign",
)  # fmt: skip
OF_SIDES = ("keys_from_queries", "values_from_keys", "values_from_queries", "projected_twice")
OF_HEADS = ("softmax_over_heads", "heads_not_transposed", "heads_merged_wrong", "keys_viewed", "mask_sign")
OF_CAUSAL, OF_MASKS = MISTAKES[12:15], ("mask_after_softmax", "mask_small_fill", "mask_ignored", "mask_multiplied")


class Layer:
    """A module of PyTorch as it is written: `source` is its file, and `name` its class."""

    def __init__(self, seed: int, mistake: str = "") -> None:
        self.chance, self.mistake = random.Random(f"{seed} {mistake}"), mistake
        self.size, self.heads = self.chance.choice(SIZES)
        self.head = self.chance.choice(HEAD_SIZES)
        self.name = self.chance.choice(CLASSES)
        self.inputs = self.drawn("self", "self", "self", "three", "memory")
        if mistake in OF_SIDES:
            self.inputs = "self"
        self.packing, self.layout = self.packed_and_laid()
        self.masked = self.mask_of()
        self.around = self.drawn("", "", "", "post", "pre", "residual") if self.inputs == "self" else ""
        self.apart_size = self.layout != "cat" and self.often(0.25)  # heads whose size is no share of the model's
        self.configured = self.often(0.15)
        names = list(self.chance.choice(NAMES))
        self.names = names if self.packing in ("apart", "bare") else [*names[:3], self.drawn(*OUT)]
        self.packed = self.drawn(*PACKED)
        self.bias = self.drawn("", ", bias=False", ", bias=bias")
        self.dropped = self.often(0.5)
        self.source = "\n".join([*self.imports(), "", "", *self.lines()]) + "\n"

    def packed_and_laid(self) -> tuple[str, str]:
        """Draw how q, k and v are packed, and in which order of axes heads are multiplied."""
        packing = "apart"
        if self.inputs == "self" and self.mistake not in ("projected_twice", "keys_from_queries"):
            apart = self.mistake == "heads_not_transposed"  # some packs have heads and tokens exchanged already
            packing = self.drawn("apart", "apart", "chunk", "bare", *(() if apart else ("three", "by_head")))
        elif self.inputs == "memory":
            packing = self.drawn("apart", "kv")
        layout = self.drawn("bhtd", "bhtd", "bhtd", "bthd", "flat", "cat", "einops")
        return packing, "bhtd" if packing in ("three", "by_head") or self.mistake in OF_HEADS else layout

    def mask_of(self) -> str:
        """Draw which mask it takes, or has inside."""
        if self.mistake in OF_CAUSAL:
            return self.drawn("buffer", "inline")
        if self.mistake in OF_MASKS:
            self.layout = self.layout if self.layout in ("bthd", "einops") else "bhtd"
            return self.drawn("fill", "fill4")
        inside = ("", "", "buffer", "inline")
        given = ("fill", "fill4", "hide", "added", "padding") if self.layout not in ("flat", "cat") else ()
        return "added" if self.mistake == "mask_sign" else self.drawn(*inside, *given)

    def drawn(self, *choices: str) -> str:
        """Draw one of some choices."""
        return self.chance.choice(choices)

    def often(self, share: float) -> bool:
        """Say whether something that happens so often happens."""
        return self.chance.random() < share

    def imports(self) -> list[str]:
        """Return the first lines of the file."""
        lines = ["import math", "", "import torch", "import torch.nn as nn", "import torch.nn.functional as F"]
        lines += ["from einops import rearrange"] if self.layout == "einops" else []
        return ["from dataclasses import dataclass", *lines] if self.configured else lines

    def lines(self) -> list[str]:
        """Return the lines of the class, and of its configuration."""
        made = [f"class {self.name}(nn.Module):", *("    " + line for line in [*self.init(), "", *self.forward()])]
        if not self.configured:
            return made
        config = ["@dataclass", "class Config:", f"    {self.size}: int = 64", f"    {self.heads}: int = 8"]
        config += [f"    {self.head}: int = 16"] if self.apart_size else []
        config += ["    dropout: float = 0.1", "    bias: bool = True", "    block_size: int = 128", "", ""]
        return [*config, *made]

    def init(self) -> list[str]:
        """Return the lines of the constructor."""
        cfg = self.drawn("config", "cfg", "args") if self.configured else ""
        of = f"{cfg}." if cfg else ""
        size, heads, head = f"{of}{self.size}", f"{of}{self.heads}", self.head
        self.h, self.s = f"self.{self.heads}", f"self.{self.size}"
        given = [self.size, self.heads]
        defaults = self.often(0.3)
        given = [f"{self.size}=64", f"{self.heads}=8"] if defaults else given
        given += [f"{head}=16"] if self.apart_size else []
        given += ["dropout=0.1"] if self.dropped else []
        given += ["bias=True"] if self.bias.endswith("=bias") else []
        given += ["block_size=128"] if self.masked == "buffer" else []
        signature = cfg if cfg else ", ".join(given)
        lines = [f"def __init__(self, {signature}):", "    super().__init__()"]
        body = [f"self.{self.size} = {size}", f"self.{self.heads} = {heads}"]
        if not self.apart_size and self.often(0.5):
            body.insert(0, f"assert {size} % {heads} == 0")
        body.append(f"self.{head} = {of}{head}" if self.apart_size else f"self.{head} = {size} // {heads}")
        inner = f"{heads} * self.{head}" if self.apart_size else size
        bias = self.bias.replace("=bias", f"={of}bias")
        q, k, v, o = self.names
        if self.packing == "apart":
            body += [f"self.{one} = nn.Linear({size}, {inner}{bias})" for one in (q, k, v)]
        elif self.packing == "bare":
            shape = f"{size}, {inner}"
            body += [f"self.{one} = nn.Parameter(torch.randn({shape}) / {size} ** 0.5)" for one in (q, k, v)]
        elif self.packing == "kv":
            body += [f"self.{q} = nn.Linear({size}, {inner}{bias})"]
            body += [f"self.{self.drawn_kv()} = nn.Linear({size}, 2 * {inner}{bias})"]
        else:
            body += [f"self.{self.packed} = nn.Linear({size}, 3 * {inner}{bias})"]
        body.append(f"self.{o} = nn.Linear({inner}, {size}{self.drawn('', bias)})")
        if self.dropped:
            body.append(f"self.dropout = nn.Dropout({of}dropout)")
        if self.masked == "buffer":
            body.append(f"self.register_buffer('mask', {self.tril(f'{of}block_size', f'{of}block_size')})")
        if self.around in ("post", "pre"):
            body.append(f"self.norm = nn.LayerNorm({size})")
        self.scaled_early = self.often(0.3)
        if self.scaled_early:
            body.append(f"self.scale = {self.factor(f'self.{head}', size, heads)}")
        return [*lines, *("    " + one for one in body)]

    def drawn_kv(self) -> str:
        self.kv = self.drawn("kv", "to_kv", "kv_proj", "key_value")
        return self.kv

    def factor(self, head: str, size: str, heads: str) -> str:
        """Return the number that the scores are multiplied by."""
        wrong = {
            "no_scale": "1.0", "scale_by_d": f"1.0 / {head}", "scale_by_sqrt_d_model": f"{size} ** -0.5",
            "scale_multiplied": f"math.sqrt({head})", "scale_twice": f"1.0 / {head}",
            "scale_by_sqrt_heads": f"{heads} ** -0.5", "scale_after_softmax": "1.0", "scale_fixed": "0.125",
        }  # fmt: skip
        return wrong.get(self.mistake) or self.drawn(
            f"{head} ** -0.5", f"1 / math.sqrt({head})", f"1.0 / ({head} ** 0.5)"
        )

    def tril(self, rows: str, columns: str) -> str:
        """Return a causal mask, of 1 where one may attend."""
        moved = {"causal_strict": ", diagonal=-1", "causal_next": ", diagonal=1"}.get(self.mistake, "")
        return f"torch.{'triu' if self.mistake == 'causal_flipped' else 'tril'}(torch.ones({rows}, {columns}){moved})"

    def forward(self) -> list[str]:
        """Return the lines of the call."""
        x = self.drawn("x", "x", "inputs", "hidden_states")
        memory = self.drawn("context", "memory", "encoder_out")
        three = self.chance.choice((("query", "key", "value"), ("q", "k", "v"), ("queries", "keys", "values")))
        sources = {"self": (x, x, x), "three": three, "memory": (x, memory, memory)}[self.inputs]
        word = {
            "": "",
            "buffer": "",
            "inline": "",
            "padding": self.drawn("key_padding_mask", "padding_mask"),
            "added": self.drawn("attn_mask", "attention_mask"),
        }.get(self.masked, self.drawn("mask", "mask", "attn_mask"))
        given = {"self": [x], "three": list(three), "memory": [x, f"{memory}=None"]}[self.inputs]
        given += [f"{word}=None"] if word else []
        body = [f"{memory} = {x} if {memory} is None else {memory}"] if self.inputs == "memory" else []
        if self.around:
            body.append(f"residual = {x}")
        if self.around == "pre":
            body.append(f"{x} = self.norm({x})")
        sizes = [f"B, T = {sources[0]}.shape[0], {sources[0]}.shape[1]"]
        sizes += [] if self.inputs == "self" else [f"S = {sources[1]}.shape[1]"]
        rows, columns = "T", "T" if self.inputs == "self" else "S"
        body += sizes
        q, k, v = ("Q", "K", "V") if self.inputs == "three" or self.often(0.5) else ("q", "k", "v")
        body += self.projected(q, k, v, sources)
        body += self.split(q, k, v, rows, columns)
        body += self.weighed(q, k, word, rows, columns)
        body += self.merged(v)
        o = self.names[3]
        body.append("out = out" if self.mistake == "no_output_projection" else f"out = self.{o}(out)")
        if self.around:
            body.append("out = out + residual")
        if self.around == "post":
            body.append("out = self.norm(out)")
        body.append(self.drawn("return out", "return out", "return out, attn"))
        return [f"def forward(self, {', '.join(given)}):", *("    " + one for one in body)]

    def projected(self, q: str, k: str, v: str, sources: tuple[str, str, str]) -> list[str]:
        """Return the lines that make q, k and v."""
        names, h, hd = self.names, self.h, f"self.{self.head}"
        call = "{1} @ self.{0}" if self.packing == "bare" else "self.{0}({1})"
        instead = {
            "projected_twice": (v, 2, k), "keys_from_queries": (k, 0, sources[1]),
            "values_from_keys": (v, 1, sources[2]), "values_from_queries": (v, 0, sources[2]),
        }.get(self.mistake)  # fmt: skip
        if self.packing in ("apart", "bare"):
            lines = [f"{one} = {call.format(name, x)}" for one, name, x in zip((q, k, v), names, sources, strict=False)]
            if instead is not None:
                lines["qkv".index(instead[0].lower())] = f"{instead[0]} = {call.format(names[instead[1]], instead[2])}"
            return lines
        made = f"self.{self.packed}({sources[0]})"
        if self.packing == "kv":
            lines = [
                f"{q} = self.{names[0]}({sources[0]})",
                f"{k}, {v} = self.{self.kv}({sources[1]}).chunk(2, dim=-1)",
            ]
        elif self.packing == "chunk":
            lines = [f"{q}, {k}, {v} = {made}.{self.drawn('chunk(3, dim=-1)', f'split({h} * {hd}, dim=-1)')}"]
        elif self.packing == "three":
            lines = [f"{q}, {k}, {v} = {made}.reshape(B, T, 3, {h}, {hd}).permute(2, 0, 3, 1, 4)"]
        else:
            lines = [
                f"qkv = {made}.reshape(B, T, {h}, 3 * {hd}).permute(0, 2, 1, 3)",
                f"{q}, {k}, {v} = qkv.chunk(3, dim=-1)",
            ]
        return lines if instead is None else [*lines, f"{v} = {(q, k)[instead[1]]}"]

    def split(self, q: str, k: str, v: str, rows: str, columns: str) -> list[str]:
        """Return the lines that cut q, k and v into heads."""
        h, hd = self.h, f"self.{self.head}"
        if self.packing in ("three", "by_head"):
            return []
        lines = []
        how = self.drawn("view_t", "view_p")
        for one, count in ((q, rows), (k, columns), (v, columns)):
            if self.mistake == "heads_not_transposed":
                lines.append(f"{one} = {one}.reshape(B, {h}, {count}, {hd})")
            elif self.layout == "bhtd":
                end = ".transpose(1, 2)" if how == "view_t" else ".permute(0, 2, 1, 3)"
                lines.append(f"{one} = {one}.view(B, {self.drawn(count, '-1')}, {h}, {hd}){end}")
            elif self.layout == "bthd":
                lines.append(f"{one} = {one}.reshape(B, {count}, {h}, {hd})")
            elif self.layout == "flat":
                lines.append(
                    f"{one} = {one}.view(B, {count}, {h}, {hd}).transpose(1, 2).reshape(B * {h}, {count}, {hd})"
                )
            elif self.layout == "einops":
                lines.append(f"{one} = rearrange({one}, 'b n (h d) -> b h n d', h={h})")
            else:
                lines.append(f"{one} = torch.cat({one}.split({hd}, dim=2), dim=0)")
        return lines

    def weighed(self, q: str, k: str, word: str, rows: str, columns: str) -> list[str]:
        """Return the lines from the scores to the weights, `attn`."""
        head, lines = f"self.{self.head}", list[str]()
        kt = f"{k}.{self.drawn('transpose(-2, -1)', 'transpose(-1, -2)')}"
        if self.mistake == "keys_viewed":
            kt = f"{k}.reshape(B, {self.h}, {head}, {columns})"
        product = {
            "bhtd": [f"torch.matmul({q}, {kt})", f"{q} @ {kt}", f"torch.einsum('bhqd,bhkd->bhqk', {q}, {k})"],
            "bthd": [f"torch.einsum('bqhd,bkhd->bhqk', {q}, {k})"],
        }.get(self.layout, [f"{q} @ {kt}", f"torch.matmul({q}, {kt})"])
        product = product[:2] if self.mistake == "keys_viewed" else product
        plain = f"1.0 / {head} ** 0.5" if self.mistake == "scale_after_softmax" else ""
        factor = "self.scale" if self.scaled_early else self.factor(head, self.s, self.h)
        if self.mistake in ("no_scale", "scale_after_softmax") and not self.scaled_early:
            lines.append(f"scores = {self.drawn(*product)}")
        elif self.often(0.2):
            lines += [f"{q} = {q} * {factor}", f"scores = {self.drawn(*product)}"]
        else:
            lines.append(f"scores = {self.drawn(*product)} * {self.brackets(factor)}")
        lines += self.hidden(word, rows, columns)
        dim = {"softmax_over_queries": "-2", "softmax_over_heads": "1"}.get(self.mistake, "-1")
        shares = self.drawn(
            f"F.softmax(scores, dim={dim})", f"torch.softmax(scores, dim={dim})", f"scores.softmax(dim={dim})"
        )
        lines.append("attn = scores" if self.mistake == "no_softmax" else f"attn = {shares}")
        if self.mistake == "softmax_twice":
            lines.append("attn = F.softmax(attn, dim=-1)")
        if plain:
            lines.append(f"attn = attn * ({plain})")
        if self.mistake == "mask_after_softmax":
            lines.append(f"if {word} is not None:")
            lines.append(f"    attn = attn.masked_fill({self.shaped(word)} == 0, 0.0)")
        if self.mistake == "dropout_on":
            lines.append("attn = F.dropout(attn, 0.1)")
        elif self.dropped:
            lines.append("attn = self.dropout(attn)")
        return lines

    def brackets(self, text: str) -> str:
        return text if text.replace(".", "").isidentifier() else f"({text})"

    def shaped(self, word: str) -> str:
        return f"{word}.unsqueeze(1)" if self.masked == "fill" else word

    def hidden(self, word: str, rows: str, columns: str) -> list[str]:
        """Return the lines that hide keys."""
        low = self.drawn("-1e9", "float('-inf')", "-1e20", "torch.finfo(scores.dtype).min")
        low = self.drawn("1e-9", "-1e-9", "-1.0") if self.mistake == "mask_small_fill" else low
        fill = f"scores = scores.masked_fill({{}}, {low})"
        if self.masked == "buffer":
            return [fill.format(f"self.mask[:{rows}, :{columns}] == 0")]
        if self.masked == "inline":
            return [f"causal = {self.tril(rows, columns)}.to(scores.device)", fill.format("causal == 0")]
        if not self.masked or self.mistake == "mask_after_softmax":
            return []
        one = {
            "hide": fill.format(word), "padding": fill.format(f"{word}[:, None, None, :]"),
            "added": f"scores = scores {'-' if self.mistake == 'mask_sign' else '+'} {word}",
        }.get(self.masked, fill.format(f"{self.shaped(word)} == 0"))  # fmt: skip
        if self.mistake == "mask_ignored":
            one = one.removeprefix("scores = ")
        elif self.mistake == "mask_multiplied":
            one = f"scores = scores * {self.shaped(word)}"
        return [f"if {word} is not None:", f"    {one}"]

    def merged(self, v: str) -> list[str]:
        """Return the lines that mix the values and put the heads side by side."""
        h, hd = self.h, f"self.{self.head}"
        attn = "attn.transpose(-2, -1)" if self.mistake == "weights_transposed" else "attn"
        if self.layout == "bthd":
            letters = "bhkq,bkhd->bqhd" if self.mistake == "weights_transposed" else "bhqk,bkhd->bqhd"
            return [f"out = torch.einsum('{letters}', attn, {v}).reshape(B, T, {h} * {hd})"]
        lines = [f"out = {self.drawn(f'torch.matmul({attn}, {v})', f'{attn} @ {v}')}"]
        if self.layout == "cat":
            return [*lines, "out = torch.cat(out.split(B, dim=0), dim=2)"]
        if self.layout == "flat":
            return [*lines, f"out = out.view(B, {h}, T, {hd}).transpose(1, 2).reshape(B, T, {h} * {hd})"]
        if self.layout == "einops":
            return [*lines, "out = rearrange(out, 'b h n d -> b n (h d)')"]
        if self.mistake in ("heads_merged_wrong", "heads_not_transposed"):
            return [*lines, f"out = out.reshape(B, T, {h} * {hd})"]
        end = self.drawn(
            ".transpose(1, 2).contiguous().view", ".permute(0, 2, 1, 3).reshape", ".transpose(1, 2).reshape"
        )
        return [*lines, f"out = out{end}(B, T, {h} * {hd})"]


def written(seed: int, mistake: str) -> Written:
    """Return a module with a mistake, or none."""
    layer = Layer(seed, mistake)
    return Written(layer.source, layer.name, "torch")
