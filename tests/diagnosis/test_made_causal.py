"""Classes that are told whether they are causal: they are asked both ways."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from attn_exp.diagnosis.asking.request import Request, understood  # noqa: E402
from attn_exp.diagnosis.judging.check import check  # noqa: E402 - after what may be missing
from attn_exp.experiment.verdict import HELD  # noqa: E402
from attn_exp.own_code import function_from  # noqa: E402


class Told(torch.nn.Module):
    """Attention that is causal where its class says so."""

    first = 1

    def __init__(self, width: int = 24, heads: int = 3, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Any) -> Any:
        q, k, v = (
            side(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for side in (self.query, self.key, self.value)
        )
        scores = q @ k.mT / self.size(x)
        return self.out((self.hidden(scores).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def size(self, x: Any) -> float:
        return math.sqrt(x.shape[-1] // self.heads)

    def hidden(self, scores: Any) -> Any:
        late = torch.ones(scores.shape[-2:]).triu(self.first).bool()
        return scores.masked_fill(late, -torch.inf) if self.causal else scores


class Next(Told):
    """Sees one key too many."""

    first = 2


class Never(Told):
    """Hides nothing."""

    first = 1000


@dataclass
class Settings:
    n_embd: int = 24
    n_head: int = 3
    causal: bool = False


class OfSettings(Never):
    """Takes its settings together."""

    def __init__(self, config: Settings) -> None:
        super().__init__(config.n_embd, config.n_head, config.causal)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Told, ()),
        (Next, ("causal_next",)),
        (Never, ("causal_ignored",)),
        (OfSettings, ("causal_ignored",)),
    ],
)
def test_a_class_that_may_be_causal_is_asked_both_ways(kind: Any, names: tuple[str, ...]) -> None:
    verdict = check(function_from(kind, kind.__name__, None), Request(), quick=True)
    assert verdict.mistakes == names
    assert verdict.passed == (not names)
    states = [one.state for one in verdict.findings if one.rung == "made causal"]
    assert states == [HELD] if not names else HELD not in states


def test_where_a_causal_mask_is_asked_for_the_class_is_told_so() -> None:
    assert check(function_from(Told, "Told", None), understood(["mask=causal"]), quick=True).passed


class CausalAndMasked(Told):
    """Always causal, and keys can be hidden besides."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__(width, heads, True)

    def forward(self, x: Any, mask: Any = None) -> Any:
        self.shown = None if mask is None else self.read(mask)
        return super().forward(x)

    def read(self, mask: Any) -> Any:
        return mask

    def hidden(self, scores: Any) -> Any:
        scores = super().hidden(scores)
        return scores if self.shown is None else scores.masked_fill(self.shown == 0, -1e9)


class OfKeys(CausalAndMasked):
    """Its mask is one of keys alone, `[b s]`."""

    def read(self, mask: Any) -> Any:
        return mask[:, None, None]


class Forgets(CausalAndMasked):
    """Its mask is read, and hides nothing."""

    def read(self, mask: Any) -> Any:
        return torch.ones_like(mask)


class ForgetsKeys(OfKeys):
    """The same of keys alone."""

    def read(self, mask: Any) -> Any:
        return torch.ones_like(super().read(mask))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "names"),
    [(CausalAndMasked, ()), (OfKeys, ()), (Forgets, ("mask_ignored",)), (ForgetsKeys, ("mask_ignored",))],
)
def test_a_mask_beside_a_causal_one_hides_keys_that_this_leaves(kind: Any, names: tuple[str, ...]) -> None:
    verdict = check(function_from(kind, kind.__name__, None), Request(), quick=True)
    assert verdict.mistakes == names and (verdict.right_under == "mask=causal") is not bool(names), verdict


class OfSoMany(Told):
    """Makes its mask beforehand, and refuses to be causal where nobody says for how many tokens."""

    def __init__(self, width: int = 24, heads: int = 3, causal: bool = False, sequence_length: int | None = None):
        if causal and sequence_length is None:
            raise ValueError("sequence_length is needed to be causal")
        super().__init__(width, heads, causal)


@pytest.mark.long
def test_what_a_class_needs_to_be_causal_it_is_told() -> None:
    verdict = check(function_from(OfSoMany, "OfSoMany", None), Request(), quick=True)
    assert verdict.passed, verdict
    assert [one.state for one in verdict.findings if one.rung == "made causal"] == [HELD]


class NeverSo(Told):
    """Cannot be causal at all."""

    def __init__(self, width: int = 24, heads: int = 3, causal: bool = False):
        if causal:
            raise NotImplementedError("it cannot be causal")
        super().__init__(width, heads, causal)


def test_a_class_that_refuses_to_be_causal_is_not_said_to_ignore_it() -> None:
    """It was made without the switch then, and judged as if it had been told."""
    assert check(function_from(NeverSo, "NeverSo", None), Request(), quick=True).passed


class WithoutMatrices(torch.nn.Module):
    """A function of q, k and v whose class has a switch for its mask."""

    hides = True

    def __init__(self, mask: bool = False) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        late = torch.ones(scores.shape[-2:]).triu(1).bool()
        return (scores.masked_fill(late, -torch.inf) if self.mask and self.hides else scores).softmax(-1) @ v


class HidesNothing(WithoutMatrices):
    hides = False


@pytest.mark.long
def test_a_class_without_matrices_is_told_to_be_causal_too() -> None:
    assert check(function_from(WithoutMatrices, "WithoutMatrices", None), Request(), quick=True).passed
    found = check(function_from(HidesNothing, "HidesNothing", None), Request(), quick=True)
    assert found.mistakes == ("causal_ignored",)
