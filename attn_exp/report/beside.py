"""The weights of two runs in one explorer: any head of the one beside any head of the other, and their difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attn_exp.experiment.comparison import Comparison
from attn_exp.report.page_data import panel_data, variant_data
from attn_exp.report.sections.walks import functions
from attn_exp.report.sections.weights import part_of
from attn_exp.report.views import MOST_COARSE, Views, colours, labels, seen

NO_MAPS = "The page shows no maps of the two runs:"


class Explorer(NamedTuple):
    """What the section of weights says without a script, and what its script draws from, ready for JSON."""

    part: Mapping[str, Any]
    data: Mapping[str, Any]


def why_not(runs: Mapping[str, Comparison]) -> str:
    """Say why the weights of two runs are not shown beside each other; nothing where they are."""
    tokens = [labels(comparison.problem) for comparison in runs.values()]
    if any(each != tokens[0] for each in tokens):
        return f"{NO_MAPS} their tokens differ, so that no weight of the one belongs to a weight of the other."
    for which, comparison in zip(("first", "second"), runs.values(), strict=True):
        if all(trace.weights is None for trace in comparison.traces.values()):
            return f"{NO_MAPS} the {which} never formed its weights."
    return ""


def explorer(runs: Mapping[str, Comparison]) -> Explorer:
    """Return the weights of runs by their names, which have the same tokens."""
    sides = {name: seen(comparison, MOST_COARSE) for name, comparison in runs.items()}
    tokens = [labels(comparison.problem) for comparison in runs.values()]
    panels = tuple(panel for views in sides.values() for panel in views.panels)
    scale = colours(Views(next(iter(runs.values())), panels, ()))  # one for all of them
    data: dict[str, Any] = {"panels": [], "walks": [], "variants": [], "beside": 0}
    for name, views in sides.items():
        first, data["beside"] = len(data["panels"]), len(data["walks"])
        data["panels"] += [panel_data(views.comparison, panel, scale) for panel in views.panels]
        for title, variant in functions(views.comparison):
            place = next((first + at for at, panel in enumerate(views.panels) if variant in panel.variants), -1)
            told = {"variant": f"{name}: {variant}", "title": f"{name}: {title}", "panel": place, "steps": {}}
            data["walks"].append(told)
            ends = variant_data(views.comparison, variant, "", place, carried=True)
            data["variants"].append(ends | {"name": told["variant"]})
    queries, keys = tokens[0]
    part = part_of(list(sides.items()), scale)
    return Explorer(part, {"tokens": queries, "keys": keys, **scale._asdict(), **data})
