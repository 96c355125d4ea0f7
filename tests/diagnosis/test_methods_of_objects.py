"""A method of an object that is made already, an object whose method has a name of its own, a method of q, k and v."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.judging.check import check
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import BROKEN, REMARK
from attn_exp.own_code import find_function

CODE = """
import numpy as np
try:
    import torch
except ImportError:
    torch = None

class Rows:
    def __init__(self, width, heads, scale):
        draw = np.random.default_rng(3)
        self.w = [draw.standard_normal((width, width)) for _ in "qkvo"]
        self.heads, self.scale = heads, scale

    def run(self, x):
        q, k, v = ((x @ w).reshape(len(x), self.heads, -1).swapaxes(0, 1) for w in self.w[:3])
        logits = q @ k.swapaxes(1, 2) * self.scale
        power = np.exp(logits - logits.max(-1, keepdims=True))
        shares = power / power.sum(-1, keepdims=True)
        return (shares @ v).swapaxes(0, 1).reshape(x.shape) @ self.w[3]

rows, wrong = Rows(24, 3, 8**-0.5), Rows(24, 3, 24**-0.5)

class Two(Rows):
    def weigh(self, q, k, v):
        logits = q @ k.swapaxes(-1, -2) / q.shape[-1]
        power = np.exp(logits - logits.max(-1, keepdims=True))
        return power / power.sum(-1, keepdims=True) @ v

two = Two(24, 3, 1.0)

class Settings:
    width = 3

    def said(self):
        return self.width

settings, number = Settings(), 4

