"""Layers of Flax, Haiku, Equinox and Keras, and functions of JAX with parameters apart, as many people write them.

Where the matrices stand, what they and the sizes are called, how heads are split, which mask it takes and what is
around it are drawn from the seed; a mistake is one line that is exchanged.
"""

from __future__ import annotations

import random

from tools.layers._written import Written
from tools.layers.modules import HEAD_SIZES, NAMES, OUT, PACKED

LIBRARIES = ("compact", "setup", "nnx", "haiku", "haiku_function", "equinox", "keras", "keras_weights", "plain")
FRAMEWORKS = {"compact": "flax", "setup": "flax", "nnx": "flax", "haiku": "haiku", "haiku_function": "haiku",
              "equinox": "equinox", "keras": "keras", "keras_weights": "keras", "plain": "jax"}  # fmt: skip
SIZES = (
    ("d_model", "num_heads"), ("dim", "heads"), ("embed_dim", "num_heads"), ("hidden_size", "n_heads"),
    ("features", "num_heads"), ("emb_dim", "n_head"), ("model_size", "num_heads"), ("width", "nheads"),
    ("qkv_features", "num_heads"), ("units", "num_heads"), ("n_embd", "n_head"), ("hidden_dim", "nb_heads"),
    ("output_size", "num_heads"), ("d", "h"),
)  # fmt: skip
CLASSES = ("MultiHeadAttention", "SelfAttention", "Attention", "MHA", "CausalSelfAttention", "AttentionBlock")
MISTAKES = (
    "no_scale", "scale_by_d", "scale_by_sqrt_d_model", "scale_multiplied", "scale_after_softmax", "scale_by_sqrt_heads",
    "scale_twice", "softmax_over_queries", "softmax_over_heads", "softmax_twice", "no_softmax", "causal_strict",
    "causal_next", "causal_flipped", "mask_after_softmax", "mask_small_fill", "mask_ignored", "mask_multiplied",
    "mask_sign", "heads_not_transposed", "heads_merged_wrong", "keys_from_queries", "values_from_keys",
    "values_from_queries", "weights_transposed", "dropout_on", "no_output_projection", "keys_viewed",
)  # fmt: skip
OF_CAUSAL, OF_MASKS = MISTAKES[11:14], MISTAKES[14:18]
OF_SIDES, OF_HEADS = ("keys_from_queries", "values_from_keys", "values_from_queries"), MISTAKES[19:21]


