"""Checks that look for no several mistakes at once, where a test asks only whether something passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def naming_little() -> Iterator[None]:
    """Let the time for several mistakes at once be over from the start: it is most of a check that explains nothing.

    What they are called decides nothing else, so that what passes and what does not is the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attn_exp.diagnosis.recipes.combinations.MAX_SECONDS", 0.0)
        yield
