"""The comparison of two runs or two sweeps, as text and as a page; for two runs, the page can show their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from attn_exp.experiment.row import Comparison, readable_name
from attn_exp.report.documents import FILTERS, SHARES
from attn_exp.report.page_data import panel_data, variant_data
from attn_exp.report.papers import Table
from attn_exp.report.sections import weights
from attn_exp.report.sections.walks import list_functions
from attn_exp.report.sections.weights import make_weights_part
from attn_exp.report.sentences import table
from attn_exp.report.templating import render_page
from attn_exp.report.views import MOST_COARSE, Views, colours, make_views, token_labels

NO_MAPS = "The page shows no maps of the two runs:"


class Explorer(NamedTuple):
    """The part of a page that shows weights: what it shows without its script, and the data for the script."""

    part: Mapping[str, Any]
    data: Mapping[str, Any]


def explain_no_maps(runs: Mapping[str, Comparison]) -> str:
    """Return why the weights of two runs cannot be shown together; empty if they can."""
    tokens = [token_labels(comparison.problem) for comparison in runs.values()]
    if any(labels != tokens[0] for labels in tokens):
        return f"{NO_MAPS} their tokens differ, so their weights do not correspond."
    for ordinal, comparison in zip(("first", "second"), runs.values(), strict=True):
        if all(trace.weights is None for trace in comparison.traces.values()):
            return f"{NO_MAPS} the {ordinal} run never computed its weights."
    return ""


def explorer(runs: Mapping[str, Comparison]) -> Explorer:
    """Return the explorer for the weights of several named runs, which must have the same tokens.

    Its data has the format of `page_data`, with the panels, walks and variants of all runs.
    """
    views_by_run = {name: make_views(comparison, MOST_COARSE) for name, comparison in runs.items()}
    panels = tuple(panel for views in views_by_run.values() for panel in views.panels)
    first_run = next(iter(runs.values()))
    queries, keys = token_labels(first_run.problem)
    scale = colours(Views(first_run, panels, ()))  # one scale for all runs
    data: dict[str, Any] = {"panels": [], "walks": [], "variants": [], "beside": 0}
    for run, views in views_by_run.items():
        # the page at first shows walk 0 next to the walk `beside`: after the loop, this is the first of the last run
        data["beside"] = len(data["walks"])
        numbered = enumerate(views.panels, start=len(data["panels"]))
        panel_of = {variant: index for index, panel in numbered for variant in panel.variants}
        data["panels"] += [panel_data(views.comparison, panel, scale) for panel in views.panels]
        for title, variant in list_functions(views.comparison):
            panel, name = panel_of.get(variant, -1), f"{run}: {variant}"
            data["walks"].append({"variant": name, "title": f"{run}: {title}", "panel": panel, "steps": {}})
            data["variants"].append(variant_data(views.comparison, variant, "", panel, carried=True) | {"name": name})
    part = make_weights_part(list(views_by_run.items()), scale)
    return Explorer(part, {"tokens": queries, "keys": keys, **scale._asdict(), **data})


MOST = 24
"""Maximum number of lines of a table in the terminal."""


@dataclass(frozen=True)
class Versus:
    """The comparison of two folders.

    - `first`, `second`: the folders.
    - `moved`: whether any number differs by more than rounding, or is in only one of them.
    - `sentences`: the results in words, the most important first.
    - `tables`: the numbers behind the sentences.
    - `depth`: how much to show, as in `report.depth`. By default, it is the depth of both reports, or `all` if these
      differ.
    - `explorer`: the weights of two runs; None for sweeps, or if they cannot be shown together.
    """

    first: str
    second: str
    moved: bool
    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    depth: str = "all"
    explorer: Explorer | None = None

    @property
    def deep(self) -> bool:
        return any(table.deep for table in self.tables)

    def __repr__(self) -> str:
        return versus_text(self)


def versus_text(versus: Versus) -> str:
    parts = ["\n".join(versus.sentences)]
    for full_table in versus.tables:
        shown = full_table.at_depth(versus.depth)
        if not shown.lines:
            continue
        rest = f"\n{MOST} of {len(shown.lines):,} lines" if len(shown.lines) > MOST else ""
        parts.append(f"{shown.caption}\n{table(shown.head, shown.lines[:MOST])}{rest}")
    return "\n\n".join(parts)


def versus_page(versus: Versus) -> str:
    shown = replace(versus, tables=tuple(map(with_spoken_columns, versus.tables)))
    scripts = [
        *(["maths.js", "report.js", "explore.js"] if versus.explorer else []),
        *(["depth.js"] if versus.deep else []),
    ]
    return render_page(
        "versus.html",
        {"versus": shown, "depth": versus.depth, "data": versus.explorer and versus.explorer.data},
        ["report.css"],
        scripts,
        more_css=SHARES if versus.explorer else "",
        filters=FILTERS,
        more={"weights": weights.HTML},
    )


def with_spoken_columns(table: Table) -> Table:
    if table.name != "rows":
        return table
    return table._replace(lines=tuple((first, readable_name(column), *rest) for first, column, *rest in table.lines))
