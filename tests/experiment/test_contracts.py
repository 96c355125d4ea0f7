"""Checks and metrics are values, one file each, and whoever adds a file is done."""

from __future__ import annotations

from dataclasses import fields

import pytest

from attn_exp.experiment import checks, metrics


@pytest.mark.parametrize("name", checks.NAMES)
def test_a_check_shows_fields_of_its_records(name: str) -> None:
    check = checks.load(name)
    assert set(check.columns) <= {field.name for field in fields(check.record)}


def test_every_metric_says_what_it_means() -> None:
    for metric in metrics.known().values():
        assert metric.meaning, metric.name
