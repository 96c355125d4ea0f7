"""The report: complete, self-contained, and harmless whatever the tokens are."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError
from attn_exp.experiment.executing import measure
from attn_exp.experiment.row import Agreement, Comparison, Run
from attn_exp.report import escapes, notebook, sentences
from attn_exp.report.views import Shown
from attn_exp.runs import execution, store
from tests.compose import comparison, config
from tests.report.render import drawings_of, markdown_of, page_of

HOSTILE = ["<script>f(1)</script>", '"onerror="f(1)', "../../x"]


def a_run(found: Comparison) -> Run:
    about = store.describe_run(found, Repeat(("seed=0",)), {"versions": {"numpy": "2"}, "git": None})
    return Run(found, measure(found.variants, found.problem), about)


def hostile() -> Comparison:
    vectors = [[0.2, 0.9, 0.1, 0.5], [0.8, 0.3, 0.7, 0.2], [0.4, 0.6, 0.3, 0.9]]
    found = comparison("embeddings=inline", f"embeddings.vectors={vectors}", "embeddings.tokens=3")
    problem = type(found.problem)(**(vars(found.problem) | {"tokens": tuple(HOSTILE), "key_tokens": tuple(HOSTILE)}))
    return type(found)(**(vars(found) | {"problem": problem}))


class Reader(HTMLParser):
    """Collects what a browser would: elements that are open, their attributes, and the text."""

    VOID = ("meta", "img", "br", "wbr", "input", "link", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def page() -> str:
    run = a_run(comparison("embeddings=she_likes_coffee"))
    return page_of(run, Shown("data:image/svg+xml;base64,PHN2Zy8+", "Weights."))


@pytest.fixture(scope="module")
def told() -> str:
    return markdown_of(a_run(comparison("embeddings=she_likes_coffee")), Shown("figures/weights.png", "Weights."))


def addresses(reader: Reader) -> Iterator[str]:
    for _, attributes in reader.elements:
        for name in ("src", "href", "action", "data"):
            if attributes.get(name):
                yield str(attributes[name])


def test_the_page_is_well_formed_and_loads_nothing(page: str) -> None:
    reader = Reader(page)
    assert reader.open == []
    assert all(address.startswith(("data:image/", "#")) for address in addresses(reader))
    assert not re.search(r"https?://|url\(|@import", page)


def test_each_token_has_its_sum(page: str, told: str) -> None:
    """The page begins with that of the first token; its script writes that of the token that is chosen."""
    spaced = " ".join("".join(Reader(page).words).split())
    for text in (spaced, told):
        assert "output(she) = 0.31 v(she) + 0.31 v(likes) + 0.38 v(coffee)" in text
    assert "context 2(coffee) = 0.36 v(she) + 0.28 v(likes) + 0.36 v(coffee)" in told


@pytest.mark.parametrize(("convention", "gets"), [("none", "0"), ("udl", "NaN"), ("jax", "all equal")])
def test_rows_of_queries_that_see_no_key_are_said(convention: str, gets: str) -> None:
    """Their weights do not sum to 1, as the sentence beside them says of the others; a sum of no values is 0."""
    settings = "mask=padding", "mask.padding.lengths=[0]", f"convention={convention}", "variant=[matrix]"
    spaced = " ".join("".join(Reader(page_of(a_run(comparison(*settings)))).words).split())
    assert f"{gets} where a query may see no key" in spaced
    assert "= =" not in spaced
    assert ("output(she) = 0 " in spaced) == (convention == "none")


def test_every_stage_is_a_labelled_table(told: str) -> None:
    for stage in ("X input", "W_q", "Q queries", "K keys", "V values", "S scores", "L logits", "A weights", "Y output"):
        assert f"\n### {stage}" in told
    assert "| she | 0.2 | 0.9 | 0.1 | 0.5 |" in told
    assert "c = 1/sqrt(d) = 1/sqrt(4) = 0.5" in told


def test_hostile_tokens_are_only_text() -> None:
    run = a_run(hostile())
    reader = Reader(page_of(run))
    assert not any(name.startswith("on") for _, attributes in reader.elements for name in attributes)
    assert "<script>f(1)</script>" in "".join(reader.words)
    assert "<script" not in markdown_of(run).replace("\\<script", "")


def test_titles_notes_and_published_figures_are_escaped() -> None:
    found = comparison("title='<b>T</b>'", "notes=['a <i>note</i>', 'x | y']")
    agreement = Agreement("a|b <u>", "0.50", "0.5001", 1e-4, 5e-3, True, "<em>")
    found = type(found)(**(vars(found) | {"published": (agreement,)}))
    page = page_of(a_run(found))
    assert not {"b", "i", "u", "em"} & {tag for tag, _ in Reader(page).elements}
    text = markdown_of(a_run(found))
    assert "# \\<b\\>T\\</b\\>" in text
    assert "| a\\|b \\<u\\> | 0.50 | 0.5001 |" in text
    assert "1 of 1 published results agree." in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a_b", "a_b"),
        ("_a_", "\\_a\\_"),
        ("# x", "\\# x"),
        ("1e-16", "1e-16"),
        ("a\nb", "a\\\\nb"),
        ("&lt;", "&amp;lt;"),
    ],
)
def test_markdown_escapes_marks_and_nothing_else(text: str, expected: str) -> None:
    assert escapes.md(text) == expected


@pytest.mark.long
def test_a_long_run_shows_corners_and_says_so() -> None:
    found = comparison("embeddings=random", "embeddings.tokens=40", "embeddings.d_model=24", "head=6")
    text = markdown_of(a_run(found))
    assert "Shown: 4 of 6 heads and 16 of 40 rows and 16 of 40 columns; results.npz has all of them." in text
    assert "of other values" in text


@pytest.mark.parametrize(
    ("variant", "name", "head", "said"),
    [
        ("multi_head", "weights", 9, "head=9: weights of multi_head has 2 heads, counted from 1; choose 1 to 2"),
        ("multi_head", "q", 0, "head=0: q of multi_head has 2 heads, counted from 1; choose 1 to 2"),
        ("multi_head", "k", -1, "head=-1: k of multi_head has 2 heads, counted from 1; choose 1 to 2"),
        ("looped", "logits", 2, "head=2: logits of looped has one head; choose 1"),
        ("looped", "output", 3, "head=3: output of looped has one head; choose 1"),
    ],
)
def test_a_head_that_is_not_there_is_one_line(variant: str, name: str, head: int, said: str) -> None:
    with pytest.raises(UserError) as caught:
        notebook.stage(comparison(), variant, name, head)
    assert str(caught.value) == said


def test_every_stage_is_a_frame() -> None:
    compared = comparison("variant=[blockwise,multi_head]", "weights=full")
    for variant, trace in compared.traces.items():
        for name, array in trace.stages():
            frame = notebook.stage(compared, variant, name)
            assert frame.size in (array.size, array.size // len(array)), (variant, name)
    assert notebook.stage(compared, "blockwise", "lse").columns.tolist() == ["head 1"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("none", set()), ("tables", {"report.md", "tables"}), ("full", {"report.md", "report.html", "figures", "tables"})],
)
def test_a_run_writes_what_was_asked_for(tmp_path: Path, kind: str, expected: set[str]) -> None:
    always = {"comparison.csv", "distances.csv", "steps.csv", "timings.csv", "results.npz", "run.json"}
    outcome = execution.run(config(f"report={kind}", f"output_dir={tmp_path}"), Repeat())
    assert {path.name for path in outcome.folder.iterdir()} == always | expected
    assert Path(outcome.text.splitlines()[-1]).exists()


def test_two_runs_draw_the_same_bytes(tmp_path: Path) -> None:
    first, second = (execution.run(config(f"output_dir={tmp_path}"), Repeat()).folder for _ in range(2))
    drawn = sorted(path.relative_to(first) for path in (first / "figures").iterdir())
    assert {path.name for path in drawn} >= {"distances.svg", "entropy.svg", "sharpness.svg", "weights.svg"}
    for path in drawn:
        assert (first / path).read_bytes() == (second / path).read_bytes(), path


def test_frames_carry_tokens_as_labels() -> None:
    found = comparison()
    weights = notebook.stage(found, "multi_head", "weights", head=2)
    assert list(weights.index) == list(weights.columns) == ["she", "likes", "coffee"]
    traced = found.traces["multi_head"].weights
    assert traced is not None
    assert weights.loc["coffee", "likes"] == traced[1, 2, 1]
    assert notebook.comparison(found).loc["multi_head", "same_as"] == "B"
    with pytest.raises(UserError, match="unknown stage of looped 'wieghts'; did you mean weights"):
        notebook.stage(found, "looped", "wieghts")


@pytest.mark.long
@pytest.mark.parametrize(("asked", "shown"), [(["pdf"], "pdf"), (["pdf", "svg"], "svg"), (["svg", "png"], "png")])
def test_figures_come_in_the_formats_asked_for(asked: list[str], shown: str, tmp_path: Path) -> None:
    words = (f"figures.format=[{','.join(asked)}]", "variant=[matrix]", f"output_dir={tmp_path}")
    outcome = execution.run(config(*words), Repeat())
    assert {path.suffix[1:] for path in (outcome.folder / "figures").iterdir()} == set(asked)
    assert f"(figures/weights.{shown})" in (outcome.folder / "report.md").read_text()
    assert "data:image/svg+xml" in (outcome.folder / "report.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        "variant=[looped,blockwise,linear,linear_recurrent,multi_query]",
        "variant=[blockwise]",
        "mask=causal score=alibi position=rope variant=[decode,blockwise,multi_head]",
        "score=sink bias=true",
        "normalizer=sigmoid mask=window",
        "score=softcap",
        "kv_head=1 head=4",
        "scale=0",
        "embeddings=random embeddings.tokens=1 embeddings.d_model=4",
        "experiment=attention_times_value",
        "experiment=qk_transpose",
        "experiment=udl_multi_head",
    ],
)
def test_whatever_runs_is_told(words: str, tmp_path: Path) -> None:
    run = a_run(comparison(*words.split()))
    again = store.load(store.save(run, tmp_path))
    assert drawings_of(again.comparison)
    assert Reader(page_of(again)).open == []
    assert markdown_of(again).startswith("# ")


@pytest.mark.long
def test_formulas_follow_the_rules() -> None:
    def told(*words: str) -> str:
        return markdown_of(a_run(comparison("variant=[matrix]", *words)))

    assert "`A_ij = exp(L_ij) / (sum_k exp(L_ik))`" in told()
    assert "`A_ij = exp(M_ij) / (sum_k exp(M_ik))`" in told("mask=causal")
    assert "(mask=causal, score=alibi(signed=false))" in told("mask=causal", "score=alibi")
    assert "+ exp(z))`" in told("score=sink")
    assert "`A = sigmoid(L)`" in told("normalizer=sigmoid")
    assert "(with position=rope" in told("position=rope")
    assert told("position=rope").count("(with position=") == 2  # values stay where they are
    assert told("position=sinusoidal").count("(with position=") == 3
    bent = told("score=[softcap,alibi]", "score.softcap.cap=5")
    assert "`L′ = bend(L)` (score=softcap(cap=5))" in bent
    assert "`M = L′ + bias` (score=alibi(signed=false))" in bent
    assert "`S_ij = sum_n w_n tanh(Q_in + K_jn)` (score=additive" in told("score=additive")
    assert "product" not in told("score=additive")
    assert "`Q = X W_q + b_q`" in told("bias=true")


@pytest.mark.parametrize(
    ("words", "formula"),
    [
        (("position=rope",), "Q = rope(X W_q)"),
        (("position=rope",), "V = X W_v"),
        (("position=sinusoidal",), "V = (X + P) W_v"),
        (("head=2", "kv_head=1", "kv_pool=mean"), "K = mean(X W_k)"),
        (("head=2", "kv_head=1"), "K = first(X W_k)"),
        (("position=rope", "bias=true", "embeddings.memory=2"), "K = rope(X′ W_k + b_k)"),
    ],
    ids=str,
)
def test_a_projection_says_all_that_happens_to_it(words: tuple[str, ...], formula: str) -> None:
    assert f"`{formula}`" in markdown_of(a_run(comparison("variant=[multi_head]", *words)))


def test_checks_are_told() -> None:
    found = comparison("check=mask", "mask=causal", "variant=[matrix]")
    run = a_run(found)
    sentence = found.checks[0].sentence
    page, text = page_of(run), markdown_of(run)
    assert "Check: mask" in "".join(Reader(page).words)
    assert sentence in "".join(Reader(page).words)
    assert escapes.md(sentence) in text


def test_a_page_says_what_its_weights_mean() -> None:
    drawn = comparison("embeddings=words", "embeddings.text=The dog barks")
    model = dataclasses.replace(drawn.config.model, family="bert")
    trained = dataclasses.replace(drawn, config=dataclasses.replace(drawn.config, model=model))
    for text in (page_of(a_run(drawn)), markdown_of(a_run(drawn))):
        assert "). The weights come from random numbers" in re.sub("<[^>]*>", "", text)
    assert "model.path=FOLDER &#39;model.text=&#34;The dog barks&#34;&#39;" in page_of(a_run(drawn))
    assert "say nothing about the tokens" not in page_of(a_run(comparison("experiment=she_likes_coffee")))
    assert "a large weight does not explain" in markdown_of(a_run(trained))
    assert "a large weight does not explain" not in markdown_of(a_run(drawn))


def test_tokens_that_no_format_expects_are_written_and_read_back(tmp_path: Path) -> None:
    names = ("\ud800", "x" * 10_000, "\x1b[31m\x07\u202e", "=1+1")
    chosen = config("embeddings=inline", "embeddings.vectors=[[1,0],[0,1],[1,1],[2,1]]", f"output_dir={tmp_path}")
    chosen = dataclasses.replace(chosen, embeddings=dataclasses.replace(chosen.embeddings, tokens=names))
    outcome = execution.run(chosen, Repeat())
    assert store.load(outcome.folder).comparison.problem.tokens == names
    page = (outcome.folder / "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in page and "x" * 300 not in page
    assert "\x1b" not in (outcome.folder / "report.md").read_text(encoding="utf-8") + outcome.text


def test_weights_that_were_never_whole_are_shown_as_means_of_blocks(tmp_path: Path) -> None:
    run = a_run(comparison("variant=[blockwise]", "embeddings=random", "embeddings.tokens=40", "embeddings.d_model=8"))
    again = store.load(store.save(run, tmp_path))
    before, after = (each.comparison.traces["blockwise"].summary for each in (run, again))
    assert before is not None and after is not None
    np.testing.assert_array_equal(before.heat, after.heat)
    np.testing.assert_array_equal(before.row_edges, after.row_edges)
    assert "Block means of weights" in page_of(again)


@pytest.mark.long
def test_a_sentence_about_some_queries_says_how_many() -> None:
    words = ("embeddings=random", "embeddings.d_model=16", "variant=[blockwise]", "mask=causal", "report=none")
    found = comparison(*words, "embeddings.tokens=3000")
    assert found.rows[0].checked < 3000
    expected = f"); {found.rows[0].checked:,} of 3,000 queries were checked."
    assert sentences.lead(found).endswith(expected)
