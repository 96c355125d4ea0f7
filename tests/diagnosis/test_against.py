"""Two implementations against each other: where they agree, where they part, and what parts them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.cli import main
from attn_exp.experiment.verdict import REMARK
from tests.diagnosis.functions import attend, causal, logits, softmax
from tests.refusal import refused
from tests.zoo.wrong_groups import tiled
from tests.zoo.wrong_scale import unscaled, unscaled_einsum


def side_by_side(query: Any, key: Any, value: Any) -> Any:
    """The same with other axes, `[b t h d]`, and other names."""
    return attend(*(array.swapaxes(1, 2) for array in (query, key, value))).swapaxes(1, 2)


def sharper(q: Any, k: Any, v: Any) -> Any:
    return softmax(2.6 * logits(q, k)) @ v


def in_float32(q: Any, k: Any, v: Any) -> Any:
    return attend(*(array.astype(np.float32) for array in (q, k, v))).astype(np.float64)


def top_left(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    return softmax(causal(logits(q, k)) if is_causal else logits(q, k)) @ v


def bottom_right(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    scores, rows, keys = logits(q, k), q.shape[-2], k.shape[-2]
    seen = np.tri(rows, keys, keys - rows, dtype=bool)
    return softmax(np.where(seen, scores, -np.inf) if causal else scores) @ v


def by_itself(q: Any, k: Any, v: Any) -> Any:
    return top_left(q, k, v, is_causal=True)


def with_nan(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return softmax(logits(q, k) if mask is None else np.where(mask, logits(q, k), -np.inf)) @ v


def with_mean(q: Any, k: Any, v: Any, attn_mask: Any = None) -> Any:
    return softmax(logits(q, k) if attn_mask is None else np.where(attn_mask, logits(q, k), -1e9)) @ v


def with_hidden(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return with_nan(q, k, v, None if mask is None else ~mask)


def grouped(q: Any, k: Any, v: Any) -> Any:
    count = q.shape[1] // k.shape[1]
    return attend(q, np.repeat(k, count, axis=1), np.repeat(v, count, axis=1))


def stops(q: Any, k: Any, v: Any) -> Any:
    return attend(q, k, v) if np.abs(q).max() < 5 else 1 / 0


def test_two_that_compute_the_same_agree_whatever_their_axes_and_names() -> None:
    verdict = attn_exp.check(attend, against=side_by_side, quick=True)
    assert (verdict.passed, verdict.name, verdict.against) == (True, "attend", "side_by_side")
    assert verdict.summary.startswith("attend and side_by_side: agree\n")


@pytest.mark.long
@pytest.mark.parametrize(
    ("one", "other", "words", "said"),
    [
        (
            bottom_right,
            top_left,
            "",
            "where t and s differ: bottom_right aligns causal masks bottom right",
        ),
        (
            bottom_right,
            top_left,
            "mask=causal",
            "bottom_right follows align=bottom_right by default, top_left does not",
        ),
        (grouped, tiled, "", "tiled assigns key/value heads to query heads in turn"),
        (
            with_nan,
            with_mean,
            "",
            "for queries that see no key: with_nan gives NaN; with_mean gives the mean of all values",
        ),
        (with_nan, with_mean, "", "Their traces agree up to the masked logits, and differ after that"),
        (sharper, attend, "", "They are 2.6 times what they should be; attend follows the definition"),
        (
            sharper,
            attend,
            "",
            "agree up to the scaled logits; next, attend computes the weights as in the definition, sharper",
        ),
        (by_itself, top_left, "", "by_itself follows mask=causal by default, top_left does not"),
        (by_itself, top_left, "", "With mask=causal they agree"),
        (by_itself, attend, "", "by_itself follows mask=causal by default, attend does not"),
        (with_nan, with_hidden, "", "The masks of with_hidden have the opposite polarity (convention=torch_mha)"),
    ],
)
def test_what_parts_two_is_said(one: Callable[..., Any], other: Callable[..., Any], words: str, said: str) -> None:
    verdict = attn_exp.check(one, *words.split(), against=other, quick=True)
    assert not verdict.passed and said in verdict.computes
    assert other is not with_hidden or [one.state for one in verdict.findings if one.question == "masks"] == ["held"]


@pytest.mark.long
def test_a_mistake_of_one_alone_parts_them_by_its_name() -> None:
    verdict = attn_exp.check(attend, against=unscaled, quick=True)
    assert verdict.mistakes == ("no_scale",)
    assert "attend follows the definition; unscaled computes attention with no_scale" in verdict.computes
    said = "up to the scores q k^T; next, attend computes the scaled logits as in the definition"
    assert f"Their traces agree {said}" in verdict.computes
    mine, other = (side.smallest for side in verdict.sides)
    assert mine is not None and other is not None
    assert mine.mine == mine.right and other.mine != other.right
    assert "unscaled(q=q, k=k, v=v)" in str(verdict)


@pytest.mark.long
def test_two_with_the_same_mistake_agree_and_it_is_said() -> None:
    verdict = attn_exp.check(unscaled, against=unscaled_einsum, quick=True)
    assert verdict.passed and verdict.mistakes == ()
    assert "both compute attention with no_scale" in verdict.computes


def test_a_difference_of_rounding_and_what_only_one_takes_part_nothing_and_are_said() -> None:
    verdict = attn_exp.check(attend, against=in_float32, quick=True)
    rounding = next(one for one in verdict.findings if one.question == "rounding")
    assert verdict.passed and rounding.state == REMARK and "ulp of float32" in rounding.message
    verdict = attn_exp.check(attend, against=with_mean, quick=True)
    assert verdict.passed and "only with_mean takes a mask (attn_mask)" in [one.message for one in verdict.findings]


def test_nothing_is_claimed_of_questions_that_only_one_answers() -> None:
    verdict = attn_exp.check(attend, against=stops, quick=True)
    assert (verdict.outcome, verdict.not_verified[0]) == ("not verified", "large inputs (only attend answers)"), verdict
    assert verdict.summary.startswith("attend and stops: agree as far as checked; not verified: large inputs")


# Modules are asked with the same matrices

if find_spec("torch"):
    from torch import nn
    from torch.nn import functional as F  # noqa: N812

    from tests.diagnosis.layers import Layer, merge, split

    class Unscaled(Layer):
        def score(self, q: Any, k: Any) -> Any:
            return q @ k.mT

    class Twice(Layer):
        def project(self, x: Any) -> Any:
            return self.q_proj(x), self.q_proj(x), self.v_proj(x)

    class Fused(nn.Module):
        def __init__(self, dim: int, num_heads: int) -> None:
            super().__init__()
            self.num_heads, self.qkv, self.proj = num_heads, nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x: Any) -> Any:
            q, k, v = (split(one, self.num_heads) for one in self.qkv(x).chunk(3, -1))
            return self.proj(merge(F.scaled_dot_product_attention(q, k, v)))


needs_torch = pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")


@needs_torch
@pytest.mark.long
def test_modules_with_the_same_parameters_part_at_a_stage() -> None:
    verdict = attn_exp.check(Layer, against=Unscaled, quick=True)
    assert "Layer follows the definition; Unscaled computes attention with no_scale" in verdict.computes
    assert "with the parameters of Layer in both" in verdict.findings[0].message
    said = "agree up to the scores q k^T; next, Layer computes the scaled logits as in the definition, Unscaled"
    assert said in verdict.computes
    said = attn_exp.check(Layer, against=Twice, quick=True).computes
    assert "traces differ from the start; next, Layer computes the keys as in the definition, Twice does not" in said


@needs_torch
@pytest.mark.long
def test_what_cannot_be_given_the_same_is_held_against_the_definition() -> None:
    module = Layer(24, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    verdict = attn_exp.check(Fused, against=module, quick=True, head=3)
    assert verdict.passed and "each is compared with the definition" in verdict.findings[0].message
    assert all(bool((value == before[name]).all()) for name, value in module.state_dict().items())  # a copy was asked
    verdict = attn_exp.check(Layer, against=attend, quick=True)
    assert verdict.passed and "one takes q, k, v and the other x" in verdict.findings[0].message


# The command

FILE = """
from tests.diagnosis import functions

def right(q, k, v):
    return functions.attend(q, k, v)

def attention(q, k, v):
    return right(q, k, v) * 1.5

def odd(a):
    return a
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("other", "code", "said"),
    [("right", 0, "agree"), ("attention", 1, "wrong"), ("odd", 3, "odd takes a; expected q, k, v")],
)
def test_the_command_ends_with_0_1_or_3(
    other: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (("old", FILE.partition("def attention")[0]), ("new", FILE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(content, encoding="utf-8")
    words = ["check", "old/mine.py:right", "--against", f"new/mine.py:{other}", "--quick", "--json"]
    monkeypatch.setattr(sys, "argv", ["attn-exp", *words])
    ended: Any = 0
    try:
        main()
    except SystemExit as stop:
        ended = stop.code
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert ended == code and said in (printed.err if code == 3 else f"{found['outcome']} {found['computes']}")
    assert code == 3 or (found["name"].endswith("right") and found["against"].endswith(other))


@pytest.mark.parametrize("words", [["--against"], ["--against", "--json"], ["--against="]])
def test_an_option_without_a_name_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--against needs a function" in refused(["check", "f.py:f", *words], monkeypatch, capsys)
