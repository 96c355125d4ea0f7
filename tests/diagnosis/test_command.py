"""`attn-exp check` and its like in Python: three outcomes, exit codes, JSON, one line for a user's mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import cli
from tests import ROOT
from tests.refusal import refused

MINE = """
import numpy as np

def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)

def right(q, k, v, is_causal=False):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf) if is_causal else s) @ v

def unscaled(q, k, v, is_causal=False):
    s = q @ k.swapaxes(-1, -2)
    return softmax(np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf) if is_causal else s) @ v

def tensors(q: "torch.Tensor", k: "torch.Tensor", v: "torch.Tensor"):
    return v

def strange(a):
    return a

def kept(q, k, v, keep=None, past_key=None, eps=0.0, unread=None):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    s = s if keep is None else np.where(keep, s, -1.0)
    return softmax(s) @ v + eps if past_key is None else v

def hides(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(s if mask is None else np.where(mask, -1e30, s)) @ v

number = 3
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    command = [sys.executable, "-m", "attn_exp", "check", *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=120
    )


@pytest.mark.long
def test_a_right_function_ends_with_0(tmp_path: Path) -> None:
    done = run(tmp_path, "mine.py:right", "mask=causal", "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "mine.py:right: right\nIt computes attention as it was asked for.\n"
    done = run(tmp_path, "mine.py:right", "mask=causal", "--quick", "-v")
    assert "\nasked: mask=causal\n" in done.stdout and "\n    ok  values\n" in done.stdout


@pytest.mark.long
def test_a_wrong_function_ends_with_1_and_its_smallest_input_can_be_pasted(tmp_path: Path) -> None:
    done = run(tmp_path, "mine.py:unscaled", "--quick", "--json")
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, verdict["outcome"], verdict["passed"]) == (1, "wrong", False)
    assert verdict["mistakes"] == ["no_scale"] and verdict["reason"].startswith("Its mistake is no_scale: ")
    small = verdict["smallest"]
    code = "\n".join(
        [*small["python"].splitlines()[:-1], f"print(np.squeeze({small['python'].splitlines()[-1]}).round(4).tolist())"]
    )
    pasted = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert pasted.stdout.strip() == small["mine"] != small["right"]


LEFT = ("cache `past_key` (never passed)", "argument `keep` (its meaning is not known)")


@pytest.mark.parametrize(
    ("name", "words", "outcome", "said"),
    [
        ("right", ("mask=causal",), "right", "right: right"),
        ("kept", (), "not verified", "kept: right as far as asked; not verified: argument `keep`, cache `past_key`"),
        ("kept", ("ignore=[keep,past_key]",), "right", "kept: right"),
        ("hides", (), "not verified", "It is right if True hides and wrong if True attends: pass convention=torch_mha"),
        ("hides", ("ignore=mask",), "right", "hides: right under convention=torch_mha"),
        ("hides", ("convention=none",), "wrong", "hides: wrong: mask_inverted"),
    ],
)
def test_an_outcome_is_right_wrong_or_not_verified(name: str, words: tuple[str, ...], outcome: str, said: str) -> None:
    space: dict[str, Any] = {}
    exec(compile(MINE, "mine.py", "exec"), space)
    verdict = attn_exp.check(space[name], *words, quick=True)
    assert (verdict.outcome, verdict.passed, said in verdict.summary) == (outcome, outcome == "right", True), verdict
    assert verdict.plain()["not_verified"] == verdict.not_verified and "values" in verdict.verified
    assert name != "kept" or words or set(verdict.not_verified) == set(LEFT)
    error = {"wrong": attn_exp.WrongAttentionError, "not verified": attn_exp.NotVerifiedError}.get(outcome)
    with pytest.raises(error, match=r"convention|argument|mask_") if error else nullcontext():
        attn_exp.assert_attention(space[name], *words, quick=True)
    if outcome != "wrong":
        attn_exp.assert_attention(space[name], *words, quick=True, allow_not_verified=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nothing.py:f",), "nothing.py: no such file"),
        (("mine.py:rigth",), "unknown function of mine.py 'rigth'; did you mean right?"),
        (("mine.txt",), "expected a file and a function, such as mine.py:attention"),
        (("mine.py:number",), "mine.py:number is a int; expected a function"),
        (("mine.py:right", "mask=cusal"), "unknown mask 'cusal'; did you mean causal?"),
        (("mine.py:right", "ignore=[is_casual]"), "unknown argument of right in ignore= 'is_casual'; did you mean is_"),
        (("mine.py:right", "--fast"), "unknown option '--fast'"),
        (("mine.py:right", "layout=hdt2"), "unknown layout 'hdt2'"),
        (("mine.py:right", "takes=cupy"), "unknown takes 'cupy'"),
        (("mine.py:right", "device=cuda"), "device=cuda is for functions of tensors; right takes numpy arrays"),
        pytest.param(
            ("mine.py:tensors", "takes=torch", "device=abacus"),
            "device=abacus: torch cannot use it here",
            marks=pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed"),
        ),
        (("own/numbers.csv:f",), "own/numbers.csv: expected a Python file, such as mine.py, or a module"),
        (("numbers.csv:f",), "numbers.csv: expected a Python file, such as mine.py, or a module"),
        (("no_such_package:f",), "no_such_package cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_users_mistake_is_one_line(
    words: tuple[str, ...],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "numbers.csv").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))  # else what the command imports stays for other tests
    assert line in refused(["check", *words], monkeypatch, capsys)


@pytest.mark.long
def test_a_factory_that_returns_no_pair_gets_no_draft_of_a_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.py").write_text("def make():\n    return 3\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", "pairs.py:make"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr()
    assert stop.value.code == 3 and "make() returned no pair" in said.err and said.out.strip() == "", said


@pytest.mark.long
def test_what_cannot_be_called_gets_a_factory_to_be_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        MINE + "\ndef odd(q, k, v, gadget, d_k):\n    return right(q, gadget.turned(k), v)\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))
    monkeypatch.setattr(sys, "argv", ["attn-exp", "check", "mine.py:odd"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    said = capsys.readouterr()
    assert stop.value.code == 3 and said.err.count("\n") == 1
    assert "not verified: odd needs 'gadget'" in said.err and "has no attribute 'turned'" in said.err
    assert "gadget=..." in said.out and said.out.rstrip().endswith("attn-exp check factory.py:make")
    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, Any] = {"gadget": type("Gadget", (), {"turned": staticmethod(lambda k: k)})}
    exec(compile(said.out.replace("gadget=...", "gadget=gadget"), "factory.py", "exec"), space)  # pasted and completed
    assert attn_exp.check(space["make"], quick=True).passed


def test_in_python_a_verdict_shows_itself() -> None:
    def mine(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        powers = np.exp(scores - scores.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True) @ v

    verdict = attn_exp.check(mine, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("softmax_over_queries",))
    assert "softmax_over_queries" in str(verdict) and "softmax_over_queries" in verdict._repr_html_()


@pytest.mark.long
def test_what_was_not_asked_for_is_said() -> None:
    def causal(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True) @ v

    verdict = attn_exp.check(causal, quick=True)
    assert (verdict.passed, verdict.mistakes, verdict.right_under) == (True, (), "mask=causal")
    assert "mask=causal, though the settings do not say so" in verdict.computes
    assert "causal: right under mask=causal" in str(verdict) and verdict.plain()["right_under"] == "mask=causal"
    assert attn_exp.check(causal, "mask=causal", quick=True).passed
    assert not attn_exp.check(causal, "mask=window", "mask.window.left=2", quick=True).passed  # typed, so it is held
