"""The check against functions of other hands: the wrong ones are named, the right ones pass, the cheats are found."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import pytest

import attn_exp
from attn_exp.experiment.verdict import Verdict
from tests.zoo import odd_cheats, odd_right
from tests.zoo.case import Case, names_said
from tests.zoo.cases import CASES
from tests.zoo.cheats import CHEATS
from tests.zoo.odd_cases import ODD
from tests.zoo.pairs import PAIRS
from tests.zoo.rights import RIGHT

ODD_RIGHT = list(odd_right.RIGHT)
if find_spec("torch"):
    from tests.zoo import odd_right_torch

    ODD_RIGHT += odd_right_torch.RIGHT


def verdict(function: Any, words: tuple[str, ...] = ()) -> Verdict:
    """Check a function; shortly under JAX, which compiles each operation anew for each shape."""
    return attn_exp.check(function, *words, quick="takes=jax" in words)


def short(case: Case) -> str:
    return f"{case.mistake or 'right'} {getattr(case.function, '__name__', 'made')} {' '.join(case.settings)}"


UNNAMED = {
    "half_products", "half_sums_loops", "half_exponentials", "half_exponentials_rows", "half_softmax", "half_table",
    "half_inside", "LlamaOffByOne", "dropout", "dropout_layer",
}  # fmt: skip
"""Functions and layers that the check does not name alone; `benchmarks/check.py --only names,odd` prints them."""


def one_of_each(cases: Iterable[Case]) -> list[Case]:
    """Return one function for each mistake, one that is named if there is any; `benchmarks/check.py` asks all."""
    chosen: dict[str, Case] = {}
    for case in sorted(cases, key=lambda one: one.function.__name__ in UNNAMED):
        chosen.setdefault(case.mistake, case)
    return list(chosen.values())


MASKS_BY_NUMBERS = {"hidden_with_large_steps", "forgets_not", "ignores"}
"""With numbers to add these three are right; they took booleans, so they are judged by those."""
WRONG = one_of_each(CASES) + [
    case for case in ODD if case in one_of_each(ODD)[::3] or case.function.__name__ in MASKS_BY_NUMBERS
]


@pytest.mark.long
@pytest.mark.parametrize("case", WRONG, ids=short)
def test_a_wrong_function_is_named_alone(case: Case) -> None:
    found = verdict(case.function, case.settings)
    assert not found.passed or case.mistake in ("", *found.mistakes), found
    if case.function.__name__ in UNNAMED:
        assert not found.passed, found
    else:
        assert len(names_said(found)) == 1 and names_said(found)[0] in (case.mistake, *case.same_as), found


@pytest.mark.parametrize("case", [*RIGHT, *ODD_RIGHT], ids=short)
def test_a_right_function_passes(case: Case) -> None:
    found = verdict(case.function, case.settings)
    assert found.passed, found
    assert case not in RIGHT or found.computes == "attention as requested"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of a cheat's own thread
@pytest.mark.parametrize("cheat", [*CHEATS, *odd_cheats.CHEATS], ids=lambda cheat: str(cheat.name))
def test_a_cheat_does_not_pass(cheat: Any) -> None:
    assert not verdict(cheat.make()).passed


@pytest.mark.full_search
@pytest.mark.long
@pytest.mark.parametrize("case", PAIRS[::48], ids=short)
def test_a_pair_is_named(case: Case) -> None:
    """A few of them; `benchmarks/check.py` counts all."""
    assert sorted(names_said(verdict(case.function, case.settings))) == sorted(case.mistake.split("+"))


@pytest.mark.full_search
@pytest.mark.long
def test_heads_that_no_mistake_brings_together_end_in_no_error() -> None:
    """Of keys and values shared in turns, one query's heads and all heads of values are looked at beside each other."""
    (case,) = (case for case in PAIRS if case.mistake == "queries_keys_swapped+kv_heads_tiled")
    assert sorted(names_said(verdict(case.function, case.settings))) == ["kv_heads_tiled", "queries_keys_swapped"]
