"""Every form against the scalar loops on random problems; `python -m tools.fuzz --only forms` tries more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from attn_exp import forms
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import Rules
from tools.fuzz._cases import Array
from tools.fuzz.forms import answers, attempt

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


@pytest.mark.parametrize("form", [name for name in forms.NAMES if not forms.form(name).library])
def test_a_form_that_is_slightly_wrong_is_found(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thousandth off in one number of each answer is enough: few types round that much."""
    sound = forms.form(form)

    def attend(q: Array, k: Array, v: Array, rules: Rules, **settings: int) -> Trace:
        trace = sound.attend(q, k, v, rules, **settings)
        context = np.array(trace.context)
        context.reshape(-1)[-1:] *= 1.001
        return trace.replace(context=context)

    monkeypatch.setattr(f"attn_exp.forms.{form}.FORM", replace(sound, attend=attend))
    assert sum(attempt(seed) is not None for seed in range(60)) >= 5