class Layer:
    """A layer as it is written: `source` is its file, and `name` what is to be checked in it."""

    def __init__(self, seed: int, mistake: str) -> None:
        self.chance, self.mistake = random.Random(f"{seed} {mistake} of others"), mistake
        libraries = [one for one in LIBRARIES if mistake != "dropout_on" or one not in ("equinox", "plain", "nnx")]
        self.library = self.chance.choice(libraries)
        self.of_keras = self.library.startswith("keras")
        self.size, self.heads = self.chance.choice(SIZES)
        self.head, self.name = self.drawn(*HEAD_SIZES), self.drawn(*CLASSES)
        self.batched = self.library != "equinox" and (self.library != "plain" or self.often(0.6))
        self.inputs = self.drawn("self", "self", "three", "memory")
        if self.of_keras and self.often(0.2):
            self.inputs = "list"
        if mistake in (*OF_SIDES, *OF_CAUSAL, *OF_HEADS, "weights_transposed", "keys_viewed"):
            self.inputs = "self"
        self.packed = self.inputs == "self" and mistake not in OF_SIDES and self.often(0.35)
        self.general = self.library in ("compact", "setup", "nnx") and not self.packed and self.often(0.4)
        if mistake in (*OF_HEADS, "keys_viewed", "no_output_projection"):
            self.general = False
        self.late = self.general or self.often(0.3)  # heads stay on the third axis, and einsum reads them there
        if mistake in (*OF_HEADS, "keys_viewed"):
            self.late = False
        self.masked = self.drawn(
            "", "", "inline", "flag", "keep", "keep", "zero", "keep3", "hide", "tutorial", "added", "inverse", "padding"
        )
        if mistake in OF_CAUSAL:
            self.masked = "inline"
        elif mistake in OF_MASKS:
            self.masked = self.drawn("keep", "zero", "keep3")
        elif mistake == "no_softmax":  # what is filled is no mask then
            self.masked = ""
        elif mistake == "mask_sign":
            self.masked = "added"
        if self.masked in ("inline", "flag") and self.inputs != "self":
            self.masked = "keep"
        self.around = self.drawn("", "", "", "residual", "pre", "post") if self.inputs == "self" else ""
        self.around = "" if self.library == "plain" else self.around
        self.names = list(self.chance.choice(NAMES))
        self.qkv = self.drawn(*PACKED)
        self.names[3] = self.drawn(*OUT) if self.packed else self.names[3]
        self.biased = self.often(0.5)
        self.dropped = self.library != "plain" and self.often(0.3)
        self.told = self.library not in ("compact", "haiku") or self.often(0.6)  # its size, not read off x
        self.scaled_first = self.often(0.3)
        self.ops = "ops" if self.of_keras else "jnp"
        writer = {"plain": self.plain, "haiku_function": self.haiku_function}.get(self.library, self.of_class)
        self.source = "\n".join([*self.imports(), "", "", *writer()]) + "\n"

    def drawn(self, *choices: str) -> str:
        return self.chance.choice(choices)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def imports(self) -> list[str]:
        if self.of_keras:
            return ["import math", "", "import keras", "from keras import layers, ops"]
        more = {"compact": "import flax.linen as nn", "setup": "from flax import linen as nn",
                "nnx": "from flax import nnx", "haiku": "import haiku as hk", "haiku_function": "import haiku as hk",
                "equinox": "import equinox as eqx"}  # fmt: skip
        lines = ["import math", "from typing import Any, Optional", "", "import jax", "import jax.numpy as jnp"]
        return [*lines, *([more[self.library]] if self.library in more else [])]

    # What stands in the constructor

    def of_class(self) -> list[str]:
        """Return a class with its constructor and its call."""
        self.h = f"self.{self.heads}"
        self.m = f"self.{self.size}" if self.told else "d_model"
        bases = {"nnx": "nnx.Module", "haiku": "hk.Module", "equinox": "eqx.Module", "keras": "layers.Layer",
                 "keras_weights": "keras.layers.Layer"}  # fmt: skip
        made = {"nnx": self.nnx, "haiku": self.haiku, "equinox": self.equinox, "keras": self.keras,
                "keras_weights": self.keras}.get(self.library, self.linen)()  # fmt: skip
        call = self.call()
        if self.library == "compact":
            call = ["@nn.compact", *call]
        body = [*made, "", *call]
        return [f"class {self.name}({bases.get(self.library, 'nn.Module')}):", *("    " + one for one in body)]

    def linen(self) -> list[str]:
        lines = [f"{self.size}: int"] if self.told else []
        lines.append(f"{self.heads}: int")
        lines += ["dropout_rate: float = 0.1"] if self.dropped or self.mistake == "dropout_on" else []
        lines += ["dtype: Any = jnp.float32"] if self.often(0.2) else []
        lines += ["causal: bool = True"] if self.masked == "flag" else []
        if self.library == "compact":
            return lines
        lines += ["", "def setup(self):"]
        body = [f"self.{self.head} = {self.m} // {self.h}"]
        body += [f"self.{name} = {made}" for name, made in self.makers()]
        if self.dropped or self.mistake == "dropout_on":
            body.append("self.drop = nn.Dropout(self.dropout_rate)")
        if self.around in ("pre", "post"):
            body.append("self.norm = nn.LayerNorm()")
        return [*lines, *("    " + one for one in body)]

    def makers(self) -> list[tuple[str, str]]:
        """Return the matrices of a layer by name, each as the call that makes it."""
        bias = "" if self.biased else ", use_bias=False"
        kind, m, h, d = self.library, self.m, self.h, self.d()
        if self.general:
            many, one = f"({h}, {d})", f"{m}, axis=(-2, -1)"
            if kind == "nnx":
                many, one = f"{self.size}, {many}", f"({self.heads}, self.{self.head}), {self.size}, axis=(-2, -1)"
            call = {"nnx": "nnx.LinearGeneral"}.get(kind, "nn.DenseGeneral")
            last = ", rngs=rngs" if kind == "nnx" else ""
            name = "" if kind == "nnx" or self.often(0.5) else "features="
            sides = [(each, f"{call}({name}{many}{bias}{last})") for each in self.names[:3]]
            return [*sides, (self.names[3], f"{call}({one}{bias}{last})")]
        calls = {
            "compact": "nn.Dense({0}{1})", "setup": "nn.Dense({0}{1})", "nnx": "nnx.Linear({2}, {0}{1}, rngs=rngs)",
            "haiku": "hk.Linear({0}{1})", "haiku_function": "hk.Linear({0}{1})", "keras": "layers.Dense({0}{1})",
            "equinox": "eqx.nn.Linear({2}, {0}{1}, key=keys[{3}])",
        }  # fmt: skip
        bias = bias.replace("use_bias", "with_bias") if kind.startswith("haiku") else bias
        m = self.size if kind in ("nnx", "equinox") else m
        if self.packed:
            return [
                (self.qkv, calls[kind].format(f"3 * {m}", bias, m, 0)),
                (self.names[3], calls[kind].format(m, "", m, 3)),
            ]
        return [(name, calls[kind].format(m, bias, m, place)) for place, name in enumerate(self.names)]

    def d(self) -> str:
        if self.library in ("compact", "haiku", "plain", "haiku_function"):
            return self.head
        return f"self.{self.head}"

    def nnx(self) -> list[str]:
        rngs = self.drawn("rngs: nnx.Rngs", "*, rngs: nnx.Rngs")
        causal = "causal: bool = True, " if self.masked == "flag" else ""
        causal = causal if rngs.startswith("*") else ""
        given = f"self, {self.size}: int, {self.heads}: int, {causal}{rngs}"
        body = [
            f"self.{self.size}, self.{self.heads} = {self.size}, {self.heads}",
            f"self.{self.head} = {self.size} // {self.heads}",
        ]
        body += [f"self.{name} = {made}" for name, made in self.makers()]
        body += ["self.drop = nnx.Dropout(0.1, rngs=rngs)"] if self.dropped else []
        body += [f"self.norm = nnx.LayerNorm({self.size}, rngs=rngs)"] if self.around in ("pre", "post") else []
        body += [f"self.causal = {'causal' if causal else 'True'}"] if self.masked == "flag" else []
        return [f"def __init__({given}):", *("    " + one for one in body)]

    def haiku(self) -> list[str]:
        given = [*([self.size] if self.told else []), self.heads, *(["causal=True"] if self.masked == "flag" else [])]
        body = ["super().__init__(name=name)", *(f"self.{one.split('=')[0]} = {one.split('=')[0]}" for one in given)]
        return [f"def __init__(self, {', '.join(given)}, name=None):", *("    " + one for one in body)]

    def equinox(self) -> list[str]:
        static = " = eqx.field(static=True)" if self.often(0.8) else ""
        bare = self.bare = self.often(0.3)
        names = [name for name, _ in self.makers()]
        fields = [f"{name}: {'jax.Array' if bare else 'eqx.nn.Linear'}" for name in names]
        fields += [f"{one}: int{static}" for one in (self.size, self.heads, self.head)]
        body = [f"keys = jax.random.split(key, {4})"]
        wide = {self.qkv: f"3 * {self.size}"}
        for place, (name, made) in enumerate(self.makers()):
            shape = f"({self.size}, {wide.get(name, self.size)})"
            body.append(
                f"self.{name} = "
                + (f"jax.random.normal(keys[{place}], {shape}) / {self.size} ** 0.5" if bare else made)
            )
        if self.dropped:
            fields.append("drop: eqx.nn.Dropout")
            body.append("self.drop = eqx.nn.Dropout(0.1)")
        if self.around in ("pre", "post"):
            fields.append("norm: eqx.nn.LayerNorm")
            body.append(f"self.norm = eqx.nn.LayerNorm({self.size})")
        if self.masked == "flag":
            fields.append(f"causal: bool{static}")
            body.append("self.causal = causal")
        body += [f"self.{one} = {one}" for one in (self.size, self.heads)] + [
            f"self.{self.head} = {self.size} // {self.heads}"
        ]
        causal = "causal=True, " if self.masked == "flag" else ""
        star = "*, " if causal else self.drawn("*, ", "")
        return [
            *fields,
            "",
            f"def __init__(self, {self.size}, {self.heads}, {causal}{star}key):",
            *("    " + one for one in body),
        ]

    def keras(self) -> list[str]:
        given = ["causal=True"] if self.masked == "flag" and self.often(0.5) else []
        self.field = bool(given)
        others = self.drawn(", **kwargs", ", **kwargs", "")
        body = [
            f"super().__init__({others[2:]})",
            f"self.{self.size} = {self.size}",
            f"self.{self.heads} = {self.heads}",
        ]
        body += ["self.causal = causal"] if given else []
        body.append(f"self.{self.head} = {self.size} // {self.heads}")
        drop = ["self.drop = layers.Dropout(0.1)"] if self.dropped or self.mistake == "dropout_on" else []
        norm = ["self.norm = layers.LayerNormalization()"] if self.around in ("pre", "post") else []
        signature = ", ".join([self.size, self.heads, *given]) + others
        if self.library == "keras" and self.often(0.6):
            made = [f"self.{name} = {call}" for name, call in self.makers()]
            return [f"def __init__(self, {signature}):", *("    " + one for one in [*body, *made, *drop, *norm])]
        lines = [f"def __init__(self, {signature}):", *("    " + one for one in [*body, *drop, *norm])]
        lines += ["", "def build(self, input_shape):"]
        if self.library == "keras":
            return [
                *lines,
                *(f"    self.{name} = {call}" for name, call in self.makers()),
                "    super().build(input_shape)",
            ]
        bias, names = self.biased, [self.qkv, self.names[3]] if self.packed else self.names
        for name in names:
            wide = f"3 * {self.m}" if name == self.qkv and self.packed else self.m
            init = self.drawn("initializer='glorot_uniform', ", "initializer='random_normal', ", "")
            lines.append(
                f"    self.{name} = self.add_weight(shape=({self.m}, {wide}), {init}trainable=True, name='{name}')"
            )
            if bias:
                lines.append(
                    f"    self.{name}_b = self.add_weight(shape=({wide},), initializer='zeros', name='{name}_b')"
                )
        return [*lines, *(["    self.built = True"] if self.often(0.5) else [])]

    # What stands in the call

    def project(self, name: str, x: str) -> str:
        """Return the text that multiplies x with a matrix."""
        if self.library in ("compact", "haiku", "haiku_function"):
            made = dict(self.makers())[name]
            given = f", name='{name}')" if self.often(0.6) or self.mistake in OF_SIDES else ")"
            return f"{made[:-1]}{given}({x})"
        if self.library == "equinox":
            return f"{x} @ self.{name}" if self.bare else f"jax.vmap(self.{name})({x})"
        if self.library == "keras_weights":
            said = f"ops.matmul({x}, self.{name})"
            return f"{said} + self.{name}_b" if self.biased else said
        if self.library == "plain":
            return self.of_params(name, x)
        return f"self.{name}({x})"

    def of_params(self, name: str, x: str) -> str:
        if self.nested:
            return f"{x} @ {self.params}['{name}']['w'] + {self.params}['{name}']['b']"
        part = f"{self.params}['{name}']"
        return f"{x} @ {part}" if self.often(0.7) else f"jnp.dot({x}, {part})"

    def arguments(self) -> tuple[list[str], tuple[str, str, str], str]:
        """Return what the call takes, what q, k and v are made of, and the name of the mask."""
        x, memory = (
            self.drawn("x", "x", "inputs", "hidden_states"),
            self.drawn("context", "memory", "kv", "encoder_out"),
        )
        q, k, v = self.chance.choice(
            (
                ("query", "key", "value"),
                ("q", "k", "v"),
                ("queries", "keys", "values"),
                ("inputs_q", "inputs_k", "inputs_v"),
            )
        )
        word = {"": "", "inline": "", "flag": "", "padding": self.drawn("padding_mask", "key_padding_mask", "mask"),
                "added": self.drawn("attention_bias", "attn_mask", "attention_mask"), "hide": "mask",
                "tutorial": "mask"}.get(self.masked, self.drawn("mask", "mask", "attention_mask"))  # fmt: skip
        if word and self.inputs == "list":
            word = "attention_mask"  # Keras would put masks of its own in one that is called mask
        if self.library == "equinox":
            q, k, v = "q", "k", "v"  # key is another thing there
        given = {"self": [x], "list": ["inputs"], "memory": [x, f"{memory}=None"], "three": [q, k, v]}[self.inputs]
        if self.inputs == "three" and self.of_keras:
            given = self.chance.choice(([q, k, v], [v, k, q], [q, v, f"{k}=None"]))
        given = [*given, *([f"{word}=None"] if word else [])]
        return given, {"self": (x, x, x), "memory": (x, memory, memory)}.get(self.inputs, (q, k, v)), word

    def call(self) -> list[str]:
        given, sources, word = self.arguments()
        if self.of_keras and self.masked == "flag" and not self.field:
            given.append("use_causal_mask=False")
        if self.dropped or (self.mistake == "dropout_on" and self.library != "haiku"):
            given.append({"compact": "deterministic=True", "setup": "train: bool = False", "nnx": "deterministic=True",
                          "haiku": "is_training=False", "equinox": "key=None, inference=True"}
                         .get(self.library, "training=None"))  # fmt: skip
        name = "call" if self.of_keras else "__call__"
        return [f"def {name}(self, {', '.join(given)}):", *("    " + one for one in self.body(given, sources, word))]

    def sizes(self, sources: tuple[str, str, str], given: list[str]) -> list[str]:
        """Return the lines that read sizes off the arguments."""
        x, k, _ = sources
        lines = [f"{', '.join(sources)} = inputs"] if self.inputs == "list" else []
        if f"{k}=None" in given:
            lines += [f"if {k} is None:", f"    {k} = {x if self.inputs == 'memory' else sources[2]}"]
        shape = "ops.shape({0})[{1}]" if self.of_keras else "{0}.shape[{1}]"
        first = "0" if not self.batched else "1"
        lines += [f"B = {shape.format(x, 0)}"] if self.batched else []
        lines += [f"T = {shape.format(x, first)}"]
        lines += [] if self.inputs == "self" else [f"S = {shape.format(k, first)}"]
        if self.library in ("compact", "haiku", "haiku_function", "plain"):
            lines += [] if self.told else [f"d_model = {x}.shape[-1]"]
            lines.append(f"{self.head} = {self.m} // {self.h}")
        return lines

    def body(self, given: list[str], sources: tuple[str, str, str], word: str) -> list[str]:
        """Return the lines of a call."""
        x, columns = sources[0], "T" if self.inputs == "self" else "S"
        lines = self.sizes(sources, given)
        if self.around:
            lines.append(f"residual = {x}")
        lines += [f"{x} = {self.normed(x)}"] if self.around == "pre" else []
        q, k, v = "q_", "k_", "v_"
        lines += self.projected((q, k, v), sources)
        lines += self.split((q, k, v), ("T", columns, columns))
        lines += self.weighed(q, k, word, columns)
        lines += self.merged(v)
        if self.mistake != "no_output_projection":
            lines.append(f"out = {self.project(self.names[3], 'out')}")
        lines += ["out = residual + out"] if self.around else []
        lines += [f"out = {self.normed('out')}"] if self.around == "post" else []
        return [*lines, self.drawn("return out", "return out", "return out, attn")]

    def normed(self, x: str) -> str:
        if self.library == "compact":
            return f"nn.LayerNorm()({x})"
        if self.library in ("haiku", "haiku_function"):
            return f"hk.LayerNorm(axis=-1, create_scale=True, create_offset=True)({x})"
        return f"jax.vmap(self.norm)({x})" if self.library == "equinox" else f"self.norm({x})"

    def projected(self, said: tuple[str, str, str], sources: tuple[str, str, str]) -> list[str]:
        if self.packed:
            whole = self.project(self.qkv, sources[0])
            return [f"{', '.join(said)} = {self.ops}.split({whole}, 3, axis=-1)"]
        names = dict(zip("qkv", self.names, strict=False))
        names["k"] = names["q"] if self.mistake == "keys_from_queries" else names["k"]
        names["v"] = {"values_from_keys": names["k"], "values_from_queries": names["q"]}.get(self.mistake, names["v"])
        if self.library not in ("compact", "haiku", "haiku_function") or self.mistake not in OF_SIDES:
            return [
                f"{one} = {self.project(name, x)}" for one, name, x in zip(said, names.values(), sources, strict=True)
            ]
        lines = [f"{one} = {self.project(self.names[place], sources[place])}" for place, one in enumerate(said)]
        again = {"keys_from_queries": "k_ = q_", "values_from_keys": "v_ = k_", "values_from_queries": "v_ = q_"}
        return [*lines, again[self.mistake]]

    def reshaped(self, x: str, *shape: str) -> str:
        shape = shape if self.batched else tuple(one for one in shape if one != "B")
        if self.of_keras or self.often(0.4):
            return f"{self.ops}.reshape({x}, ({', '.join(shape)}))"
        return f"{x}.reshape({', '.join(shape)})"

    def turned(self, x: str) -> str:
        """Return the text that exchanges tokens and heads."""
        axes = "0, 2, 1, 3" if self.batched else "1, 0, 2"
        if self.of_keras:
            return f"ops.transpose({x}, ({axes}))"
        pair = "1, 2" if self.batched else "0, 1"
        return self.drawn(f"jnp.transpose({x}, ({axes}))", f"{x}.transpose({axes})", f"jnp.swapaxes({x}, {pair})")

    def split(self, said: tuple[str, str, str], counts: tuple[str, str, str]) -> list[str]:
        if self.general:
            return []
        if self.mistake == "heads_not_transposed":
            return [
                f"{one} = {self.reshaped(one, 'B', self.h, n, self.d())}" for one, n in zip(said, counts, strict=True)
            ]
        lines = []
        for one, n in zip(said, counts, strict=True):
            count = n if not self.batched else self.drawn(n, "-1")
            lines.append(f"{one} = {self.reshaped(one, 'B', count, self.h, self.d())}")
            lines += [] if self.late else [f"{one} = {self.turned(one)}"]
        return lines

    def factor(self) -> str:
        """Return the number that the scores are multiplied by."""
        d, m, h = self.d(), self.m, self.h
        wrong = {
            "no_scale": "", "scale_after_softmax": "", "scale_by_d": f"/ {d}",
            "scale_by_sqrt_d_model": f"/ math.sqrt({m})",
            "scale_multiplied": f"* math.sqrt({d})", "scale_by_sqrt_heads": f"/ {h} ** 0.5",
        }  # fmt: skip
        root = f"/ {self.ops}.sqrt({'float(' + d + ')' if self.of_keras else d})"
        return wrong.get(
            self.mistake,
            self.drawn(root, f"/ math.sqrt({d})", f"* {d} ** -0.5", f"/ ({d} ** 0.5)", f"* (1.0 / math.sqrt({d}))"),
        )

    def weighed(self, q: str, k: str, word: str, columns: str) -> list[str]:
        """Return the lines from the scores to the weights, `attn`."""
        b, lines, factor = "b" if self.batched else "", list[str](), self.factor()
        if factor and (self.scaled_first or self.mistake == "scale_twice"):
            lines.append(f"{q} = {q} {factor}")
            factor = factor if self.mistake == "scale_twice" else ""
        axes = "0, 1, 3, 2" if self.batched else "0, 2, 1"
        kt = (
            f"ops.transpose({k}, ({axes}))"
            if self.of_keras
            else self.drawn(f"jnp.swapaxes({k}, -1, -2)", f"{k}.transpose({axes})")
        )
        kt = self.reshaped(k, "B", self.h, self.d(), columns) if self.mistake == "keys_viewed" else kt
        product = self.drawn(f"{self.ops}.matmul({q}, {kt})", f"{self.ops}.einsum('{b}hqd,{b}hkd->{b}hqk', {q}, {k})")
        product = f"{self.ops}.matmul({q}, {kt})" if self.mistake == "keys_viewed" else product
        product = f"{self.ops}.einsum('{b}qhd,{b}khd->{b}hqk', {q}, {k})" if self.late else product
        lines.append(f"scores = {product} {factor}".rstrip())
        lines += self.hidden(word, columns)
        axis = {"softmax_over_queries": "-2", "softmax_over_heads": "1" if self.batched else "0"}.get(
            self.mistake, "-1"
        )
        softmax = (
            "ops.softmax"
            if self.of_keras
            else {"compact": "nn.softmax", "nnx": "nnx.softmax"}.get(self.library, "jax.nn.softmax")
        )
        lines.append("attn = scores" if self.mistake == "no_softmax" else f"attn = {softmax}(scores, axis={axis})")
        lines += [f"attn = {softmax}(attn, axis=-1)"] if self.mistake == "softmax_twice" else []
        lines += [f"attn = attn / math.sqrt({self.d()})"] if self.mistake == "scale_after_softmax" else []
        if self.mistake == "mask_after_softmax":
            lines += [f"if {word} is not None:", f"    attn = {self.ops}.where({self.shaped(word)}, attn, 0.0)"]
        return [*lines, *self.drop()]

    def drop(self) -> list[str]:
        """Return the lines that draw weights to be dropped."""
        if self.mistake == "dropout_on":
            return {
                "compact": ["attn = nn.Dropout(self.dropout_rate, deterministic=False)(attn)"],
                "setup": ["attn = self.drop(attn, deterministic=False)"],
                "keras": ["attn = self.drop(attn, training=True)"],
                "keras_weights": ["attn = keras.random.dropout(attn, 0.1)"],
            }.get(self.library, ["attn = hk.dropout(hk.next_rng_key(), 0.1, attn)"])  # fmt: skip
        if not self.dropped:
            return []
        return {
            "compact": ["attn = nn.Dropout(self.dropout_rate)(attn, deterministic=deterministic)"],
            "setup": ["attn = self.drop(attn, deterministic=not train)"],
            "nnx": ["attn = self.drop(attn, deterministic=deterministic)"],
            "equinox": ["attn = self.drop(attn, key=key, inference=inference)"],
            "keras": ["attn = self.drop(attn, training=training)"],
            "keras_weights": ["attn = self.drop(attn, training=training)"],
        }.get(self.library, ["if is_training:", "    attn = hk.dropout(hk.next_rng_key(), 0.1, attn)"])  # fmt: skip

    def shaped(self, word: str) -> str:
        if self.masked == "padding":
            return f"{word}[:, None, None, :]" if self.batched else f"{word}[None, None, :]"
        return (f"{word}[:, None]" if self.batched else f"{word}[None]") if self.masked == "keep3" else word

    def hidden(self, word: str, columns: str) -> list[str]:
        """Return the lines that hide keys."""
        where, low = (
            f"{self.ops}.where",
            self.drawn("-1e9", "-1e30", f"{'float(' + repr('-inf') + ')' if self.of_keras else '-jnp.inf'}"),
        )
        if self.masked in ("inline", "flag"):
            low = "-1e9" if low == "-jnp.inf" and self.mistake == "causal_strict" else low
            moved = {"causal_strict": ", k=-1", "causal_next": ", k=1"}.get(self.mistake, "")
            shape = "triu" if self.mistake == "causal_flipped" else "tril"
            lines = [
                f"causal = {self.ops}.{shape}({self.ops}.ones((T, {columns})){moved})",
                f"scores = {where}(causal == 0, {low}, scores)",
            ]
            if self.masked == "inline":
                return lines
            flag = (
                "use_causal_mask"
                if self.of_keras and not self.field
                else "self.causal"
                if self.library not in ("plain", "haiku_function")
                else "causal"
            )
            return [f"if {flag}:", *("    " + one for one in lines)]
        if not self.masked or self.mistake == "mask_after_softmax":
            return []
        low, mask = self.drawn("-1e-9", "-1.0", "1e-9") if self.mistake == "mask_small_fill" else low, self.shaped(word)
        number = f"ops.cast({mask}, scores.dtype)" if self.of_keras else mask
        kept = {
            "keep": f"scores = {where}({mask}, scores, {low})", "keep3": f"scores = {where}({mask}, scores, {low})",
            "zero": f"scores = {where}({mask} == 0, {low}, scores)", "hide": f"scores = {where}({mask}, {low}, scores)",
            "tutorial": f"scores += {number} * -1e9", "inverse": f"scores = scores + (1.0 - {number}) * -1e9",
            "added": f"scores = scores {'-' if self.mistake == 'mask_sign' else '+'} {mask}",
            "padding": f"scores = {where}({mask}, scores, {low})",
        }[self.masked]  # fmt: skip
        kept = f"scores = scores * {number}" if self.mistake == "mask_multiplied" else kept
        kept = kept.replace("scores = ", "masked = ", 1) if self.mistake == "mask_ignored" else kept
        return [f"if {word} is not None:", "    " + kept]

    def merged(self, v: str) -> list[str]:
        b, at = "b" if self.batched else "", "kq" if self.mistake == "weights_transposed" else "qk"
        if self.late:
            lines = [f"out = {self.ops}.einsum('{b}h{at},{b}khd->{b}qhd', attn, {v})"]
            return lines if self.general else [*lines, f"out = {self.reshaped('out', 'B', 'T', self.m)}"]
        product = self.drawn(f"{self.ops}.matmul(attn, {v})", f"{self.ops}.einsum('{b}hqk,{b}hkd->{b}hqd', attn, {v})")
        if at == "kq":
            product = f"{self.ops}.einsum('{b}hkq,{b}hkd->{b}hqd', attn, {v})"
        turned = "out" if self.mistake in OF_HEADS else self.turned("out")
        return [f"out = {product}", f"out = {self.reshaped(turned, 'B', 'T', self.m)}"]

    # Functions

    def haiku_function(self) -> list[str]:
        """Return a function that makes its layers as it is called, and sizes that the file says or it is told."""
        given, sources, word = self.arguments()
        constants = self.often(0.4)
        self.h, self.m = (self.heads.upper(), self.size.upper()) if constants else (self.heads, self.size)
        given += ["causal=True"] if self.masked == "flag" else []
        given += ["is_training=False"] if self.dropped else []
        required, optional = [one for one in given if "=" not in one], [one for one in given if "=" in one]
        if not constants:
            required += [self.size, self.heads]
        self.name = self.drawn("attention", "multi_head_attention", "forward", "self_attention")
        lines = [f"{self.m}, {self.h} = 64, 4", "", ""] if constants else []
        made = [f"def {self.name}({', '.join([*required, *optional])}):"]
        return [*lines, *made, *("    " + one for one in self.body(given, sources, word))]

    def plain(self) -> list[str]:
        """Return a function of a dictionary of parameters, and the function that makes them."""
        self.params, self.nested = self.drawn("params", "params", "p", "weights"), self.biased
        self.h, self.m, self.told = self.heads, "d_model", False
        given, sources, word = self.arguments()
        given += ["causal=True"] if self.masked == "flag" else []
        required, optional = [one for one in given if "=" not in one], [one for one in given if "=" in one]
        required = [self.params, *required] if self.often(0.8) else [*required, self.params]
        self.name = self.drawn("attention", "apply", "mha", "multi_head_attention", "apply_attention")
        makes = self.drawn("init", "init_params", "init_attention", "create_params")
        names = [self.qkv, self.names[3]] if self.packed else self.names
        lines = [
            f"def {makes}({self.drawn('key', 'rng')}, {self.size}):".replace("rng,", "key,"),
            f"    keys = jax.random.split(key, {len(names)})",
        ]
        made = []
        for place, name in enumerate(names):
            wide = f"3 * {self.size}" if name == self.qkv and self.packed else self.size
            matrix = f"jax.random.normal(keys[{place}], ({self.size}, {wide})) / math.sqrt({self.size})"
            made.append(
                f"        '{name}': " + (f"{{'w': {matrix}, 'b': jnp.zeros({wide})}}," if self.nested else f"{matrix},")
            )
        lines += ["    return {", *made, "    }", "", ""]
        call = f"def {self.name}({', '.join([*required, self.heads, *optional])}):"
        return [*lines, call, *("    " + one for one in self.body(given, sources, word))]


def written(seed: int, mistake: str) -> Written:
    """Return a layer with a mistake, or none."""
    layer = Layer(seed, mistake)
    return Written(layer.source, layer.name, FRAMEWORKS[layer.library])
