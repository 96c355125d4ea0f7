"""What the documentation shows is run: the notebooks here, the pages when the site is built, by `docs/produce.py`."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import math
import re
import struct
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from attn_exp import forms, mistakes, rules
from attn_exp.experiment import metrics
from attn_exp.experiment.library_conventions import CONVENTIONS
from tests import ROOT
from tests.report.browser import need_chromium

DOCS, README = ROOT / "docs", ROOT / "README.md"


def outputs(name: str) -> list[str]:
    """Run a notebook in a kernel of its own and return what its cells show, as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the Jupyter libraries are not ours
        nbformat, nbclient = importlib.import_module("nbformat"), importlib.import_module("nbclient")
        notebook = nbformat.read(DOCS / "notebooks" / f"{name}.ipynb", as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT)}})
        asyncio.run(client.async_execute())
    shown = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    return [each.get("text") or each["data"].get("text/html") or each["data"]["text/plain"] for each in shown]


@pytest.mark.long
def test_the_notebook_of_the_documents_runs_and_every_printed_result_agrees() -> None:
    shown = outputs("five_documents")
    agreement = table(shown[0])
    assert len(agreement) == 8
    assert all(results == agree for _, results, agree in agreement)
    assert any("multi_head" in each and "printed_answer" in each for each in shown)


def table(html: str) -> list[list[str]]:
    """Return the cells of a data frame's body."""
    body = html.split("<tbody>")[1]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", line, re.DOTALL) for line in body.split("<tr>")[1:]]


@pytest.mark.long
def test_the_notebook_on_the_square_root_shows_what_it_says() -> None:
    shown = outputs("why_divide_by_sqrt_d")
    for size, unscaled, scaled, _ in table(shown[0]):
        assert float(unscaled) == pytest.approx(float(size), rel=0.1)
        assert float(scaled) == pytest.approx(1, rel=0.1)
    entropies = [(float(row[1]), float(row[2])) for row in table(shown[1])]
    assert all(0.85 * math.log(64) < scaled < math.log(64) for scaled, _ in entropies)
    assert [unscaled for _, unscaled in entropies] == sorted((each for _, each in entropies), reverse=True)
    assert entropies[-1][1] < 0.2
    slopes = [(float(row[1]), float(row[2])) for row in table(shown[2])]
    assert all(scaled > 0.9 for scaled, _ in slopes)
    assert slopes[-1][1] < 0.1
    assert "<svg" in shown[3] or "Drawing" in shown[3]


@pytest.mark.long
def test_the_notebook_of_the_worksheet_names_the_mistake_in_it() -> None:
    shown = outputs("worksheet")
    assert shown[0].startswith("<iframe")
    assert "no_scale" in shown[1]
    assert "all right" in shown[2]
    assert "scores" in shown[4]


@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_what_its_cells_show(path: Path) -> None:
    """Readers on the web run nothing; `tools/keep_notebooks.py` runs them all and keeps what they show."""
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    silent = [cell for cell in cells if not cell["outputs"]]
    assert len(silent) <= 1  # a cell that computes what the next ones show
    assert {output["output_type"] for cell in cells for output in cell["outputs"]} <= {
        "execute_result", "stream", "display_data",
    }  # fmt: skip


