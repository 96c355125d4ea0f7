"""The pages are kept as they are read, with what they show; here it is computed again, and links and pictures exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from attn_exp import rules
from docs import produce
from docs.reference import PARTS, reference
from tests import ROOT, pages
from tests.report.browser import need_chromium

DOCS = ROOT / "docs"
FILES = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]
PART = r"<!-- reference: {} -->\n\n(.*?)\n\n<!-- end -->"


def read(name: str) -> str:
    """Return a page as it is kept."""
    return produce.find_page(name).read_text(encoding="utf-8")


IN_ROOMS = {page for room in pages.PAGES.values() for page in room}
test_a_page_shows_what_its_commands_print_today = pages.test_of(sorted(set(produce.PAGES) - IN_ROOMS))


@pytest.mark.parametrize("part", PARTS)
def test_a_reference_page_says_what_its_members_say(part: str) -> None:
    kept = [text for page in produce.PAGES for text in re.findall(PART.format(part), read(page), re.DOTALL)]
    assert len(kept) == 1
    assert produce.merge(kept[0] + "\n", reference(part) + "\n")[1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_link_and_picture_is_in_the_repository(file: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]*)|<img src=\"([^\"]*)", text)
    for link in filter(None, map("".join, links)):
        path, _, anchor = link.partition("#")
        target = file.parent / path if path else file
        assert link.startswith("https://") or target.is_file(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings], link


def test_pictures_are_small_and_each_is_shown() -> None:
    texts = "".join(file.read_text(encoding="utf-8") for file in FILES)
    for picture in (DOCS / "pictures").iterdir():
        assert picture.stat().st_size < 150_000, picture
        assert f"pictures/{picture.name}" in texts


# What the notebooks say


def numbers(name: str, heading: str) -> list[list[float]]:
    """Return the rows of numbers of the table below a heading."""
    section = read(name).split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\w+((?: +\d[\d.]*)+)$", section, re.MULTILINE)
    return [list(map(float, line.split())) for line in lines]


def test_every_printed_result_of_the_documents_agrees_and_the_readme_says_so() -> None:
    agreement = numbers("five_documents", "Do they agree?")
    assert len(agreement) == 8
    assert all(results == agree for results, agree in agreement)
    said = re.findall(r"\| (\d+) of (\d+) \|", read("README"))
    assert sum(int(right) for right, _ in said) == sum(results for results, _ in agreement)
    assert all(right == printed for right, printed in said)
    assert "79 of 79 published results agree." in read("reproduce")


# How pages are produced


@pytest.fixture
def page(tmp_path: Path) -> Any:
    (tmp_path / "page").mkdir()
    return produce.Page("page", tmp_path / "page", tmp_path)


@pytest.mark.long
def test_commands_and_python_are_run_and_what_they_print_is_put_below(page: Any) -> None:
    text = "A\n```sh\necho one > file\ncat file\n```\nB\n```python\nx = 2\nprint(x)\nx + 1\n```\nC\n"
    made = (
        "A\n```sh\necho one > file\ncat file\n```\n\n```text\n$ echo one > file\n$ cat file\none\n```\nB\n"
        "```python\nx = 2\nprint(x)\nx + 1\n```\n\n```text\n2\n3\n```\nC\n"
    )
    assert produce.produce(text, page) == made
    assert produce.produce(made, page) == made


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "```sh\nfalse\n```\n",
        "```sh fails\ntrue\n```\n",
        '![It](pictures/it.svg "outputs/latest/figures/weights.svg")\n',
        '![It](pictures/it.png "outputs/latest/report.html")\n',
    ],
)
def test_what_does_not_run_is_an_error(text: str, page: Any) -> None:
    with pytest.raises(produce.PageError):
        produce.produce(text, page)


@pytest.mark.long
def test_files_are_written_and_what_fails_as_it_should_is_shown(page: Any) -> None:
    text = produce.produce(
        "```yaml mine/a.yaml\na: 1\n```\n```sh fails\ncat mine/a.yaml && attn-exp head=0\n```\n", page
    )
    assert "```text\na: 1\nattn_exp: error: head=0: expected a whole number of at least 1\n```" in text


@pytest.mark.long
def test_a_picture_of_the_report_is_taken(page: Any) -> None:
    need_chromium()
    text = '```sh\npython -m attn_exp\n```\n![It](pictures/it.png "outputs/latest/report.html")\n'
    produce.produce(text, page)
    kept = produce.measure_picture(DOCS / "pictures/index-report.png")
    assert produce.measure_picture(page.target / "pictures/it.png") == kept == ("1100", "1250")


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("a 0.123  b", "a  0.124 b", True),
        ("a 0.123", "a 0.128", False),
        ("a 1.20e-03", "a 1.21e-03", True),
        ("a 1.2e-16", "a 0", True),
        ("3 heads", "4 heads", False),
        ("one head", "two heads", False),
        ("200 points, 8 s.", "200 points, 11 s.", True),
        ("error  error_ulp  x\n0.0     1.0000  2", "error  error_ulp  x\n0.0     0.5000  2", True),
        ("error  error_ulp  x\n0.0     1.0000  2", "error  error_ulp  x\n0.0     0.5000  3", False),
        ("runs/20261130-002530-b8d223", "runs/20261201-112233-aaaaaa", True),
    ],
)
def test_a_page_is_out_of_date_beyond_the_last_digits_of_its_numbers(old: str, new: str, same: bool) -> None:
    merged, differ = produce.merge(f"{old}\nend\n", f"{new}\nend\n")
    assert (differ == []) == same
    assert merged.splitlines()[-2:] == [(old if same else new).splitlines()[-1], "end"]


# The reference


@pytest.mark.parametrize("group", ["mask", "score", "position", "normalizer"])
def test_the_reference_shows_each_rule_with_its_settings_its_picture_and_its_source(group: str) -> None:
    text = read(f"{group}s")
    for name in rules.names(group):
        section = text.split(f"## `{group}={name}`\n")[1].split("\n## ")[0]
        assert "```text\n" in section
        assert "0x" not in section
        for field in fields(rules.rule_class(group, name)) if group != "normalizer" else ():
            assert f"| `{group}.{name}.{field.name}` |" in section


def test_long_sentences_of_a_command_stand_on_several_lines_and_tables_do_not() -> None:
    sentence, row = "a word " * 30, "cells  " * 30
    lines = produce.wrap(f"{sentence}\n\n{row}\n").split("\n")
    assert " ".join(lines[:2]) == sentence.strip()
    assert lines[2:] == ["", row, ""]
