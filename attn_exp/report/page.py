"""The report of a run as one HTML page that needs nothing else, and as Markdown."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from attn_exp.experiment.checks.check import Finding
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.report import columns, partings, walk
from attn_exp.report.compiled import Compiled
from attn_exp.report.explain import SPOKEN
from attn_exp.report.markdown import fenced, md, piped
from attn_exp.report.page_data import page_data
from attn_exp.report.pixels import coarse, picture
from attn_exp.report.terminal import shown
from attn_exp.report.verdict import agreed, sentence
from attn_exp.report.views import FINE, heads_of, panels

Array = NDArray[Any]

SMALL = 12
"""Maps of the weights with at most this many rows and columns are tables with numbers; larger ones are pictures."""

NUMBER = re.compile(r"-?[0-9.]+(e[+-]?[0-9]+)?( ± [0-9.e+-]+)?|-|inf|")

TEMPLATES = Path(__file__).with_name("templates")

CAPTIONS = {
    "weights": "Weights of each variant and head: queries down, keys across, one colour scale.",
    "blocks": "Mean weight of each block of queries (down) and keys (across), exact, named by their first token.",
    "distances": "Largest difference between the outputs of every two variants.",
    "sharpness": "How the weights sharpen as the multiplier of the scores grows: mean entropy, with 1/sqrt(d) dotted.",
    "entropy": "Entropy of each query's weights.",
}


def page(run: Run, figures: Mapping[str, bytes]) -> str:
    """Return the report as HTML; `figures` are SVG by name."""
    sources = {name: "data:image/svg+xml;base64," + base64.b64encode(svg).decode() for name, svg in figures.items()}
    environment = templates(autoescape=True)
    environment.filters |= {"cells": cells, "row_mark": row_mark, "column_mark": column_mark, "numbers": numbers}
    found = panels(run.comparison)
    drawn = (coarse(matrix) for panel in found for matrix in panel.weights)
    top = max((float(matrix.max(initial=0)) for matrix in drawn), default=0.0) or 1.0
    return environment.get_template("report.html").render(
        contents(run, sources),
        top=top,
        maps=[*maps(run.comparison, top), *coarse_maps(run.comparison)],
        data=page_data(run.comparison),
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=Markup((TEMPLATES / "report.js").read_text(encoding="utf-8")),
    )


def markdown(run: Run, figures: Mapping[str, str]) -> str:
    """Return the report as Markdown; `figures` are paths by name."""
    environment = templates(autoescape=False)
    environment.filters |= {"md": md, "fenced": fenced, "markdown_table": markdown_table, "written": walk.written}
    told = contents(run, figures)
    heads = [head.title for head in told["comparison"].head]
    printed = [[each.quantity, each.printed, each.computed, *judgement(each)] for each in told["published"]]
    text = environment.get_template("report.md").render(
        told,
        comparison_table=piped(heads, told["comparison"].lines),
        published_table=piped(PUBLISHED, printed),
        check_tables=[piped(each["head"], each["lines"]) for each in told["checks"]],
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


PUBLISHED = ("quantity", "printed", "computed", "largest difference", "tolerance", "agrees", "note")


def judgement(each: Any) -> list[str]:
    return [shown(each.largest_difference), shown(each.tolerance), shown(each.agrees), each.note]


def contents(run: Run, figures: Mapping[str, str]) -> dict[str, Any]:
    """Return what both reports say."""
    comparison, config = run.comparison, run.comparison.config
    return {
        "title": config.title or f"Attention over {len(comparison.problem.tokens)} tokens",
        "sentence": sentence(comparison.rows),
        "more": partings.told(comparison),
        "notes": config.notes,
        "command": str(run.about.get("command", "")),
        "comparison": columns.table(comparison, run.timings),
        "published": comparison.published,
        "agreement": agreed(comparison.published),
        "checks": [checked(each) for each in comparison.checks],
        "walks": walks(comparison),
        "figures": [{"source": source, "caption": CAPTIONS.get(name, name)} for name, source in figures.items()],
        "origin": list(origin(run.about)),
    }


def coarse_maps(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the mean weights over blocks, for variants that never form their weights whole; each on its own scale.

    The colour of a large map is their square root: the first rows of a causal mask have thousands of times the weights
    of the last.
    """
    image = Markup('<img class="{}" src="{}" alt="{}" width="{}" height="{}">')
    for variant, trace in comparison.traces.items():
        heads = () if trace.weights is not None or trace.summary is None else tuple(trace.summary.heat)
        for head, matrix in enumerate(heads):
            top = float(matrix.max(initial=0)) or 1.0
            name = f"{variant}, head {head + 1}" if len(heads) > 1 else variant
            title = f"{name}: means of blocks, up to {shown(top)}"
            look, source = "map", picture(matrix, top)
            if max(matrix.shape) > FINE:
                title, look = f"{title}, coloured by their square roots", "map coarse"
                source = picture(np.sqrt(matrix), top**0.5)
            drawn = image.format(look, source, f"weights of {title}", matrix.shape[1], matrix.shape[0])
            yield {"title": title, "panel": "", "step": None, "table": None, "picture": drawn}


def checked(finding: Finding) -> dict[str, Any]:
    """Return what a check found as a table with its sentence."""
    heads = finding.check.columns
    lines = [[shown(getattr(record, name)) for name in heads] for record in finding.records]
    return {"name": finding.name, "head": list(heads.values()), "lines": lines, "sentence": finding.sentence}


