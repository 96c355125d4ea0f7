"""The check against functions of other hands: the wrong ones are named, the right ones pass, the cheats are found."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from attn_exp.diagnosis.check import check
from attn_exp.diagnosis.request import Request, request_of
from attn_exp.experiment.verdict import Verdict
from attn_exp.own_code import function_from
from tests.compose import config
from tests.long import thinned
from tests.zoo.case import Case, names_said
from tests.zoo.cases import CASES
from tests.zoo.cheats import CHEATS
from tests.zoo.pairs import PAIRS
from tests.zoo.rights import RIGHT


@functools.cache
def settings(words: tuple[str, ...], seed: int = 0) -> Request:
    """Return what these words ask of a function."""
    return request_of(config(*words, f"seed={seed}"), list(words))


def verdict(function: Any, words: tuple[str, ...] = (), seed: int = 0, quick: bool = False) -> Verdict:
    return check(function_from(function, getattr(function, "__name__", "made"), None), settings(words, seed), quick)


def short(case: Case) -> str:
    return f"{case.name} {' '.join(case.settings)}"


@pytest.mark.parametrize("case", thinned(CASES, 20), ids=short)
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
    assert not verdict(cheat.make()).passed


@pytest.mark.long
def test_most_pairs_are_named() -> None:
    """Of every fourth pair; `benchmarks/check.py` counts all of them."""
    some = PAIRS[::4]
    named = [tuple(sorted(names_said(verdict(case.function, case.settings)))) for case in some]
    right = sum(names == tuple(sorted(case.mistake.split("+"))) for names, case in zip(named, some, strict=True))
    assert right >= 0.9 * len(some), list(zip(named, [case.mistake for case in some], strict=True))


def test_heads_that_no_mistake_brings_together_end_in_no_error() -> None:
    """Of keys and values shared in turns, one query's heads and all heads of values are looked at beside each other."""
    (case,) = (case for case in PAIRS if case.mistake == "queries_keys_swapped+kv_heads_tiled")
    assert sorted(names_said(verdict(case.function, case.settings))) == ["kv_heads_tiled", "queries_keys_swapped"]
