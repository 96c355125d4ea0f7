"""What a user perhaps meant: names of other libraries, choices without their group, settings without their section."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import get_type_hints

from attn_exp.config.choices import groups
from attn_exp.config.schema import Config
from attn_exp.errors import unknown

BATCH = "a sweep, a point for each sequence: -m embeddings=words 'embeddings.text=one text,another'"
"""What a batch is here: its sequences never meet, so each is a point with tokens, maps and checks of its own."""

SAYS_OTHERWISE = {
    "batch": BATCH,
    "batch_size": BATCH,
    "encoder_hidden_states": "embeddings.memory",
    "kdim": "embeddings.memory.d_model",
    "past_key_values": "past",
    "temperature": "scale",
    "num_heads": "head",
    "n_heads": "head",
    "nhead": "head",
    "num_kv_heads": "kv_head",
    "is_causal": "mask=causal",
    "dim": "embeddings.d_model",
    "form": "variant",
    "softmax_scale": "scale",
}
"""What other libraries call a setting, and what it is called here."""
WIDTHS = ("dimension", "dim", "dimensions", "width", "size", "d", "embed_dim", "hidden_size", "n_embd")
"""What others call how many numbers the vector of a token has."""
ARRAY = re.compile(r"[Wb]_[qkvo]")
PLACE = re.compile(r"([\w.]+?)((?:\[\d+\])+)=(.*)", re.DOTALL)


def unknown_setting(key: str, beside: Sequence[str]) -> str:
    """Say that there is no such setting, and what was perhaps meant: one of those beside it, or one elsewhere."""
    meant = intended(key)
    return f"unknown setting {key!r}; did you mean {meant}?" if meant else unknown(key, beside, "setting")


def intended(key: str) -> str:
    """Return what a key that does not exist stands for elsewhere, or nothing."""
    section, _, name = key.rpartition(".")
    if section in ("projections", "projections.given") and ARRAY.fullmatch(name):
        return f"+projections.given.{name}=[[...]]"
    if section == "embeddings" and name in WIDTHS:
        return "embeddings.d_model"
    if section == "embeddings":
        return SAYS_OTHERWISE.get(name, name if name in {field.name for field in fields(Config)} else "")
    if section:
        return ""
    if name in SAYS_OTHERWISE:
        return SAYS_OTHERWISE[name]
    choice = next((f"{group}={name}" for group, names in groups().items() if name in names and name != "none"), "")
    return choice or home(name)


def home(name: str) -> str:
    """Return the whole name of a setting that stands in a section, or nothing."""
    hints = get_type_hints(Config)
    sections = {key: kind for key, kind in hints.items() if is_dataclass(kind)}
    return next(
        (f"{key}.{name}" for key, kind in sections.items() if name in {field.name for field in fields(kind)}), ""
    )


def unread(word: str) -> str:
    """Say how a word that Hydra's grammar does not read could be written."""
    place = PLACE.fullmatch(word)
    if place:
        key = place[1] if "." in place[1] else home(place[1]) or place[1]
        numbers = place[2].replace("[", ".").replace("]", "")
        return f"cannot read {word!r}; one number of an array is {key}{numbers}={place[3]}"
    letters = "key=[a,'välue']" if "=[" in word else "key='välue'"
    return f"cannot read {word!r}; write key=value, without spaces, other letters as {letters}"


COMMANDS_ELSEWHERE = {"list": "runs", "ls": "runs", "show": "open", "diff": "compare", "sweep": "-m"}
"""What other programs call a command, and what is written here."""


def unknown_command(word: str, commands: Sequence[str]) -> str:
    """Say that there is no such command, and what was perhaps meant."""
    if word in COMMANDS_ELSEWHERE:
        return f"unknown command {word!r}; did you mean {COMMANDS_ELSEWHERE[word]}?"
    return f"{unknown(word, commands, 'command')}; settings are written key=value"
