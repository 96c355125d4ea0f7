"""Every form against the scalar loops on random problems; `python -m tools.fuzz --only forms` tries more."""

from __future__ import annotations

from collections import Counter

import pytest

from attn_exp import forms
from attn_exp.rules.rules import Rules
from tools.fuzz.forms import answers

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds


@pytest.mark.parametrize("first", range(0, 240, 60))
def test_no_answer_differs_by_more_than_its_type_rounds(first: int) -> None:
    counts = Counter[str]()
    for seed in range(first, first + 60):
        for form, wrong in answers(seed):
            assert wrong is None, f"seed {seed}: {form}: {wrong}"
            counts[form] += 1
    installed = {name for name in forms.NAMES if "is not installed" not in (forms.refuses(name, Rules()) or "")}
    assert set(counts) == {*installed, "auto"}
