"""Checks and metrics are values, one file each, and whoever adds a file is done."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from attn_exp.experiment import checks, metrics
from tests.compose import comparison

NEW = """
from attn_exp.experiment.metrics.metric import Metric, weights

METRICS = (Metric("brightest", lambda subject: weights(subject).max(), meaning="the largest weight of all"),)
"""


@pytest.mark.parametrize("name", checks.NAMES)
def test_a_check_shows_fields_of_its_records(name: str) -> None:
    check = checks.load(name)
    assert set(check.columns) <= {field.name for field in fields(check.record)}


def test_every_metric_says_what_it_means() -> None:
    for metric in metrics.known().values():
        assert metric.meaning, metric.name


def test_a_metric_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brightest.py").write_text(NEW)
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    monkeypatch.setattr(metrics, "FAMILIES", (*metrics.FAMILIES, "brightest"))
    assert list(metrics.known())[-1] == "brightest"
    found = comparison("metrics=brightest", "variant=[matrix]")
    assert found.checks[0].records[0].value == found.traces["matrix"].weights.max()  # type: ignore[union-attr] # formed
