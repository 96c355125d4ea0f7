"""The folder that is made of a library's classes and functions of attention."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.library_classes import attention_in
from tests import ROOT

MODEL = """
class {name}Attention:
    \"\"\"The attention of {name}.\"\"\"

    def __init__(self, config: {name}Config):
        self.heads = config.heads

    def forward(self, x):
        return softmax(x {scaled}) @ x
"""
LEFT_TO_OTHERS = """
def masked_attention(x):
    return softmax(x) @ x

class OneProcessor:
    def __call__(self, attn, x):
        return {call}(x)

class OneAttention:
    def __init__(self, heads):
        self.processor = OneProcessor()

    def forward(self, x):
        return self.processor(self, x)
"""


def test_a_class_counts_once_whatever_its_model_is_called() -> None:
    one, other, unscaled = (
        list(attention_in(MODEL.format(name=name, scaled=scaled)))
        for name, scaled in (("Alpaca", "* 2"), ("Bear", "* 2"), ("Bear", ""))
    )
    assert [name for name, _ in one + other] == ["AlpacaAttention", "BearAttention"]
    assert one[0][1] == other[0][1] != unscaled[0][1]


def test_what_a_class_leaves_to_others_of_its_file_is_its_own() -> None:
    assert [name for name, _ in attention_in(LEFT_TO_OTHERS.format(call="masked_attention"))] == ["OneAttention"]
    assert [name for name, _ in attention_in(LEFT_TO_OTHERS.format(call="relu"))] == ["masked_attention"]


def test_what_weighs_nothing_or_is_not_called_is_left_out() -> None:
    assert not list(attention_in(MODEL.replace("softmax", "relu").format(name="A", scaled="")))
    assert not list(attention_in(MODEL.replace("forward", "made").format(name="A", scaled="")))
    assert not list(attention_in("class Broken(:"))
    assert not list(attention_in("def _attention(x):\n    return softmax(x)\n"))
    assert not list(attention_in("def show_attention(x):\n    print(softmax(x))\n"))


@pytest.mark.long
def test_a_library_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/library_classes.py", "no_such_library", str(tmp_path / "made")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.endswith("error: no_such_library is not installed\n")
    assert not (tmp_path / "made").exists()