@pytest.fixture(scope="module")
def produce() -> Any:
    sys.path.append(str(DOCS))
    found = importlib.util.spec_from_file_location("produce", DOCS / "produce.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules["produce"] = module
    found.loader.exec_module(module)
    return module


@pytest.fixture
def page(produce: Any, tmp_path: Path) -> Any:
    (tmp_path / "page").mkdir()
    return produce.Page("page", tmp_path / "page", DOCS / "_produced/test")


@pytest.mark.long
def test_commands_and_python_are_run_and_what_they_print_is_shown(produce: Any, page: Any) -> None:
    text = "A\n```console\n$ echo one > file\n$ cat file\n```\nB\n```python\nx = 2\nprint(x)\nx + 1\n```\nC\n"
    assert produce.produced(text, page) == (
        "A\n```console\n$ echo one > file\n$ cat file\none\n```\nB\n"
        "```python\nx = 2\nprint(x)\nx + 1\n```\n\n```text\n2\n```\n\n```text\n3\n```\nC\n"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ false\n```\n",
        "```console fails\n$ true\n```\n",
        "```console\nno dollar\n```\n",
        "![It](outputs/latest/figures/weights.svg)\n",
    ],
)
def test_what_does_not_run_ends_the_build(text: str, produce: Any, page: Any) -> None:
    with pytest.raises(produce.PageError):
        produce.produced(text, page)


@pytest.mark.long
def test_what_fails_as_it_should_is_shown_with_what_it_says(produce: Any, page: Any) -> None:
    text = produce.produced("```console fails\n$ python -m attn_exp head=0\n```\n", page)
    said = "attn_exp: error: head=0: expected a whole number of at least 1"
    assert text == f"```console\n$ python -m attn_exp head=0\n{said}\n```\n"


@pytest.mark.long
def test_files_are_written_where_they_say(produce: Any, page: Any) -> None:
    text = produce.produced("```yaml:mine/a.yaml\na: 1\n```\n```console\n$ cat mine/a.yaml\n```\n", page)
    assert text == "```{code-block} yaml\n:caption: mine/a.yaml\na: 1\n```\n```console\n$ cat mine/a.yaml\na: 1\n```\n"


@pytest.mark.parametrize("group", ["mask", "score", "position", "normalizer"])
def test_the_reference_shows_each_rule_with_its_settings_its_picture_and_its_source(group: str, produce: Any) -> None:
    text = produce.reference(f"{group}s")
    for name in rules.names(group):
        section = text.split(f"## `{group}={name}`\n")[1].split("\n## ")[0]
        assert "```text\n" in section
        assert "0x" not in section
        for field in fields(rules.kind(group, name)) if group != "normalizer" else ():
            assert f"| `{group}.{name}.{field.name}` |" in section
    assert {"mask": "-1 for an open side", "score": "a number above 0"}.get(group, "") in text


def test_the_reference_draws_what_an_example_says(produce: Any) -> None:
    text = produce.reference("masks").split("## `mask=window`\n")[1]
    assert "With left: `1`, right: `2`:" in text
    assert "query   1      █  █  █  █  ·\n" in text
    alibi = produce.reference("scores").split("## `score=alibi`\n")[1]
    assert "logits after it         0    -0.25     -0.5\n" in alibi


def test_the_reference_names_every_form_metric_mistake_convention_and_setting(produce: Any) -> None:
    for name, members in {
        "forms": [f"## `{name}`" for name in forms.NAMES],
        "metrics": [f"| `{name}` |" for name in metrics.known()],
        "mistakes": [f"| `{name}` |" for name in mistakes.names()],
        "conventions": [f"| `{name}` |" for name in CONVENTIONS],
        "settings": [
            "| `head` | how many heads, in variants that do not say it themselves | 2 |",
            "| `figures.width` |",
        ],
        "sweep settings": ["| `sweep.zip` |"],
        "groups": ["| `mask` | `array`, `causal`"],
        "embeddings": ["| `embeddings.d_model` | none | a whole number of at least 1 |"],
        "projections": ["| `projections.turned` | `false` | true or false |"],
        "variant": ["| `variant.NAME.head` | none | a whole number of at least 1 |"],
    }.items():
        text = produce.reference(name)
        assert [member for member in members if member not in text] == []
    assert "| `torch_mha` | may not attend | beside the first key | NaN |" in produce.reference("conventions")


def test_long_sentences_of_a_command_stand_on_several_lines_and_tables_do_not(produce: Any) -> None:
    sentence, row = "a word " * 30, "cells  " * 30
    lines = produce.wrapped(f"{sentence}\n\n{row}\n").split("\n")
    assert " ".join(lines[:3]) == sentence.strip()
    assert lines[3:] == ["", row, ""]


def size(path: Path) -> tuple[int, int]:
    """Read a picture's width and height (PNG, third edition, 11.2.1)."""
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return width, height


@pytest.mark.long
def test_a_picture_of_the_report_is_taken_when_the_site_is_built(produce: Any, page: Any) -> None:
    need_chromium()
    text = "```console\n$ python -m attn_exp report=full\n```\n![It](outputs/latest/report.png)\n"
    (place,) = re.findall(r"!\[It\]\(/(.*)\)", produce.produced(text, page))
    taken = DOCS / place
    assert size(taken) == size(DOCS / "report.png") == (1100, 1250)
    assert taken.read_bytes() != (DOCS / "report.png").read_bytes()


def test_a_report_that_is_not_there_ends_the_build(produce: Any, page: Any) -> None:
    need_chromium()
    with pytest.raises(produce.PageError, match=r"report\.html is not there"):
        produce.produced("![It](outputs/latest/report.png)\n", page)
