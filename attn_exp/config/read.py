"""Reads a whole configuration: which reader reads which key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp.config.readers import (
    array_or_draw,
    between,
    choice,
    each_of,
    file_name,
    flag,
    folder,
    mapping,
    mapping_of,
    named,
    number,
    optional,
    read_fields,
    scale,
    section,
    text,
    texts,
    tokens,
    whole,
    words,
    words_of,
)
from attn_exp.config.schema import Config, Embeddings, Figures, Projections, Published, Report, Sweep, Variant


def read(values: Mapping[str, Any]) -> Config:
    """Return the configuration that the plain values describe.

    Raises:
        UserError: an unknown key, or a value of the wrong kind, named with what was expected.
    """
    return Config(**read_fields(values, Config, READERS, ""))


EMBEDDINGS = {
    "tokens": optional(tokens),
    "vectors": array_or_draw,
    "d_model": optional(whole(1)),
    "distribution": optional(choice("normal", "uniform")),
    "file": optional(text),
    "columns": flag,
} | dict.fromkeys(("q", "k", "v", "weights"), array_or_draw)


PROJECTIONS = {
    "source": choice("normal", "uniform", "identity", "none"),
    "spread": optional(number),
    "columns": flag,
    "distribution": optional(choice("normal", "uniform")),
    "legacy_seed": optional(whole(0)),
    "order_per_head": texts,
    "order": texts,
}


RULES = {
    "kv_head": optional(whole(1)),
    "align": optional(choice("top_left", "bottom_right")),
    "mask": mapping,
    "mask_join": choice("and", "or"),
    "score": mapping,
    "position": mapping,
    "normalizer": text,
}


VARIANT = (
    {"convention": optional(text)}
    | {name: optional(reader) for name, reader in RULES.items()}
    | {
        "form": text,
        "head": optional(whole(1)),
        "scale": optional(scale),
        "output_projection": flag,
        "mistake": optional(text),
    }
)


PUBLISHED = {
    "quantity": text,
    "printed": text,
    "stage": text,
    "variant": optional(text),
    "head": whole(0),
    "columns": flag,
    "row": optional(whole(0)),
    "first": optional(whole(1)),
    "decimals": optional(whole(0)),
    "product": optional(choice("@", "matmul", "dot", "sum")),
    "inputs": mapping_of(dict.fromkeys(("q", "k", "v", "weights"), array_or_draw)),
    "rounded": mapping_of(dict.fromkeys("qkv", number)),
    "note": text,
}


SWEEP = {
    "name": file_name,
    "zip": texts,
    "skip": text,
    "dry_run": flag,
    "engine": choice("serial", "process", "ray", "dask"),
    "workers": optional(whole(1)),
    "address": optional(text),
    "chunk": optional(whole(1)),
    "fail_fast": flag,
    "format": choice("csv", "parquet"),
}


FIGURES = {"format": words_of("png", "svg", "pdf"), "width": between(3, 20)}


READERS = RULES | {
    "convention": text,
    "check": words,
    "dtype": words,
    "metrics": words,
    "weights": choice("auto", "full", "blocks"),
    "embeddings": section(Embeddings, EMBEDDINGS),
    "projections": section(Projections, PROJECTIONS),
    "variant": named(Variant, VARIANT),
    "report": section(Report, dict.fromkeys(("tables", "figures", "pages"), flag)),
    "figures": section(Figures, FIGURES),
    "seed": whole(0),
    "head": whole(1),
    "scale": scale,
    "bias": flag,
    "mistake": text,
    "sweep": section(Sweep, SWEEP),
    "output_dir": folder,
    "title": text,
    "notes": texts,
    "published": each_of(section(Published, PUBLISHED)),
}
