"""How tests run: the same examples each time, however slow the machine; the long ones where they are asked for.

A first `pytest` leaves out tests marked `long`; `--all` runs them too, as `.ci/run` does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.report import tab

settings.register_profile("same", derandomize=True, deadline=None, max_examples=60, print_blob=False)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`."""
    parser.addoption("--all", action="store_true", help="run the long tests as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests, unless all are asked for."""
    if config.getoption("--all"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if not item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)


@pytest.fixture(scope="session", autouse=True)
def browser() -> Iterator[None]:
    """End the browser that tests share."""
    yield
    tab.end()
