"""The check against functions of other hands: the wrong ones are named, the right ones pass, the cheats are found."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import pytest

from attn_exp.diagnosis.asking.request import Request, request_of
from attn_exp.diagnosis.judging.check import check
from attn_exp.experiment.verdict import Verdict
from attn_exp.own_code import function_from
from tests.compose import config
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


UNNAMED = {
    "half_products", "half_sums_loops", "half_exponentials", "half_exponentials_rows", "half_softmax", "half_table",
    "half_inside", "LlamaOffByOne",
}  # fmt: skip
"""Functions and layers that the check does not name alone; `benchmarks/check.py --only names,odd` prints them."""


def one_of_each(cases: Iterable[Case]) -> list[Case]:
    """Return one function for each mistake, one that is named if there is any; `benchmarks/check.py` asks all."""
    chosen: dict[str, Case] = {}
    for case in sorted(cases, key=lambda one: one.function.__name__ in UNNAMED):
        chosen.setdefault(case.mistake, case)
    return list(chosen.values())


@pytest.mark.long
@pytest.mark.parametrize("case", one_of_each(CASES), ids=short)
def test_a_wrong_function_is_named_alone(case: Case) -> None:
    if case.function.__name__ in UNNAMED:
        assert not verdict(case.function, case.settings).passed
        return
    found = verdict(case.function, case.settings)
    names = names_said(found)
    assert len(names) == 1, found
    assert names[0] in (case.mistake, *case.same_as), found


@pytest.mark.parametrize("case", RIGHT, ids=short)
def test_a_right_function_passes(case: Case) -> None:
    found = verdict(case.function, case.settings)
    assert found.passed, found
    assert found.computes == "attention as it was asked for"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of a cheat's own thread
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: str(cheat.name))
def test_a_cheat_does_not_pass(cheat: Any) -> None:
    assert not verdict(cheat.make()).passed


@pytest.mark.full_search
@pytest.mark.long
def test_most_pairs_are_named() -> None:
    """Of a few pairs; `benchmarks/check.py` counts all of them."""
    some = PAIRS[::24]
    named = [tuple(sorted(names_said(verdict(case.function, case.settings)))) for case in some]
    right = sum(names == tuple(sorted(case.mistake.split("+"))) for names, case in zip(named, some, strict=True))
    assert right >= 0.9 * len(some), list(zip(named, [case.mistake for case in some], strict=True))


@pytest.mark.full_search
@pytest.mark.long
def test_heads_that_no_mistake_brings_together_end_in_no_error() -> None:
    """Of keys and values shared in turns, one query's heads and all heads of values are looked at beside each other."""
    (case,) = (case for case in PAIRS if case.mistake == "queries_keys_swapped+kv_heads_tiled")
    assert sorted(names_said(verdict(case.function, case.settings))) == ["kv_heads_tiled", "queries_keys_swapped"]
