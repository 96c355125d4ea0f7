"""`attn-exp compare A B`: find the differences between two runs or two sweeps, in their settings and their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.errors import UserError, count_of, refuse, some
from attn_exp.experiment.measuring import DIFFERENT, IDENTICAL, describe_closeness
from attn_exp.experiment.row import COLUMNS, Row, Run
from attn_exp.forms import coarser
from attn_exp.report.escapes import brief, minus, plain
from attn_exp.report.papers import Table, deep_places
from attn_exp.report.sentences import spoken
from attn_exp.report.versus import Versus, explain_no_maps, explorer, versus_page, versus_text
from attn_exp.runs import folders, store, trust
from attn_exp.runs.execution import DEPTH, Result, said_anew
from attn_exp.runs.provenance import origin
from attn_exp.sweeps.overview import depth_of
from attn_exp.sweeps.plan import About, flatten, is_sweep
from attn_exp.sweeps.rows import VARIANT, Rows, combine, read_rows
from attn_exp.sweeps.swept import UNREADABLE, Swept, load

OPTION = "--exit-code"
PAGES = "comparisons"
NOT_COMPARED = ("output_dir", "report", "figures", "sweep", "title")
"""Settings that affect no numbers."""
FROM_A_MODEL = ("embeddings.", "projections.")
"""Settings whose arrays come from a model, if one is configured."""
LONGEST = 60
ROUNDING = ("error", "error_ulp", "row_sum_error")
"""Columns of rounding errors, whose changes do not count as differences."""
NEAR = 256 * np.finfo(np.float64).eps
"""Relative and absolute tolerance below which a difference is rounding."""
OVER_KEYS = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""

Apart = Mapping[str, tuple[Any, Any]]
"""Maps each setting that differs to its two values."""


def compare(typed: Sequence[str]) -> tuple[str, bool]:
    """Compare two folders, and write a page with the differences.

    Returns:
        The text to print, and False if `--exit-code` is set and a number differs, else True.

    Raises:
        UserError: the arguments are not two folders, one holds a run and the other a sweep, or one cannot be read.
    """
    settings = [word for word in typed if word.partition("=")[0] == DEPTH]
    names = [word for word in typed if word != OPTION and word not in settings]
    if len(names) != 2:
        usage = f"attn-exp compare DIR DIR [{OPTION}] [{DEPTH}=reading]"
        raise UserError(f"attn-exp compare {' '.join(typed)}: expected {usage}")
    changes = said_anew(settings, "attn-exp compare", (DEPTH,))
    places = [machine.folder(name) for name in names]
    with trust.refuse_damaged(f"{' or '.join(names)}: its tables and arrays are inconsistent", *trust.MISFIT):
        versus = side_by_side(*places)
        versus = replace(versus, depth=changes.depth or versus.depth)
        written = write(versus, places)
    return f"{versus_text(versus)}\n\n{written}", not (OPTION in typed and versus.moved)


def compare_results(*sides: Result | Swept | str | Path) -> Versus:
    """Compare two results, or two folders with results; see `attn_exp.compare`.

    Raises:
        UserError: one is a run and the other a sweep, or one cannot be read.
    """
    named = [side.folder if isinstance(side, Swept) else side for side in sides]
    places = [side if isinstance(side, Result) else machine.folder(side) for side in named]
    return side_by_side(*places)


def side_by_side(*sides: Result | Path) -> Versus:
    """Compare two results or folders, both of runs or both of sweeps.

    Raises:
        UserError: one is a run and the other a sweep, or one cannot be read.
    """
    sweeps = [side for side in sides if isinstance(side, Path) and is_sweep(side)]
    if len(sweeps) == 1:
        raise UserError(f"{sweeps[0]} is a sweep, but the other is a run; compare two runs or two sweeps")
    if sweeps:
        # the error names the file
        with trust.refuse_damaged(f"{sweeps[0]}, {sweeps[1]}: {UNREADABLE}", *trust.UNREADABLE):
            return compare_sweeps(*map(load_side, sweeps))
    names = [str(side) if isinstance(side, Path) else "a result" for side in sides]
    runs = (
        Run(side.comparison, side.timings, origin()) if isinstance(side, Result) else store.load(side) for side in sides
    )
    return compare_runs(names, *runs)


def write(versus: Versus, places: Sequence[Path]) -> Path:
    """Write the page next to the runs and sweeps of the first folder, and return its path.

    Raises:
        UserError: the page cannot be written there.
    """
    home = places[0].parent
    outputs = home.parent if home.name in folders.KINDS else Path(trust.OUTPUTS)
    target = outputs / PAGES / f"{'-'.join(place.absolute().name for place in places)}.html"
    with refuse(f"{target}: cannot be written to", OSError):
        trust.check_page(target, "comparison")
        outputs.mkdir(parents=True, exist_ok=True)
        machine.own_folder(target.parent)
        machine.write(target, versus_page(versus))
    return target


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, under dotted names if nested; arrays come last.

    If the settings of the model differ, the arrays that come from it are left out.
    """
    one, other = flatten_compared(first), flatten_compared(second)
    both = {name: (one.get(name), other.get(name)) for name in dict.fromkeys((*one, *other))}
    apart = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
    if any(name.startswith("model.") for name in apart) and first.get("model") and second.get("model"):
        apart = {name: pair for name, pair in apart.items() if not (name.startswith(FROM_A_MODEL) and is_array(pair))}
    return dict(sorted(apart.items(), key=lambda named: is_array(named[1])))


