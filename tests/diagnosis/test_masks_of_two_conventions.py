"""Two masks of one call, of which True hides in one and may be seen in the other: each is read as it is meant."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from attn_exp.diagnosis.asking.request import Request, request_of, settings_of  # noqa: E402
from attn_exp.diagnosis.judging.check import check  # noqa: E402 - after what may be missing
from attn_exp.experiment.verdict import HELD, REMARK, Verdict  # noqa: E402
from attn_exp.own_code import function_from  # noqa: E402

INF = math.inf


def scores(q: Any, k: Any) -> Any:
    return q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])


def padding_hides(q: Any, k: Any, v: Any, key_padding_mask: Any = None, attn_mask: Any = None) -> Any:
    s = scores(q, k)
    if attn_mask is not None:
        s = s.masked_fill(~attn_mask, -INF)
    if key_padding_mask is not None:
        s = s.masked_fill(key_padding_mask[:, None, None, :], -INF)
    return s.softmax(-1) @ v


def mask_hides_too_little(q: Any, k: Any, v: Any, key_padding_mask: Any = None, attn_mask: Any = None) -> Any:
    s = scores(q, k)
    if attn_mask is not None:
        s = s.masked_fill(~attn_mask, -5.0)
    if key_padding_mask is not None:
        s = s.masked_fill(key_padding_mask[:, None, None, :], -INF)
    return s.softmax(-1) @ v


def mask_hides(q: Any, k: Any, v: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    s = scores(q, k)
    if attn_mask is not None:
        s = s.masked_fill(attn_mask, -INF)
    if key_padding_mask is not None:
        s = s.masked_fill(~key_padding_mask[:, None, None, :], -INF)
    return s.softmax(-1) @ v


def causal_hides(q: Any, k: Any, v: Any, mask: Any = None, causal_mask: Any = None) -> Any:
    s = scores(q, k)
    if causal_mask is not None:
        s = s.masked_fill(causal_mask, -INF)
    if mask is not None:
        s = s.masked_fill(mask[:, None, None, :] == 0, -INF)
    return s.softmax(-1) @ v


def causal_hides_unscaled(q: Any, k: Any, v: Any, mask: Any = None, causal_mask: Any = None) -> Any:
    s = q @ k.transpose(-1, -2)
    if causal_mask is not None:
        s = s.masked_fill(causal_mask, -INF)
    if mask is not None:
        s = s.masked_fill(mask[:, None, None, :] == 0, -INF)
    return s.softmax(-1) @ v


class Layer(torch.nn.Module):
    """Attention of which a subclass says what its masks do."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width) for _ in range(4))

    def split(self, x: Any) -> Any:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def attend(self, x: Any, causal_mask: Any, seen: Any) -> Any:
        s = scores(self.split(self.q(x)), self.split(self.k(x)))
        if causal_mask is not None:
            s = s.masked_fill(causal_mask, -1e30)
        if seen is not None:
            s = s.masked_fill(seen[:, None, None, :] == 0, -1e30)
        return self.o((s.softmax(-1) @ self.split(self.v(x))).transpose(1, 2).reshape(x.shape))


class CausalHides(Layer):
    def forward(self, x: Any, mask: Any = None, causal_mask: Any = None) -> Any:
        return self.attend(x, causal_mask, mask)


def checked(function: Any, *words: str) -> Verdict:
    request = request_of(settings_of(words), words) if words else Request()
    return check(function_from(function, function.__name__, __file__), request, quick=True)


@pytest.mark.parametrize(
    ("function", "word", "state"),
    [
        (padding_hides, "key_padding_mask", HELD),
        (mask_hides, "attn_mask", REMARK),
        (causal_hides, "causal_mask", HELD),
    ],
)
def test_each_mask_is_read_in_its_own_convention_which_is_said(function: Any, word: str, state: str) -> None:
    verdict = checked(function)
    assert not verdict.is_wrong, verdict.computes
    said = {one.rung: (one.state, one.said) for one in verdict.findings}
    assert said[f"masks as {word}"][0] == state, "a mask that hides by True is usual for padding and causal ones alone"
    assert said[f"masks as {word}"][1].startswith("True in it hides")
    asked = {rung for rung in said if rung in ("masks", "padding")}
    assert asked == {"masks", "padding"}, "both are asked"


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "names"),
    [
        (mask_hides_too_little, ("mask_small_fill",)),
        (causal_hides_unscaled, ("no_scale",)),
    ],
)
def test_what_is_wrong_beside_two_conventions_has_its_name(function: Any, names: tuple[str, ...]) -> None:
    verdict = checked(function)
    assert not verdict.passed
    assert verdict.mistakes == names, verdict.computes


@pytest.mark.long
def test_a_second_mask_of_a_layer_is_not_verified() -> None:
    verdict = checked(CausalHides)
    assert verdict.outcome == "not verified" and "`causal_mask`" in str(verdict)


def test_a_convention_that_is_typed_is_that_of_both_masks() -> None:
    verdict = checked(padding_hides, "convention=torch_mha")
    assert not verdict.passed
    assert "mask_inverted" in verdict.mistakes, verdict.computes
