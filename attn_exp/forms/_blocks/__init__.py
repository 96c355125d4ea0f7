"""What makes `blockwise` fast: tasks, tiles of logits, and one-threaded BLAS calls on several threads.

`tasks` cuts a problem into heads, queries and runs of keys; `asked` asks the rules about a task's places; `block`
computes it; `threads` spreads tasks. `plain` is tried first: problems so small that cutting costs as much as computing.
A block is computed with nothing subtracted from its logits where none can overflow, and again, safely, where the
outcome shows that something was lost. Which way it takes never depends on timing, so answers are repeatable.

Measured, and decisive for the code: tiles lie with the keys first and take 2 MiB; sums over keys are a product with
ones; NumPy's `exp` and not `exp2`, which is twice as fast in most processes with AVX-512 and half as fast in others;
no reduction by a BLAS dot product, since the BLAS's own threads then spin for about a tenth of a second on a processor
that a helper needs. So they do after any large product of the caller's: attention then takes up to twice its time.

Three things are remembered per process, because they belong to it: `blas.HOLDER` mirrors the BLAS's thread count,
`threads.IDLE` holds helpers that sleep between calls and are ended before a fork, and `memory.STORE` what each thread
works in.
"""
