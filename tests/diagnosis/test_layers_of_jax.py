"""Layers of Flax, Equinox and Keras with norms inside, met as those of PyTorch are; and a mask that is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.diagnosis.asking.chance import is_of_chance
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.judging.check import check
from attn_exp.experiment.verdict import HELD, Verdict
from attn_exp.own_code import find_function

pytestmark = pytest.mark.long
ATTEND = """
import jax, jax.numpy as jnp

def attend(q, k, v, heads, mask=None):
    q, k, v = (side.reshape(len(side), heads, -1).swapaxes(0, 1) for side in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5
    shares = jax.nn.softmax(scores if mask is None else jnp.where(mask, scores, -1e30), -1)
    return (shares @ v).swapaxes(0, 1).reshape(v.shape[1], -1)
"""
OF_FLAX = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        y = nn.Dense(3 * self.dim)(nn.LayerNorm()(x))
        said = jax.vmap(lambda one: attend(*jnp.split(one, 3, -1), self.heads))(y)
        return x + nn.RMSNorm()(nn.Dense(self.dim)(said))
"""
OF_NNX = f"""{ATTEND}
from flax import nnx

class Layer(nnx.Module):
    def __init__(self, channels, heads, groups, rngs):
        self.heads = heads
        self.norm = nnx.GroupNorm(channels, num_groups=groups, rngs=rngs)
        self.sides, self.last = nnx.Linear(channels, 3 * channels, rngs=rngs), nnx.Linear(channels, channels, rngs=rngs)
        self.norm_of_q = nnx.RMSNorm(channels, rngs=rngs)

    def __call__(self, x):
        q, k, v = jnp.split(self.sides(self.norm(x)), 3, -1)
        return x + self.last(jax.vmap(lambda *one: attend(*one, self.heads))(self.norm_of_q(q), k, v))
"""
OF_EQUINOX = f"""{ATTEND}
import equinox as eqx

class Norm(eqx.Module):
    gain: jax.Array

    def __call__(self, x):
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self.gain

class Layer(eqx.Module):
    norm: Norm
    matrices: list
    heads: int = eqx.field(static=True)

    def __init__(self, dim, heads, key):
        self.norm, self.heads = Norm(jnp.linspace(0.5, 1.5, dim)), heads
        self.matrices = [jax.random.normal(one, (dim, dim)) / 5 for one in jax.random.split(key, 4)]

    def __call__(self, x, *, pos_emb, causal_mask):
        cos, sin = pos_emb
        q, k, v = (self.norm(x) @ matrix for matrix in self.matrices[:3])
        said = attend(q * cos[0, 0] + sin[0, 0], k, v, self.heads, jnp.where(causal_mask, True, False))
        return said @ self.matrices[3]
"""
OF_EQUINOX_MAPPED = f"""{ATTEND}
import equinox as eqx

class Layer(eqx.Module):
    norm: eqx.nn.LayerNorm
    sides: eqx.nn.Linear
    last: eqx.nn.Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width, heads, *, key):
        one, two = jax.random.split(key)
        self.sides, self.last = eqx.nn.Linear(width, 3 * width, key=one), eqx.nn.Linear(width, width, key=two)
        self.norm, self.heads = eqx.nn.LayerNorm(width), heads

    def __call__(self, x):
        q, k, v = jnp.split(jax.vmap(self.sides)(x), 3, -1)
        return jax.vmap(self.norm)(x + jax.vmap(self.last)(attend(q, k, v, self.heads)))
"""
OF_KERAS = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, dim, **others):
        super().__init__(**others)
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5)
        self.sides = [keras.layers.Dense(dim) for _ in range(3)]

    def call(self, inputs):
        q, k, v = (side(self.norm(inputs)) for side in self.sides)
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / q.shape[-1] ** 0.5
        return inputs + ops.matmul(ops.softmax(scores), v)
"""


def verdict_on(text: str, folder: Path) -> Verdict:
    """Return what a check says of the layer of a file."""
    file = folder / "layer.py"
    file.write_text(text, encoding="utf-8")
    return check(find_function(f"{file}:Layer"), Request(), quick=True)


@pytest.mark.parametrize(
    ("library", "text", "said"),
    [
        ("flax", OF_FLAX, "with LayerNorm before, RMSNorm after and a residual after"),
        ("flax", OF_NNX, "with GroupNorm before, RMSNorm of q and a residual after"),
        ("equinox", OF_EQUINOX, "with LayerNorm before"),
        ("equinox", OF_EQUINOX_MAPPED, "with a residual after and LayerNorm after it"),
        ("keras", OF_KERAS, "with LayerNorm before and a residual after"),
    ],
)
def test_norms_inside_are_met(library: str, text: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    verdict = verdict_on(text, tmp_path)
    assert verdict.passed, verdict
    assert said in verdict.findings[0].said
    is_asked = not any(said.startswith("masks") for said in verdict.not_asked)
    assert is_asked == ("causal_mask" in text)  # an array that is called causal_mask is a mask


OF_HAIKU_BY_NAME = f"""{ATTEND}
import haiku as hk

