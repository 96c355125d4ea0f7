"""The check against functions in odd styles: many ways to be called, to answer, and to be wrong."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.request import understood
from attn_exp.diagnosis.judging.check import check
from attn_exp.errors import FaultError
from attn_exp.experiment.verdict import Verdict
from attn_exp.mistakes.precision import rounded
from attn_exp.own_code import function_at_hand
from tests.diagnosis.test_zoo import UNNAMED, one_of_each
from tests.zoo.case import Case, names_said
from tests.zoo.odd_cases import ODD
from tests.zoo.odd_cheats import CHEATS
from tests.zoo.odd_right import RIGHT, softmax

if find_spec("torch"):
    from tests.zoo import odd_right_torch

    RIGHT = [*RIGHT, *odd_right_torch.RIGHT]


def verdict(case: Case) -> Verdict:
    """Return what a check says; a short one under JAX, which compiles each operation anew for each shape."""
    return check(function_at_hand(case.function), understood(case.settings), quick="takes=jax" in case.settings)


def short(case: Case) -> str:
    name = getattr(case.function, "__name__", type(case.function).__name__)
    return f"{case.mistake or 'right'}-{name} {' '.join(case.settings)}"


@pytest.mark.long
@pytest.mark.parametrize("case", one_of_each(ODD)[::3], ids=short)
def test_a_wrong_function_is_named_alone(case: Case) -> None:
    if case.function.__name__ in UNNAMED:
        assert not verdict(case).passed
        return
    answer = verdict(case)
    assert len(names_said(answer)) == 1, answer
    assert names_said(answer)[0] in (case.mistake, *case.same_as), answer


@pytest.mark.long
@pytest.mark.parametrize("case", RIGHT, ids=short)
def test_a_right_function_passes(case: Case) -> None:
    answer = verdict(case)
    assert answer.passed, answer


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: str(cheat.name))
def test_a_cheat_does_not_pass(cheat: Any) -> None:
    assert not attn_exp.check(cheat.make()).passed


def test_a_default_that_nobody_asked_for_is_turned_off_and_told() -> None:
    def drops(q: Any, k: Any, v: Any, dropout: float = 0.3) -> Any:
        weights = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
        return weights * (rng.random(weights.shape) >= dropout) / (1 - dropout) @ v

    rng = np.random.default_rng(3)
    answer = attn_exp.check(drops, quick=True)
    assert answer.passed
    assert answer.mistakes == ("dropout_on",)
    assert "its own dropout=0.3 only where asked for" in str(answer)


@pytest.mark.parametrize("name", ["hidden_with_large_steps", "forgets_not", "ignores"])
def test_a_wrong_mask_is_not_excused_by_another_way_to_write_it(name: str) -> None:
    """With numbers to add these three are right; they took booleans, so they are judged by those."""
    for case in ODD:
        if case.function.__name__ == name:
            verdict = check(function_at_hand(case.function), understood(case.settings), quick=True)
            assert names_said(verdict) == (case.mistake,)


@pytest.mark.long
def test_two_mistakes_that_cancel_each_other_explain_nothing() -> None:
    """Right but for float16 inside, to the 8 bits of its answers: no softmax and then two are one."""

    def narrow(q: Any, k: Any, v: Any) -> Any:
        return rounded(
            softmax((q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5).astype(np.float16)).astype(float) @ v, "bfloat16"
        )

    assert "softmax_twice" not in attn_exp.check(narrow).mistakes


@pytest.mark.full_search
@pytest.mark.long
def test_a_quick_check_names_two_mistakes() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        logits = q @ k.swapaxes(-1, -2) / q.shape[-1]
        seen = np.triu(np.ones(logits.shape[-2:], bool))
        return softmax(np.where(seen, logits, -np.inf)) @ v

    assert attn_exp.check(function, "mask=causal", quick=True).mistakes == ("causal_flipped", "scale_by_d")


@pytest.mark.parametrize(("late", "mistakes"), [(0, ()), (1, ("padding_one_long",))])
def test_each_entry_may_have_a_length_of_its_own(late: int, mistakes: tuple[str, ...]) -> None:
    def function(q: Any, k: Any, v: Any, lengths: Any) -> Any:
        logits = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        seen = np.arange(k.shape[-2]) < np.asarray(lengths)[:, None, None, None] + late
        return softmax(np.where(seen, logits, -np.inf)) @ v

    answer = attn_exp.check(function, "mask=padding", "mask.padding.lengths=[6,4,5]", quick=True)
    assert (answer.passed, answer.mistakes) == (not mistakes, mistakes), answer


@pytest.mark.long
@pytest.mark.parametrize("words", [["scale=0.3"], []])
def test_a_scale_that_is_given_and_not_used_is_said(words: list[str]) -> None:
    def function(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
        return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v

    answer = attn_exp.check(function, *words)
    assert (answer.passed, answer.mistakes) == (False, ())
    assert answer.computes == "attention with scale=true, though the settings do not say so"


def test_powers_that_overflow_behind_a_mask_are_named() -> None:
    """A running sum over the keys: 0 times what overflowed is NaN, where -inf would have been 0."""

    def function(q: Any, k: Any, v: Any) -> Any:
        sums, total = np.zeros((*q.shape[:-1], v.shape[-1])), np.zeros((*q.shape[:-1], 1))
        for key in range(k.shape[-2]):
            logits = q @ k[..., key, :, None] / q.shape[-1] ** 0.5
            powers = np.exp(logits) * (np.arange(q.shape[-2])[:, None] >= key)
            sums, total = sums + powers * v[..., key, None, :], total + powers
        return sums / total

    assert attn_exp.check(function, "mask=causal", quick=True).mistakes == ("no_max_subtraction",)


def test_an_error_of_our_own_is_not_put_down_to_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return q

    def falls(*given: Any) -> NoReturn:
        raise KeyError("gone")

    monkeypatch.setattr("attn_exp.diagnosis.judging.check.check_in_layouts", falls)
    own = function_at_hand(attention)
    assert "could not be checked: KeyError: 'gone'" in str(check(own, understood([])))  # raised in the function's file
    with pytest.raises(
        FaultError, match=r"an error of attn_exp itself: KeyError: 'gone', attn_exp/diagnosis/judging/check\.py line"
    ):
        check(replace(own, file=str(Path("elsewhere", "mine.py").absolute())), understood([]))
