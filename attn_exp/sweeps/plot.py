"""`attn-exp plot SWEEP x=d_model y=entropy by=scale`: one figure of one metric along one setting."""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp import drafts, machine
from attn_exp.errors import UserError, unknown
from attn_exp.report.sweep.plotted import Plotted
from attn_exp.runs.rendering import FIGURES, said_anew
from attn_exp.sweeps import manifest, overview
from attn_exp.sweeps.answers.cube import VARIANT
from attn_exp.sweeps.answers.digits import shorten
from attn_exp.sweeps.swept import load

USAGE = "attn-exp plot DIR x=SETTING y=METRIC [by=SETTING] [figures.format=pdf]"


def plot(words: Sequence[str]) -> str:
    """Draw one figure of a sweep, and return the paths of its files.

    Raises:
        UserError: no sweep there, or a setting or a metric that it does not have.
    """
    chosen = {key: value for key, _, value in (word.partition("=") for word in words[1:]) if key in ("x", "y", "by")}
    if not {"x", "y"} <= set(chosen):
        raise UserError(f"attn-exp plot {' '.join(words)}: expected {USAGE}")
    others = [word for word in words[1:] if word.partition("=")[0] not in chosen]
    anew = said_anew(others, "attn-exp plot", [key for key in FIGURES if key != "figures.only"])
    swept = load(machine.folder(words[0]))
    about = {**swept.about, "figures": {**swept.about.get("figures", {}), **anew.figures}}
    summary = swept.summary
    if chosen["y"] not in summary.most:
        raise UserError(unknown(chosen["y"], list(summary.most), "metric in y"))
    plotted = overview.plotted(about, summary, "all")
    places = [find_place(plotted, key, chosen[key]) for key in ("x", "by") if key in chosen]
    from attn_exp.report.sweep import plots  # noqa: PLC0415 - Matplotlib is slow to import

    figure = plots.draw_along(plotted, chosen["y"], places)
    name = "-".join(shorten(chosen[key]) for key in ("y", "x", "by") if key in chosen)
    paths = [machine.own_folder(swept.folder / "plots") / f"{name}.{form}" for form in manifest.figures(about).format]
    for path in paths:
        drafts.write(path, plots.encoded(figure, path.suffix[1:]))
    return "\n".join(map(str, paths))


def find_place(plotted: Plotted, key: str, name: str) -> int:
    """Return the index of a setting, or of the variant, which comes last.

    Raises:
        UserError: the sweep has no such setting.
    """
    names = [*plotted.axes, VARIANT]
    known = [place for place, axis in enumerate(names) if name in (axis, shorten(axis))]
    if len(known) != 1:
        raise UserError(unknown(name, names, f"setting in {key}"))
    return known[0]
