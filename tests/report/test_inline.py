"""Scripts and style sheets stand in pages without what only their writers need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attn_exp.report.inline import tight, tight_style
from tests import ROOT

SCRIPTS = sorted((ROOT / "attn_exp/report/templates").glob("*.js"))


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("  // Hot coffee.\n  /** Hot coffee. */\n  f();", "f();"),
        ("let a = b; // hot coffee", "let a=b;"),
        ('f("a = b, c", a === b);', 'f("a = b, c",a===b);'),
        ("f(`a = ${b}, c`, d);", "f(`a = ${b}, c`, d);"),
        ("a - -b + +c", "a - -b + +c"),
        ('f("say \\"a = b\\"", c);', 'f("say \\"a = b\\"",c);'),
    ],
)
def test_a_script_loses_remarks_and_spaces_but_no_text(script: str, left: str) -> None:
    assert tight(script) == left


def test_a_style_sheet_loses_remarks_and_spaces_but_no_selector() -> None:
    style = 'a :is(b, c) > d { color: red; content: "= "; } /* hot */\n@media (min-width: 4rem) { e { margin: 0 1px } }'
    left = 'a :is(b,c) > d{color:red;content:"= ";}\n@media (min-width:4rem){e{margin:0 1px}}'
    assert tight_style(style) == left


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_each_line_of_a_script_holds_its_texts_whole(path: Path) -> None:
    """Lines are made shorter one by one, which would hurt a text that goes on in the next."""
    for line in path.read_text(encoding="utf-8").splitlines():
        assert line.count("`") % 2 == 0, line
        assert len(re.findall(r'(?<!\\)"', line)) % 2 == 0, line
