"""Which cases of a test with many run at once, and which with `--all` alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], every: int) -> list[Any]:
    """Return all cases, the first and every so many after it as they are, those between marked `long`."""
    return [
        case if place % every == 0 else pytest.param(case, marks=pytest.mark.long) for place, case in enumerate(cases)
    ]
