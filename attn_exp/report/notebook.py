"""What a notebook shows of a run: HTML with its own styles inline, since notebooks drop style sheets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.errors import chosen
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.timing import Timing
from attn_exp.report import columns, sentences, words
from attn_exp.report.escapes import html
from attn_exp.report.numbers import brief
from attn_exp.report.pixels import FULL, INK, picture
from attn_exp.report.plain import label
from attn_exp.report.sentences import agreed, who_agrees
from attn_exp.report.views import Colours, Views, colours, heads_of, seen

MOST_CELLS = 12
"""A map with more rows or columns than this is a picture instead of a table."""

MOST_MAPS = 24


@dataclass(frozen=True)
class Drawing:
    """A figure that shows itself in a notebook; `figure` is Matplotlib's own."""

    figure: Any

    def _repr_svg_(self) -> str:
        from attn_exp.report.charts.matplotlib_figure import encoded  # noqa: PLC0415 - as below

        return encoded(self.figure, "svg").decode()


def drawing(comparison: Comparison, name: str) -> Drawing:
    """Return one figure of the report.

    Raises:
        UserError: this run has no such figure.
    """
    from attn_exp.report import figures  # noqa: PLC0415 - Matplotlib is slow to import, and tables need none

    drawn = figures.draw(seen(comparison))
    return Drawing(drawn[chosen(name, drawn, "figure")])


def page(comparison: Comparison, timings: Sequence[Timing]) -> str:
    """Return the comparison, the sentence, what documents print, and the maps of the weights."""
    parts = [table(comparison, timings), paragraph(who_agrees(comparison.rows))]
    parts += [paragraph(text) for text in filter(None, [sentences.whose_tokens(comparison.problem)])]
    if comparison.published:
        parts.append(paragraph(agreed(comparison.published)))
    return f"<div>{''.join(parts)}{maps(seen(comparison, 0))}</div>"


def table(comparison: Comparison, timings: Sequence[Timing]) -> str:
    """Return the comparison as a table, and below it what all variants share."""
    shown = columns.table(comparison, timings).at_depth(comparison.config.report.depth)
    heads = "".join(f'<th title="{html(head.meaning)}">{html(head.title)}</th>' for head in shown.head)
    lines = "".join(f"<tr>{''.join(f'<td>{html(cell)}</td>' for cell in line)}</tr>" for line in shown.lines)
    shared = paragraph(words.ALL_HAVE.format(settings=columns.shared(shown)))
    content = f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<div style="overflow-x:auto;white-space:nowrap">{content}</div>{shared}'


def maps(views: Views) -> str:
    """Return the weights of each variant and head, queries down, keys across, on one scale."""
    scale = colours(views)
    heads = [head for panel in views.panels for head in heads_of(panel)]
    tokens, keys = views.comparison.problem.tokens, views.comparison.problem.key_tokens
    drawn = [
        f'<figure style="margin:0 1.5em 1em 0"><figcaption>{html(head.title)}</figcaption>'
        f"{heat(head.weights, tokens, keys, scale)}</figure>"
        for head in heads[:MOST_MAPS]
    ]
    left = paragraph(words.AND_MORE.format(count=len(heads) - MOST_MAPS)) if len(heads) > MOST_MAPS else ""
    return f'<div style="display:flex;flex-wrap:wrap">{"".join(drawn)}</div>{left}'


def heat(matrix: NDArray[Any], tokens: Sequence[str], keys: Sequence[str], scale: Colours) -> str:
    """Return a matrix of weights as a table with tokens as labels, or as a picture where it is large."""
    if max(matrix.shape) > MOST_CELLS:
        style = "image-rendering:pixelated;width:16em;background:white"
        return f'<img src="{picture(matrix, scale.shares)}" style="{style}" alt="{words.MAP_READ_OUT}">'
    heads = "".join(f"<th>{html(label(key))}</th>" for key in keys)
    lines = "".join(
        f"<tr><th>{html(label(token))}</th>{''.join(cell(float(value), scale) for value in row)}</tr>"
        for token, row in zip(tokens, matrix, strict=True)
    )
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def cell(value: float, scale: Colours) -> str:
    """Return one weight, its share of the largest as the strength of its colour."""
    share = float(scale.shares(np.array(value)))
    return f'<td style="background:rgba({",".join(map(str, INK))},{FULL * share:.3f})">{brief(value)}</td>'


def paragraph(text: str) -> str:
    """Return a paragraph."""
    return f"<p>{html(text, 2000)}</p>"
