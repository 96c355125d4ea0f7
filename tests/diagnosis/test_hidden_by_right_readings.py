"""Mistakes that do not show in the plainest reading of some code: one head, angles of 0, a mask that hides nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


def cut(side: Any, heads: int) -> Any:
    return side.unflatten(-1, (heads, -1)).transpose(1, 2)


def viewed(q: Any, k: Any, v: Any, n_heads: int, key_padding_mask: Any = None) -> Any:
    """Heads of `[b t h*d]` are put together with a view; with one there is nothing to put together."""
    q, k, v = (cut(side, n_heads) for side in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if key_padding_mask is not None:
        scores = scores.masked_fill(~key_padding_mask[:, None, None], -1e9)
    context = scores.softmax(-1) @ v
    return context.reshape(context.shape[0], context.shape[2], -1)


def for_its_mask(q: Any, k: Any, v: Any, mask: Any = None, num_heads: int = 1) -> Any:
    """Entries of one head, `[b*h t d]`; how many there are is told for the mask alone."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.repeat_interleave(num_heads, 0), -1e9)
    return scores.softmax(-1) @ v


def test_a_function_that_cuts_heads_is_asked_for_several() -> None:
    assert attn_exp.check(viewed, quick=True).mistakes == ("heads_merged_wrong",)
    verdict = attn_exp.check(for_its_mask, quick=True)
    assert verdict.passed, verdict


