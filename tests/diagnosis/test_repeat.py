"""The command under the smallest input that fails: run, it gives the numbers that the check prints."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array

OWN = """
import numpy as np

def soft(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

def scores(q, k):
    return q @ np.swapaxes(k, -1, -2)

def unscaled(q, k, v, mask=None):
    return soft(scores(q, k) if mask is None else np.where(mask, scores(q, k), -np.inf)) @ v

def ignores(q, k, v, mask=None, sinks=None, lengths=None):
    return soft(scores(q, k) / np.sqrt(q.shape[-1])) @ v

def capped(q, k, v, softcap=0.0, mask=None):
    logits = scores(q, k) / np.sqrt(q.shape[-1])
    return soft(logits if mask is None else np.where(mask, logits, -np.inf)) @ v

def layer(x, W_q, W_k, W_v, W_o, b_q):
    return soft((x @ W_q + b_q) @ np.swapaxes(x @ W_k, -1, -2)) @ (x @ W_v) @ W_o

def tiled(q, k, v):
    times = (1, q.shape[1] // k.shape[1], 1, 1)
    return soft(scores(q, np.tile(k, times)) / np.sqrt(q.shape[-1])) @ np.tile(v, times)

def deep(q, k, v):
    return np.stack([unscaled(q, k, v)] * 2, axis=-1)
"""

ARRAY = "mask.array.values=[[1,0,1,1],[1,1,0,0],[1,1,1,0],[1,1,1,1]]"

CASES = [
    "unscaled",
    f"unscaled mask=[causal,array] {ARRAY}",
    f"unscaled convention=torch_mha mask=array {ARRAY.replace('1', '2').replace('0', '1').replace('2', '0')}",
    "unscaled mask=[causal,padding] mask_join=or mask.padding.lengths=2",
    "unscaled mask=document mask.document.ids=[0,0,1,1,1]",
    "unscaled score=[alibi,added] score.added.values=[[1,2,3],[0,1,0],[2,2,5]]",
    "ignores mask=padding mask.padding.lengths=[6,4]",
    "layer mask=causal",
    "tiled kv_head=2",
]
"""What a check is asked; of each, the smallest case has masks, scores and sizes of its own."""

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds


def numbers(printed: str) -> Array:
    """Return the numbers of a printed list, in which a function may have put NaN."""
    return np.asarray(ast.literal_eval(printed.replace("nan", "None")), np.float64)


@pytest.mark.parametrize("words", CASES[::2])
def test_a_printed_command_repeats_its_case(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    name, *asked = words.split()
    small = attn_exp.check(f"own.py:{name}", *asked, quick=True).smallest
    assert small is not None
    result = attn_exp.run(*shlex.split(small.command)[3:], "report=none").comparison
    stage = "output" if name == "layer" else "context"
    for variant, printed in (("mine", small.mine), ("matrix", small.right)):
        given = np.squeeze(dict(result.traces[variant].stages())[stage])
        np.testing.assert_allclose(given, numbers(printed), atol=1e-4)
    assert {row.same_as for row in result.rows} == {"A", "B"}


def test_a_wrong_shape_is_said_and_no_command_where_none_repeats_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run turns queries and keys before it calls a function, which a check leaves to the function."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    small = attn_exp.check("own.py:deep", quick=True).smallest
    assert small is not None
    assert (small.mine, small.right) == (
        "[[[[[1.0, 1.0]]]]], of shape [1, 1, 1, 1, 2]",
        "[[[[1.0]]]], of shape [1, 1, 1, 1]",
    )
    verdict = attn_exp.check("own.py:unscaled", "position=rope", quick=True)
    assert verdict.smallest is not None and verdict.smallest.command == "" and "python -m" not in str(verdict)
