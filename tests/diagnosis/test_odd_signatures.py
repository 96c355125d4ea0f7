"""Layers and functions that want odd things: switches, flags of which one must be set, tokens beside an image."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import nn


class Plain(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.count = heads
        self.q, self.k, self.v, self.last = (nn.Linear(dim, dim) for _ in range(4))

    def cut(self, one: Any) -> Any:
        return one.unflatten(-1, (self.count, -1)).transpose(1, 2)

    def attend(self, x: Any, memory: Any = None) -> Any:
        memory = x if memory is None else memory
        q, k, v = self.cut(self.q(x)), self.cut(self.k(memory)), self.cut(self.v(memory))
        weights = (q @ k.mT / self.root(q)).softmax(-1)
        return self.last((weights @ v).transpose(1, 2).flatten(2))

    def root(self, q: Any) -> float:
        return float(q.shape[-1] ** 0.5)


class OfSwitches(Plain):
    """Its file lacks what the switches ask for."""

    def __init__(self, setup: Any) -> None:
        super().__init__(setup.hidden_dim, setup.heads)
        if setup.rotary_embedding:
            self.rope = Missing(setup.heads)  # type: ignore[name-defined]  # noqa: F821
        self.norm = Missing(3) if setup.hidden_norm and not setup.fused_heads else nn.Identity()  # type: ignore[name-defined]  # noqa: F821

    def forward(self, x: Any) -> Any:
        return self.attend(self.norm(x))


class OneOfTwo(Plain):
    def __init__(self, dim: int, heads: int, to_itself: bool = False, to_others: bool = False) -> None:
        super().__init__(dim, heads)
        self.to_itself, self.to_others = to_itself, to_others
        assert self.to_itself ^ self.to_others

    def forward(self, x: Any) -> Any:
        return self.attend(x)


class OneOfTwoRaised(Plain):
    def __init__(self, dim: int, heads: int, encoder: bool = False, decoder: bool = False) -> None:
        super().__init__(dim, heads)
        if encoder == decoder:
            raise ValueError("say encoder or decoder")

    def forward(self, x: Any) -> Any:
        return self.attend(x)


class OneOfTwoWrong(OneOfTwo):
    def root(self, q: Any) -> float:
        return float((q.shape[-1] * self.count) ** 0.5)


@pytest.mark.parametrize(
    ("layer", "names"),
    [(OfSwitches, ()), (OneOfTwo, ()), (OneOfTwoRaised, ()), (OneOfTwoWrong, ("scale_by_sqrt_d_model",))],
)
def test_switches_are_read_off_the_code(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    judged(layer, names)


def judged(asked: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(asked, quick=True)
    assert verdict.mistakes == names, verdict
    assert verdict.passed == (not names)
