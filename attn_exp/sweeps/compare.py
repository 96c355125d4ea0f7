"""`attn-exp compare A B`: find the differences between two runs or two sweeps, in their settings and their numbers.

Two runs are compared stage by stage, two sweeps metric by metric in the rows that both have. Either comparison is a
`Versus`: sentences, tables and whether numbers differ.
"""

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
from attn_exp.report.papers import Table, deep_lines
from attn_exp.report.sentences import spoken
from attn_exp.report.versus import Versus, explain_no_maps, explorer, versus_page, versus_text
from attn_exp.runs import folders, store, trust
from attn_exp.runs.execution import DEPTH, Result, parse_overrides
from attn_exp.runs.provenance import describe_origin
from attn_exp.sweeps.overview import depth_of
from attn_exp.sweeps.plan import Manifest, flatten, is_sweep
from attn_exp.sweeps.rows import VARIANT, Rows, combine, read_rows
from attn_exp.sweeps.swept import UNREADABLE, Swept, load

OPTION = "--exit-code"  # makes the exit code 1 if a number differs
PAGES = "comparisons"  # the folder of the pages, next to the folders of runs and sweeps
NOT_COMPARED = ("output_dir", "report", "figures", "sweep", "title")
"""Settings that affect no numbers."""
FROM_A_MODEL = ("embeddings.", "projections.")
"""Prefixes of the settings whose arrays come from a model, if one is configured."""
LONGEST = 60  # maximum length of a setting in the table
ROUNDING = ("error", "error_ulp", "row_sum_error")
"""Columns of rounding errors, whose changes do not count as differences."""
NEAR = 256 * np.finfo(np.float64).eps
"""Relative and absolute tolerance below which a difference is rounding."""
OVER_KEYS = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""

Differences = Mapping[str, tuple[Any, Any]]
"""Maps each setting that differs to its two values."""


def compare(typed: Sequence[str]) -> tuple[str, bool]:
    """Compare two folders, and write a page with the differences.

    Returns:
        The text to print, and False if `--exit-code` is set and a number differs, else True.

    Raises:
        UserError: the arguments are not two folders, one holds a run and the other a sweep, or one cannot be read.
    """
    depth_words = [word for word in typed if word.partition("=")[0] == DEPTH]
    names = [word for word in typed if word != OPTION and word not in depth_words]
    if len(names) != 2:
        usage = f"attn-exp compare DIR DIR [{OPTION}] [{DEPTH}=reading]"
        raise UserError(f"attn-exp compare {' '.join(typed)}: expected {usage}")
    overrides = parse_overrides(depth_words, "attn-exp compare", (DEPTH,))
    paths = [machine.folder(name) for name in names]
    with trust.refuse_damaged(f"{' or '.join(names)}: its tables and arrays are inconsistent", *trust.MISFIT):
        versus = compare_sides(*paths)
        versus = replace(versus, depth=overrides.depth or versus.depth)
        page_path = write_page(versus, paths)
    return f"{versus_text(versus)}\n\n{page_path}", not (OPTION in typed and versus.moved)


def compare_results(*sides: Result | Swept | str | Path) -> Versus:
    """Compare two results, or two folders with results; see `attn_exp.compare`.

    Raises:
        UserError: one is a run and the other a sweep, or one cannot be read.
    """
    named = [side.folder if isinstance(side, Swept) else side for side in sides]
    return compare_sides(*(side if isinstance(side, Result) else machine.folder(side) for side in named))


def compare_sides(*sides: Result | Path) -> Versus:
    """Compare two results or folders, both of runs or both of sweeps.

    Raises:
        UserError: one is a run and the other a sweep, or one cannot be read.
    """
    sweeps = [side for side in sides if isinstance(side, Path) and is_sweep(side)]
    if len(sweeps) == 1:
        raise UserError(f"{sweeps[0]} is a sweep, but the other is a run; compare two runs or two sweeps")
    if sweeps:
        # the reason, which the message quotes, names the damaged file
        with trust.refuse_damaged(f"{sweeps[0]}, {sweeps[1]}: {UNREADABLE}", *trust.UNREADABLE):
            return compare_sweeps(*map(load_side, sweeps))
    names = [str(side) if isinstance(side, Path) else "a result" for side in sides]
    runs = (
        Run(side.comparison, side.timings, describe_origin()) if isinstance(side, Result) else store.load(side)
        for side in sides
    )
    return compare_runs(names, *runs)


