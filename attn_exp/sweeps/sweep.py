"""One sweep from its command to its results."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
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
from attn_exp.sweeps import collect, manifest, parts, reuse
from attn_exp.sweeps.driver import Driver
from attn_exp.sweeps.engines import engine
from attn_exp.sweeps.engines.engine import Workers
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.folder import locked, made_folder
from attn_exp.sweeps.parts import Inventory
from attn_exp.sweeps.plan import Job, Plan, identity, make_plan
from attn_exp.sweeps.preflight import added_metrics, check_sweep, preview

DONE, SOME_FAILED = 0, 1
RAW = "sweep.skip="


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended: what the terminal shows, the exit code, its folder, and whether it lies there to be read."""

    text: str
    code: int
    folder: Path
    kept: bool = True


def sweep(words: Sequence[str], folders: Sequence[str]) -> Outcome:
    """Run the sweep that the words of `-m` describe, and return what it found, as text, and its folder.

    Raises:
        UserError: a mistake in the words, found before anything starts, or a folder that cannot be written to.
    """
    space, first = expand([skip_quoted(word) for word in words], folders)
    plan = make_plan(space, first.sweep, added_metrics(space))
    folder = Path(first.output_dir) / "sweeps" / (first.sweep.name or identity(space, first.sweep, folders))
    check_sweep(plan, folder, first)
    about = manifest.described_sweep(plan, first, Repeat(tuple(words), tuple(folders), many=True, own=registry.files()))
    about["keys"] = reuse.describe_keys(plan)
    if first.sweep.dry_run:
        inventory = collect.shelf_of(folder, about).find(plan.names)
        missing = [chunk for chunk, name in enumerate(plan.names) if name not in inventory.whole]
        text = preview(plan, folder, first, [part.failed for part in inventory.whole.values()], missing)
        return Outcome(text, DONE, folder, kept=False)
    try:
        with made_folder(folder), locked(folder), ask_git() as git:
            return run(plan, folder, first, about, git)
    except OSError as error:
        if error.errno not in USER_ERRORS:
            raise
        hint = "what is done is kept: make room and run the same command again"
        complain(f"error: {folder}: cannot be written to ({error.strerror}); {hint}")
        return Outcome("", SOME_FAILED, folder, kept=False)


def run(plan: Plan, folder: Path, config: Config, about: dict[str, Any], git: Git | None) -> Outcome:
    """Compute what is missing, and write the table and the report of what there is, however it ends."""
    shared = reuse.find_shared_points(plan, folder, about)
    reuse.keep_manifest(folder, about)
    parts.tidy(folder / "parts", plan.names)
    shelf = collect.shelf_of(folder, about)
    inventory = shelf.find(plan.names)
    say_damaged(inventory)
    driver = Driver(plan, shelf, PointProgress(plan.points), dict(inventory.whole), shared)
    jobs = list(driver.jobs())
    todo = deque(jobs if plan.fail_fast else spread_out(jobs))
    if not todo and (last := finished(folder, about)) is not None:
        driver.progress.show(last=True)
        return Outcome(last["told"], exit_code(driver, config, last["disagreeing"]), folder)
    workers = engine.start(plan, config.sweep, len(todo)) if todo else None
    about |= origin(git)
    spent = seconds_before(folder, about)
    manifest.write_manifest(folder, about)
    return ended(driver, workers, todo, folder, about, config, spent)


def spread_out(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs in an order in which any first part of them is like the whole.

    Points that cost much often stand together, as those of a large d do: what is left is then told from all kinds of
    points, and no worker gets the dearest ones last. Steps of the golden ratio leave the evenest gaps (Vogel 1979).
    """
    golden = (math.sqrt(5) - 1) / 2
    return [job for _, job in sorted(enumerate(jobs), key=lambda pair: pair[0] * golden % 1)]


def seconds_before(folder: Path, about: Mapping[str, Any]) -> float:
    """Return the seconds that the same points have taken so far, as the folder says."""
    try:
        last = manifest.load_manifest(folder)
    except UserError:
        return 0.0
    return float(last.get("seconds", 0.0)) if last["parts"] == about["parts"] else 0.0


def ended(
    driver: Driver,
    workers: Workers | None,
    todo: deque[Job],
    folder: Path,
    about: dict[str, Any],
    config: Config,
    spent: float = 0.0,
) -> Outcome:
    """Let the workers compute, write what there is, and return how it ended; `spent` are the seconds of earlier calls.

    A sweep whose points are all there keeps its time, however often its report is written again.
    """
    status, code = collect.PARTIAL, None
    try:
        if workers is None:
            driver.close()
        if workers is None or driver.run(workers, todo):
            status = COMPLETE
    except KeyboardInterrupt as stopped:
        status, code = "interrupted", stopping.exit_code(stopped)
    finally:
        driver.progress.show(last=True)
        seconds = spent if workers is None and spent else spent + time.time() - about["clock"]
        about |= {"status": status, "seconds": seconds}
        with collect.read_or_said(folder):
            text, disagreeing = collect.write_results(folder, about, driver.parts)
        with suppress(UserError):  # the results are there; `attn-exp index` says what is in the way
            rebuild_index(Path(config.output_dir))
    return Outcome(text, exit_code(driver, config, disagreeing) if code is None else code, folder)


def exit_code(driver: Driver, config: Config, disagreeing: int) -> int:
    """Return 1 where points failed, or disagree with a printed result where they must not."""
    return SOME_FAILED if driver.failed or (config.strict and disagreeing) else DONE


def finished(folder: Path, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of the folder, if its table and report are those of this very sweep, complete."""
    try:
        last = manifest.load_manifest(folder)
        same = all(last.get(key) == about[key] for key in ("parts", "report", "figures", "format", "columns"))
        same = same and all(last.get("sweep", {}).get(key) == about["sweep"][key] for key in ("plot", "matters"))
        if not same or last["status"] != COMPLETE:
            return None
        table = collect.results_at(folder, about)
        sealed = last.get("results", {})
        if about["format"] == "parquet":
            whole = table.is_dir()
        else:
            whole = trust.seal_of_file(table, sealed.get("bytes")) == sealed
    except (UserError, OSError):
        return None
    return last if whole and {"told", "disagreeing"} <= last.keys() else None


def say_damaged(inventory: Inventory) -> None:
    """Say on stderr which parts are not as they were written."""
    if inventory.damaged:
        names = ", ".join(inventory.damaged[:3]) + ", ..." * (len(inventory.damaged) > 3)
        parts_are = "1 part is" if len(inventory.damaged) == 1 else f"{len(inventory.damaged):,} parts are"
        complain(f"{parts_are} damaged and computed again: {names}")


def complain(message: str) -> None:
    """Print one line on stderr."""
    print(f"attn_exp: {printable(message)}", file=sys.stderr)


def skip_quoted(word: str) -> str:
    """Quote the expression of `sweep.skip`, which Hydra's grammar has no words for."""
    if not word.startswith(RAW) or word[len(RAW) :][:1] in ("'", '"'):
        return word
    return RAW + quoted(word[len(RAW) :])
