"""YAML of users' own: files of every group, right, bent and hostile, read from a --config-dir."""

from __future__ import annotations

import random
from pathlib import Path

from attn_exp.config.choices import conf_dir, groups
from tools.fuzz._attempts import fallen, folders

HEADS = [
    "",
    "",
    "",
    "# @package _global_\n",
    "# @package _group_\n",
    "# @package hydra\n",
    "# @package x.y\n",
    "# @package  \n",
]
KEYS = [
    "mine", "matrix", "form", "head", "scale", "causal", "window", "left", "embeddings", "vectors", "tokens",
    "d_model", "file", "distribution", "legacy_seed", "shape", "projections", "given", "W_q", "published",
    "quantity", "printed", "stage", "notes", "title", "seed", "mask", "variant", "sweep", "hydra", "callbacks",
    "_target_", "defaults", "<<", "1", "true", "null", "''", "a.b", "a/b", "é", "\"\\ud800\"", "? [a]",
    "experiment", "strict", "report", "figures", "generator", "draws", "low", "high", "rows", "entry", "order", "width",
]  # fmt: skip
VALUES = [
    "1", "0", "-1", "2", "0.5", "1e400", ".nan", ".inf", "true", "null", "~", "", "a", "'a b'", "\"\\ud800\"",
    "\"\\x1b[2J\"", "1" + "0" * 400, "matrix", "normal", "[1, 2]", "[[1, 2], [3, 4]]", "[[1], [2, 3]]", "[]", "{}",
    "[[]]", "{a: 1}", "${seed}", "${oc.env:HOME}", "${nothing}", "${", "${${x}}", "${oc.decode:'[1,'}", "???",
    "!!python/object/apply:os.getcwd []", "!!binary aGk=", "!!set {a, b}", "2020-01-01", "0o17", "1_000", "1:30",
    "*a", "&a [*a]", "&a 1", "|\n    text", ">-\n    text", "%", "@", "`", "- 1", "[1", "{a", "'a", "\t",
    "shutil.copyfile", "../outside", "/etc/passwd", "9" * 30, "x" * 3000,
]  # fmt: skip
DEFAULTS = [
    "mine",
    "other",
    "/mask: causal",
    "override /hydra/launcher: basic",
    "_self_",
    "nothing",
    "/variant@x: matrix",
    "1",
    "null",
]


def attempt(seed: int) -> str | None:
    """Write a few files, choose them, and say what fell, or nothing."""
    chance = random.Random(seed)
    with folders() as (inside, outside):
        words = []
        for group in chance.sample(sorted(groups()), chance.choice((1, 1, 2))):
            name = chance.choice(("mine", "mine", "other"))
            path = inside / "yaml" / group / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file(chance, group))
            words.append(f"{group}={chance.choice((name, name, f'[{name},matrix]'))}")
        if chance.random() < 0.2:
            words = ["-m", *words, "seed=0,1", "sweep.engine=serial"]
        if chance.random() < 0.2:
            words += ["--cfg", "job", *chance.choice(([], ["--resolve"]))]
        return fallen(["--config-dir", "yaml", *words, "report=none", "output_dir=out"], inside, outside)


def file(chance: random.Random, group: str) -> bytes:
    """Return what a file holds: a shipped one bent, one made of keys and values, or what is hardly YAML."""
    kind = chance.random()
    if kind < 0.4:
        return bent(chance, chance.choice(shipped(group)).read_bytes())
    if kind < 0.9:
        head = chance.choice(["# @package _global_\n", *HEADS]) if group == "experiment" else chance.choice(HEADS)
        return (head + defaults(chance) + mapping(chance, 0)).encode("utf-8", "surrogateescape")
    deep = chance.choice((20, 400, 5000))
    hostile = [
        b"", b"\x00", b"\xff\xfe\x00", b"\xef\xbb\xbfform: matrix\n", b"---\n---\n", b"a: 1\na: 2\n", b"- 1\n", b"1\n",
        b"[" * deep, b"[" * deep + b"]" * deep, b"a: " + b"{a: " * deep + b"1" + b"}" * deep, b"\t", b"a:\r b: 1\r",
        b"b0: &b0 [1]\n" + b"".join(b"b%d: &b%d [*b%d, *b%d]\n" % (n + 1, n + 1, n, n) for n in range(9)),
    ]  # fmt: skip
    return chance.choice(hostile)


def shipped(group: str) -> list[Path]:
    return sorted((conf_dir() / group).glob("*.yaml"))


def bent(chance: random.Random, text: bytes) -> bytes:
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(text) + 1)
        piece = chance.choice(
            (b"", b" ", b"\n", b":", b"-", b"[", b"}", b"\xc3", b"0", b"null", b"'", b"#", b"hydra:\n", b"${x}")
        )
        text = text[:place] + piece + text[place + chance.randrange(3) :]
    return text


def defaults(chance: random.Random) -> str:
    if chance.random() < 0.8:
        return ""
    return "defaults:\n" + "".join(f"  - {chance.choice(DEFAULTS)}\n" for _ in range(chance.randrange(1, 3)))


def mapping(chance: random.Random, depth: int) -> str:
    """Return lines of keys and values."""
    lines = []
    for _ in range(chance.randrange(1, 4)):
        nested = depth < 3 and chance.random() < 0.35
        value = "\n" + mapping(chance, depth + 1) if nested else f" {chance.choice(VALUES)}\n"
        lines.append(f"{'  ' * depth}{chance.choice(KEYS)}:{value}")
    return "".join(lines)