def write_page(versus: Versus, paths: Sequence[Path]) -> Path:
    """Write the page next to the runs and sweeps of the first folder, and return its path.

    Raises:
        UserError: the page cannot be written there.
    """
    kind_folder = paths[0].parent
    outputs = kind_folder.parent if kind_folder.name in folders.KINDS else Path(trust.OUTPUTS)
    target = outputs / PAGES / f"{'-'.join(path.absolute().name for path in paths)}.html"
    with refuse(f"{target}: cannot be written to", OSError):
        trust.check_page(target, "comparison")
        outputs.mkdir(parents=True, exist_ok=True)
        machine.own_folder(target.parent)
        machine.write(target, versus_page(versus))
    return target


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by dotted name; arrays come last.

    If the settings of the model differ, the arrays that come from the model are left out.
    """
    first_values, second_values = flatten_compared(first), flatten_compared(second)
    pairs = {
        name: (first_values.get(name), second_values.get(name))
        for name in dict.fromkeys((*first_values, *second_values))
    }
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if any(name.startswith("model.") for name in differing) and first.get("model") and second.get("model"):
        differing = {
            name: pair for name, pair in differing.items() if not (name.startswith(FROM_A_MODEL) and holds_array(pair))
        }
    return dict(sorted(differing.items(), key=lambda item: holds_array(item[1])))


def flatten_compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the settings that affect numbers to dotted names; a rule without settings gets the value true."""
    pairs = flatten({name: value for name, value in settings.items() if name.split(".")[0] not in NOT_COMPARED})
    return {name: True if value == {} else value for name, value in pairs if value != {} or "." in name}


def holds_array(pair: tuple[Any, Any]) -> bool:
    return any(isinstance(value, list | tuple) for value in pair)


def add_settings(versus: Versus, differing: Differences, depths: set[str]) -> Versus:
    lines = tuple((name, *map(show_setting, pair)) for name, pair in differing.items())
    table = Table("settings", "Settings that differ.", ("setting", "first", "second"), lines)
    count = count_of(len(differing), "setting differs", "settings differ")
    sentence = f"{count}: {some([*differing])}." if differing else "All settings are the same."
    return replace(
        versus,
        sentences=(*versus.sentences, sentence),
        tables=tuple(each for each in (*versus.tables, table) if each.lines),
        depth=depths.pop() if len(depths) == 1 else "all",
    )


