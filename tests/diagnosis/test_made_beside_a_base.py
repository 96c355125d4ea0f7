"""Classes that hand some of what they are told on to their base, and are told of layers that are not made."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")


class Base(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
    def __init__(self, width: Any, count: Any, is_biased: Any) -> None:
        super().__init__()
        self.heads = count
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width, bias=is_biased) for _ in range(4))


class OfALayer(Base):
    """One of several layers, whose scale and kind a model tells it."""

    half = False

    def __init__(self, hidden_size, num_attention_heads, query_pre_attn_scalar, turned_list, layer_types, layer_idx,  # type: ignore[no-untyped-def]
                 **others: Any) -> None:  # fmt: skip
        super().__init__(width=hidden_size, count=num_attention_heads, **others)
        self.is_turned, self.kind = turned_list[layer_idx], layer_types[layer_idx]
        self.scale = query_pre_attn_scalar**-0.5 / (2 if self.half else 1)

    def forward(self, x: Any) -> Any:
        if not self.is_turned or "attention" not in self.kind:
            raise ValueError("another kind of layer")
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        return self.o((torch.softmax(q @ k.mT * self.scale, -1) @ v).transpose(1, 2).flatten(2))


class Halved(OfALayer):
    half = True


@pytest.mark.parametrize(("kind", "names"), [(OfALayer, ()), (Halved, ("scale_other",))])
def test_a_class_is_made_of_its_own_words_and_those_of_its_base_that_are_left(
    kind: type[Any], names: tuple[str, ...]
) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.mistakes == names and verdict.passed == (not names), verdict
