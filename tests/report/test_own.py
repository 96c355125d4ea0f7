"""What is wrong with a user's own function stands in the report, and a run on disk says it without the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attn_exp import cli
from attn_exp.errors import UserError
from attn_exp.runs import store
from tests.runs.test_store import reseal

CODE = """
import numpy as np


def attention(q, k, v):
    scores = q @ k.swapaxes(-1, -2){}
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def strange(q, k, v):
    return attention(q, k, v) ** 2 + 0.1


def fails(q, k, v):
    raise RuntimeError("<b>no</b>")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CODE.format(""))
    return tmp_path


def folder(function: str = "attention", *words: str) -> Path:
    named = ["variant=[matrix,mine]", f"variant.mine.form=mine.py:{function}", "report=full", "report.figures=false"]
    cli.obey([*named, *words])
    return Path("outputs/latest").resolve()


@pytest.mark.long
def test_the_mistake_its_stage_and_the_smallest_case_are_told_without_the_code_too(here: Path) -> None:
    run = folder()
    for name in ("report.html", "report.md"):
        text = (run / name).read_text().replace("\\_", "_")
        assert "What is wrong with mine" in text
        assert "no_scale" in text
        assert "On the smallest input that fails, it first differs from the definition in the logits." in text.replace(
            "\\", ""
        )
        assert "variant.mine.form=" in text
    (verdict,) = store.load(run).comparison.verdicts.values()
    assert verdict.mistakes == ("no_scale",)
    assert verdict.smallest is not None
    parted = {stage.name: stage.parts for stage in verdict.smallest.stages}
    assert parted["scores"] is False
    assert parted["logits"] and parted["weights"]
    logits = next(stage for stage in verdict.smallest.stages if stage.name == "logits")
    size = len(verdict.smallest.stages[0].right[0][0])
    mine, right = (float(sorted(sum(side[0], ()), key=float)[-1]) for side in (logits.mine, logits.right))
    assert mine == pytest.approx(right * size**0.5, rel=1e-3)
    before = {name: (run / name).read_bytes() for name in ("report.html", "report.md")}
    (here / "mine.py").unlink()
    cli.obey(["report", str(run)])
    assert {name: (run / name).read_bytes() for name in before} == before
    values: tuple[Any, ...] = ({"verdicts": [{"variant": "mine"}]}, [], {"verdicts": 3})
    for value in values:
        (run / "own.json").write_text(json.dumps(value))
        reseal(run)
        with pytest.raises(UserError, match=r"^[^\n]*own\.json[^\n]*$"):
            store.load(run)


def test_a_right_function_is_said_to_be_right(here: Path) -> None:
    (here / "mine.py").write_text(CODE.format(" / np.sqrt(q.shape[-1])"))
    text = (folder("attention") / "report.md").read_text()
    assert "Nothing is wrong with mine" in text
    assert "The smallest input that fails" not in text


@pytest.mark.long
def test_what_no_mistake_explains_shows_the_output_alone() -> None:
    run = folder("strange")
    (verdict,) = store.load(run).comparison.verdicts.values()
    assert not verdict.passed
    assert verdict.mistakes == ()
    assert verdict.smallest is not None
    assert {stage.name for stage in verdict.smallest.stages if stage.mine} <= {"context", "output"}
    assert "at the latest; its earlier stages are not known" in (run / "report.md").read_text()


@pytest.mark.full_search
@pytest.mark.long
def test_two_mistakes_at_once_are_named_on_the_page_too(here: Path) -> None:
    (here / "mine.py").write_text(
        "import numpy as np\n\n\ndef attention(q, k, v):\n    scores = q @ k.swapaxes(-1, -2)\n"
        "    powers = np.exp(scores - scores.max(-2, keepdims=True))\n"
        "    return powers / powers.sum(-2, keepdims=True) @ v\n"
    )
    text = (folder() / "report.md").read_text().replace("\\", "")
    assert "The function attention makes the mistakes no_scale and softmax_over_queries." in text


def test_a_function_that_fails_is_told_without_harm_to_the_page() -> None:
    page = (folder("fails") / "report.html").read_text()
    assert "mine is not verified" in page
    assert "<b>no</b>" not in page
    assert "&lt;b&gt;no&lt;/b&gt;" in page


def test_the_settings_of_the_run_are_asked_of_the_function() -> None:
    (verdict,) = store.load(folder("attention", "mask=causal", "scale=false")).comparison.verdicts.values()
    assert verdict.mistakes == ("causal_ignored",)
    assert verdict.asked == "mask=[causal] scale=false"
