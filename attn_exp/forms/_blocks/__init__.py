"""The engine of `blockwise`: tasks, tiles of logits, and single-threaded BLAS calls on several threads.

`tasks` cuts a problem into tasks of some heads and queries, and into runs of keys. `operands` holds the arrays of one
task and evaluates the rules on them. `block` computes a task, and `threads` distributes the tasks. `plain` is tried
first, because cutting a small problem costs as much as computing it.

A block is first computed without subtracting the maximum from its logits. If the result shows that precision was lost,
it is computed again, safely. The choice never depends on timing, so results are repeatable.

Measurements decided the following. Tiles are stored keys first and take 2 MiB, or 1 MiB if that is half the cache. Sums
over keys are products with ones. NumPy's `exp` is used, not `exp2`, which is twice as fast in most processes with
AVX-512 and half as fast in others. No reduction uses a BLAS dot product: after one, the BLAS's own threads spin for
about 0.1 s on cores that our worker threads need. They also spin after any large product in the caller's code;
attention then takes up to twice as long.

Some ideas were tried on an AMD EPYC with 1 MiB of second-level cache. They gained nothing and were dropped: tiles of
512 keys (1 to 11 % slower) and of 512 queries (-6 to +9 %), division by a reciprocal, a NaN check by sums. On that
machine the two products take 76 % of a call, at the peak of the processor, `exp` 20 % and sums 3 %. A compiled
exponential (Numba: 0.14 ns against NumPy's 0.32) would save 12 %. Other BLAS libraries take at least twice as long.

Three objects are kept per process, because they describe the process: `threads.HOLDER` mirrors the BLAS's thread count,
`threads.POOL` holds threads that sleep between calls and are stopped before a fork, and `operands.Memory.idle` holds
each thread's working memory.
"""
