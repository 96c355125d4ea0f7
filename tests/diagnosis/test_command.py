"""`attn-exp check` and its like in Python: outcomes, exit codes, JSON, a whole file, one line for a user's mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import cli
from tests import ROOT
from tests.diagnosis.functions import causal, logits, softmax
from tests.refusal import refused

MINE = """
import os
from functools import partial, wraps
import numpy as np
from numpy import einsum

def softmax(s, axis=-1):
    p = np.exp(s - s.max(axis, keepdims=True))
    return p / p.sum(axis, keepdims=True)

def scores(q, k):
    return q @ k.swapaxes(-1, -2)

def right(q, k, v, is_causal=False):
    print("hello")
    s = scores(q, k) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf) if is_causal else s) @ v

def unscaled(q, k, v, is_causal=False):
    s = scores(q, k)
    return softmax(np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf) if is_causal else s) @ v

def wrapped(f):
    @wraps(f)
    def inner(*given, **named):
        return f(*given, **named)
    return inner

class Kept:
    @staticmethod
    def attend(q, k, v):
        return right(q, k, v)

    def __call__(self, q, k, v):
        return right(q, k, v)

made, half, same, again, number = Kept(), partial(right), right, wrapped(right), 3

class Broken(ValueError):
    pass
"""
ENDS = """
def ends(q, k, v):
    os._exit(softmax(scores(q, k)).ndim)

def needs(q, k, v, gadget):
    return softmax(scores(q, gadget.turned(k)) / np.sqrt(q.shape[-1])) @ v
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE + ENDS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))  # else what the command imports stays for other tests
    return tmp_path / "mine.py"


