"""How the property tests run: the same examples each time, however slow the machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, max_examples=60, print_blob=False)
settings.load_profile("same")
