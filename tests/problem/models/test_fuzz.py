"""Odd configurations against `transformers`, with fixed seeds; `python -m tools.fuzz --only models` tries more."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[libraries]'")
pytest.importorskip("transformers", reason="it is not installed: pip install 'attn-exp[libraries]'")

pytestmark = pytest.mark.long


def test_odd_configurations_are_equal_or_refused_in_a_line() -> None:
    from tools.fuzz.models import attempt  # noqa: PLC0415 - it imports what may not be installed

    assert [wrong for seed in range(40) if (wrong := attempt(seed))] == []
