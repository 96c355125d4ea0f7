"""The pages on mistakes show what their commands print."""

from __future__ import annotations

from tests import pages

test_a_page_shows_what_its_commands_print_today = pages.test_of(pages.PAGES["mistakes"])
