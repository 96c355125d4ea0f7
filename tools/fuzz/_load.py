"""How busy others keep this machine, so that what waits for a processor is not taken for a hang."""

from __future__ import annotations

import os


def others() -> float:
    """Return how many processes share a core of this machine, at least 1: on a quiet machine no limit is longer."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
