"""Checks and metrics are values, one file each, and whoever adds a file is done."""

from __future__ import annotations

from dataclasses import fields

import pytest

from attn_exp import registry
from attn_exp.experiment import checks, metrics


@pytest.mark.parametrize("name", checks.NAMES)
def test_a_check_shows_fields_of_its_records(name: str) -> None:
    check = checks.load(name)
    assert set(check.columns) <= {field.name for field in fields(check.record)}


def test_every_metric_has_a_name_of_its_own_and_says_what_it_means() -> None:
    families = [registry.module(metrics.__name__, family).METRICS for family in metrics.FAMILIES]
    assert sum(map(len, families)) == len(metrics.all_metrics())
    assert all(metric.meaning for metric in metrics.all_metrics().values())
