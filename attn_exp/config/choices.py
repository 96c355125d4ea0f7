"""The folders of YAML: where the shipped one is, and which choices each group has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attn_exp.config import own_choices

ONE_CHOICE = ("embeddings", "projections", "model", "experiment", "report")
"""Groups of which a run takes one choice; of the others it takes several."""


def conf_dir() -> Path:
    """Return the folder of the shipped YAML: beside pyproject.toml in a checkout, inside the package once installed."""
    here = Path(__file__).resolve().parent.parent
    checkout = here.parent / "conf"
    in_checkout = (here.parent / "pyproject.toml").is_file() and (checkout / "config.yaml").is_file()
    return checkout if in_checkout else here / "conf"


def choices(group: str, folders: Sequence[str] = ()) -> list[str]:
    """Return the names of a group's choices, those of users' own folders and from outside the package among them."""
    return sorted({*yaml_choices(group, folders), *own_choices.nodes(group)})


def yaml_choices(group: str, folders: Sequence[str] = ()) -> list[str]:
    """Return the names of a group's choices that have YAML."""
    return sorted(
        {path.stem for folder in (conf_dir(), *map(Path, folders)) for path in (folder / group).glob("*.yaml")}
    )


def groups(folders: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the choices of every group, by its name."""
    all_choices = {name: choices(name, folders) for name in sorted(group_names(folders))}
    return {name: several for name, several in all_choices.items() if several}


def group_names(folders: Sequence[str] = ()) -> set[str]:
    """Return the names of all groups; a folder without YAML, which is none, may be among them."""
    names = {path.name for folder in (conf_dir(), *map(Path, folders)) for path in folder.iterdir() if path.is_dir()}
    return names - {"hydra"}
