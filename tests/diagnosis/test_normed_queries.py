"""Queries and keys that a layer divides by their length in its own code, and multiplies by a number that it chose."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")


class Scaled(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
    """Attention whose queries and keys have a mean square of 1, times a number."""

    factor, eps = 1.2, 1e-6

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.sides, self.last = num_heads, torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def forward(self, x: Any) -> Any:
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in self.sides(x).chunk(3, -1))
        q, k = (one * (one.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.factor for one in (q, k))
        said = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
        return self.last(said.transpose(1, 2).flatten(2))


class Smaller(Scaled):
    factor, eps = 0.8, 1e-5


@pytest.mark.parametrize(("kind", "said"), [(Scaled, "times 1.44"), (Smaller, "times 0.64")])
def test_a_number_that_multiplies_normed_queries_is_found(kind: type[Any], said: str) -> None:
    verdict = attn_exp.check(kind)
    assert verdict.passed, verdict
    assert f"RMSNorm of k and q and {said}" in verdict.findings[0].said


def test_a_scale_of_queries_that_are_not_normed_stays_a_mistake() -> None:
    class Plain(Scaled):
        def forward(self, x: Any) -> Any:
            q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in self.sides(x).chunk(3, -1))
            said = torch.softmax(1.44 * q @ k.mT / q.shape[-1] ** 0.5, -1) @ v
            return self.last(said.transpose(1, 2).flatten(2))

    verdict = attn_exp.check(Plain)
    assert not verdict.passed
    assert verdict.mistakes == ("scale_other",), verdict
