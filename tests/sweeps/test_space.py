"""The points of a sweep are those of Hydra's own sweeper: its splitting and its composition are the expected values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, RangeSweep

from attn_exp.config.choices import conf_dir
from attn_exp.config.compose import register_schema, to_plain_values
from attn_exp.errors import UserError
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.plan import find_runs
from attn_exp.sweeps.space import remaining_points
from tests.refusal import refusal

SWEEPS = [
    ["head=1,2", "scale=true,false", "seed=0,1"],
    ["seed=shuffle(0,1)", "head=sort(2,1)", "bias=choice(true,false)"],
    ["embeddings=glob(*,exclude=[inline,random,file,udl*])"],
    ["variant=[looped,matrix],[multi_head]", "head=1,2"],
    ["notes=[a,b],[],[',']"],
    ["embeddings=random", "embeddings.tokens=2,3"],
    ["head=1,2", "seed=0", "head=4,2"],
    ["embeddings.vectors=[[1,2],[3,4]],[[0.5,1],[1,0.5]]", "embeddings.tokens=[a,b]"],
    ["title=seed-${seed}", "seed=0,1"],
    ["embeddings.tokens=[a,b,c],['1','2','3']"],
]


@pytest.fixture
def hydra() -> Iterator[None]:
    register_schema()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        yield


def by_hydra(words: list[str]) -> list[dict[str, Any]]:
    """Return the settings of every job of Hydra's own sweeper."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    overrides = parser.parse_overrides(words)
    for each in overrides:
        if isinstance(each._value, ChoiceSweep | RangeSweep):
            each._value.shuffle = False
    (jobs,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return [to_plain_values(compose("config", job)) for job in jobs]


@pytest.mark.long
@pytest.mark.parametrize("words", SWEEPS, ids=" ".join)
def test_points_are_those_of_hydra(words: list[str], hydra: None) -> None:
    expected = by_hydra(words)
    GlobalHydra.instance().clear()
    space, _ = expand(words, [])
    settings = [dict(space.settings(index)) for index in range(space.size)]
    for each in expected:
        del each["sweep"]
    assert settings == expected
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        composed = to_plain_values(compose("config", space.words(space.size - 1)))
    del composed["sweep"]
    assert composed == settings[-1]


def test_a_setting_of_a_file_may_be_read_from_a_swept_one(tmp_path: Path) -> None:
    tmp_path.joinpath("experiment").mkdir()
    tmp_path.joinpath("experiment", "own.yaml").write_text("# @package _global_\ntitle: seed ${seed}\n")
    space, _ = expand(["experiment=own", "seed=3,4"], [str(tmp_path)])
    assert [space.settings(index)["title"] for index in range(space.size)] == ["seed 3", "seed 4"]


def test_zipped_keys_move_together() -> None:
    space, _ = expand(["embeddings=random", "embeddings.tokens=2,3,4", "seed=0,1", "head=1,2,4", "embeddings.d_model=8",
                       "sweep.zip=[head,embeddings.tokens]"], [])  # fmt: skip
    assert [space.values(index) for index in range(space.size)] == [
        (2, 0, 1), (2, 1, 1), (3, 0, 2), (3, 1, 2), (4, 0, 4), (4, 1, 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["head=1,2", "seed=0,-1"], "seed=-1: expected a whole number"),
        (["head=1,2", "sweep.zip=[head,seed]"], "unknown key in sweep.zip 'seed'"),
        (
            ["head=1,2", "seed=0,1,2", "sweep.zip=[head,seed]"],
            "the same number of values for each key: head has 2, seed has 3",
        ),
        (["sweep.workers=1,2"], "applies to the whole sweep"),
        (["head=1,2", "hydra.sweep.dir=here"], "Hydra's own settings are not supported"),
        (["head=1,2", "sweep.name=../x"], "sweep.name=../x: expected a folder name"),
    ],
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_mistakes_are_told(words: list[str], message: str) -> None:
    assert message in refusal(expand, words, [])


TOO_LARGE = [
    (["seed=range(0,100000000)"], "100,000,000 values; a sweep takes at most 50,000,000"),
    (["scale=range(0,1,1e-17)"], "99,999,999,999,999,993 values that are not whole numbers"),
    (["seed=range(0,100000)", "head=range(1,100001)"], "10,000,000,000 points; a sweep takes at most 50,000,000"),
    (["seed=range(0,100000)", "title='run ${seed}'"], "seed: other settings use its 100,000 values"),
]


@pytest.mark.parametrize(("words", "message"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_what_is_too_large_is_counted_and_refused_at_once(words: list[str], message: str) -> None:
    start = time.process_time()
    with pytest.raises(UserError, match=message):
        expand(words, [])
    assert time.process_time() - start < 2


SKIPS = ["head > 2", "seed == 1 and head == 2", "not scale", "head > d_model", "embeddings == 'random' and head == 1"]


@pytest.mark.long
@pytest.mark.parametrize("text", SKIPS)
def test_a_skip_decided_by_combination_leaves_the_points_for_which_it_does_not_hold(text: str) -> None:
    words = ["embeddings=she_likes_coffee,random", "embeddings.d_model=2,4", "head=1,2,4", "scale=true,false,0.5"]
    space, _ = expand([*words, "seed=range(3)"], [])
    meaning = text.replace("d_model", "embeddings['d_model']").replace("embeddings ==", "choice ==")
    expected = [
        index
        for index in range(space.size)
        if not eval(
            meaning,
            {**space.settings(index), "choice": space.choices[space.base_key(space.indices(index))]["embeddings"]},
        )
    ]
    assert list(remaining_points(space, text)) == expected
    runs = find_runs(remaining_points(space, text))
    assert [number for first, stop in runs for number in range(first, stop)] == expected
