"""Functions that exit, hang, print or answer oddly: a verdict in words, its exit code, and nothing on stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.request import parse_request
from attn_exp.diagnosis.judging.check import check
from attn_exp.errors import FaultError, UserError
from attn_exp.experiment.verdict import BROKEN, Verdict
from attn_exp.own_code import describe_function
from tests import ROOT
from tests.diagnosis.functions import attend

ODD = """
import os, sys, threading, time, atexit
from tests.diagnosis import functions
{code}
def attention(q, k, v):
    {call}
    return functions.attend(q, k, v)
"""


def checked(folder: Path, *words: str, code: str = "", call: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Check a right function that has something odd in it."""
    (folder / "odd.py").write_text(ODD.format(code=code, call=call), encoding="utf-8")
    command = [sys.executable, "-m", "attn_exp", "check", "odd.py:attention", "--quick", *words]
    known = {"PYTHONPATH": str(ROOT), "PATH": "", **more}
    return subprocess.run(command, cwd=folder, env=known, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "call", "said"),
    [
        ("os._exit(0)", "", "ended without an answer (exit code 0) while odd.py was imported"),
        ("", "sys.exit(0)", "ended without an answer (SystemExit: 0)"),
        ("", "time.sleep(600)", "no answer within 1 s (timeout=1) while it was called with q [2, 6, 9, 8], k ["),
        ("", "raise ValueError('no tensors')", "could not be called with q, k, v [b h t d], numpy, float64: "),
    ],
)  # fmt: skip
def test_what_gives_no_answer_is_not_verified(code: str, call: str, said: str, tmp_path: Path) -> None:
    start = time.monotonic()
    done = checked(tmp_path, "--json", "timeout=1" if "sleep" in call else "seed=0", code=code, call=call)
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["outcome"]) == (3, "not verified")
    assert said in verdict["reason"] and done.stderr.count("\n") == ("ValueError" in call)
    assert time.monotonic() - start < 300  # and not the 600 seconds that it sleeps


@pytest.mark.long
def test_what_it_prints_stands_on_stderr_and_what_it_starts_ends(tmp_path: Path) -> None:
    code = "atexit.register(time.sleep, 600); threading.Thread(target=time.sleep, args=[600]).start()"
    start = time.monotonic()
    done = checked(tmp_path, "--json", code=code, call="print('words'); os.write(1, b'words')")
    assert (done.returncode, json.loads(done.stdout)["passed"]) == (0, True)
    assert set(done.stderr.split("words")) <= {"", "\n"}
    assert time.monotonic() - start < 300