class Layer(hk.Module):
    def __init__(self, *, name: str, dim, heads):
        super().__init__(name=name)
        self.dim, self.heads = dim, heads

    def __call__(self, x, mask):
        q, k, v = (hk.Linear(self.dim)(x) for _ in range(3))
        hidden = jnp.einsum("ts,s->ts", jnp.ones((x.shape[1], len(mask))), mask)
        return hk.Linear(self.dim)(jax.vmap(lambda *one: attend(*one, self.heads, hidden > 0))(q, k, v))
"""
OF_FLAX_WITH_SMALL_EPS = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        said = jax.vmap(lambda one: attend(*jnp.split(one, 3, -1), self.heads))(nn.Dense(3 * self.dim)(x))
        return nn.LayerNorm(epsilon=1e-12)(x + nn.Dense(self.dim)(said))
"""


@pytest.mark.parametrize(
    ("library", "text", "said"),
    [("haiku", OF_HAIKU_BY_NAME, "padding"), ("flax", OF_FLAX_WITH_SMALL_EPS, "LayerNorm after it")],
)
def test_names_masks_of_one_entry_and_small_numbers_of_norms(
    library: str, text: str, said: str, tmp_path: Path
) -> None:  # fmt: skip
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    verdict = verdict_on(text, tmp_path)
    assert verdict.passed, verdict
    assert said in str([(finding.rung, finding.said) for finding in verdict.findings if finding.state == HELD])


OF_KEYS = {
    "equinox": f"""{ATTEND}
import equinox as eqx

class Layer(eqx.Module):
    sides: list
    rate: float
    heads: int = eqx.field(static=True)

    def __init__(self, jax_key, dim, heads, rate, key_of_sides):
        self.heads, self.rate = heads, rate + 0 * jax.random.uniform(jax_key)
        self.sides = [jax.random.normal(one, (dim, dim)) / 5 for one in jax.random.split(key_of_sides, 3)]

    def __call__(self, x, key):
        q, k, v = (x @ side for side in self.sides)
        return attend(q, k, v, self.heads) * jax.random.bernoulli(key, 1.0, x.shape)
""",
    "flax": f"""{ATTEND}
from flax import nnx

class Layer(nnx.Module):
    def __init__(self, dim, heads, streams: nnx.Rngs):
        self.heads = heads
        self.sides, self.last = nnx.Linear(dim, 3 * dim, rngs=streams), nnx.Linear(dim, dim, rngs=streams)

    def __call__(self, x, *, attn_rng):
        parts = jnp.split(self.sides(x) * jax.random.bernoulli(attn_rng, 1.0, ()), 3, -1)
        return self.last(jax.vmap(lambda *one: attend(*one, self.heads))(*parts))
""",
}


@pytest.mark.parametrize("library", ["equinox", "flax"])
def test_random_keys_of_any_name_are_given(library: str, tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    verdict = verdict_on(OF_KEYS[library], tmp_path)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("name", "note", "made", "is_one"),
    [
        ("jax_key", "", False, True),
        ("dropoutRng", "", False, True),
        ("source", "PRNGKeyArray | None", False, True),
        ("key_q", "", True, True),
        ("key_q", "", False, False),
        ("key_size", "", True, False),
        ("key_mask", "", False, False),
        ("key_padding_mask", "", True, False),
    ],
)
def test_random_keys_are_told_by_name_and_note(name: str, note: str, made: bool, is_one: bool) -> None:
    assert is_of_chance(name, note, made=made) == is_one


OF_ONE_LENGTH = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    size: int
    count_of_tokens: int

    @nn.compact
    def __call__(self, rows, training: bool):
        q, k, v = (nn.Dense(self.size)(rows) for _ in range(3))
        return attend(q, k, v, 1, jnp.tril(jnp.ones((self.count_of_tokens, self.count_of_tokens))) > 0)
