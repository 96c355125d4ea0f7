"""Tests, one folder a room; what several rooms share lies beside them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