def maps(comparison: Comparison, top: float) -> Iterator[dict[str, Any]]:
    """Yield each head's weights as a small table, or as a picture where it is large; all on one scale."""
    image = Markup('<img class="map" src="{}" alt="{}" width="{}" height="{}">')
    for place, panel in enumerate(panels(comparison)):
        step = replace(walk.step("weights", panel.weights, comparison, panel.variants[0]), largest=top, decimals=2)
        for head, (title, matrix) in enumerate(heads_of(panel)):
            small = max(matrix.shape) <= SMALL and head < len(step.tables)
            alt = f"weights of {title}"
            yield {
                "title": title,
                "panel": place,
                "step": step,
                "table": replace(step.tables[head], title="") if small else None,
                "picture": "" if small else image.format(picture(matrix, top), alt, matrix.shape[1], matrix.shape[0]),
            }


def walks(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one walk for each function that the variants compute, the input in the first walk only."""
    leaders = {row.same_as: row.variant for row in reversed(comparison.rows) if row.same_as}
    titles = {
        letter: [row.variant for row in comparison.rows if row.same_as == letter]
        for letter in sorted(leaders, key=order)
    }
    return [
        walk_of(comparison, leaders[letter], " = ".join(names), first=not place)
        for place, (letter, names) in enumerate(titles.items())
    ]


def order(letter: str) -> tuple[int, str]:
    """Sort A to Z before AA."""
    return len(letter), letter


def walk_of(comparison: Comparison, variant: str, title: str, first: bool) -> dict[str, Any]:
    """Return the walk through one variant."""
    settled = next(each for each in comparison.variants if each.name == variant)
    steps = [each for each in walk.steps(comparison, variant) if first or not walk.is_input(each)]
    groups = [list(group) for _, group in groupby(steps, key=walk.beside)]
    panel = next((place for place, each in enumerate(panels(comparison)) if variant in each.variants), "")
    return {"title": title, "panel": panel, "steps": steps, "groups": groups, "sums": walk.sums(comparison, settled)}


def origin(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where a run comes from, in words."""
    yield "started", str(about.get("started", ""))
    yield "seed", str(about.get("seed", ""))
    yield "versions", ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    git = about.get("git")
    if git:
        yield "commit", f"{git['commit']}{' with changes' if git['dirty'] else ''}"
    yield "processor", str(about.get("cpu", ""))
    for pool in about.get("blas", ()):
        name = " ".join(str(pool[key]) for key in ("internal_api", "version", "architecture") if pool.get(key))
        yield "BLAS", f"{name}, {pool.get('num_threads')} threads"
    for pin in about.get("pins", ()):
        yield "held back", pin


def templates(autoescape: bool) -> Environment:
    """Return the environment of the templates; what they miss is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        bytecode_cache=Compiled(TEMPLATES, Path(__file__)),
    )
    environment.filters |= {"short": shown, "spoken": spoken, "shape": shape, "kinds": kinds}
    return environment


def spoken(stage: str) -> str:
    """Return a stage in a reader's word; none for the projections, whose symbols are their names."""
    return "" if stage[:2] in ("W_", "b_") else SPOKEN.get(stage, stage)


def shape(step: walk.Step) -> str:
    """Write the shape of a stage with its axes: `[h t s] = [2 3 3]`."""
    axes = f"h {step.explained.axes}" if len(step.shape) == 3 else step.explained.axes
    return f"[{axes}] = [{' '.join(map(str, step.shape))}]"


def number(value: float, decimals: int) -> str:
    """Write a number with so many decimals, and a minus sign as wide as a plus."""
    if not np.isfinite(value):
        return "−∞" if value < 0 else str(value)
    return f"{value:.{decimals}f}".replace("-", "−")


def numbers(values: Array) -> str:
    return ", ".join(number(value, 4) for value in values.tolist())


def kinds(lines: Sequence[Sequence[str]]) -> list[str]:
    """Say of each column of a table whether it holds numbers, to be lined up at the right, or words."""
    return [
        "number" if all(NUMBER.fullmatch(cell) for cell in column) else "word" for column in zip(*lines, strict=True)
    ]


def cells(table: walk.Table, step: walk.Step) -> list[Markup]:
    """Return the cells of each row of a table, coloured by their share of the stage's largest number."""
    return [
        Markup("".join(cell(value, step, place) for place, value in enumerate(row))) for row in table.matrix.tolist()
    ]


def cell(value: float, step: walk.Step, place: int) -> str:
    """Return one cell; numbers alone go into it."""
    key = f' data-k="{place}"' if by_key(step) else ""
    if not np.isfinite(value):
        return f'<td class="m"{key}>{number(value, 0)}</td>'
    share = abs(value) / step.largest if step.largest else 0.0
    kind = ' class="n"' if value < 0 else ""
    return f'<td{kind}{key} style="--w:{share:.3g}">{number(value, step.decimals)}</td>'


def by_key(step: walk.Step) -> bool:
    return step.stage in ("scores", "logits", "capped", "masked", "weights")


def row_mark(step: walk.Step, place: int) -> Markup:
    """Return what ties a row to its token: a query, or a key."""
    if step.stage[:2] in ("W_", "b_"):
        return Markup("")
    return Markup(' data-{}="{}"').format("k" if step.stage in ("k", "v") else "q", place)


def column_mark(step: walk.Step, place: int) -> Markup:
    return Markup(' data-k="{}"').format(place) if by_key(step) else Markup("")


def markdown_table(table: walk.Table, step: walk.Step) -> str:
    cells_of = [[number(value, step.decimals) for value in row] for row in table.matrix.tolist()]
    rows = [[name, *row] for name, row in zip(table.rows, cells_of, strict=True)]
    return piped(["", *table.columns], rows)
