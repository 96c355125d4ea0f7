"""Layers whose call takes several inputs in one argument, methods of a class, and tensors that no module holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.calling.packs import pack_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")


class Heads(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
    """Attention with a matrix each for q, k, v and the answer; `attend` takes three inputs and a mask, 0 hides."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.sides, self.out = torch.nn.ModuleList(torch.nn.Linear(dim, dim) for _ in "qkv"), torch.nn.Linear(dim, dim)

    def attend(self, one: Any, two: Any, three: Any, mask: Any = None) -> Any:
        q, k, v = (
            side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for side, x in zip(self.sides, (one, two, three), strict=True)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OfList(Heads):
    def forward(self, inputs: Any, mask: Any = None) -> Any:
        return self.attend(inputs[0], inputs[1], inputs[2], mask)


class OfListNamed(Heads):
    def forward(self, things: Any) -> Any:
        value = things[2]
        key = things[1]
        query = things[0]
        return self.attend(query, key, value)


class OfPair(Heads):
    def forward(self, both: Any) -> Any:
        x, mask = both
        return self.attend(x, x, x, mask), mask


class OfItself(Heads):
    def forward(self, x: Any) -> Any:
        if not isinstance(x, (list, tuple)):
            raise TypeError("a pair, please")
        x, context = x
        return self.attend(x, context, context)


class OfDictionary(Heads):
    def forward(self, batch: Any) -> Any:
        if "hidden" not in batch:
            raise ValueError("nothing to look at")
        return {"out": self.attend(batch["hidden"], batch["hidden"], batch["hidden"], batch["attn_mask"])}


class OfDictionaryAsked(Heads):
    def forward(self, batch: Any, **_: Any) -> Any:
        return self.attend(batch["q"], batch["k"], batch["v"], batch.get("mask"))


ALL = [OfList, OfListNamed, OfPair, OfItself, OfDictionary, OfDictionaryAsked]


@pytest.mark.parametrize("kind", ALL)
def test_inputs_in_one_argument_are_taken_apart(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict


def test_masks_and_other_keys_reach_a_layer_of_a_list() -> None:
    asked = {finding.rung for finding in attn_exp.check(OfDictionaryAsked).findings if finding.state == "held"}
    assert {"masks", "a mask for each entry", "keys of another input"} <= asked


def whole_if_it_is_one(inputs: Any) -> Any:
    if isinstance(inputs, tuple):
        inputs, _ = inputs
    return inputs.shape


def of_its_shape(x: Any) -> Any:
    batch, tokens, width = x.shape
    return batch, tokens, width


def first_entry(x: Any) -> Any:
    return x[0]


def rows_of_it(x: Any) -> Any:
    return x[:, 0], x[:, 1]


@pytest.mark.parametrize("function", [whole_if_it_is_one, of_its_shape, first_entry, rows_of_it])
def test_what_is_used_as_a_whole_is_one_argument(function: Any) -> None:
    assert pack_of(function, next(iter(function.__code__.co_varnames)), set()) is None


def first_of_several(features: Any) -> Any:
    x = features[0]
    return x.shape


def another_thing_in_both_branches(inputs: Any, place: Any = None) -> Any:
    if place:
        inputs, shift = inputs
        inputs = inputs + shift
    else:
        inputs = inputs[0]
    return inputs.shape


def test_a_list_of_one_input_and_one_that_is_an_input_afterwards_in_either_branch_are_taken_apart() -> None:
    one, two = pack_of(first_of_several, "features", set()), pack_of(another_thing_in_both_branches, "inputs", set())
    assert one is not None and one.parts == ("x",)
    assert two is not None and two.parts == ("inputs", "shift")


class Block(Heads):
    """A block; its attention is one of its methods."""

    def attention(self, x: Any, hidden: Any) -> Any:
        return self.attend(x, x, x, ~hidden)

    def unscaled(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in self.sides)
        return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x: Any) -> Any:
        raise RuntimeError("not asked")


class OfNumPy:
    """No library's layer, with a method of its own name."""

    def __init__(self, width: int) -> None:
        self.wq, self.wk, self.wv = np.random.default_rng(3).standard_normal((3, width, width)) / width**0.5

    def look_around(self, x: Any) -> Any:
        scores = (x @ self.wq) @ np.swapaxes(x @ self.wk, -1, -2) / x.shape[-1] ** 0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ (x @ self.wv)


@pytest.mark.parametrize("method", [Block.attention, OfNumPy.look_around])
def test_a_method_of_a_class_is_called_on_an_object_of_it(method: Any) -> None:
    verdict = attn_exp.check(method, quick=True)
    assert verdict.passed, verdict


def test_what_is_wrong_in_a_method_is_named() -> None:
    assert attn_exp.check(Block.unscaled, quick=True).mistakes == ("no_scale",)


class TakesOneText(Heads):
    """PyTorch's own attention, tokens first; its mask hides where it is True, and is one for each entry and head."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.inner = torch.nn.MultiheadAttention(dim, heads)

    def forward(self, x: Any, attn_mask: Any) -> Any:
        return self.inner(x, x, x, attn_mask=attn_mask.repeat_interleave(self.heads, 0), need_weights=False)[0]


def test_a_mask_that_hides_all_is_read_the_other_way_round_and_a_batch_is_found() -> None:
    verdict = attn_exp.check(TakesOneText)
    assert verdict.right_under == "convention=torch_mha", verdict
    assert "a mask for each entry" in {finding.rung for finding in verdict.findings if finding.state != "absent"}


class WithDrawnPlaces(Heads):
    """What a place adds to a score was drawn once, and is kept as a plain tensor."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.places = torch.randn(256, dim // heads)

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in self.sides)
        scores = (q @ k.mT + q @ self.places[: x.shape[1]].T) / q.shape[-1] ** 0.5
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_tensors_that_were_drawn_and_belong_to_no_module_are_set_to_0_and_said() -> None:
    verdict = attn_exp.check(WithDrawnPlaces, quick=True)
    assert verdict.passed and "places set to 0" in str(verdict), verdict
