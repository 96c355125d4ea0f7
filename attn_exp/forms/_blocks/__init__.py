"""What makes `blockwise` fast: tasks, tiles of logits, and one-threaded BLAS calls on several threads.

`tasks` cuts a problem into heads, queries and runs of keys; `operands` holds a task's part, and asks the rules about
its places; `block` computes it; `threads` spreads the work. `plain` is tried
first: problems so small that cutting costs as much as computing.
A block is computed with nothing subtracted from its logits, and again, safely, where the outcome shows that something
was lost. Which way it takes never depends on timing, so answers are repeatable.

Measured, and decisive for the code: tiles lie with the keys first and take 2 MiB, or 1 where that is half the cache;
sums over keys are a product with ones; NumPy's `exp` and not `exp2`, which is twice as fast in most processes with
AVX-512 and half as fast in others; no reduction by a BLAS dot product, since the BLAS's own threads then spin for about
a tenth of a second on a processor that a helper needs. So they do after any large product of the caller's: attention
then takes up to twice its time.

Measured on an AMD EPYC with 1 MiB of second-level cache, and left out for want of a gain: tiles of 512 keys (1 to 11 %
slower) and of 512 queries (-6 to +9 %), division by a reciprocal, a check for NaN by sums. There the two products take
76 % of a call, at the peak of the processor, `exp` 20 % and sums 3 %: a compiled exponential (0.14 ns for NumPy's 0.32,
by Numba) would bring 12 %, and other BLAS libraries take twice as long and longer.

Three things are remembered per process, because they belong to it: `threads.HOLDER` mirrors the BLAS's thread count,
`threads.POOL` holds threads that sleep between calls and are ended before a fork, and `memory.STORE` what each thread
works in.
"""