class Turned(nn.Module):
    """Rotary positions whose frequencies are a parameter, as that of a learned table would be."""

    sides = "qk"

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.net, self.out = heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.speeds = nn.Parameter(10.0 ** -torch.arange(dim // heads // 2), requires_grad=False)

    def turn(self, rows: Any) -> Any:
        angles = torch.arange(rows.shape[-2])[:, None] * self.speeds.repeat(2)
        left, right = rows.chunk(2, -1)
        return rows * angles.cos() + torch.cat([-right, left], -1) * angles.sin()

    def forward(self, x: Any) -> Any:
        sides = dict(zip("qkv", (cut(part, self.heads) for part in self.net(x).chunk(3, -1)), strict=True))
        q, k, v = (self.turn(rows) if side in self.sides else rows for side, rows in sides.items())
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class TurnedAlone(Turned):
    sides = "q"


class AllTurned(Turned):
    sides = "qkv"


@pytest.mark.parametrize(
    ("layer", "names"), [(Turned, ()), (TurnedAlone, ("position_missing",)), (AllTurned, ("rope_on_values",))]
)
def test_what_was_set_to_0_to_read_a_layer_is_looked_at_as_it_was(layer: type[nn.Module], names: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.mistakes == names and verdict.passed == (not names), verdict


def softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def of_queries_alone(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return softmax(q @ q.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask) @ v


def unscaled(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return softmax(q @ k.swapaxes(-1, -2) + mask) @ v


@pytest.mark.long
@pytest.mark.parametrize(("function", "name"), [(of_queries_alone, "keys_from_queries"), (unscaled, "no_scale")])
def test_a_mask_that_is_needed_and_added_is_no_small_fill_beside_a_mistake(function: Any, name: str) -> None:
    assert attn_exp.check(function, quick=True).mistakes == (name,)


class Configured(nn.Module):
    """Key/value heads that a mapping counts are repeated in turns."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        width, self.heads, self.shared = config["hidden_size"], config["num_heads"], config["num_key_value_heads"]
        size = width // self.heads
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(width, self.shared * size), nn.Linear(width, self.shared * size)

    def forward(self, x: Any) -> Any:
        q = cut(self.q(x), self.heads)
        k, v = (cut(side(x), self.shared).repeat(1, self.heads // self.shared, 1, 1) for side in (self.k, self.v))
        return self.out(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_mapping_that_counts_key_and_value_heads_is_asked_for_fewer() -> None:
    assert attn_exp.check(Configured, quick=True).mistakes == ("kv_heads_tiled",)


class Grouped(nn.Module):
    """Key/value heads are repeated along the tokens; with as many of them as query heads, nothing is."""

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.heads, self.shared, size = num_heads, num_kv_heads, d_model // num_heads
        self.q, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.k, self.v = nn.Linear(d_model, num_kv_heads * size), nn.Linear(d_model, num_kv_heads * size)

    def shared_out(self, side: Any) -> Any:
        return side.repeat_interleave(self.heads // self.shared, dim=2).reshape(len(side), self.heads, *side.shape[2:])

    def forward(self, x: Any) -> Any:
        q = cut(self.q(x), self.heads)
        k, v = (self.shared_out(cut(side(x), self.shared)) for side in (self.k, self.v))
        return self.out(((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Stirred(Grouped):
    """The same, with the numbers of each head turned round: no name says that."""

    def shared_out(self, side: Any) -> Any:
        times = self.heads // self.shared
        return side.repeat_interleave(times, dim=1) if times == 1 else super().shared_out(side).flip(-1)


@pytest.mark.long
def test_what_fewer_key_and_value_heads_show_is_no_pass() -> None:
    assert attn_exp.check(Grouped, quick=True).mistakes == ("kv_tokens_repeated",)
    verdict = attn_exp.check(Stirred, quick=True)
    assert not verdict.passed and not verdict.mistakes and "parts of several tokens" in verdict.computes, verdict


D_MODEL = 32


class ScaledByItsFile(nn.Module):
    """It is told its width, and divides by that of its file; what it looks at has a name that says nothing."""

    def __init__(self, dim: int, dim_text: int) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim_text, dim), nn.Linear(dim_text, dim)

    def forward(self, picture: Any, words: Any) -> Any:
        shares = (self.q(picture) @ self.k(words).mT / D_MODEL**0.5).softmax(-1)
        return shares @ self.v(words), shares


def test_a_width_that_a_class_is_told_is_not_that_of_its_file() -> None:
    verdict = attn_exp.check(ScaledByItsFile, quick=True)
    assert verdict.mistakes == ("scale_fixed",)
    assert not any("cross attention" in one for one in verdict.not_asked), verdict.not_asked


class OfTwoSets(nn.Module):
    """Two sets without a batch: of one key the transpose of three axes would be right by chance."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale, self.q, self.k, self.v = dim**-0.5, *(nn.Linear(dim, dim) for _ in range(3))

    def forward(self, atoms_a: Any, atoms_b: Any) -> Any:
        return torch.softmax(self.q(atoms_a) @ self.k(atoms_b).T * self.scale, dim=-1) @ self.v(atoms_b)


class WithShortcut(nn.Module):
    """What is added to the answer is no memory, whatever it is called."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.scale, self.q, self.k, self.v = dim**-0.5, *(nn.Linear(dim, dim) for _ in range(3))

    def forward(self, signal: Any, other_way: Any) -> Any:
        q, k, v = self.q(signal), self.k(signal), self.v(signal)
        return (q @ k.mT * self.scale).softmax(-1) @ v + other_way


def test_an_input_whose_name_says_nothing_is_what_a_layer_does_with_it() -> None:
    verdict = attn_exp.check(OfTwoSets, quick=True)
    assert verdict.passed and not any("cross attention" in one for one in verdict.not_asked), verdict
    verdict = attn_exp.check(WithShortcut, quick=True)
    assert verdict.passed and any("cross attention" in one for one in verdict.not_asked), verdict


def of_first_length(queries: Any, keys: Any, values: Any, valid_lens: Any = None) -> Any:
    """Filler is told by lengths, and that of the first entry is hidden in all of them."""
    scores = queries @ keys.swapaxes(-1, -2) / np.sqrt(queries.shape[-1])
    if valid_lens is not None:
        real = np.arange(keys.shape[-2])[None] < np.asarray(valid_lens)[:, None]
        scores = np.where(real[:1, None], scores, -1e6)
    return softmax(scores) @ values


def test_lengths_of_the_first_entry_alone_are_named() -> None:
    assert attn_exp.check(of_first_length, quick=True).mistakes == ("mask_of_first_entry",)
