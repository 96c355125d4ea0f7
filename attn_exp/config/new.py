"""`attn-exp new`: write a first YAML file that contains every array of a notebook, ready to edit and run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from attn_exp import machine
from attn_exp.config.choices import choices
from attn_exp.errors import UserError, brief, refuse

OPTION, FOLDER = "--config-dir", "mine"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")  # a valid name of the new file
NO_NAMES = ("null", "true", "false", "none", "nan", "inf")
"""Words that the command line does not read as names."""

TEMPLATE = """\
# @package _global_
# Your own numbers, and what your notebook printed for them. This file runs as it is; replace the numbers with yours.
#   {command}
defaults:
  - override /embeddings: inline             # x is given below; `file` reads it, `words` draws a vector per word
  - override /projections: identity          # for every matrix that is not given below; or `normal`
  - override /variant: [looped, matrix, scaled, unscaled]
  - override /mask: none                     # or causal, or several: [causal, padding]

title: "{name}"
head: 1                                      # heads are side by side in the columns of q, k and v
scale: true                                  # true: scores / sqrt(d); false: unscaled; a number: scores times it
bias: false                                  # true adds b_q, b_k, b_v and b_o: as given below, otherwise zeros

embeddings:
  tokens: [she, likes, coffee]
  vectors:                                   # x: one row per token, or one column with `columns: true`
    - [1.0, 0.0, 2.0]
    - [0.0, 1.0, 1.0]
    - [2.0, 1.0, 1.0]

projections:                                 # q = x W_q + b_q, and likewise for k and v
  transposed: false                          # true for matrices stored as in nn.Linear.weight
  given:                                     # any of W_q, W_k, W_v, W_o, b_q, b_k, b_v, b_o that you have:
    W_q: [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]    # whole, as a list of one matrix per head, or as a file: W_q.npy
    W_k: [[0.0, 1.0], [1.0, 0.0], [0.5, 0.0]]
    W_v: [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]

published:                                   # what was printed, exactly, with its brackets and all its digits
  - quantity: my weights                     # any name, shown in the table
    stage: weights                           # x, W_q, ..., q, k, v, scores, logits (scaled and masked), weights, output
    variant: matrix                          # one of the variants above; by default the first
    printed: |
      [[0.1636 0.1636 0.6728]
       [0.2058 0.0850 0.7092]
       [0.1133 0.0949 0.7918]]
  - quantity: my output
    stage: output
    variant: matrix
    printed: |
      [[2.6728 2.8364]
       [2.8300 2.7942]
       [2.8102 2.8867]]
"""


def write(words: Sequence[str]) -> str:
    """Write the YAML file that `[DIR/]NAME [--config-dir DIR]` names; return its path and the command that runs it.

    Raises:
        UserError: there are unexpected arguments, the name is invalid, or the file exists.
    """
    folder, name = parse_target(words)
    command = f"python -m attn_exp {OPTION} {shlex.quote(str(folder))} experiment={name}"
    text = TEMPLATE.format(command=command, name=name)
    path = folder / "experiment" / f"{name}.yaml"
    if os.path.lexists(path):
        raise UserError(f"{path}: already exists; choose another name, or edit it")
    with refuse(f"{path}: cannot be written", OSError):
        folder.mkdir(parents=True, exist_ok=True)
        machine.own_folder(path.parent)
        machine.write(path, text)
    return f"{path}\n\n{command}"


def parse_target(words: Sequence[str]) -> tuple[Path, str]:
    """Parse `[DIR/]NAME [--config-dir DIR]`; return the folder and the name of the new file.

    Raises:
        UserError: there are unexpected arguments, or the name is invalid.
    """
    arguments, folder = list(words), ""
    if OPTION in arguments[:-1]:
        index = arguments.index(OPTION)
        folder = arguments.pop(index + 1)
        del arguments[index]
    parent, slash, name = "".join(arguments).replace(os.sep, "/").removesuffix(".yaml").rpartition("/")
    if len(arguments) != 1 or arguments[0].startswith("-") or (slash and folder):
        raise UserError(f"attn-exp new {brief(' '.join(words))}: expected attn-exp new [DIR/]NAME [{OPTION} DIR]")
    check_name(name)
    # "/name" has an empty parent, which is the root folder
    return Path((parent or "/") if slash else (folder or FOLDER)), name


def check_name(name: str) -> None:
    """Refuse a name that cannot be chosen as `experiment=NAME`."""
    if not NAME.fullmatch(name) or name.lower() in NO_NAMES:
        raise UserError(f"attn-exp new {brief(name)!r}: expected letters, digits, _ and -, such as my_notebook")
    if name in choices("experiment"):
        raise UserError(f"attn-exp new {name}: the project already has a preset of this name; choose another")
