"""`attn-exp check` and its like in Python: exit codes, JSON, one line for a user's mistake."""

from __future__ import annotations

import json
import subprocess
import sys
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
    assert done.stdout.startswith("right: passed   (asked: mask=causal)")


@pytest.mark.long
def test_a_wrong_function_ends_with_1_and_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "mine.py:unscaled", "--quick", "--json")
    verdict: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 1
    assert verdict["mistakes"] == ["no_scale"] and verdict["passed"] is False


@pytest.mark.long
def test_the_smallest_input_can_be_pasted(tmp_path: Path) -> None:
    done = run(tmp_path, "mine.py:unscaled", "--quick", "--json")
    small = json.loads(done.stdout)["smallest"]
    code = "\n".join(
        [*small["python"].splitlines()[:-1], f"print(np.squeeze({small['python'].splitlines()[-1]}).round(4).tolist())"]
    )
    pasted = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert pasted.stdout.strip() == small["mine"] != small["right"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nothing.py:f",), "nothing.py: no such file"),
        (("mine.py:rigth",), "unknown function of mine.py 'rigth'; did you mean right?"),
        (("mine.txt",), "expected a file and a function, such as mine.py:attention"),
        (("mine.py:number",), "mine.py:number is a int; expected a function"),
        (("mine.py:right", "mask=cusal"), "unknown mask 'cusal'; did you mean causal?"),
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
def test_what_cannot_be_called_gets_a_wrapper_to_be_completed(
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
    assert stop.value.code == 2 and said.err.count("\n") == 1
    assert "odd needs 'gadget'" in said.err and "has no attribute 'turned'" in said.err
    assert said.out.endswith("    return odd(q=q, k=k, v=v, gadget=..., d_k=q.shape[-1])\n")
    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.syspath_prepend(str(tmp_path))
    Gadget = type("Gadget", (), {"turned": staticmethod(lambda k: k)})
    space: dict[str, Any] = {"gadget": Gadget}
    exec(compile(said.out.replace("gadget=...", "gadget=gadget"), "wrapper.py", "exec"), space)  # pasted and completed
    assert attn_exp.check(space["attention"], quick=True).passed


def test_in_python_a_verdict_shows_itself() -> None:
    def mine(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        powers = np.exp(scores - scores.max(axis=-2, keepdims=True))
        return powers / powers.sum(axis=-2, keepdims=True) @ v

    verdict = attn_exp.check(mine, quick=True)
    assert (verdict.passed, verdict.mistakes) == (False, ("softmax_over_queries",))
    assert "softmax_over_queries" in str(verdict) and "softmax_over_queries" in verdict._repr_html_()
    with pytest.raises(AssertionError, match="softmax_over_queries"):
        attn_exp.assert_attention(mine, quick=True)
    attn_exp.assert_attention(attn_exp.attention, quick=True)


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
    assert "passed under mask=causal" in str(verdict) and verdict.plain()["right_under"] == "mask=causal"
    assert attn_exp.check(causal, "mask=causal", quick=True).passed
    assert not attn_exp.check(causal, "mask=window", "mask.window.left=2", quick=True).passed  # typed, so it is held