def show_setting(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return plain(f"[{', '.join(map(show_setting, value))}]", LONGEST)
    return "-" if value in (None, [], ()) else plain(brief(value), LONGEST)


def compare_runs(names: Sequence[str], one: Run, other: Run) -> Versus:
    first, second = one.comparison, other.comparison
    results = {name: compare_stages(name, one, other) for name in first.traces if name in second.traces}
    only_in_one = [
        f"{name} is only in the {'first' if name in first.traces else 'second'} run."
        for name in sorted(first.traces.keys() ^ second.traces.keys())
    ]
    verdicts = [verdict for verdict, _ in results.values()]
    is_moved = bool(only_in_one) or DIFFERENT in verdicts
    headline = format_verdict(
        verdicts.count(DIFFERENT), set(verdicts) <= {IDENTICAL}, count_of(len(verdicts), "variant")
    )
    comparisons = {"first": first, "second": second}
    no_maps_reason = explain_no_maps(comparisons) if is_moved else ""
    sentences = (
        headline,
        *(sentence for _, sentence in results.values()),
        *only_in_one,
        *filter(None, [no_maps_reason]),
    )
    rows = tabulate_rows(first.rows, second.rows, {name: verdict for name, (verdict, _) in results.items()})
    explorer_data = explorer(comparisons) if is_moved and not no_maps_reason else None
    versus = Versus(names[0], names[1], is_moved, sentences, (rows,), explorer=explorer_data)
    return add_settings(
        versus,
        differing_settings(asdict(first.config), asdict(second.config)),
        {first.config.report.depth, second.config.report.depth},
    )


def format_verdict(differing: int, is_identical: bool, total: str, names: Sequence[str] = ()) -> str:
    if differing:
        listed = f": {', '.join(names)}" if names else ""
        return f"Numbers differ in {differing:,} of {total} that both have{listed}."
    within = "are bit-identical" if is_identical else "agree within rounding"
    return f"No number changed: {total} {within}."


def compare_stages(name: str, one: Run, other: Run) -> tuple[str, str]:
    """Return how closely a variant agrees in two runs: a verdict, and a sentence with the first stage that differs."""
    first, second = (dict(run.comparison.traces[name].stages()) for run in (one, other))
    dtypes = (row.computed_in for run in (one, other) for row in run.comparison.rows if row.variant == name)
    dtype = coarser(*map(np.dtype, dtypes))
    verdicts = {
        stage: describe_closeness(array, second[stage], dtype) for stage, array in first.items() if stage in second
    }
    if not verdicts:
        return DIFFERENT, f"{name}: the runs have no stage in common."
    verdict, text = IDENTICAL, f"{name}: bit-identical."
    for stage, stage_verdict in verdicts.items():
        label = spoken(stage) or stage
        if stage_verdict == DIFFERENT:
            where = locate_maximum(one, stage, first[stage], second[stage])
            return DIFFERENT, f"{name} first differs in the {label}, {where}."
        if verdict == IDENTICAL != stage_verdict:
            verdict = stage_verdict
            text = f"{name}: {stage_verdict} from the {label} on, bit-identical before."
    return verdict, text


def locate_maximum(run: Run, stage: str, one: Array, other: Array) -> str:
    """Describe where two arrays of a stage `[h t s]`, `[h t d]` or `[t m]` differ most, and quote both numbers."""
    if one.shape != other.shape:
        return f"whose shapes are {list(one.shape)} and {list(other.shape)}"
    with np.errstate(invalid="ignore"):
        distances = np.abs(np.asarray(one, float) - np.asarray(other, float))
    index = np.unravel_index(int(np.argmax(np.where(np.isnan(distances), np.inf, distances))), distances.shape)
    values = " and ".join(minus(f"{float(array[index]):.6g}") for array in (one, other))
    problem, (*head, row, column) = run.comparison.problem, map(int, index)  # `head` is empty if the stage has none
    tokens = problem.key_tokens if stage in ("k", "v") else problem.tokens
    keys = problem.key_tokens if stage in OVER_KEYS else ()
    labels = [f"head {head[-1] + 1}"] if head else []
    labels.append(tokens[row] if row < len(tokens) else f"row {row + 1}")
    labels.append(keys[column] if column < len(keys) else f"column {column + 1}")
    return f"most at {', '.join(labels)}: {values}"


def tabulate_rows(first: Sequence[Row], second: Sequence[Row], verdicts: Mapping[str, str]) -> Table:
    """Tabulate the cells that differ between two runs, for variants whose stages differ by more than rounding."""
    other_rows = {row.variant: row for row in second}
    differing = [
        row for row in first if row.variant in other_rows and verdicts.get(row.variant, DIFFERENT) == DIFFERENT
    ]
    pairs = [
        (row, name, getattr(row, name), getattr(other_rows[row.variant], name)) for row in differing for name in COLUMNS
    ]
    lines = tuple(
        (row.variant, name, brief(one), brief(other)) for row, name, one, other in pairs if repr(one) != repr(other)
    )
    head = ("variant", "column", "first", "second")
    return Table("rows", "Cells of the comparison that differ.", head, lines, deep_lines(line[1] for line in lines))


class Side(NamedTuple):
    """One of the two sweeps: its folder, its manifest and its rows."""

    name: str
    manifest: Manifest
    rows: Rows

    @property
    def swept(self) -> list[str]:
        return [axis["column"] for axis in self.manifest["axes"]]

    @property
    def settings(self) -> dict[str, str]:
        fixed = dict(word.lstrip("+").partition("=")[::2] for word in self.manifest["fixed"])
        return fixed | {axis["key"]: f"swept, {axis['count']:,} values" for axis in self.manifest["axes"]}

    def find_rows(self, names: Sequence[str]) -> dict[tuple[str, ...], int]:
        """Return the index of the first row with each combination of values in these columns."""
        keys = combine([self.rows.texts[name] for name in names])
        return dict(zip(keys.labels, np.unique(keys.codes, return_index=True)[1].tolist(), strict=True))


def load_side(folder: Path) -> Side:
    swept = load(folder)
    return Side(str(folder), swept.about, read_rows(*swept.read_lines(), swept.about["axes"], swept.about["metrics"]))


def compare_sweeps(one: Side, other: Side) -> Versus:
    """Compare two sweeps, matching their rows by variant and by the settings that both vary, such as the seed."""
    shared = [name for name in one.swept if name in other.swept]
    first_rows, second_rows = (side.find_rows([*shared, VARIANT]) for side in (one, other))
    common = [key for key in first_rows if key in second_rows]
    row_names = [" ".join(map("=".join, zip((*shared, VARIANT), key, strict=True))) for key in common]
    lines, moved_rows = list[tuple[str, ...]](), dict[str, int]()
    for name in [name for name in one.rows.numbers if name in other.rows.numbers]:
        first_numbers = one.rows.numbers[name][[first_rows[key] for key in common]]
        second_numbers = other.rows.numbers[name][[second_rows[key] for key in common]]
        if not np.array_equal(first_numbers, second_numbers, equal_nan=True):
            line, far_rows = measure_move(name, row_names, first_numbers, second_numbers)
            lines.append(line)
            moved_rows |= {name: far_rows} if far_rows and name not in ROUNDING else {}
    unmatched = {"first": len(first_rows) - len(common), "second": len(second_rows) - len(common)}
    verdict = format_verdict(
        max(moved_rows.values(), default=0), not lines, count_of(len(common), "row"), [*moved_rows]
    )
    sentences = [
        verdict if common else "No row is in both sweeps: they share no combination of settings, seed and variant.",
        *(f"Only in the {ordinal} sweep: {count_of(rows, 'row')}." for ordinal, rows in unmatched.items() if rows),
    ]
    if unshared := ", ".join(name for name in (*one.swept, *other.swept) if name not in shared):
        sentences.append(
            f"Only one sweep varies {unshared}; of the rows that differ only in that, the first is compared."
        )
    head = ("metric", "rows", "moved", "largest", "at", "first", "second", "mean difference")
    caption = "How each metric changed; the mean difference is second minus first."
    table = Table("numbers", caption, head, tuple(lines), deep_lines(name for name, *_ in lines))
    is_moved = bool(moved_rows) or any(unmatched.values()) or not common
    versus = Versus(one.name, other.name, is_moved, tuple(sentences), (table,))
    depths = {depth_of(one.manifest), depth_of(other.manifest)}
    return add_settings(versus, differing_settings(one.settings, other.settings), depths)


def measure_move(name: str, keys: Sequence[str], first: Array, second: Array) -> tuple[tuple[str, ...], int]:
    """Return the table line of one metric, and the number of rows that differ by more than rounding."""
    has_number = np.isfinite(first) | np.isfinite(second)
    is_far = ~np.isclose(first, second, rtol=NEAR, atol=NEAR, equal_nan=True)
    with np.errstate(invalid="ignore"):  # NaN becomes infinite below if only one side has a number
        distances = np.where(first == second, 0.0, np.abs(second - first))
    distances[np.isnan(distances) & is_far] = np.inf
    largest, far_rows = int(np.nanargmax(distances)), int(is_far.sum())
    cells = [brief(float(number)) for number in (distances[largest], first[largest], second[largest])]
    mean = brief(float((second - first)[has_number].mean()))
    return (name, f"{has_number.sum()}", f"{far_rows}", cells[0], keys[largest], *cells[1:], mean), far_rows
