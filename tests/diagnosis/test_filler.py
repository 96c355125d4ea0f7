"""Filler anywhere among the keys, by its name or place: a check asks for it in lengths of its own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import cli

ASKED = (
    "mask=padding mask.padding.tokens=[likes]",
    "mask=padding mask.padding.keys=[false,true,true,false]",
    "mask=padding mask.padding.tokens=[a] embeddings=words embeddings.text=[b,a,c,a]",
    "mask=[padding,causal] mask.padding.tokens=[she] mask_join=or",
)


def softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def mine(query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    if key_padding_mask is not None:
        scores = np.where(key_padding_mask[:, None, None, :], scores, -np.inf)
    return softmax(scores if attn_mask is None else np.where(attn_mask, scores, -np.inf)) @ value


def at_the_end(query: Any, key: Any, value: Any, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
    """Attend as if filler stood at the end alone."""
    if key_padding_mask is not None:
        places = np.arange(key_padding_mask.shape[-1])
        key_padding_mask = places < key_padding_mask.sum(-1, keepdims=True)
    return mine(query, key, value, attn_mask, key_padding_mask)


@pytest.mark.parametrize("words", ASKED)
def test_a_function_that_knows_filler_anywhere_passes(words: str) -> None:
    assert attn_exp.check(mine, *words.split(), quick=True).passed


@pytest.mark.long
@pytest.mark.parametrize("words", ASKED[:3])
def test_one_that_knows_filler_at_the_end_alone_does_not(words: str) -> None:
    assert not attn_exp.check(at_the_end, *words.split(), quick=True).passed
    assert attn_exp.check(at_the_end, "mask=padding", "mask.padding.lengths=3", quick=True).passed


UNSCALED = """
import numpy as np
def mine(q, k, v, mask=None):
    scores = q @ np.swapaxes(k, -1, -2)
    scores = scores if mask is None else np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""


@pytest.mark.long
@pytest.mark.parametrize("words", [*ASKED, "mask=padding mask.padding.lengths=[6,4,5]"])
def test_the_command_of_the_smallest_case_says_the_filler_of_that_case(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(UNSCALED)
    verdict = attn_exp.check("mine.py:mine", *words.split())
    assert verdict.mistakes == ("no_scale",) and verdict.smallest is not None
    assert cli.obey([*shlex.split(verdict.smallest.command)[3:], "report=none"]) == cli.DONE
    assert "mine differs from matrix by up to" in capsys.readouterr().out


def test_a_run_with_filler_named_key_by_key_takes_a_function_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(UNSCALED)
    words = ["mask=padding", "mask.padding.keys=[false,true,true]", "scale=false", "head=1", "report=none"]
    assert cli.obey([*words, "variant=[matrix,mine]", "variant.mine.form=mine.py:mine"]) == cli.DONE
    assert "mine differs" not in capsys.readouterr().out


def test_filler_that_no_token_is_called() -> None:
    with pytest.raises(attn_exp.UserError, match=r"no key is called so; there are she, likes, coffee"):
        attn_exp.check(mine, "mask=padding", "mask.padding.tokens=[PAD]")
