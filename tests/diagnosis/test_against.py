"""Two implementations against each other: where they agree, where they part, and what parts them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.cli import main
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import REMARK
from attn_exp.own_code import with_other_joined


def softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def logits_of(q: Array, k: Array) -> Array:
    logits: Array = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return logits


def plain(q: Array, k: Array, v: Array) -> Array:
    return softmax(logits_of(q, k)) @ v


def side_by_side(query: Array, key: Array, value: Array) -> Array:
    """The same with other axes, `[b t h d]`, and other names."""
    out = plain(*(array.swapaxes(1, 2) for array in (query, key, value)))
    return out.swapaxes(1, 2)


def unscaled(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def unscaled_too(q: Array, k: Array, v: Array) -> Array:
    return softmax(np.einsum("bhtd,bhsd->bhts", q, k)) @ v


def sharper(q: Array, k: Array, v: Array) -> Array:
    return softmax(2.6 * logits_of(q, k)) @ v


def in_float32(q: Array, k: Array, v: Array) -> Array:
    return plain(*(array.astype(np.float32) for array in (q, k, v))).astype(np.float64)


def top_left(q: Array, k: Array, v: Array, is_causal: bool = False) -> Array:
    logits = logits_of(q, k)
    return softmax(np.where(np.tril(np.ones(logits.shape[-2:], bool)), logits, -np.inf) if is_causal else logits) @ v


def bottom_right(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    logits = logits_of(q, k)
    rows, keys = logits.shape[-2:]
    seen = np.tril(np.ones((rows, keys), bool), keys - rows)
    return softmax(np.where(seen, logits, -np.inf) if causal else logits) @ v


def with_nan(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    return softmax(logits_of(q, k) if mask is None else np.where(mask, logits_of(q, k), -np.inf)) @ v


def with_mean(q: Array, k: Array, v: Array, attn_mask: Array | None = None) -> Array:
    return softmax(logits_of(q, k) if attn_mask is None else np.where(attn_mask, logits_of(q, k), -1e9)) @ v


def grouped(q: Array, k: Array, v: Array) -> Array:
    count = q.shape[1] // k.shape[1]
    return plain(q, np.repeat(k, count, axis=1), np.repeat(v, count, axis=1))


def tiled(q: Array, k: Array, v: Array) -> Array:
    count = q.shape[1] // k.shape[1]
    return plain(q, np.tile(k, (1, count, 1, 1)), np.tile(v, (1, count, 1, 1)))


def test_two_that_compute_the_same_agree_whatever_their_axes_and_names() -> None:
    verdict = attn_exp.check(plain, against=side_by_side, quick=True)
    assert (verdict.passed, verdict.name, verdict.against) == (True, "plain", "side_by_side")
    assert verdict.summary.startswith("plain and side_by_side: agree\n") and "plain: right" in str(verdict)


@pytest.mark.long
@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            bottom_right,
            top_left,
            "where t and s differ: bottom_right aligns causal masks bottom right, with NaN for queries that see no key",
        ),
        (grouped, tiled, "tiled gives keys to heads in turns"),
        (
            with_nan,
            with_mean,
            "for queries that see no key: with_nan gives NaN; with_mean gives the mean of all values",
        ),
        (sharper, plain, "They are 2.6 times what they should be; plain follows the definition"),
    ],
)
def test_what_parts_two_that_are_right_or_unnamed_is_said(
    one: Callable[..., Array], other: Callable[..., Array], said: str
) -> None:
    verdict = attn_exp.check(one, against=other, quick=True)
    assert not verdict.passed
    assert said in verdict.computes


@pytest.mark.long
def test_a_mistake_of_one_alone_parts_them_by_its_name() -> None:
    verdict = attn_exp.check(plain, against=unscaled, quick=True)
    assert verdict.mistakes == ("no_scale",)
    assert "plain follows the definition; unscaled computes attention with no_scale" in verdict.computes
    mine, other = (side.smallest for side in verdict.sides)
    assert mine is not None and other is not None
    assert mine.mine == mine.right and other.mine != other.right
    assert "unscaled(q=q, k=k, v=v)" in str(verdict)


@pytest.mark.long
@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (plain, unscaled, "up to the scores q k^T; from there plain computes the scaled logits of the definition"),
        (sharper, plain, "up to the scaled logits; from there plain computes the weights of the definition, sharper"),
        (with_nan, with_mean, "up to the masked logits, and differ after that"),
    ],
)
def test_traces_say_up_to_which_stage_two_functions_agree(
    one: Callable[..., Array], other: Callable[..., Array], said: str
) -> None:
    assert f"Their traces agree {said}" in attn_exp.check(one, against=other, quick=True).computes


@pytest.mark.long
def test_two_with_the_same_mistake_agree_and_it_is_said() -> None:
    verdict = attn_exp.check(unscaled, against=unscaled_too, quick=True)
    assert verdict.passed and verdict.mistakes == ()
    assert "both compute attention with no_scale" in verdict.computes


def test_a_difference_of_rounding_is_no_parting_and_its_size_is_said() -> None:
    verdict = attn_exp.check(plain, against=in_float32, quick=True)
    assert verdict.passed
    said = next(one for one in verdict.findings if one.rung == "rounding")
    assert said.state == REMARK and "units of float32" in said.said


def test_what_only_one_of_them_takes_is_said() -> None:
    verdict = attn_exp.check(plain, against=with_mean, quick=True)
    assert verdict.passed
    assert "only with_mean takes a mask (attn_mask)" in [one.said for one in verdict.findings]


def test_nothing_is_claimed_of_questions_that_only_one_answers() -> None:
    def stops(q: Array, k: Array, v: Array) -> Array:
        return plain(q, k, v) if np.abs(q).max() < 5 else 1 / 0  # type: ignore[return-value]

    verdict = attn_exp.check(plain, against=stops, quick=True)
    assert (verdict.outcome, verdict.not_verified[0]) == ("not verified", "large inputs (only plain answers)"), verdict
    assert verdict.summary.startswith("plain and stops: agree as far as asked; not verified: large inputs")


@pytest.mark.long
def test_words_are_asked_of_both() -> None:
    verdict = attn_exp.check(bottom_right, "mask=causal", against=top_left, quick=True)
    assert "bottom_right is right under align=bottom_right without being told, top_left is not" in verdict.computes


def by_itself(q: Array, k: Array, v: Array) -> Array:
    return top_left(q, k, v, is_causal=True)


def with_hidden(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    return with_nan(q, k, v, None if mask is None else ~mask)


@pytest.mark.long
def test_a_rule_that_one_keeps_unasked_parts_them_and_both_are_asked_for_it() -> None:
    verdict = attn_exp.check(by_itself, against=top_left, quick=True)
    assert not verdict.passed
    assert "by_itself is right under mask=causal without being told, top_left is not" in verdict.computes
    assert "Asked under mask=causal they agree" in verdict.computes
    verdict = attn_exp.check(by_itself, against=plain, quick=True)
    assert verdict.computes == "by_itself is right under mask=causal without being told, plain is not"


def test_masks_that_mean_the_opposite_are_said_and_each_is_given_its_own() -> None:
    verdict = attn_exp.check(with_nan, against=with_hidden, quick=True)
    assert not verdict.passed
    assert verdict.computes.startswith("The masks of with_hidden mean the opposite, as convention=torch_mha has them")
    assert [one.state for one in verdict.findings if one.rung == "masks"] == ["held"]


# Modules are asked with the same matrices


def modules() -> dict[str, Any]:
    torch = pytest.importorskip("torch")

    class Old(torch.nn.Module):  # type: ignore[name-defined] # torch is not always there
        def __init__(self, d_model: int, n_heads: int) -> None:
            super().__init__()
            self.heads = n_heads
            self.q_proj, self.k_proj, self.v_proj, self.out_proj = (torch.nn.Linear(d_model, d_model) for _ in range(4))

        def forward(self, x: Any) -> Any:
            b, t, m = x.shape
            q, k, v = (part(x).view(b, t, self.heads, -1).transpose(1, 2) for part in self.parts())
            weights = (q @ k.transpose(-1, -2) * self.factor(q.shape[-1])).softmax(-1)
            return self.out_proj((weights @ v).transpose(1, 2).reshape(b, t, m))

        def parts(self) -> tuple[Any, ...]:
            return self.q_proj, self.k_proj, self.v_proj

        def factor(self, size: int) -> float:
            return float(size**-0.5)

    class New(Old):
        def factor(self, size: int) -> float:
            return 1.0

    class Fused(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            self.num_heads = num_heads
            self.qkv, self.proj = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

        def forward(self, x: Any) -> Any:
            b, t, m = x.shape
            q, k, v = self.qkv(x).reshape(b, t, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.proj(out.transpose(1, 2).reshape(b, t, m))

    return {"Old": Old, "New": New, "Fused": Fused}


@pytest.mark.long
def test_a_module_that_drops_the_scale_is_told_from_the_one_before() -> None:
    made = modules()
    verdict = attn_exp.check(made["Old"], against=made["New"], quick=True)
    assert "Old follows the definition; New computes attention with no_scale" in verdict.computes
    assert "with the parameters of Old in both" in verdict.findings[0].said


@pytest.mark.long
def test_traces_say_up_to_which_stage_two_modules_agree() -> None:
    made = modules()
    old: Any = made["Old"]

    class Twice(old):
        def parts(self) -> tuple[Any, ...]:
            return self.q_proj, self.q_proj, self.v_proj

    said = attn_exp.check(made["Old"], against=made["New"], quick=True).computes
    assert "agree up to the scores q k^T; from there Old computes the scaled logits of the definition, New" in said
    said = attn_exp.check(made["Old"], against=Twice, quick=True).computes
    assert "Their traces part at once; from there Old computes the keys of the definition, Twice does not" in said


@pytest.mark.long
def test_modules_of_other_parameters_are_each_held_against_the_definition() -> None:
    made = modules()
    module = made["Old"](24, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    verdict = attn_exp.check(made["Fused"], against=module, quick=True, head=3)
    assert verdict.passed and "each is held against the definition" in verdict.findings[0].said
    assert all(bool((value == before[name]).all()) for name, value in module.state_dict().items())  # a copy was asked


def test_a_module_and_a_function_of_heads_are_each_held_against_the_definition() -> None:
    verdict = attn_exp.check(modules()["Old"], against=plain, quick=True)
    assert verdict.passed
    assert "one takes q, k, v and the other x" in verdict.findings[0].said


# The command

FILE = """
import numpy as np

