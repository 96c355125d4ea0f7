"""Points that differ in their seed alone are computed as one, to the bytes that each gets alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attn_exp import registry
from attn_exp.sweeps import parts
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.plan import Job, Plan, make_plan
from attn_exp.sweeps.task import compute, compute_stacks

RANDOM, MEMORY = "embeddings=random embeddings.tokens=5", "embeddings.memory"
CASES = {
    "the usual words": "",
    "several settings, the seeds first": f"seed=range(3) {RANDOM} head=1,2,4 scale=true,false",
    "several settings, the seeds last": f"{RANDOM} mask=none,causal score=none,alibi,sink seed=range(3)",
    "the smallest": "embeddings=random embeddings.tokens=2 embeddings.d_model=2 variant=[matrix]",
    "one token": "embeddings=random embeddings.tokens=1 embeddings.d_model=1 head=1",
    "biases and shared heads": f"{RANDOM} embeddings.d_model=24 head=12 bias=true variant=[multi_head,multi_query]",
    "heads of one number": f"{RANDOM} head=8 variant=[looped,matrix,multi_head,scaled] variant.looped.head=8",
    "more keys than a sum has lanes": "embeddings=random embeddings.tokens=19 variant=[matrix,scaled,multi_head]",
    "masks": f"{RANDOM} mask=[window,padding] mask.padding.lengths=3 head=2",
    "biases by place": f"{RANDOM} score=[alibi,t5] mask=causal variant=[looped,matrix,multi_head]",
    "a logit that takes its share": f"{RANDOM} score=sink",
    "logits that are bent": f"{RANDOM} score=softcap",
    "positions": f"{RANDOM} position=rope,sinusoidal",
    "positions of heads after a past": f"{RANDOM} position=rope past=2 mask=causal head=4 variant=[looped,multi_query]",
    "other normalizers": f"{RANDOM} normalizer=sigmoid,sparsemax,sum",
    "a convention with its own empty rows": f"{RANDOM} convention=torch_mha mask=padding mask.padding.lengths=3",
    "a convention whose heads take turns": f"{RANDOM} convention=onnx_old head=4 kv_head=2 variant=[multi_head,matrix]",
    "a convention in float32": f"{RANDOM} convention=flash",
    "forms that take one problem at a time": f"{RANDOM} mask=causal variant=[matrix,blockwise,linear,decode]",
    "weights of which blocks are kept": f"{RANDOM} weights=blocks variant=[matrix,blockwise]",
    "a mistake": f"{RANDOM} mistake=no_scale",
    "a past": f"{RANDOM} past=2 mask=causal",
    "a memory": f"{RANDOM} {MEMORY}.tokens=3 {MEMORY}.d_model=4 {MEMORY}.distribution=normal",
    "words": "embeddings=words",
    "no x": "embeddings=me_against_the",
    "no values": "embeddings=qk_transpose head=1",
    "whole numbers": f"{RANDOM} projections=integers projections.low=-3 projections.high=4",
    "uniform numbers": f"{RANDOM} embeddings.distribution=uniform projections=uniform",
    "layers of torch": f"{RANDOM} projections=torch_linear bias=true",
    "nothing projected": f"{RANDOM} projections=identity",
    "matrices of their own widths": f"{RANDOM} projections.width=4 projections.value_width=6 head=2",
    "numbers whose squares overflow": "projections.spread=1e100",
    "numbers whose squares vanish": "projections.spread=1e-200",
    "large seeds": f"{RANDOM} seed=3,4294967296,18446744073709551617,4",
}
"""What is swept; where no seeds are named, four."""


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Hold every test to leave nothing behind."""
    with registry.undo_registrations():
        yield


def planned(words: str) -> Plan:
    """Return the plan of a sweep of these words."""
    given = words.split() if "seed=" in words else [*words.split(), "seed=range(4)"]
    space, first = expand(given, [])
    return make_plan(space, first.sweep)


def alone(plan: Plan) -> bytes:
    """Return the lines of all points, each computed as a job of its own."""
    return b"".join(compute(plan, Job(0, [number])).lines for number in range(plan.points))


def ready(plan: Plan) -> set[int]:
    """Return the points that are computed together."""
    return set(compute_stacks(plan, Job(0, range(plan.points))))


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_points_together_have_the_bytes_of_points_alone(words: str) -> None:
    plan = planned(words)
    assert compute(plan, Job(0, range(plan.points))).lines == alone(plan)


def test_points_that_fail_say_what_they_say_alone() -> None:
    plan = planned(f"{RANDOM} head=2,3 seed=range(4)")
    done = compute(plan, Job(0, range(plan.points)))
    assert done.failed == 4
    assert done.lines == alone(plan)
    assert ready(plan) == {0, 1, 2, 3}


def test_a_seed_that_fails_leaves_its_neighbours_their_rows() -> None:
    plan = planned(f"{RANDOM} projections.spread=7e152 seed=range(12)")
    done = compute(plan, Job(0, range(plan.points)))
    assert 0 < done.failed < 12
    assert done.lines == alone(plan)


def test_a_job_that_goes_on_after_an_interruption_has_the_same_lines() -> None:
    plan = planned(f"{RANDOM} head=1,2 seed=range(6)")
    whole = compute(plan, Job(0, range(12)))
    shares = [3, 4, 9], [0, 1, 2, 5, 6, 7, 8, 10, 11]
    pieces = [compute(plan, Job(0, numbers)).lines for numbers in shares]
    assert parts.merge_pieces(pieces) == whole.lines


@pytest.mark.long
def test_a_large_problem_is_cut_into_stacks_and_a_larger_one_computed_alone() -> None:
    plan = planned("embeddings=random embeddings.tokens=40 variant=[matrix] seed=range(70)")
    assert compute(plan, Job(0, range(70))).lines == alone(plan)
    assert ready(plan) == set(range(70))
    assert not ready(planned("embeddings=random embeddings.tokens=600 variant=[matrix] seed=range(2)"))
