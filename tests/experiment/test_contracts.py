"""Checks and metrics are values, one file each, and whoever adds a file is done."""

from __future__ import annotations

from dataclasses import fields

import pytest

from attn_exp.experiment import checks, metrics
from attn_exp.experiment.metrics import errors, spread
from attn_exp.experiment.metrics.metric import Metric


@pytest.mark.parametrize("name", checks.NAMES)
def test_a_check_shows_fields_of_its_records(name: str) -> None:
    check = checks.load(name)
    assert set(check.columns) <= {field.name for field in fields(check.record)}


def test_every_metric_says_what_it_means() -> None:
    for metric in metrics.known().values():
        assert metric.meaning, metric.name


def test_two_metrics_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In two files or in one: otherwise the later one would be shown under the meaning of neither."""
    taken = Metric(spread.METRICS[0].name, lambda subject: 0.0, meaning="another")
    for family in (errors, spread):
        with monkeypatch.context() as patch, pytest.raises(TypeError, match=f"several metrics called {taken.name};"):
            patch.setattr(family, "METRICS", (*family.METRICS, taken))
            metrics.known()
