"""A layer's other masks: words for one beside the one that it is asked about, or that nobody has heard of."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from attn_exp.diagnosis.asking.request import Request  # noqa: E402
from attn_exp.diagnosis.judging.check import check  # noqa: E402 - after what may be missing
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Verdict  # noqa: E402
from attn_exp.own_code import function_from  # noqa: E402


class Hides(torch.nn.Module):  # type: ignore[misc] # PyTorch says nothing of its types
    """Attention with a usual mask and one of memory keys; how the second one hides, a subclass says."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (torch.nn.Linear(width, width) for _ in range(4))

    def split(self, x: Any) -> Any:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None) -> Any:
        q, k, v = self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e30)
        if memory_mask is not None:
            scores = self.second(scores, memory_mask)
        out = scores.softmax(-1) @ v
        return self.out(out.transpose(1, 2).flatten(2))

    def second(self, scores: Any, seen: Any) -> Any:
        return scores.masked_fill(~seen[:, None, None], -1e30)


class Multiplies(Hides):
    def second(self, scores: Any, seen: Any) -> Any:
        return scores * seen[:, None, None]


class HidesTrue(Hides):
    def second(self, scores: Any, seen: Any) -> Any:
        return scores.masked_fill(seen[:, None, None], -1e30)


class Forgets(Hides):
    def second(self, scores: Any, seen: Any) -> Any:
        scores.masked_fill(~seen[:, None, None], -1e30)  # a new tensor, which nobody takes
        return scores


class Softens(Hides):
    """What it should do nobody can say."""

    def second(self, scores: Any, seen: Any) -> Any:
        return scores * (0.25 + 0.5 * seen[:, None, None])


def asked(layer: type[Any]) -> Verdict:
    return check(function_from(layer, layer.__name__, None), Request(), quick=True)


@pytest.mark.parametrize(
    ("layer", "state", "said"),
    [
        (Hides, HELD, ""),
        (HidesTrue, HELD, "True in it hides"),
        (Multiplies, BROKEN, "The logits are multiplied by the mask"),
        (Forgets, REMARK, "changes nothing"),
        (Softens, ABSENT, "not judged"),
    ],
)
def test_a_second_mask_is_asked(layer: type[Any], state: str, said: str) -> None:
    verdict = asked(layer)
    (finding,) = [one for one in verdict.findings if one.rung == "masks as memory_mask"]
    assert finding.state == state and finding.said.startswith(said), verdict
    assert verdict.passed == (state != BROKEN)
    assert verdict.mistakes == (("mask_multiplied",) if state == BROKEN else ()), verdict
    assert not any("memory_mask" in one for one in verdict.not_asked)


class Writes(Hides):
    """It turns its second mask round where that lies."""

    def second(self, scores: Any, seen: Any) -> Any:
        return scores.masked_fill(seen.logical_not_()[:, None, None], -1e30)


class WritesToItsFirst(Hides):
    def forward(self, x: Any, memory: Any, mask: Any = None, memory_mask: Any = None) -> Any:
        out = super().forward(x, memory, mask, memory_mask)
        if mask is not None:
            mask[..., -1] = True
        return out


@pytest.mark.parametrize("layer", [Writes, WritesToItsFirst])
def test_a_mask_that_a_call_writes_to_is_seen(layer: type[Any]) -> None:
    verdict = asked(layer)
    assert not verdict.passed and verdict.mistakes == ("changes_inputs",), verdict


class Later(Hides):
    """Its second mask is one of keys alone, though nothing in its name says so."""

    def forward(self, x: Any, memory: Any, mask: Any = None, src_mask: Any = None) -> Any:
        return super().forward(x, memory, mask, src_mask)

    def second(self, scores: Any, seen: Any) -> Any:
        batch, keys = seen.shape
        return scores.masked_fill(~seen.reshape(batch, 1, 1, keys).bool(), -1e-9)


def test_another_mask_of_keys_alone_is_asked_as_one() -> None:
    verdict = asked(Later)
    assert not verdict.passed and verdict.mistakes == ("mask_small_fill",), verdict


class OfLengths(Hides):
    """It must be told how many keys of each entry are no filler."""

    def forward(self, x: Any, memory: Any, memory_seq_lengths: Any) -> Any:  # type: ignore[override]
        return super().forward(x, memory, None, memory_seq_lengths)

    def second(self, scores: Any, seen: Any) -> Any:
        return scores.masked_fill(self.places(scores) >= seen[:, None, None, None], -torch.inf)

    def places(self, scores: Any) -> Any:
        return torch.arange(scores.shape[-1])


class OneTooLong(OfLengths):
    def places(self, scores: Any) -> Any:
        return torch.arange(scores.shape[-1]) - 1


class ForgetsLengths(OfLengths):
    def second(self, scores: Any, seen: Any) -> Any:
        return scores


@pytest.mark.parametrize(
    ("layer", "names"), [(OfLengths, ()), (OneTooLong, ("padding_one_long",)), (ForgetsLengths, ("mask_ignored",))]
)
def test_lengths_of_entries_say_a_mask_too(layer: type[Any], names: tuple[str, ...]) -> None:
    verdict = check(function_from(layer, layer.__name__, __file__), Request(), quick=True)
    assert verdict.mistakes == names and verdict.passed == (not names), verdict
    assert any(one.rung == "masks as memory_seq_lengths" for one in verdict.findings)


class OfEdges(Hides):
    """In `edge_mask [b i j]` i sends to j, which is a query then; each sees itself."""

    def forward(self, x: Any, edge_mask: Any) -> Any:  # type: ignore[override] # it takes one input
        itself = torch.eye(x.shape[1], dtype=torch.bool)
        return super().forward(x, x, (edge_mask.transpose(1, 2) > 0)[:, None] | itself)


class Turned(OfEdges):
    def forward(self, x: Any, tgt_mask: Any) -> Any:  # type: ignore[override] # another word for it
        return super().forward(x, tgt_mask)


def edges_between(q: Any, k: Any, v: Any, pair_mask: Any) -> Any:
    return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~pair_mask.mT, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize(
    ("function", "passed"),
    [(OfEdges, True), (Turned, False), (edges_between, True)],
    ids=["a layer", "another word", "a function"],
)
def test_a_mask_of_edges_may_have_keys_first(function: Any, passed: bool) -> None:
    verdict = check(function_from(function, function.__name__, None), Request(), quick=True)
    assert verdict.passed == passed, verdict
    assert verdict.mistakes == (() if passed else ("mask_transposed",))
    notes = [one for one in verdict.findings if one.state == REMARK and "rows are keys" in one.said]
    assert bool(notes) == passed
