"""The page of a sweep as a reader meets it: any metric against any setting, drawn from the means of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attn_exp
from attn_exp.report.documents import sweep_page
from attn_exp.sweeps import overview
from attn_exp.sweeps.swept import Swept
from tests.report.browser import need_chromium
from tests.report.tab import visit

WORDS = ("scale=true,false", "head=1,2", "embeddings.d_model=8,16,32", "seed=range(0,3)")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    need_chromium()
    given: dict[str, Any] = {"embeddings": "random", "embeddings.tokens": 4, "report": "none", "sweep.engine": "serial"}
    home = str(tmp_path_factory.mktemp("swept"))
    return attn_exp.sweep(*WORDS, variant=["matrix", "multi_head"], output_dir=home, **given)


@pytest.fixture(scope="module")
def page(swept: Swept) -> str:
    return sweep_page(
        overview.page_contents(swept.about, swept.summary, "all"),
        overview.explorer_data(swept.about, swept.summary),
        "all",
        {},
    )


@pytest.mark.long
def test_a_chosen_metric_is_drawn_from_the_means_of_the_table(page: str, swept: Swept, tmp_path: Path) -> None:
    script = """
    const [metric, x, colour, panels] = document.querySelectorAll("#explore select");
    const choose = (list, text) => {
      list.value = Array.from(list.options).find((option) => option.textContent === text).value;
      list.dispatchEvent(new Event("change"));
    };
    choose(metric, "largest weight"); choose(x, "scale"); choose(colour, "none"); choose(panels, "none");
    return { told: Array.from(document.querySelectorAll("#explore circle title"), (title) => title.textContent),
             note: document.querySelector("#explore .note").textContent };
    """
    answer = visit(page, script, tmp_path).answer
    means = swept.table.assign(scale=swept.table["scale"].astype(str).str.lower()).groupby("scale")["largest_weight"]
    expected = {f"scale={scale}: {mean:.3g} (36 numbers)" for scale, mean in means.mean().items()}
    assert set(answer["told"]) == expected
    assert "Means over the seeds and over head, embeddings.d_model, variant, without intervals;" in answer["note"]
