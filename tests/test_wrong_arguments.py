"""Wrong kinds of arguments from Python: each is one line that says what was expected, and nothing fails inside."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp import UserError

ARRAY = np.ones((3, 4))
WRONG: dict[str, Any] = {
    "text": "a", "null byte": "a\0b", "none": None, "mapping": {"a": 1}, "negative": -1, "huge": 10**30, "nan": np.nan,
    "infinity": np.inf, "one axis": np.ones(3), "five axes": np.ones((1, 1, 1, 1, 1)), "empty": np.ones((0, 3, 4)),
    "complex": np.ones((2, 2)) * 1j, "words": np.array(["a", "b"]), "ragged": [[1, 2], [3]], "bytes": b"x",
    "object": object(), "function": len,
}  # fmt: skip


def of_arrays(name: str, function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return what calls a function of arrays with one of its arguments."""
    given = {"query": ARRAY, "key": ARRAY, "value": ARRAY}
    return lambda value: function(**(given | {name: value}))


def mine(q: Any, k: Any, v: Any) -> Any:
    """Give what no attention is: it is never asked."""
    return v


ARGUMENTS = (
    "query", "key", "value", "attn_mask", "is_causal", "scale", "softcap", "window", "past_key", "nonpad_kv_seqlen",
    "softmax_precision", "q_num_heads", "form",
)  # fmt: skip
CALLS: dict[str, Callable[[Any], Any]] = {
    "keep_memory": attn_exp.keep_memory,
    "run": attn_exp.run,
    "sweep": lambda value: attn_exp.sweep("seed=1,2", value),
    "check": lambda value: attn_exp.check(mine, value, quick=True),
    "check of": lambda value: attn_exp.check(value, "head=0"),
    "explain": attn_exp.explain,
    "sheet": attn_exp.sheet,
    "register": attn_exp.register,
    **{f"attention {name}": of_arrays(name, attn_exp.attention) for name in ARGUMENTS},
    **{f"trace {name}": of_arrays(name, attn_exp.trace) for name in ARGUMENTS},
}
RESULT: dict[str, Callable[[Any, Any], Any]] = {
    "array of": lambda result, value: result.array(value, "weights"),
    "array": lambda result, value: result.array("matrix", value),
    "stage": lambda result, value: result.stage("matrix", value),
    "head": lambda result, value: result.stage("matrix", "weights", value),
    "figure": lambda result, value: result.figure(value),
}
BOTH = ("attention", "trace")
MEANT = {
    "attn_mask": ("none", "negative", "one axis"),
    "scale": ("none", "negative", "huge"),
    "softcap": ("none", "huge"),
    "window": ("none",),
    **dict.fromkeys(("softmax_precision", "past_key", "nonpad_kv_seqlen", "q_num_heads"), ("none",)),
}
TAKEN = {(f"{name} {argument}", kind) for name in BOTH for argument, kinds in MEANT.items() for kind in kinds} | {
    ("keep_memory", "huge"),
}
"""What means something."""


def refused(call: Callable[[], Any]) -> str | None:
    """Return the one line that a call is refused with, by a statement that raises it; None where it is not refused."""
    try:
        call()
    except ValueError as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        assert "attn_exp" in last.filename, error
        assert (last.line or "").startswith("raise "), error
        assert "\n" not in str(error)
        return str(error)
    return None


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_one_line(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = attn_exp.keep_memory(8 << 20)
    try:
        message = refused(lambda: CALLS[name](WRONG[kind]))
    finally:
        attn_exp.keep_memory(before)
    assert bool(message) is not ((name, kind) in TAKEN), message


@pytest.mark.long
@pytest.mark.parametrize("name", RESULT)
def test_a_wrong_argument_of_a_result_is_one_line(name: str) -> None:
    result = attn_exp.run("variant=matrix")
    for value in WRONG.values():
        with pytest.raises(UserError):
            RESULT[name](result, value)
