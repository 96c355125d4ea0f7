"""A page runs, styles and loads its own inline parts, and nothing that somebody else put into it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.tab import Tab, tab
from tests.report.test_report import Reader
from tests.sweeps.command import quickly, the_sweep

PAGES = ("report", "sweep", "index")
INTRUDERS = """
<script>document.title = "hacked"</script>
<script src="data:text/javascript,document.title='hacked'"></script>
<img src="data:," onerror="document.title = 'hacked'" onload="document.title = 'hacked'">
<svg><animate onbegin="document.title = 'hacked'" attributeName="x" dur="1s"></animate></svg>
<iframe srcdoc="<script>parent.document.title = 'hacked'</script>"></iframe>
<a id="pressed" href="javascript:document.title = 'hacked'">press</a>
<style>h1 { color: rgb(1, 2, 3) !important; }</style>
<p id="styled" style="color: rgb(1, 2, 3)">styled</p>
<base href="https://example.org/"><form action="https://example.org/"><button id="sent">send</button></form>
"""
OWN_SCRIPT = {"report": "!document.getElementById('touch').hidden", "index": "!document.querySelector('label').hidden"}
"""What a page's own script has done once it has run."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    quickly(folder, "variant=[looped,multi_head]")
    quickly(folder, "-m", "seed=0,1", "variant=[matrix]")
    outputs = folder / "outputs"
    report = next(outputs.glob("runs/*/report.html"))
    return {"report": report, "sweep": the_sweep(folder) / "report.html", "index": outputs / "index.html"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def policy(page: str) -> dict[str, list[str]]:
    """Return the directives of a page's policy."""
    metas = [attributes for tag, attributes in Reader(page).elements if tag == "meta"]
    (content,) = [meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"]
    assert content
    return {name: sources for name, *sources in (part.split() for part in content.split(";"))}


def digests(page: str, tag: str) -> list[str]:
    """Return the hash of each inline part of that kind which a browser would use, as the standard writes it."""
    parts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return [f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" for part in parts]


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_a_page_allows_its_own_parts_by_hash_and_nothing_else(name: str, pages: dict[str, Path]) -> None:
    page = pages[name].read_text(encoding="utf-8")
    assert policy(page) == {
        "default-src": ["'none'"],
        "style-src": digests(page, "style"),
        "script-src": digests(page, "script") or ["'none'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    assert len(digests(page, "style")) == 1
    for _, attributes in Reader(page).elements:
        assert not [key for key in attributes if key == "style" or key.startswith("on")]


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_what_is_put_into_a_page_does_nothing(name: str, pages: dict[str, Path], reader: Tab, tmp_path: Path) -> None:
    page = pages[name].read_text(encoding="utf-8").replace("</h1>", f"</h1>{INTRUDERS}")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    reader.requests.clear()
    reader.open(tmp_path / "page.html")
    title = reader.ask("document.title")
    reader.ask("document.getElementById('pressed').click()")
    reader.ask("document.getElementById('sent').click()")
    assert reader.ask("new Promise((done) => setTimeout(() => done(document.title), 200))") == title != "hacked"
    for element in ("h1", "#styled"):
        assert reader.ask(f"getComputedStyle(document.querySelector('{element}')).color") != "rgb(1, 2, 3)"
    assert reader.ask("document.baseURI") == (tmp_path / "page.html").as_uri()
    assert [address for address in reader.requests if address.startswith("http")] == []


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_its_own_parts_work(name: str, pages: dict[str, Path], reader: Tab) -> None:
    reader.console.clear()
    reader.screen(1280)
    reader.open(pages[name])
    assert reader.console == []
    assert reader.ask("getComputedStyle(document.body).maxWidth") != "none"
    assert reader.ask(OWN_SCRIPT.get(name, "true"))
