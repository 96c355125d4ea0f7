"""Small classes, one per rule by which somebody's layer is built and called."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.diagnosis.asking.request import parse_request
from attn_exp.diagnosis.bind.arguments import find_memory, read_arguments
from attn_exp.diagnosis.bind.binding import bind_layer
from attn_exp.diagnosis.bind.factory import describe_factory
from attn_exp.diagnosis.bind.layer import Layer
from attn_exp.errors import UncalledError
from attn_exp.own_code import describe_function, find_function

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tests.diagnosis.layers import merge, split  # noqa: E402


def bound(target: Any, words: str = "") -> Layer:
    return bind_layer(describe_function(target), parse_request(words.split()))


def called(layer: Layer, **keywords: Any) -> Any:
    """Call a layer with random inputs of lengths that it was not tried with."""
    lengths = {"b": 3, "t": 9, "s": 11, "c": layer.sizes["m"], **layer.sizes}
    shapes = {role: [lengths[letter] for letter in axes] for role, axes in layer.inputs.items()}
    rng = np.random.default_rng(1)
    return layer.call({role: layer.convert(rng.standard_normal(shape)) for role, shape in shapes.items()}, keywords)


class Heads(nn.Module):
    """Multi-head attention with a required mask, and sizes of its own."""

    def __init__(self, d_model: int = 512, n_heads: int = 8, window: int = 5, dropout: float = 0.0) -> None:
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads, self.window, self.drop = n_heads, window, nn.Dropout(dropout)
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        nn.init.zeros_(self.q.bias)

    def forward(self, query: Any, key: Any, value: Any, mask: Any) -> Any:
        q, k, v = (split(part, self.n_heads) for part in (self.q(query), self.k(key), self.v(value)))
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(mask == 0, -1e9).softmax(-1)
        return merge(self.drop(weights) @ v)


def test_sizes_replace_defaults_that_must_fit_and_nothing_else() -> None:
    layer = bound(Heads, "head=2")
    assert layer.constructor_call == "Heads(d_model=12, n_heads=2, dropout=0.3)"
    assert (layer.target.window, layer.target.training) == (5, False)
    assert layer.sizes == {"m": 12, "h": 2, "g": 2, "d": 6}
    assert (layer.target.q.bias.dtype, bool(layer.target.q.bias.all())) == (torch.float64, True)


def test_a_required_mask_is_neutral_and_keys_have_a_length_of_their_own() -> None:
    layer = bound(Heads)
    assert (layer.inputs, layer.extra_arguments) == ({"q": "btm", "k": "bsm", "v": "bsm"}, "mask: hides nothing")
    assert called(layer).shape == (3, 9, 24)
    assert not torch.allclose(called(layer, mask=torch.arange(11) < 4), called(layer))


@dataclass
class Settings:
    hidden_size: int = 768
    num_attention_heads: int = 12
    num_key_value_heads: int = 2
    rate: str = "none"


class OfSettings(nn.Module):
    def __init__(self, config: Settings) -> None:
        super().__init__()
        self.size = config.hidden_size // config.num_attention_heads
        self.out = nn.Linear(config.hidden_size, config.num_key_value_heads * self.size)

    def forward(
        self, hidden_states: Any, position_embeddings: Any = None, use_cache: bool = False, foo: int = 1
    ) -> Any:
        cos, sin = position_embeddings
        return self.out(hidden_states) * foo + cos[..., :1] + sin[..., :1]


def test_a_configuration_and_rotary_tables() -> None:
    still = bound(OfSettings)
    assert (
        still.constructor_call
        == "OfSettings(config=Settings(hidden_size=24, num_attention_heads=4, num_key_value_heads=2))"
    )
    assert still.extra_arguments == "position_embeddings: angles of 0"
    assert (still.sizes["g"], still.keywords["use_cache"], still.unknown) == (2, "use_cache", ("foo",))
    assert bound(OfSettings, "position=rope").extra_arguments == "position_embeddings: the angles of RoPE"
    assert bound(OfSettings, "kv_head=4").sizes["g"] == 4


class OfBag(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.out = nn.Linear(config.n_embd, config["n_embd"], bias=config.get("strange", True))

    def forward(self, x: Any) -> Any:
        n, b, _ = x.shape
        return self.out(x).reshape(n, b, -1)


def test_settings_of_no_class_and_batch_first() -> None:
    assert bound(OfBag).constructor_call == "OfBag(config=SimpleNamespace(n_embd=24))"
    assert bound(nn.MultiheadAttention).inputs["q"] == "tbm"
    assert bound(nn.MultiheadAttention(12, 3, batch_first=True)).inputs["q"] == "btm"


class Beside(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.into = nn.Linear(d_model, d_model)

    def forward(self, x: Any, media: Any) -> Any:
        return self.into(x) + self.into(media).mean()


def test_what_a_layer_projects_beside_x_is_a_memory() -> None:
    assert bound(Beside).inputs.keys() == {"x", "memory"}
    arguments = read_arguments([*inspect.signature(lambda x, y: None).parameters.values()])
    for code, x in (("self.to_kv(y)", "x"), ("self.q_layer(y)", "y")):
        assert find_memory(arguments, code).arrays["x"] == x


@pytest.mark.parametrize(("names", "axes"), [("t, b, c", "tbm"), ("b, c, t", "bct"), ("b, t, c", "btm"), ("n, d", "tm"),
                                             ("b, c, h, w", "bchw"), ("b, h, w, c", "bhwc")])  # fmt: skip
def test_axes_follow_the_line_that_unpacks_the_shape(tmp_path: Path, names: str, axes: str) -> None:
    file = tmp_path / f"unpacks_{axes}.py"
    file.write_text(f"class Layer:\n    def __init__(self, dim):\n        self.w = dim\n\n"
                    f"    def __call__(self, x):\n        {names} = x.shape\n        return x\n")  # fmt: skip
    layer = bind_layer(find_function(f"{file}:Layer"), parse_request([]))
    assert (layer.inputs, layer.library) == ({"x": axes}, "numpy")


class Strange:
    def __init__(self, d_model: int) -> None:
        self.W_q = np.eye(d_model)

    def forward(self, x: Any, zorble: Any, quux: Any) -> Any:
        return x @ self.W_q


class Switched(Strange):
    def __init__(self, d_model: int, zorble: bool) -> None:
        super().__init__(d_model)
        self.zorble = zorble

    def forward(self, x: Any) -> Any:  # type: ignore[override] # only x
        return x @ self.W_q


def test_a_switch_of_unknown_meaning_is_off() -> None:
    assert bound(Switched).constructor_call.endswith("zorble=False)")


def test_what_is_missing_is_said_and_a_factory_is_drafted() -> None:
    with pytest.raises(UncalledError, match=r"Strange needs `.*`, whose meaning is not known"):
        bound(Strange)
    draft = describe_factory(describe_function(Strange), "Strange needs `zorble`")
    compile(draft, "factory.py", "exec")
    for line in ("layer = target(d_model=24)", "layer(x=x, zorble=..., quux=...)", "attn-exp check factory.py:make"):
        assert line in draft


def test_a_factory_says_roles_a_mask_and_weights() -> None:
    def make() -> Any:
        q, k = np.ones((2, 4, 5, 6)), np.ones((2, 4, 7, 6))
        options = {"mask": ("keep", "attends"), "weights": {"W_q": q}, "heads": 4}
        return (lambda q, k, v, keep=None: q), {"q": q, "k": k, "v": k}, options

    layer = bound(make)
    assert (layer.inputs, layer.mask_true) == ({"q": "bhtd", "k": "bhsd", "v": "bhsd"}, "attends")
    assert layer.sizes == {"h": 4, "g": 4, "d": 6}
    assert (layer.keywords["mask"], layer.library, list(layer.weights)) == ("keep", "numpy", ["W_q"])
