"""Many runs as one: composed once per choice of groups, computed in chunks, resumed for free.

`space` says which points there are, `plan` cuts them into chunks, each named by a hash of all that decides it, `task`
computes one chunk, an engine decides where, `driver` hands chunks out and takes their lines, and `writer` writes them,
a part per chunk, in a thread of the driver's. Workers are pure functions of a plan and a job. A million points are a
million lines in 500 files, and no place holds all of them: `totals` is streamed from the parts, and reports are drawn
from it.

What bounds the rate is Python, not arrays: of a default point a third is the reference, a fifth the comparison of
traces, a seventh the forms. Stacking points into one array computation could touch a twelfth, so it is not done; the
reference is asked once for all variants that put the same question.
"""
