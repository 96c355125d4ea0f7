"""What the page and the Markdown report both say of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from attn_exp import registry
from attn_exp.experiment.column import spoken
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.splits import settled_as
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.report import columns, sentences, walk
from attn_exp.report.flow import Flow, flow, parted, splitting
from attn_exp.report.numbers import brief
from attn_exp.report.sentences import agreed, who_agrees
from attn_exp.report.views import Views
from attn_exp.report.walk import sums
from attn_exp.rules.scores.score import Score

Way = tuple[tuple[tuple[str, int], ...], ...]
"""Into which heads the columns of the projections part."""

if TYPE_CHECKING:
    from attn_exp.experiment.checks.check import Finding
    from attn_exp.experiment.verdict import Verdict
    from attn_exp.report.own import Story


def contents(run: Run, views: Views) -> dict[str, Any]:
    """Return what both reports say, by the names that the templates know."""
    comparison, config = run.comparison, run.comparison.config
    return {
        "title": config.title or sentences.usual_title(comparison.problem),
        "sentence": who_agrees(comparison.rows),
        "more": [
            *filter(None, [sentences.whose_tokens(comparison.problem)]),
            *sentences.why_letters_are_shared(comparison),
            *sentences.where_functions_part(comparison),
        ],
        "column": sentences.name_of_columns(comparison.problem),
        "notes": config.notes,
        "command": str(run.about.get("command", "")),
        "comparison": columns.table(comparison, run.timings),
        "depth": config.report.depth,
        "published": comparison.published,
        "agreement": agreed(comparison.published),
        "checks": [checked(finding) for finding in comparison.checks],
        "own": own_code(comparison.verdicts),
        "walks": walks(views),
        "origin": list(sentences.origin(run.about)),
    }


def own_code(verdicts: Mapping[str, Verdict]) -> list[Story]:
    """Return what there is to say of functions of the user's own."""
    if not verdicts:
        return []
    from attn_exp.report.own import stories  # noqa: PLC0415 - most runs have none

    return stories(verdicts)


def checked(finding: Finding) -> dict[str, Any]:
    """Return what a check found as a table with its sentence."""
    heads = finding.check.columns
    lines = [[brief(getattr(record, name)) for name in heads] for record in finding.records]
    return {
        "name": finding.name,
        "head": [spoken(name) for name in heads],
        "lines": lines,
        "sentence": finding.sentence,
    }


def walks(views: Views) -> list[dict[str, Any]]:
    """Return one walk for each function that the variants compute.

    The input stands in the first of them, and once more where its columns part into other heads.
    """
    made = list[dict[str, Any]]()
    places: dict[str, str] = {}
    ways = set[Way]()
    for title, variant in functions(views.comparison):
        made.append(walk_of(views, variant, title, f"walk-{len(made) + 1}", places, ways))
        places |= made[-1]["places"]
        ways.add(made[-1]["way"])
    return made


def functions(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield each function that the variants compute: the names of those that do, and the first of them."""
    rows = comparison.rows
    leaders = {row.same_as: row.variant for row in reversed(rows) if row.same_as}
    for letter in sorted(leaders, key=order):
        yield " = ".join(row.variant for row in rows if row.same_as == letter), leaders[letter]


def flows(views: Views) -> Iterator[tuple[str, Flow]]:
    """Yield the picture of each function, under the names of the variants that compute it."""
    comparison = views.comparison
    for title, variant in functions(comparison):
        settled, steps = settled_as(comparison, variant), walk.steps(comparison, variant)
        yield title, flow(comparison.problem, settled, comparison.traces[variant], steps, {})


def order(letter: str) -> tuple[int, str]:
    """Sort A to Z before AA."""
    return len(letter), letter


def walk_of(
    views: Views, variant: str, title: str, name: str, shown: Mapping[str, str], ways: Collection[Way]
) -> dict[str, Any]:
    """Return the walk through one variant.

    What `shown` has of the input, by its place, is not shown again, unless its columns part in none of the `ways` so
    far; W_o always stands where it is used.
    """
    comparison, settled = views.comparison, settled_as(views.comparison, variant)
    split = splitting(comparison.problem, settled, comparison.traces[variant])
    whole = tuple(parted(step, split) for step in walk.steps(comparison, variant))
    way = tuple(step.tables[0].parts for step in whole if walk.is_projection(step) and step.tables[0].parts)
    known = shown if not way or way in ways else {}
    steps = [step for step in whole if step.stage not in known or step.stage in walk.OUTWARD or not walk.is_input(step)]
    places = {**shown, **{step.stage: f"{name}-{step.stage}" for step in steps}}
    groups = [list(group) for _, group in groupby(steps, key=walk.beside)]
    panel = next((place for place, panel in enumerate(views.panels) if variant in panel.variants), "")
    return {
        "title": title,
        "variant": variant,
        "panel": panel,
        "way": way,
        "steps": steps,
        "groups": groups,
        "sums": sums(comparison, settled),
        "places": places,
        "facts": facts(comparison, settled, comparison.traces[variant]),
        "flow": flow(comparison.problem, settled, comparison.traces[variant], whole, places),
    }


def facts(comparison: Comparison, settled: Settled, trace: Trace) -> dict[str, Any]:
    """Return what a page needs to say how a cell came about: `share` is how many query heads read the same keys.

    `extra` says whether more than keys take a share, `caps` by which bounds logits are bent, `pair` which rule makes
    scores that are no products.
    """
    share = 1 if trace.q is None or trace.k is None else len(trace.q) // len(trace.k)
    mixed = "yes" if walk.is_mixed(comparison, settled.name) else ""
    name, past = settled.rules.normalizer.name, comparison.problem.past
    rules = settled.rules
    bounds = [rule.bound() for rule in rules.scores if type(rule).bend is not Score.bend]
    return {
        "c": settled.multiplier, "normalizer": name, "share": share, "mixed": mixed, "past": past,
        "convention": settled.words["convention"],
        "extra": "yes" if any(rule.extra(0) is not None for rule in rules.scores) else "",
        "caps": "" if None in bounds or rules.bend_last else " ".join(map(str, bounds)),
        "pair": "" if rules.pairing is None else registry.name_of(rules.pairing),
    }  # fmt: skip