def right(q, k, v):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v

def attention(q, k, v):
    return right(q, k, v) * 1.5

def odd(a):
    return a
"""


@pytest.mark.long
def test_the_command_ends_with_0_1_or_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("old.py", "new.py"):
        (tmp_path / name).write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", "old.py:right", "--against", "new.py:right", "--quick"])
    main()
    assert "old.py:right and new.py:right: agree" in capsys.readouterr().out
    words = ["check", "old.py:right", "--against=new.py:attention", "--quick", "--json"]
    monkeypatch.setattr(sys, "argv", ["attn-exp", *words])
    with pytest.raises(SystemExit, match="1"):
        main()
    said = json.loads(capsys.readouterr().out)
    assert (said["name"], said["against"], said["outcome"]) == ("right", "attention", "wrong")
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", "old.py:right", "--against", "new.py:odd"])
    with pytest.raises(SystemExit, match="3"):
        main()
    assert "odd takes a; expected q, k, v" in capsys.readouterr().err


def test_an_option_without_a_name_is_refused() -> None:
    for words in (["f.py:f", "--against"], ["f.py:f", "--against", "--json"], ["f.py:f", "--against="]):
        with pytest.raises(UserError, match="--against needs a function"):
            with_other_joined(words)
    with pytest.raises(UserError, match="given twice"):
        with_other_joined(["f.py:f", "--against", "a:b", "--against", "c:d"])
