"""One sweep, from its command to its results."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_exp import registry, stopping
from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat, quoted
from attn_exp.errors import UserError, printable
from attn_exp.experiment.progress import PointProgress
from attn_exp.runs import trust
from attn_exp.runs.folders import COMPLETE, rebuild_index
from attn_exp.runs.provenance import Git, ask_git, origin
from attn_exp.runs.store import USER_ERRORS
from attn_exp.sweeps import collect, manifest
from attn_exp.sweeps.driver import Driver
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.manifest import About
from attn_exp.sweeps.parts import MOST_POINTS, create_folder, locked
from attn_exp.sweeps.plan import Job, Plan, identity, is_deciding, make_plan
from attn_exp.sweeps.preflight import added_metrics, check_sweep, preview

DONE, SOME_FAILED = 0, 1
RAW = "sweep.skip="


@dataclass(frozen=True)
class Outcome:
    """The outcome of a sweep: the text for the terminal, exit code, folder, and whether that holds results."""

    text: str
    code: int
    folder: Path
    kept: bool = True


def sweep(words: Sequence[str], folders: Sequence[str]) -> Outcome:
    """Run the sweep that the words of `-m` describe, and return its results as text, and its folder.

    Raises:
        UserError: a mistake in the words, found before anything starts, or a folder that cannot be written to.
    """
    space, first = expand([quote_skip(word) for word in words], folders)
    plan = make_plan(space, first.sweep, added_metrics(space))
    folder = Path(first.output_dir) / "sweeps" / (first.sweep.name or identity(space, first.sweep, folders))
    check_sweep(plan, folder, first)
    about = manifest.describe_sweep(plan, first, Repeat(tuple(words), tuple(folders), many=True, own=registry.files()))
    if first.sweep.dry_run:
        return Outcome(preview(plan, folder, first, collect.find_whole(folder, about)), DONE, folder, kept=False)
    try:
        create_folder(folder)
        with locked(folder), ask_git() as git:
            return run(plan, folder, first, about, git)
    except OSError as error:
        if error.errno not in USER_ERRORS:
            raise
        hint = "finished points are kept: make room and run the same command again"
        complain(f"error: {folder}: cannot be written to ({error.strerror}); {hint}")
        return Outcome("", SOME_FAILED, folder, kept=False)


def run(plan: Plan, folder: Path, config: Config, about: dict[str, Any], git: Git | None) -> Outcome:
    """Compute what is missing, and write the table and report of what exists, however it ends.

    A complete sweep keeps its time, however often its report is rewritten.

    Raises:
        UserError: the folder holds another sweep, which shares no point with this one.
    """
    last, shelf = manifest.find_manifest(folder), collect.shelf_of(folder, about)
    is_same = last is not None and last["parts"] == about["parts"]
    whole, damaged = shelf.find(plan.names)
    with collect.refuse_damaged(folder):
        shared = shelf.find_shared(plan) if len(whole) < len(plan.names) else {}
    if last is not None and not (is_same or shared) and is_another(last, about, plan):
        raise UserError(
            f"{folder} holds another sweep: {last['command']}; choose another sweep.name, or remove that folder"
        )
    if damaged:
        complain(f"damaged parts, computed again: {collect.list_some(damaged)}")
    driver = Driver(plan, shelf, PointProgress(plan.points), whole, shared)
    jobs = list(driver.jobs())
    if last is not None and not jobs and is_finished(folder, about, last):
        driver.progress.show(last=True)
        return Outcome(last["told"], exit_code(driver, config, last.get("disagreeing", 0)), folder)
    workers = engine.start(plan, config.sweep, len(jobs)) if jobs else None
    about |= origin(git)
    manifest.write_manifest(folder, about)
    spent = float(last.get("seconds", 0.0)) if last is not None and is_same else 0.0
    status, code = collect.PARTIAL, None
    try:
        if workers is None or driver.run(workers, deque(jobs) if plan.fail_fast else spread_out(jobs)):
            status = COMPLETE
    except KeyboardInterrupt as stopped:
        status, code = "interrupted", stopping.exit_code(stopped)
    finally:
        driver.progress.show(last=True)
        seconds = spent if workers is None and spent else spent + time.time() - about["clock"]
        about |= {"status": status, "seconds": seconds}
        with collect.refuse_damaged(folder):
            text, disagreeing = collect.write_results(folder, about, driver.parts)
        with suppress(UserError):  # the results are saved; `attn-exp index` reports the problem
            rebuild_index(Path(config.output_dir))
    return Outcome(text, exit_code(driver, config, disagreeing) if code is None else code, folder)


def is_another(last: About, about: About, plan: Plan) -> bool:
    """Return whether the words of two sweeps without a common point ask for other results."""
    one, other = ([word for word in sorted(sweep["words"]) if is_deciding(word)] for sweep in (last, about))
    return one != other and last["version"] == about["version"] and plan.points <= MOST_POINTS


def spread_out(jobs: Sequence[Job]) -> deque[Job]:
    """Reorder jobs so that any first part of them is representative of the whole.

    Expensive points are often adjacent, such as those of a large d: in this order the remaining time is estimated from
    all kinds of points, and no worker gets the slowest ones last. Golden-ratio steps leave the most even gaps (Vogel
    1979).
    """
    golden = (math.sqrt(5) - 1) / 2
    return deque(job for _, job in sorted(enumerate(jobs), key=lambda pair: pair[0] * golden % 1))


def exit_code(driver: Driver, config: Config, disagreeing: int) -> int:
    """Return 1 if points failed, or if `strict` is set and a point disagrees with a published figure."""
    return SOME_FAILED if driver.failed or (config.strict and disagreeing) else DONE


def is_finished(folder: Path, about: About, last: About) -> bool:
    """Return whether the folder holds the complete table and report of exactly this sweep."""
    settings = ("parts", "report", "figures", "format", "sweep")
    if last["status"] != COMPLETE or any(last[key] != about[key] for key in settings) or "told" not in last:
        return False
    try:
        table, sealed = folder / f"results.{about['format']}", last.get("results", {})
        return bool(trust.seal_of_file(table) == sealed)
    except OSError:
        return False


def complain(message: str) -> None:
    print(f"attn_exp: {printable(message)}", file=sys.stderr)


def quote_skip(word: str) -> str:
    """Quote the expression of `sweep.skip`, which Hydra's grammar cannot parse."""
    if not word.startswith(RAW) or word[len(RAW) :][:1] in ("'", '"'):
        return word
    return RAW + quoted(word[len(RAW) :])
