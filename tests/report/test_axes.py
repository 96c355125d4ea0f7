"""The letters of the axes are explained once, with the sizes that the run's own shapes have."""

from __future__ import annotations

import re

from attn_exp.report.walk import axes_of, steps
from tests.compose import comparison
from tests.report.render import page_of
from tests.report.test_report import a_run


def sizes(*words: str) -> dict[str, str]:
    """Return the sizes of each letter, of all walks of a run."""
    found = comparison(*words)
    return {
        axis.letter: axis.sizes for axis in axes_of(step for row in found.rows for step in steps(found, row.variant))
    }


def test_each_letter_has_the_sizes_of_the_run() -> None:
    """Three tokens of four numbers, in one head of four and in two of two."""
    words = ("variant=[looped,multi_head]", "head=2")
    assert sizes(*words) == {"t": "3", "s": "3", "m": "4", "d": "4 or 2", "e": "4 or 2", "h": "1 or 2"}


def test_a_memory_has_a_letter_of_its_own() -> None:
    words = ("embeddings=random", "embeddings.tokens=4", "embeddings.memory.tokens=5", "embeddings.memory.d_model=3")
    assert sizes("variant=[matrix]", *words).items() >= {"t": "4", "s": "5", "m": "8", "n": "3"}.items()


def test_every_letter_of_a_page_is_explained_there_once() -> None:
    page = page_of(a_run(comparison("variant=[looped,multi_head,blockwise]", "embeddings.memory.tokens=5")))
    used = set("".join(re.findall(r"<small>\[([a-z ]+)\] =", page)).replace(" ", ""))
    explained = re.findall(r"<dt>([a-z])</dt>", page)
    assert sorted(used) == sorted(explained)
