"""Where a sweep stands, from its files alone: another terminal or machine can ask."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from attn_exp.sweeps import collect, manifest
from attn_exp.sweeps.folder import running_driver
from attn_exp.sweeps.meter import span


def standing(folder: Path) -> str:
    """Return a few lines: how many points are done and failed, who is at work, how fast, and what is left.

    Raises:
        UserError: no sweep there.
    """
    about = manifest.load(folder)
    sizes = {name: size(about, place) for place, name in enumerate(about["parts"])}
    inventory = collect.shelf(folder, about).find(sizes)
    present = [inventory.whole[name] for name in sizes if name in inventory.whole]
    done = sum(sizes[name] for name in sizes if name in inventory.whole)
    damaged = f", {len(inventory.damaged):,} damaged, to be computed again" if inventory.damaged else ""
    failed = sum(part.failed for part in present)
    who = running_driver(folder)
    lines = [
        about["command"],
        f"{done:,} of {about['points']:,} points, {failed:,} failed; {len(present):,} of {len(sizes):,} parts{damaged}",
        f"running: {who}" if who else f"{state(about, done)}",
    ]
    if who and done < about["points"]:
        fresh = [part.path.stat().st_mtime for part in present if part.path.stat().st_mtime >= about["clock"]]
        rate = len(fresh) * about["chunk"] / max(1e-3, time.time() - about["clock"])
        lines.append(f"{rate:,.0f}/s" + (f", {span((about['points'] - done) / rate)} left" if rate else ""))
    return "\n".join(lines)


def size(about: dict[str, Any], place: int) -> int:
    """Return how many points a part holds: all as many, but for the last."""
    return min(int(about["chunk"]), int(about["points"]) - place * int(about["chunk"]))


def state(about: dict[str, Any], done: int) -> str:
    """Say how a sweep that nobody runs ended."""
    if about["status"] == "running":  # it had no time to say how it ended
        return "complete" if done == about["points"] else "ended without a word; the same command continues"
    if about["status"] == "complete" and done < about["points"]:
        return "damaged since it was complete; the same command continues"
    return about["status"] if about["status"] == "complete" else f"{about['status']}; the same command continues"