def flatten_compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the settings that affect numbers to dotted names; a rule without settings has the value true."""
    pairs = flatten({name: value for name, value in settings.items() if name.split(".")[0] not in NOT_COMPARED})
    return {name: True if value == {} else value for name, value in pairs if value != {} or "." in name}


def is_array(pair: tuple[Any, Any]) -> bool:
    return any(isinstance(value, list | tuple) for value in pair)


def add_settings(versus: Versus, apart: Apart, depths: set[str]) -> Versus:
    lines = tuple((name, *map(show_setting, pair)) for name, pair in apart.items())
    table = Table("settings", "Settings that differ.", ("setting", "first", "second"), lines)
    count = count_of(len(apart), "setting differs", "settings differ")
    settings = f"{count}: {some([*apart])}." if apart else "All settings are the same."
    return replace(
        versus,
        sentences=(*versus.sentences, settings),
        tables=tuple(each for each in (*versus.tables, table) if each.lines),
        depth=depths.pop() if len(depths) == 1 else "all",
    )


def show_setting(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return plain(f"[{', '.join(map(show_setting, value))}]", LONGEST)
    return "-" if value in (None, [], ()) else plain(brief(value), LONGEST)


def compare_runs(names: Sequence[str], one: Run, other: Run) -> Versus:
    a, b = one.comparison, other.comparison
    partings = {name: find_parting(name, one, other) for name in a.traces if name in b.traces}
    alone = [
        f"{name} is only in the {'first' if name in a.traces else 'second'} run."
        for name in sorted(a.traces.keys() ^ b.traces.keys())
    ]
    kinds = [kind for kind, _ in partings.values()]
    is_moved = bool(alone) or DIFFERENT in kinds
    verdict = give_verdict(kinds.count(DIFFERENT), set(kinds) <= {IDENTICAL}, count_of(len(kinds), "variant"))
    sides = {"first": a, "second": b}
    why = explain_no_maps(sides) if is_moved else ""
    sentences = (verdict, *(sentence for _, sentence in partings.values()), *alone, *filter(None, [why]))
    rows = rows_table(a.rows, b.rows, {name: kind for name, (kind, _) in partings.items()})
    explored = explorer(sides) if is_moved and not why else None
    versus = Versus(names[0], names[1], is_moved, sentences, (rows,), explorer=explored)
    return add_settings(
        versus, differing_settings(asdict(a.config), asdict(b.config)), {a.config.report.depth, b.config.report.depth}
    )


def give_verdict(moved: int, is_identical: bool, count: str, names: Sequence[str] = ()) -> str:
    if moved:
        return f"Numbers differ in {moved:,} of {count} that both have{': ' * bool(names)}{', '.join(names)}."
    within = "are bit-identical" if is_identical else "agree within rounding"
    return f"No number changed: {count} {within}."


def find_parting(name: str, one: Run, other: Run) -> tuple[str, str]:
    """Return how closely the stages of a variant agree in two runs, as a verdict and as a sentence."""
    first, second = (dict(run.comparison.traces[name].stages()) for run in (one, other))
    types = (row.computed_in for run in (one, other) for row in run.comparison.rows if row.variant == name)
    kind = coarser(*map(np.dtype, types))
    near = {stage: describe_closeness(array, second[stage], kind) for stage, array in first.items() if stage in second}
    if not near:
        return DIFFERENT, f"{name}: the runs have no stage in common."
    verdict, text = IDENTICAL, f"{name}: bit-identical."
    for stage, word in near.items():
        label = spoken(stage) or stage
        if word == DIFFERENT:
            return DIFFERENT, f"{name} first differs in the {label}, {locate(one, stage, first[stage], second[stage])}."
        if verdict == IDENTICAL != word:
            verdict = word
            text = f"{name}: {word} from the {label} on, bit-identical before."
    return verdict, text


def locate(run: Run, stage: str, one: Array, other: Array) -> str:
    """Describe where two arrays of a stage `[h t s]`, `[h t d]` or `[t m]` differ most, and quote both numbers."""
    if one.shape != other.shape:
        return f"whose shapes are {list(one.shape)} and {list(other.shape)}"
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.asarray(one, float) - np.asarray(other, float))
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    numbers = " and ".join(minus(f"{float(array[place]):.6g}") for array in (one, other))
    problem, (*head, row, column) = run.comparison.problem, map(int, place)
    tokens = problem.key_tokens if stage in ("k", "v") else problem.tokens
    keys = problem.key_tokens if stage in OVER_KEYS else ()
    parts = [f"head {head[-1] + 1}"] if head else []
    parts.append(tokens[row] if row < len(tokens) else f"row {row + 1}")
    parts.append(keys[column] if column < len(keys) else f"column {column + 1}")
    return f"most at {', '.join(parts)}: {numbers}"


def rows_table(first: Sequence[Row], second: Sequence[Row], near: Mapping[str, str]) -> Table:
    """Tabulate the columns that differ between two runs, for variants whose stages differ by more than rounding."""
    others = {row.variant: row for row in second}
    shown = [row for row in first if row.variant in others and near.get(row.variant, DIFFERENT) == DIFFERENT]
    pairs = [(row, name, getattr(row, name), getattr(others[row.variant], name)) for row in shown for name in COLUMNS]
    lines = tuple(
        (row.variant, name, brief(one), brief(other)) for row, name, one, other in pairs if repr(one) != repr(other)
    )
    head = ("variant", "column", "first", "second")
    return Table("rows", "Cells of the comparison that differ.", head, lines, deep_places(line[1] for line in lines))


class Side(NamedTuple):
    """One of the two sweeps: its folder, its manifest and its rows."""

    name: str
    about: About
    rows: Rows

    @property
    def swept(self) -> list[str]:
        return [axis["column"] for axis in self.about["axes"]]

    @property
    def settings(self) -> dict[str, str]:
        fixed = dict(word.lstrip("+").partition("=")[::2] for word in self.about["fixed"])
        return fixed | {axis["key"]: f"swept, {axis['count']:,} values" for axis in self.about["axes"]}

    def find_rows(self, names: Sequence[str]) -> dict[tuple[str, ...], int]:
        keys = combine([self.rows.texts[name] for name in names])
        return dict(zip(keys.labels, np.unique(keys.codes, return_index=True)[1].tolist(), strict=True))


def load_side(folder: Path) -> Side:
    swept = load(folder)
    return Side(str(folder), swept.about, read_rows(*swept.read_lines(), swept.about["axes"], swept.about["metrics"]))


def compare_sweeps(one: Side, other: Side) -> Versus:
    """Compare two sweeps, matching their rows by variant and by the settings that both vary, such as the seed."""
    shared = [name for name in one.swept if name in other.swept]
    first, second = (side.find_rows([*shared, VARIANT]) for side in (one, other))
    both = [key for key in first if key in second]
    keys = [" ".join(map("=".join, zip((*shared, VARIANT), key, strict=True))) for key in both]
    lines, moved = list[tuple[str, ...]](), dict[str, int]()
    for name in [name for name in one.rows.numbers if name in other.rows.numbers]:
        numbers = one.rows.numbers[name][[first[key] for key in both]]
        others = other.rows.numbers[name][[second[key] for key in both]]
        if not np.array_equal(numbers, others, equal_nan=True):
            line, far = measure_move(name, keys, numbers, others)
            lines.append(line)
            moved |= {name: far} if far and name not in ROUNDING else {}
    alone = {"first": len(first) - len(both), "second": len(second) - len(both)}
    verdict = give_verdict(max(moved.values(), default=0), not lines, count_of(len(both), "row"), [*moved])
    sentences = [
        verdict if both else "No row is in both sweeps: they share no combination of settings, seed and variant.",
        *(f"Only in the {which} sweep: {count_of(rows, 'row')}." for which, rows in alone.items() if rows),
    ]
    if unshared := ", ".join(name for name in (*one.swept, *other.swept) if name not in shared):
        sentences.append(
            f"Only one sweep varies {unshared}; of the points that differ in nothing else, only the first is compared."
        )
    head = ("metric", "rows", "moved", "largest", "at", "first", "second")
    caption = "How each metric changed; the mean difference is second minus first."
    deep = deep_places(name for name, *_ in lines)
    table = Table("numbers", caption, (*head, "mean difference"), tuple(lines), deep)
    is_moved = bool(moved) or any(alone.values()) or not both
    versus = Versus(one.name, other.name, is_moved, tuple(sentences), (table,))
    depths = {depth_of(one.about), depth_of(other.about)}
    return add_settings(versus, differing_settings(one.settings, other.settings), depths)


def measure_move(name: str, keys: Sequence[str], first: Array, second: Array) -> tuple[tuple[str, ...], int]:
    """Return the table line of one metric, and the number of rows that differ by more than rounding."""
    places = np.isfinite(first) | np.isfinite(second)
    far = ~np.isclose(first, second, rtol=NEAR, atol=NEAR, equal_nan=True)
    with np.errstate(invalid="ignore"):  # NaN becomes infinite below if only one side has a number
        apart = np.where(first == second, 0.0, np.abs(second - first))
    apart[np.isnan(apart) & far] = np.inf
    place, moved = int(np.nanargmax(apart)), int(far.sum())
    numbers = [brief(float(number)) for number in (apart[place], first[place], second[place])]
    mean = brief(float((second - first)[places].mean()))
    return (name, f"{places.sum()}", f"{moved}", numbers[0], keys[place], *numbers[1:], mean), moved
