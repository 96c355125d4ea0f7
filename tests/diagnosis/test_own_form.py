"""A user's own function is a row of a run: called in its own words, held to the oracle, refused in one line."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError
from tests.refusal import refusal

CODE = """
import numpy as np


def weigh(scores):
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def heads(q, k, v):
    weights = weigh(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def token_first(query, key, value):  # [b t h d]
    scores = np.einsum("bthd,bshd->bhts", query, key) / np.sqrt(query.shape[-1])
    return np.einsum("bhts,bshd->bthd", weigh(scores), value)


def single(q, k, v):
    assert q.ndim == 2
    return weigh(q @ k.T / np.sqrt(q.shape[-1])) @ v


def causal(q, k, v, is_causal=False):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    seen = np.tri(*scores.shape[-2:]) > 0
    return weigh(np.where(seen, scores, -np.inf) if is_causal else scores) @ v


def layer(x, W_q, W_k, W_v, W_o, num_heads):
    q, k, v = (np.swapaxes((x @ w).reshape(len(x), num_heads, -1), 0, 1) for w in (W_q, W_k, W_v))
    weights = weigh(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return {"output": (weights @ v).swapaxes(0, 1).reshape(len(x), -1) @ W_o, "weights": weights}


def unscaled(q, k, v):
    return weigh(q @ k.swapaxes(-1, -2)) @ v


def raises(q, k, v):
    raise RuntimeError("no luck\\nat all")


def narrow(q, k, v):
    return v[..., :1]


def greedy(q, k, v):
    q[...] = k[...] = v[...] = 7.0
    return v


class Layer:
    def __call__(self, x):
        return x
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE)


def run(function: str, *words: str) -> attn_exp.Result:
    return attn_exp.run("variant=[matrix,mine]", "variant.matrix.head=null", f"variant.mine.form={function}", *words)


def row(result: attn_exp.Result, variant: str = "mine") -> dict[str, Any]:
    return vars(next(line for line in result.comparison.rows if line.variant == variant))


@pytest.mark.parametrize(
    ("name", "head"), list(itertools.product(["heads", "token_first", "single", "causal"], [1, 2]))
)
def test_a_right_function_of_heads_agrees(name: str, head: int) -> None:
    line = row(run(f"mine.py:{name}", f"head={head}"))
    assert line["error"] < 1e-15
    assert line["same_as"] == "A"
    assert line["checked"] == 3


def test_a_function_of_a_layer_takes_the_matrices_of_the_run() -> None:
    result = run("mine.py:layer", "bias=false", "variant.matrix.output_projection=true")
    assert row(result, "mine")["error"] < 1e-15
    assert row(result, "mine")["same_as"] == "A"
    assert np.allclose(result.array("mine", "weights"), result.array("matrix", "weights"), atol=1e-15)


def test_a_keyword_is_used_and_what_has_none_is_left_to_the_function() -> None:
    assert row(run("mine.py:causal", "mask=causal"))["error"] < 1e-15
    assert row(run("mine.py:heads", "mask=causal"))["error"] > 1e-3


def test_a_wrong_function_parts_from_the_oracle() -> None:
    assert row(run("mine.py:unscaled"))["error"] > 1e-3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("raises", "raises: RuntimeError: no luck"),
        ("narrow", "narrow returned shape [1, 2, 3, 1], expected [1, 2, 3, 2]"),
    ],
)
def test_a_function_without_an_answer_is_a_row_that_says_so(name: str, reason: str) -> None:
    line = row(run(f"mine.py:{name}"))
    assert line["note"] == reason
    assert np.isnan(line["error"])
    with pytest.raises(UserError, match="mine: "):
        attn_exp.run("variant=[mine]", f"variant.mine.form=mine.py:{name}")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("mine.py:nothing", "unknown function of mine.py 'nothing'"),
        ("none.py:heads", "none.py: there is no such .py file"),
        ("no_such_package:heads", "no_such_package cannot be imported: ModuleNotFoundError"),
        ("mine.py:weigh", "weigh takes scores; expected q, k, v"),
        ("mine.py:Layer", "mine.py:Layer is a layer with matrices of its own"),
    ],
)
def test_what_cannot_be_called_is_said_in_one_line(function: str, message: str) -> None:
    assert refusal(run, function).startswith(message)


def test_checks_take_it_as_any_form() -> None:
    result = run("mine.py:heads", "check=[invariants,precision]")
    assert {finding.name for finding in result.comparison.checks} == {"invariants", "precision"}
    assert row(run("mine.py:layer", "check=[invariants,precision]"))["error"] < 1e-15


def test_a_variant_without_yaml_is_named_among_the_variants() -> None:
    with pytest.raises(UserError, match=r"list this variant too, as in variant=\[matrix,mine\]"):
        attn_exp.run("variant.mine.form=mine.py:heads")


def odd(name: str, code: str, call: str = "") -> str:
    """Write a right function that does something odd as it is imported, or called, and return its name."""
    body = CODE.replace("def heads(q, k, v):", f"def heads(q, k, v):\n    {call or 'pass'}")
    Path(f"{name}.py").write_text(f"import os, sys, time\n{code}\n{body}")
    return f"{name}.py:heads"


def test_a_function_that_ends_the_process_is_a_row_without_numbers_or_a_line() -> None:
    line = row(run(odd("leaves", "calls = [0]", "calls[0] += 1; sys.exit(0) if calls[0] > 1 else 0")))
    assert "ended without an answer (SystemExit: 0)" in line["note"]
    said = "nowhere.py ended without an answer (SystemExit: 0) while it was imported"
    assert refusal(run, odd("nowhere", "sys.exit(0)")) == said
