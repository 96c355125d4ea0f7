"""The index of an output folder: nothing lost, nothing harmful, and only what is new is read."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from attn_exp.errors import UserError
from attn_exp.runs import folders
from attn_exp.sweeps import stored
from tests.test_house import loaded


def add(output_dir: Path, name: str, words: str = "", started: str = "2026-11-21T04:00:00+0000", **more: str) -> Path:
    """Write what the index reads of a run: hidden at first, then under its name, as `store.save` does."""
    draft = output_dir / "runs" / f".{name}"
    draft.mkdir(parents=True)
    said = {"command": f"python -m attn_exp {words}", "words": shlex.split(words)}
    about = said | {"started": started, "status": "complete"} | more
    (draft / "run.json").write_text(json.dumps(about))
    return draft.rename(draft.with_name(name))


def page(output_dir: Path) -> str:
    return folders.rebuild_index(output_dir).read_text(encoding="utf-8")


def table(text: str) -> list[list[str]]:
    """Return the texts of the page's table, heads first."""
    lines = [re.findall(r"<t[hd].*?</t[hd]>", line) for line in re.findall(r"<tr>(.*?)</tr>", text)]
    return [[unescape(re.sub("<[^>]*>", "", cell)) for cell in line] for line in lines]


def test_runs_show_the_settings_in_which_they_differ_newest_first(tmp_path: Path) -> None:
    add(tmp_path, "a", "bias=true head=2", "2026-11-21T04:00:00+0000")
    add(tmp_path, "b", "bias=true head=4 scale=false output_dir=here", "2026-11-21T05:00:00+0000", title="Four")
    text = page(tmp_path)
    assert table(text) == [
        ["run", "title", "head", "scale", "other settings", "started"],
        ["b run", "Four", "4", "false", "", "2026-11-21 05:00:00"],
        ["a run", "", "2", "", "", "2026-11-21 04:00:00"],
    ]
    assert "The same for all: bias=true." in text


def test_what_a_reader_opens_is_linked_and_a_sweep_says_that_it_is_one(tmp_path: Path) -> None:
    folder = add(tmp_path, "a")
    (folder / "report.html").touch()
    (folder / "report.md").touch()
    add(tmp_path, "b")
    (tmp_path / "sweeps/mine").mkdir(parents=True)
    about = {"command": "", "words": ["head=1,2"], "started": "2026", "status": "interrupted", "title": ""}
    (tmp_path / "sweeps/mine/manifest.json").write_text(json.dumps(about))
    (tmp_path / "sweeps/mine/report.md").touch()
    text = page(tmp_path)
    assert re.findall('href="([^"]*)">', text)[1:] == ["runs/b/", "runs/a/report.html", "sweeps/mine/report.md"]
    assert ["mine sweep (interrupted)", "1,2", "", "2026"] in table(text)


def test_an_empty_folder_has_an_empty_index_and_a_missing_one_none(tmp_path: Path) -> None:
    text = page(tmp_path)
    assert table(text) == [["run", "settings", "started"]]
    assert "No runs yet: python -m attn_exp computes the first one." in text
    with pytest.raises(UserError, match="nowhere: cannot be read"):
        folders.rebuild_index(tmp_path / "nowhere")


def test_what_is_gone_or_half_written_is_left_out(tmp_path: Path) -> None:
    shutil.rmtree(add(tmp_path, "a"))
    add(tmp_path, "b")
    page(tmp_path)
    shutil.rmtree(tmp_path / "runs/b")
    (add(tmp_path, "c") / "run.json").unlink()
    add(tmp_path, "e").rename(tmp_path / "runs/.e")
    (tmp_path / "runs/stray").touch()
    assert len(table(page(tmp_path))) == 1


ABOUT = {"command": "python -m attn_exp", "words": [], "started": "2026", "status": "complete"}
DEEP = "[" * 100_000
WRONG = {
    "": "run.json: it is not JSON: Expecting value: line 1 column 1 (char 0)",
    "{": "run.json: it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    "[]": "run.json is not an object",
    DEEP: "run.json: it nests too deeply",
    json.dumps(ABOUT | {"started": None}): "run.json: started is not a string",
    json.dumps(ABOUT | {"words": "head=2"}): "run.json: words is not a list",
    json.dumps(ABOUT | {"words": [1]}): "an item of run.json: words is not a string",
    json.dumps(ABOUT | {"config": [1]}): "run.json: config is not an object",
    json.dumps(ABOUT | {"config": {"title": {"a": 1}}}): "run.json: config: title is not a string",
    '{"command": 1}': "run.json: started is missing",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_folder_that_cannot_be_read_is_one_line_that_says_why(text: str, tmp_path: Path) -> None:
    (add(tmp_path, "a") / "run.json").write_text(text)
    add(tmp_path, "b", "head=2")
    add(tmp_path, "c", "head=2")
    assert table(page(tmp_path))[-1] == ["a run (cannot be read)", WRONG[text], ""]
    assert "The same for all: head=2." in (tmp_path / "index.html").read_text()
    assert f"cannot be read  {WRONG[text][:45]}" in re.sub("  +", "  ", stored.list_runs([str(tmp_path)]))


HOSTILE = [
    "<script>alert(1)</script>", '" onerror="alert(1)', "../../x", "x" * 10_000, "a\x1b[31m\x00b", "half \ud800 pair",
    "=1+1", "$count ${rows} $", "\u202e\u2066", "'", "&lt;b&gt;",
]  # fmt: skip


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def tags(text: str) -> list[tuple[str, tuple[str, ...]]]:
    parser = Tags()
    parser.feed(text)
    return parser.found


@pytest.mark.parametrize("token", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_words_do_no_harm(token: str, tmp_path: Path) -> None:
    for name, text in (("harmless", "word"), ("hostile", token)):
        for place in range(2):
            about = {"title": text, "status": text, "started": text, "command": f"a b c {text}"}
            about["words"] = [text, f"head={text}", str(place)]  # type: ignore[assignment]
            folder = add(tmp_path / name, f"run{place}")
            (folder / "run.json").write_text(json.dumps(about))
    harmless, hostile = page(tmp_path / "harmless"), page(tmp_path / "hostile")
    assert set(tags(hostile)) == set(tags(harmless))
    assert len(hostile) < 40_000
    assert hostile.isprintable() or all(each.isprintable() or each == "\n" for each in hostile)


@pytest.mark.long
def test_the_command_writes_it_and_loads_nothing_heavy(tmp_path: Path) -> None:
    add(tmp_path / "outputs", "a")
    assert not {"pandas", "matplotlib", "jinja2", "hydra", "omegaconf"} & loaded("index", folder=tmp_path)
    assert (tmp_path / "outputs/index.html").is_file()