"""


def test_a_class_that_is_told_how_many_rows_there_are_is_called_with_as_many(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    verdict = verdict_on(OF_ONE_LENGTH, tmp_path)
    assert verdict.passed, verdict
    assert "9 tokens, the only number that it takes" in verdict.findings[0].said


OF_FIELDS_ALONE = f"""{ATTEND}
from flax import nnx

def turned(x, cos, sin):
    one, other = jnp.split(x, 2, -1)
    return jnp.concatenate([one * cos + other * sin, other * cos - one * sin], -1)

class Layer(nnx.Module):
    def __init__(self, settings, layer_idx, *, rngs):
        self.settings, width = nnx.data(settings), settings.n_embd
        self.sides = nnx.Linear(width, 3 * width, rngs=rngs)

    def __call__(self, x, added, cos, sin, window_size):
        heads = self.settings.n_head
        q, k, v = jnp.split(self.sides(x), 3, -1)
        q, k = (turned(side.reshape(*x.shape[:2], heads, -1), cos, sin).reshape(x.shape) for side in (q, k))
        v = v if added is None else v + added
        apart = jnp.arange(x.shape[1])[:, None] - jnp.arange(x.shape[1])
        mask = apart <= window_size[0] if window_size[0] > 0 else True
        return jax.vmap(lambda *one: attend(*one, heads, jnp.tril(jnp.ones([x.shape[1]] * 2)) > 0 & mask))(q, k, v)
"""


def test_a_configuration_whose_fields_alone_are_read_is_no_mapping(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    verdict = verdict_on(OF_FIELDS_ALONE, tmp_path)
    assert verdict.passed, verdict
    assert "mask=causal" in verdict.right_under


OF_PAIRS = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, points, pairs, mask):
        q, k, v = (nn.Dense(self.dim)(points) for _ in range(3))
        between = nn.Dense(self.dim)(pairs).reshape(*pairs.shape[:3], self.heads, -1)
        q, k, v = (side.reshape(*side.shape[:2], self.heads, -1) for side in (q, k, v))
        keys, values = (side[:, None] + between for side in (k, v))
        scores = jnp.einsum("bthd,btshd->bhts", q, keys) / q.shape[-1] ** 0.5
        shares = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -1e30), -1)
        return nn.Dense(self.dim)(jnp.einsum("bhts,btshd->bthd", shares, values).reshape(points.shape))
"""