BROKEN_THERE = """
import importlib.abc, importlib.machinery, os, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        broken, _, function = os.environ["BROKEN"].partition(":")
        if name != broken or "-c" not in sys.orig_argv:  # the child alone
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        right = spec.loader.exec_module

        def exec_module(module):
            right(module)
            code = "def broken(*given, **more): raise TypeError('a slip of ours')"
            exec(compile(code, module.__file__, "exec"), vars(module))
            setattr(module, function, module.broken)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("attn_exp.diagnosis.calling.call:from_layout", "a slip of ours, call.py line "),
        ("attn_exp.processes:serve", "ended before it imported anything (exit code 1)"),
    ],
)
def test_an_error_of_ours_is_not_put_down_to_the_function(broken: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BROKEN_THERE)
    done = checked(tmp_path, PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))), BROKEN=broken)
    line = done.stderr.splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("attn_exp: error: ") and said in line


def test_an_error_of_ours_is_raised_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(*given: Any) -> Any:
        raise KeyError("gone")

    monkeypatch.setattr("attn_exp.diagnosis.judging.check.check_function", falls)
    own = replace(describe_function(attend), file=str(Path("elsewhere", "mine.py").absolute()))
    with pytest.raises(FaultError, match="internal error of attn_exp: KeyError: 'gone'"):
        check(own, parse_request([]))


def test_a_time_is_for_the_command_alone() -> None:
    with pytest.raises(UserError, match="in Python, nothing can stop your function"):
        attn_exp.check(attend, timeout=5)


# In Python


def returning(made_of: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a function that computes attention and returns something made of it."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        return made_of(attend(q, k, v))

    return attention


class Unmade:
    """It looks like an array, and ends the process where it is to become one."""

    shape = (3, 4)

    def __array__(self, *given: Any, **more: Any) -> None:
        raise SystemExit


ANSWERS = [
    (lambda out: out + 0j, "returned an array of complex numbers; expected real numbers"),
    (lambda out: out.astype(object), "returned an array of Python objects; expected real numbers"),
    (lambda out: out > 0, "returned an array of booleans; expected real numbers"),
    (lambda out: np.ma.array(out, mask=True), "returned a masked array, which hides numbers"),
    (lambda out: out.sum(), "returned a single number; expected an array"),
    (lambda out: np.broadcast_to(0.0, (2**20, 2**20, 2**10)), "returned an array of 1.13e+15 numbers; expected"),
    (lambda out: list("words"), "returned a list; expected an array"),
    (lambda out: Unmade(), "ended without an answer (SystemExit)"),
    (lambda out: None, "returned nothing; expected an array"),
]


@pytest.mark.parametrize(("made_of", "said"), ANSWERS, ids=[said for _, said in ANSWERS])
def test_an_answer_that_is_no_array_of_real_numbers_is_told(made_of: Callable[[Any], Any], said: str) -> None:
    verdict = attn_exp.check(returning(made_of), quick=True)
    assert not verdict.passed and not verdict.uncalled
    assert said in verdict.computes


@pytest.mark.parametrize(
    "made_of",
    [np.ma.array, lambda out: (out, None, Unmade()), lambda out: {"output": out, "mask": out > 0}, memoryview],
)
def test_an_array_of_real_numbers_passes_whatever_stands_beside_it(made_of: Callable[[Any], Any]) -> None:
    assert attn_exp.check(returning(lambda out: made_of(np.ascontiguousarray(out))), quick=True).passed


@pytest.mark.long
@pytest.mark.parametrize("cut", [np.s_[..., :0], np.s_[:0]])
def test_an_answer_of_no_numbers_is_wrong_in_its_shape(cut: Any) -> None:
    verdict = attn_exp.check(returning(lambda out: out[cut]), quick=True)
    values = next(finding for finding in verdict.findings if finding.question == "values")
    assert (verdict.passed, values.state) == (False, BROKEN)
    assert values.message.endswith(", expected [2, 6, 9, 8]") and verdict.smallest is not None


def two_axes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function for arrays `[t d]` alone."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        _, _ = q.shape
        return function(q, k, v)

    return attention


def layer(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    return returning(lambda out: out[:, None])(x @ W_q, x @ W_k, x @ W_v)


AXES = [
    (returning(lambda out: out[None]), "[1, 2, 6, 9, 8]", "[2, 6, 9, 8]"),
    (returning(lambda out: (out[..., None], "words")), "[2, 6, 9, 8, 1]", "[2, 6, 9, 8]"),
    (two_axes(returning(lambda out: out[None, None])), "[1, 1, 9, 8]", "[9, 8]"),
    (returning(np.squeeze), "[23, 6]", "[1, 1, 23, 6]"),
]


@pytest.mark.parametrize(("function", "given", "right"), AXES, ids=[given for _, given, _ in AXES])
def test_right_numbers_with_another_axis_do_not_pass(function: Callable[..., Any], given: str, right: str) -> None:
    verdict = attn_exp.check(function, quick=True)
    said = [finding.message for finding in verdict.findings if finding.state == BROKEN]
    assert not verdict.passed
    assert said[0].endswith(f"shape {given}, expected {right}"), said
    assert all("shape" in each for each in said), said


def changing(made_of: Callable[[int, Any], Any]) -> Verdict:
    """Check a function whose answers depend on how often it was called."""
    calls = iter(range(10**9))
    return attn_exp.check(returning(lambda out: made_of(next(calls), out)), quick=True)


@pytest.mark.long
@pytest.mark.parametrize("last", [1, 8, 40])
@pytest.mark.parametrize("later", [lambda out: None, lambda out: out[0], lambda out: 1 / 0, lambda out: sys.exit(0)])
def test_a_function_that_stops_answering_does_not_pass(later: Callable[[Any], Any], last: int) -> None:
    assert not changing(lambda call, out: out if call < last else later(out)).passed


@pytest.mark.long
def test_what_a_function_does_to_its_process_is_nothing_to_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        np.seterr(all="raise")
        print("words")
        return -attend(q, k, v)

    assert not attn_exp.check(attention, quick=True).passed
    printed = capsys.readouterr()
    assert printed.out == "" and set(printed.err.split("\n")) == {"words", ""}


def test_a_replaced_function_of_numpy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.exp

    def attention(q: Any, k: Any, v: Any) -> Any:
        monkeypatch.setattr(np, "exp", lambda x, **more: right(0.5 * np.asarray(x), **more))
        return attend(q, k, v)

    verdict = attn_exp.check(attention, quick=True)
    assert not verdict.passed and "replaced numpy.exp" in verdict.computes
