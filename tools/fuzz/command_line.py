"""Words of a command line, from Hydra's grammar and from near it: python -c 'attempt(seed)' for one of them."""

from __future__ import annotations

import random
from dataclasses import fields

from attn_exp.config.choices import groups
from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config, Sweep
from tools.fuzz._attempts import fallen, folders

SMALL = ["report=none", "output_dir=out"]
"""Words that keep an attempt quick where it runs at all."""
SETTINGS = [field.name for field in fields(Config) if field.name not in ("output_dir", "report")]
NESTED = [
    *(f"embeddings.{field.name}" for field in fields(Embeddings)),
    *(f"projections.{field.name}" for field in fields(Projections)),
    *(f"sweep.{field.name}" for field in fields(Sweep) if field.name not in ("engine", "address", "workers")),
    "projections.given.W_q", "projections.W_q", "variant.looped.head", "variant.looped.form", "variant.x.form",
    "mask.window.left", "score.softcap.cap", "position.rope.base", "embeddings.vectors.0.1",
    "embeddings.vectors[0][1]", "figures.width", "figures.format", "report.pages", "published.strict",
    "hydra.run.dir", "hydra.callbacks.x", "hydra.callbacks.x._target_", "mask.causal._target_", "hydra.searchpath",
    "hydra.mode", "_target_", "defaults", "@", "embeddings@x", "experiment@y", "", " ", "a b", "ü", "..", ".head",
    "head.", "head.x", "a" * 300, "\ud800", "a\rb", "0",
]  # fmt: skip
SCALARS = [
    "true", "false", "null", "nan", "inf", "-inf", "???", "''", '""', "a", "a b", "'a b'", "\\", "\\,", "'", '"',
    "1e308", "1e999", "-1", "0", "1", "2", "3", "7", "0.5", "1_000", "1" + "0" * 400, "0x10", "é", "'é'", "日本",
    "\x1b[31mred", "'a\rb'", "\ud800", "'\ud800'", "\u202e", "${seed}", "${head}", "${nothing}", "${oc.env:HOME}",
    "${oc.env:NOTHING}", "${seed", "$", "${oc.decode:x}", "${hydra:runtime.cwd}", "${now:%Y}", "${${seed}}",
    "${oc.create:{a:1}}", "a=b", "a:b", "file.npy", "/", "..", "../outside", "/dev/null", "x" * 2000, "none", "all",
    "matrix", "causal", "normal", "weights_transposed", "[1", "1]",
]  # fmt: skip
OPTIONS = [
    "-m", "--multirun", "--cfg", "--cfg=job", "job", "--resolve", "--help", "-h", "--version", "--info",
    "--package", "-p", "--config-dir", "--config-dir=.", "--config-name", "--config-path", "--hydra-help", "-sc",
    "--run", "-r", "--", "-", "--head", "-x", "--experimental-rerun", "a_file", "list", "compare", "runs", "index",
    "status", "report", "collect", "rerun",
]  # fmt: skip


def attempt(seed: int) -> str | None:
    """Run a few words and say what fell, or nothing."""
    chance = random.Random(seed)
    words = [word(chance) for _ in range(chance.choice((1, 1, 1, 2, 2, 3)))]
    if chance.random() < 0.15:
        words.insert(chance.randrange(len(words) + 1), chance.choice(OPTIONS))
    if chance.random() < 0.25:
        words.insert(0, "-m")
        words.append("sweep.engine=serial")
    if chance.random() < 0.1:
        words += ["--cfg", "job"]
    with folders() as (inside, outside):
        (inside / "a_file").write_text("")
        return fallen([*words, *SMALL], inside, outside)


def word(chance: random.Random) -> str:
    """Return a word: a sign, a key of any kind, and a value of the grammar."""
    known = groups()
    kind = chance.random()
    if kind < 0.25:
        group = chance.choice(sorted(known))
        name = chance.choice([*known[group], *known[group], "none", "nothing", value(chance, 1)])
        key = group
        text = f"[{name},{chance.choice(known[group])}]" if chance.random() < 0.3 else name
    else:
        key = chance.choice(SETTINGS if kind < 0.55 else NESTED)
        text = value(chance, 0)
    sign = chance.choice(("", "", "", "", "", "+", "++", "~"))
    return f"{sign}{key}" if chance.random() < 0.04 else f"{sign}{key}={text}"


def value(chance: random.Random, depth: int) -> str:
    """Return a value of Hydra's grammar, or what looks like one."""
    kind = chance.random()
    if kind < 0.5 or depth > 2:
        return chance.choice(SCALARS)
    several = [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 0.65:
        return f"[{','.join(several)}]"
    if kind < 0.75:
        keys = ("a", "distribution", "form", "left", "1", "_target_")
        return "{" + ",".join(f"{chance.choice(keys)}:{item}" for item in several) + "}"
    if kind < 0.85:
        bounds = [
            chance.choice(("0", "1", "3", "5", "0.5", "nan", "inf", "-2", "1e3", "a"))
            for _ in range(chance.choice((1, 2, 3)))
        ]
        return f"range({','.join(bounds)})"
    if kind < 0.95:
        name = chance.choice(
            ("choice", "glob", "sort", "shuffle", "int", "str", "bool", "float", "interval", "tag", "nothing")
        )
        return f"{name}({','.join(several)})"
    return ",".join(several)