def run(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    """Return the exit code of a check, and what it prints to stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", *words])
    code: object = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


@pytest.mark.long
def test_a_right_function_ends_with_0(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(("mine.py:right", "mask=causal", "--quick"), monkeypatch, capsys)
    assert (code, out) == (0, "mine.py:right: right\nIt computes attention as requested.\n")
    _, out, _ = run(("mine.py:right", "mask=causal", "--quick", "-v"), monkeypatch, capsys)
    assert "\nasked: mask=causal\n" in out and "\n    ok  values\n" in out


@pytest.mark.long
def test_a_wrong_function_ends_with_1_and_its_smallest_input_can_be_pasted(mine: Path) -> None:
    command = [sys.executable, "-m", "attn_exp", "check", "mine.py:unscaled", "--quick", "--json"]
    known = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(command, env=known, check=False, capture_output=True, text=True, timeout=120)
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, verdict["outcome"], verdict["passed"]) == (1, "wrong", False)
    assert verdict["mistakes"] == ["no_scale"] and verdict["reason"].startswith("Its mistake is no_scale: ")
    small, space = verdict["smallest"], dict[str, Any]()
    *lines, call = small["python"].splitlines()
    sys.modules.pop("mine")
    sys.path.insert(0, "")
    exec("\n".join([*lines, f"given = {call}"]), space)
    assert str(np.squeeze(space["given"]).round(4).tolist()) == small["mine"] != small["right"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nothing.py:f",), "nothing.py: there is no such .py file"),
        (("mine.py:rigth",), "unknown function of mine.py 'rigth'; did you mean right?"),
        (("mine.py:number",), "mine.py:number has type int; expected a function"),
        (("mine.txt",), "expected a file and a function, such as mine.py:attention"),
        (("mine.py:right", "mask=cusal"), "unknown mask 'cusal'; did you mean causal?"),
        (("mine.py:right", "ignore=[is_casual]"), "unknown argument of right in ignore= 'is_casual'; did you mean is_"),
        (("mine.py:right", "--fast"), "unknown option '--fast'"),
        (("mine.py:right", "layout=hdt2"), "unknown layout 'hdt2'"),
        (("mine.py:right", "takes=cupy"), "unknown takes 'cupy'"),
        (("mine.py:right", "device=cuda"), "device=cuda needs a function of tensors; right takes numpy arrays"),
        (("mine.py:right", "timeout=0"), "timeout is '0'; expected seconds"),
        (("mine.py:right", "timeout=long"), "timeout is 'long'; expected seconds"),
        (("own/numbers.csv:f",), "own/numbers.csv cannot be imported: ModuleNotFoundError"),
        (("no_such_package:f",), "no_such_package cannot be imported: ModuleNotFoundError"),
        (("softmax.py",), "softmax.py: it contains no attention that can be called"),
    ],
)
def test_a_users_mistake_is_one_line(
    words: tuple[str, ...],
    line: str,
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine.with_name("softmax.py").write_text("def softmax(x):\n    return x\n", encoding="utf-8")
    assert line in refused(["check", *words], monkeypatch, capsys)


@pytest.mark.long
def test_what_cannot_be_called_gets_a_factory_to_be_completed(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(("mine.py:needs",), monkeypatch, capsys)
    assert code == 3 and err.count("\n") == 1
    assert "not verified: needs needs `gadget`, whose meaning is not known" in err
    assert "gadget=..." in out and out.rstrip().endswith("attn-exp check factory.py:make")
    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.syspath_prepend(str(mine.parent))
    space: dict[str, Any] = {"gadget": type("Gadget", (), {"turned": staticmethod(lambda k: k)})}
    exec(compile(out.replace("gadget=...", "gadget=gadget"), "factory.py", "exec"), space)  # pasted and completed
    assert attn_exp.check(space["make"], quick=True).passed
    mine.with_name("pairs.py").write_text("def make():\n    return 3\n", encoding="utf-8")
    code, out, err = run(("pairs.py:make",), monkeypatch, capsys)
    assert code == 3 and "make() must return (callable, inputs)" in err and not out.strip(), "no draft for a factory"


# A whole file


@pytest.mark.long
def test_a_file_is_a_table_with_a_line_for_each_attention_in_it(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(("mine.py", "--quick"), monkeypatch, capsys)
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines() if line.startswith("  ")}
    assert code == 1 and out.endswith("Not attention: softmax, scores, wrapped\n")
    right = {name for name, said in lines.items() if said == "right"}
    assert right == {"right", "Kept", "Kept.attend", "made", "half", "again"}
    assert lines["unscaled"] == "wrong no_scale"
    assert lines["ends"].startswith("not verified it ended without an answer (exit code 4)")
    assert lines["needs"].startswith("not verified could not be called: needs `gadget`")


@pytest.mark.long
def test_a_file_in_which_nothing_is_wrong_ends_with_3_if_not_all_is_verified_and_json_is_a_list(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.write_text(MINE.partition("def unscaled")[0] + ENDS.partition("\n\n")[0], encoding="utf-8")
    code, out, _ = run(("mine.py", "--quick", "--json"), monkeypatch, capsys)
    assert (code, [(one["name"], one["outcome"]) for one in json.loads(out)]) == (
        3,
        [("right", "right"), ("ends", "not verified")],
    )


# In Python


def kept(q: Any, k: Any, v: Any, keep: Any = None, past_key: Any = None, eps: float = 0.0, unread: Any = None) -> Any:
    weights = softmax(logits(q, k) if keep is None else np.where(keep, logits(q, k), -1.0))
    return weights @ v + eps if past_key is None else v


def hides(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return softmax(logits(q, k) if mask is None else np.where(mask, -1e30, logits(q, k))) @ v


def asked(q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
    return softmax(causal(logits(q, k)) if is_causal else logits(q, k)) @ v


@pytest.mark.parametrize(
    ("function", "words", "outcome", "said"),
    [
        (asked, ("mask=causal",), "right", "asked: right"),
        (kept, (), "not verified", "kept: right as far as checked; not verified: argument `keep`, cache `past_key`"),
        (kept, ("ignore=[keep,past_key]",), "right", "kept: right"),
        (hides, (), "not verified", "It is right if True hides and wrong if True attends: pass convention=torch_mha"),
        (hides, ("ignore=mask",), "right", "hides: right under convention=torch_mha"),
        (hides, ("convention=none",), "wrong", "hides: wrong: mask_inverted"),
    ],
)
def test_an_outcome_is_right_wrong_or_not_verified(
    function: Any, words: tuple[str, ...], outcome: str, said: str
) -> None:
    verdict = attn_exp.check(function, *words, quick=True)
    assert (verdict.outcome, verdict.passed, said in verdict.summary) == (outcome, outcome == "right", True), verdict
    assert verdict.plain()["not_verified"] == verdict.not_verified and "values" in verdict.verified
    left = {"cache `past_key` (never passed)", "argument `keep` (its meaning is not known)"}
    assert function is not kept or set(verdict.not_verified) == (set() if words else left)
    error = {"wrong": attn_exp.WrongAttentionError, "not verified": attn_exp.NotVerifiedError}.get(outcome)
    with pytest.raises(error, match=r"convention|argument|mask_") if error else nullcontext():
        attn_exp.assert_attention(function, *words, quick=True)
    if outcome != "wrong":
        attn_exp.assert_attention(function, *words, quick=True, allow_not_verified=True)


def test_a_verdict_shows_itself() -> None:
    verdict = attn_exp.check(lambda q, k, v: softmax(logits(q, k), -2) @ v, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("softmax_over_queries",))
    assert "softmax_over_queries" in str(verdict) and "softmax_over_queries" in verdict._repr_html_()