class Model:
    def __init__(self, words, longest, d_model=64, n_head=8):
        self.table = np.random.default_rng(5).standard_normal((words, d_model))
        self.d_model, self.n_head = d_model, n_head
        self.root = (d_model // n_head) ** 0.5

    def cut(self, array):
        return array.reshape(*array.shape[:-1], self.n_head, self.d_model // self.n_head).swapaxes(-2, -3)

    def attend(self, x, params, mask=None):
        q, k, v = self.cut(x @ params["W_q"]), self.cut(x @ params["W_k"]), self.cut(x @ params["W_v"])
        logits = q @ k.swapaxes(-1, -2) / self.root
        logits = logits if mask is None else np.where(mask, logits, -1e9)
        power = np.exp(logits - logits.max(-1, keepdims=True))
        mixed = (power / power.sum(-1, keepdims=True) @ v).swapaxes(-2, -3)
        return mixed.reshape(*x.shape[:-1], self.d_model) @ params["W_o"]

class Store:
    def __init__(self, capacity, n_heads, head_dim):
        self.keys = np.zeros((n_heads, capacity, head_dim))
        self.values = np.zeros((n_heads, capacity, head_dim))

    def attend(self, q, k, v, pos):
        self.keys[:, pos], self.values[:, pos] = k[:, 0], v[:, 0]
        logits = q @ self.keys[:, : pos + 1].swapaxes(1, 2) / q.shape[-1] ** 0.5
        power = np.exp(logits - logits.max(-1, keepdims=True))
        return power / power.sum(-1, keepdims=True) @ self.values[:, : pos + 1]

if torch:
    class Holder:
        def __init__(self, width):
            self.q, self.k, self.v = (torch.nn.Linear(width, width) for _ in "qkv")

        def mix(self, x):
            logits = self.q(x) @ self.k(x).mT / x.shape[-1] ** 0.5
            return logits.softmax(-1) @ self.v(x)

    class Module(torch.nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.qkv, self.heads = torch.nn.Linear(width, 3 * width), heads

        def core(self, q, k, v):
            return self.weigh(q, k) @ v

        def flat(self, q, k, v):
            return self.weigh(q, k, 1.0) @ v

        def weigh(self, q, k, scale=None):
            return ((q @ k.mT) * (scale or q.shape[-1] ** -0.5)).softmax(-1)

    holder, module = Holder(16), Module(16, 2)
"""


def names_of(folder: Path, name: str, code: str = CODE) -> tuple[bool, tuple[str, ...]]:
    """Return whether what stands in such a file passes, and its mistakes."""
    file = folder / "objects.py"
    file.write_text(code)
    verdict = check(find_function(f"{file}:{name}"), Request(), quick=True)
    return verdict.passed, verdict.mistakes


@pytest.mark.parametrize("name", ["rows", "rows.run"])
def test_an_object_of_numpy_and_its_method_are_judged(tmp_path: Path, name: str) -> None:
    assert names_of(tmp_path, name) == (True, ())
    assert names_of(tmp_path, name.replace("rows", "wrong")) == (False, ("scale_by_sqrt_d_model",))


@pytest.mark.parametrize("name", ["two.weigh", "Two.weigh"])
def test_a_method_of_q_k_and_v_of_no_library_is_judged(tmp_path: Path, name: str) -> None:
    assert names_of(tmp_path, name) == (False, ("scale_by_d",))


def test_an_object_that_keeps_keys_and_values_is_asked_token_by_token(tmp_path: Path) -> None:
    file = tmp_path / "store.py"
    file.write_text(CODE)
    verdict = check(find_function(f"{file}:Store"), Request(), quick=True)
    assert (verdict.right_under, verdict.mistakes) == ("mask=causal", ())
    assert names_of(tmp_path, "Store.attend", CODE.replace(" / q.shape[-1] ** 0.5", "")) == (False, ("no_scale",))


def test_a_method_that_takes_a_mapping_of_matrices_is_given_them(tmp_path: Path) -> None:
    assert names_of(tmp_path, "Model.attend") == (True, ())
    wrong = CODE.replace("(d_model // n_head) ** 0.5", "d_model ** 0.5")
    assert names_of(tmp_path, "Model.attend", wrong) == (False, ("scale_by_sqrt_d_model",))


@pytest.mark.parametrize("name", ["holder.mix", "holder", "module.core", "Module.core"])
def test_a_method_of_an_object_of_pytorch_is_judged(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    assert names_of(tmp_path, name) == (True, ())


@pytest.mark.parametrize("name", ["module.flat", "Module.flat"])
def test_a_method_of_q_k_and_v_is_no_layer_that_leaves_its_matrices_unused(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    assert names_of(tmp_path, name) == (False, ("no_scale",))


@pytest.mark.parametrize(
    ("name", "said"), [("settings", "what it takes is not known"), ("number", "expected a function")]
)
def test_an_object_that_computes_nothing_is_no_function(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UserError, match=rf"{name}.*{said}"):
        names_of(tmp_path, name)


SHARED = np.zeros((2**20,))


def softmax_in(room: Any, logits: Any) -> Any:
    """Return shares, computed in room that others use too; it takes long, so that two threads meet there."""
    power = room[: logits.size].reshape(logits.shape)
    power[...] = np.exp(logits - logits.max(-1, keepdims=True))
    time.sleep(0.002)
    return power / power.sum(-1, keepdims=True)


def of_unknown_words(a: Any, b: Any, c: Any, dropout_p: Any) -> Any:
    return softmax_in(SHARED, a @ b.swapaxes(-1, -2) / np.sqrt(a.shape[-1])) @ c


class Keeping:
    """It keeps its weights, as a backward pass needs them."""

    def __init__(self, width: int) -> None:
        self.w = np.random.default_rng(3).standard_normal((3, width, width))
        self.room = np.zeros((2**16,))

    def forward(self, x: Any) -> Any:
        q, k, v = (x @ w for w in self.w)
        return softmax_in(self.room, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def state_in_two_threads(function: Any) -> str:
    verdict = attn_exp.check(function, quick=True)
    return next(one.state for one in verdict.findings if one.rung == "two threads at once")


def test_what_two_threads_share_is_a_failure_of_a_function_and_a_remark_of_an_object() -> None:
    assert state_in_two_threads(of_unknown_words) == BROKEN
    assert state_in_two_threads(Keeping) == REMARK
