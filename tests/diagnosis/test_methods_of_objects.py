"""A method of an object that is made already, an object whose method has a name of its own, a method of q, k and v."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.diagnosis.check import check
from attn_exp.diagnosis.request import Request
from attn_exp.errors import UserError
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

class Settings:
    width = 3

settings, number = Settings(), 4

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


def names_of(folder: Path, name: str) -> tuple[bool, tuple[str, ...]]:
    """Return whether what stands in such a file passes, and its mistakes."""
    file = folder / "objects.py"
    file.write_text(CODE)
    verdict = check(find_function(f"{file}:{name}"), Request(), quick=True)
    return verdict.passed, verdict.mistakes


@pytest.mark.parametrize("name", ["rows", "rows.run"])
def test_an_object_of_numpy_and_its_method_are_judged(tmp_path: Path, name: str) -> None:
    assert names_of(tmp_path, name) == (True, ())
    assert names_of(tmp_path, name.replace("rows", "wrong")) == (False, ("scale_by_sqrt_d_model",))


@pytest.mark.parametrize("name", ["holder.mix", "holder", "module.core", "Module.core"])
def test_a_method_of_an_object_of_pytorch_is_judged(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    assert names_of(tmp_path, name) == (True, ())


@pytest.mark.parametrize("name", ["module.flat", "Module.flat"])
def test_a_method_of_q_k_and_v_is_no_layer_that_leaves_its_matrices_unused(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    assert names_of(tmp_path, name) == (False, ("no_scale",))


@pytest.mark.parametrize("name", ["settings", "number"])
def test_an_object_that_computes_nothing_is_no_function(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=rf"objects.py:{name} is a .*; expected a function"):
        names_of(tmp_path, name)
