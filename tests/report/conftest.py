"""One browser for all pages of a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report.browser import need_chromium
from tests.report.tab import Tab, tab


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Return a tab as wide as a laptop's screen."""
    need_chromium()
    with tab(tmp_path_factory.mktemp("browser")) as browser:
        browser.screen(1280)
        yield browser
