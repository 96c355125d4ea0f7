"""The check against functions of other hands: the wrong ones are named, the right ones pass, the cheats are found."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from attn_exp.diagnosis.asking.request import Request, request_of
from attn_exp.diagnosis.judging.check import check
from attn_exp.experiment.verdict import Verdict
from attn_exp.own_code import function_from
from tests.compose import config
from tests.hurry import naming_little
from tests.long import thinned
from tests.zoo.case import Case, names_said
from tests.zoo.cases import CASES
from tests.zoo.cheats import CHEATS
from tests.zoo.pairs import PAIRS
from tests.zoo.rights import RIGHT
from tests.zoo.test_zoo import OWN_NUMBERS


@functools.cache
def settings(words: tuple[str, ...], seed: int = 0) -> Request:
    """Return what these words ask of a function."""
    return request_of(config(*words, f"seed={seed}"), list(words))


def verdict(function: Any, words: tuple[str, ...] = (), seed: int = 0, quick: bool = False) -> Verdict:
    return check(function_from(function, getattr(function, "__name__", "made"), None), settings(words, seed), quick)


def short(case: Case) -> str:
    return f"{case.name} {' '.join(case.settings)}"


def is_told_apart(case: Case) -> bool:
    """Say whether a check can tell a case from all others: loops give the answers of a matrix, and take longest.

    That they do `tests/zoo/test_zoo.py` proves, of all mistakes but those that people make in several ways.
    """
    others = [one for one in CASES if (one.mistake, one.settings) == (case.mistake, case.settings) and one != case]
    return case.style != "loops" or not others or case.mistake in OWN_NUMBERS - ROUNDED


ROUNDED = {"half_softmax"}
"""It is found in the bits of an answer, and each row has those of the matrix."""


@pytest.mark.parametrize("case", thinned(filter(is_told_apart, CASES), 20), ids=short)
def test_a_wrong_function_is_named_alone(case: Case) -> None:
    found = verdict(case.function, case.settings)
    names = names_said(found)
    assert len(names) == 1, found
    assert names[0] in (case.mistake, *case.same_as), found


@pytest.mark.parametrize("case", thinned(RIGHT, 10), ids=short)
def test_a_right_function_passes(case: Case) -> None:
    found = verdict(case.function, case.settings)
    assert found.passed, found
    assert found.computes == "attention as it was asked for"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of a cheat's own thread
@pytest.mark.parametrize("cheat", thinned(CHEATS, 9), ids=lambda cheat: str(cheat.name))
def test_a_cheat_does_not_pass(cheat: Any) -> None:
    with naming_little():
        assert not verdict(cheat.make()).passed


@pytest.mark.long
def test_most_pairs_are_named() -> None:
    """Of every eighth pair; `benchmarks/check.py` counts all of them."""
    some = PAIRS[::8]
    named = [tuple(sorted(names_said(verdict(case.function, case.settings)))) for case in some]
    right = sum(names == tuple(sorted(case.mistake.split("+"))) for names, case in zip(named, some, strict=True))
    assert right >= 0.9 * len(some), list(zip(named, [case.mistake for case in some], strict=True))


def test_heads_that_no_mistake_brings_together_end_in_no_error() -> None:
    """Of keys and values shared in turns, one query's heads and all heads of values are looked at beside each other."""
    (case,) = (case for case in PAIRS if case.mistake == "queries_keys_swapped+kv_heads_tiled")
    assert sorted(names_said(verdict(case.function, case.settings))) == ["kv_heads_tiled", "queries_keys_swapped"]