def test_numbers_of_pairs_of_tokens_are_given_as_zeros(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    verdict = verdict_on(OF_PAIRS, tmp_path)
    assert verdict.passed, verdict


OF_CHANNELS_FIRST = """
import keras
from keras import ops

class Layer(keras.layers.Layer):
    def __init__(self, filters, heads):
        super().__init__(name=f"of_{filters}_{heads}")
        self.filters, self.heads = filters, heads
        self.first = keras.layers.Conv1D(3 * filters, 1, data_format="channels_first")
        self.last = keras.layers.Conv1D(filters, 1, data_format="channels_first")

    def call(self, x):
        q, k, v = (ops.reshape(one, (x.shape[0], self.heads, -1, x.shape[2])) for one in ops.split(self.first(x), 3, 1))
        scores = ops.einsum("bhdt,bhds->bhts", q, k) / (self.filters // self.heads) ** 0.5
        mixed = ops.einsum("bhts,bhds->bhdt", ops.softmax(scores, -1), v)
        return self.last(ops.reshape(mixed, (x.shape[0], -1, x.shape[2])))

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "heads": self.heads}
"""


def test_a_layer_of_keras_that_takes_no_name_is_made_anew_for_other_axes(tmp_path: Path) -> None:
    pytest.importorskip("keras", reason="Keras is not installed: pip install keras")
    verdict = verdict_on(OF_CHANNELS_FIRST, tmp_path)
    assert verdict.passed, verdict


OF_NUMBERS_OF_ITS_FILE = {
    "keras": """
import keras
from keras import ops

N_FEATURES, MAX_CONTEXT = 20, 11

class Layer(keras.layers.Layer):
    def __init__(self, size=5):
        super().__init__()
        self.a, self.b, self.c = (keras.layers.Dense(n) for n in (size, size, N_FEATURES))

    def call(self, x):
        assert tuple(x.shape[1:]) == (MAX_CONTEXT, N_FEATURES)
        scores = self.a(x) @ ops.transpose(self.b(x), (0, 2, 1)) / N_FEATURES**0.5
        return ops.softmax(scores) @ self.c(x)
""",
    "equinox": """
import equinox as eqx, jax

N_FEATURES, MAX_CONTEXT = 20, 11

class Layer(eqx.Module):
    sides: list

    def __init__(self, key, n_size=5):
        self.sides = [eqx.nn.Linear(N_FEATURES, n, key=key) for n in (n_size, n_size, N_FEATURES)]

    def __call__(self, x):
        assert x.shape == (MAX_CONTEXT, N_FEATURES)
        q, k, v = (jax.vmap(side)(x) for side in self.sides)
        return jax.nn.softmax(q @ k.T / N_FEATURES**0.5) @ v
""",
}


@pytest.mark.parametrize("library", OF_NUMBERS_OF_ITS_FILE)
def test_numbers_of_a_file_are_exchanged(library: str, tmp_path: Path) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed: pip install {library}")
    verdict = verdict_on(OF_NUMBERS_OF_ITS_FILE[library], tmp_path)
    assert verdict.mistakes == ("scale_by_sqrt_d_model",), verdict


OF_SETTINGS = f"""{ATTEND}
import typing
import flax.linen as nn

class Layer(nn.Module):
    cfg: typing.Any = None

    def setup(self):
        if self.cfg is None:
            raise ValueError("what is it made of?")
        self.width = self.cfg.d_model
        self.sides = nn.Dense(3 * self.width, use_bias=self.cfg.get("bias", False))

    def __call__(self, x):
        return jax.vmap(lambda one: attend(*jnp.split(one, 3, -1), self.cfg["n_heads"]))(self.sides(x))
"""


def test_settings_that_a_layer_of_flax_cannot_do_without_are_given(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    (tmp_path / "of_settings.py").write_text(OF_SETTINGS, encoding="utf-8")
    verdict = check(find_function(f"{tmp_path / 'of_settings.py'}:Layer"), Request(), quick=True)
    assert verdict.passed, verdict


OF_SCALED_QUERIES = f"""{ATTEND}
import flax.linen as nn

class Layer(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        sides = {{name: nn.Dense(x.shape[-1], use_bias=False, name=name)(x) for name in ("query", "key", "value")}}
        q, v = sides["query"], sides["value"]
        return jax.vmap(lambda *one: attend(*one, self.heads))(q / 2, 2 * q, v)
"""


def test_keys_made_with_the_matrix_of_scaled_queries_are_named(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
    pytest.importorskip("flax", reason="Flax is not installed: pip install flax")
    assert verdict_on(OF_SCALED_QUERIES, tmp_path).mistakes == ("keys_from_queries",)


OF_ONE_HEAD = """
import equinox as eqx
import jax

class Layer(eqx.Module):
    n_heads: int
    q: eqx.nn.Linear
    k: eqx.nn.Linear
    v: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, d_model, n_heads, key):
        self.n_heads = n_heads
        keys = jax.random.split(key, 4)
        self.q, self.k, self.v, self.out = (eqx.nn.Linear(d_model, d_model, key=one) for one in keys)

    def __call__(self, x):
        q, k, v = (jax.vmap(one)(x) for one in (self.q, self.k, self.v))
        return jax.vmap(self.out)(jax.nn.softmax(q @ k.T / q.shape[-1] ** 0.5) @ v)
"""


@pytest.mark.parametrize(("exchanged", "more"), [(" / q.shape[-1] ** 0.5", ("no_scale",))])
def test_one_head_is_told_where_a_class_of_jax_is_told_several(
    exchanged: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("equinox", reason="Equinox is not installed: pip install equinox")
    assert verdict_on(OF_ONE_HEAD.replace(exchanged, ""), tmp_path).mistakes == ("single_head", *more)


OF_KEY_SIZE = """
import haiku as hk, jax, jax.numpy as jnp

class Layer(hk.Module):
    def __init__(self, num_heads: int, key_size: int):
        super().__init__()
        self.num_heads, self.key_size = num_heads, key_size

    def __call__(self, x):
        width = self.num_heads * self.key_size
        q, k, v = (hk.Linear(width, name=name)(x) for name in ("query", "key", "value"))
        q, k, v = (side.reshape(*x.shape[:2], self.num_heads, -1).swapaxes(1, 2) for side in (q, k, v))
        shares = jax.nn.softmax(q @ k.swapaxes(2, 3) / jnp.sqrt(x.shape[-1]), -1)
        return hk.Linear(width, name="last")((shares @ v).swapaxes(1, 2).reshape(*x.shape[:2], width))
"""


def test_the_size_of_a_key_is_another_than_that_of_x(tmp_path: Path) -> None:
    """What is divided by the root of x's size is right where a head has as many numbers."""
    pytest.importorskip("haiku", reason="haiku is not installed: pip install dm-haiku")
    (tmp_path / "of_key_size.py").write_text(OF_KEY_SIZE, encoding="utf-8")
    verdict = check(find_function(f"{tmp_path / 'of_key_size.py'}:Layer"), Request(), quick=True)
    assert verdict.mistakes == ("scale_by_sqrt_d_model",), verdict


OF_ONE_LENGTH = """
import flax.linen as nn, jax.numpy as jnp

class Layer(nn.Module):
    seq_len: int
    d_model: int
    n_heads: int

    @nn.compact
    def __call__(self, x, mask, training):
        axes = (len(x), self.n_heads, self.d_model // self.n_heads)
        q, k, v = (nn.Dense(self.d_model)(x).reshape(axes).swapaxes(0, 1) for _ in "qkv")
        shares = nn.softmax(q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5 + jnp.where(mask, 0, -jnp.inf))
        shares = nn.Dropout(0.1)(shares, deterministic=not training)
        return (shares @ v).swapaxes(0, 1).reshape(self.seq_len, self.d_model)
"""


@pytest.mark.parametrize(("exchanged", "names"), [(" / q.shape[-1] ** 0.5", ("no_scale",))])
def test_a_layer_of_one_text_that_insists_on_its_length_is_told_a_short_one(
    exchanged: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("flax", reason="flax is not installed: pip install flax")
    verdict = verdict_on(OF_ONE_LENGTH.replace(exchanged, ""), tmp_path)
    assert (verdict.passed, verdict.mistakes) == (not names, names), verdict


TOLD_WHERE_MADE = """
import flax.linen as nn, jax.numpy as jnp
from typing import Optional

class Head(nn.Module):
    head_size: int
    deterministic: Optional[bool] = None

    @nn.compact
    def __call__(self, x, deterministic: Optional[bool] = None):
        still = nn.merge_param("deterministic", self.deterministic, deterministic)
        q, k, v = (nn.Dense(self.head_size)(x) for _ in "qkv")
        shares = nn.softmax(q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5)
        return nn.Dropout(0.1)(shares, deterministic=still) @ v

class Layer(nn.Module):
    num_heads: int
    head_size: int
    deterministic: Optional[bool] = None

    @nn.compact
    def __call__(self, x, deterministic: Optional[bool] = None):
        heads = [Head(self.head_size, self.deterministic)(x) for _ in range(self.num_heads)]
        return nn.Dense(x.shape[-1])(jnp.concatenate(heads, -1))
"""


def test_a_layer_of_flax_is_told_where_it_is_made_that_nothing_is_dropped(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="flax is not installed: pip install flax")
    assert verdict_on(TOLD_WHERE_MADE, tmp_path).passed


OF_A_LARGE_MASK = """
import flax.linen as nn

class Layer(nn.Module):
    dim: int
    num_heads: int

    @nn.compact
    def __call__(self, x, mask):
        axes = (*x.shape[:2], self.num_heads, self.dim // self.num_heads)
        q, k, v = (nn.Dense(self.dim)(x).reshape(axes).swapaxes(1, 2) for _ in "qkv")
        shares = nn.softmax(q @ k.swapaxes(2, 3) / q.shape[-1] ** 0.5 + mask[:, None] * 1e20)
        return (shares @ v).swapaxes(1, 2).reshape(x.shape)
"""


def test_a_mask_that_leaves_nothing_of_any_score_is_given_the_other_way_round(tmp_path: Path) -> None:
    """Where it is 1 it takes the place of all scores, so that each token gets the mean of all values."""
    pytest.importorskip("flax", reason="flax is not installed: pip install flax")
    verdict = verdict_on(OF_A_LARGE_MASK, tmp_path)
    assert {one.rung: one.state for one in verdict.findings}.get("values") == HELD, verdict


OF_TOKENS_FIRST = """
import flax.linen as nn, jax.numpy as jnp

class Layer(nn.Module):
    dim: int
    num_heads: int

    @nn.compact
    def __call__(self, x):
        axes = (*x.shape[:2], self.num_heads, self.dim // self.num_heads)
        q, k, v = (nn.Dense(self.dim)(x).reshape(axes) for _ in "qkv")
        shares = nn.softmax(jnp.einsum("tbhd,sbhd->bhts", q, k) / q.shape[-1] ** 0.5)
        return jnp.einsum("bhts,sbhd->tbhd", shares, v).reshape(x.shape)
"""


def test_tokens_may_come_before_entries_in_jax(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="flax is not installed: pip install flax")
    assert verdict_on(OF_TOKENS_FIRST, tmp_path).passed
