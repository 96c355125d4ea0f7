"""Compare two runs, or two sweeps: which settings differ, which numbers differ, and from which stage on.

`versus` is the result of a comparison; `two_runs` and `two_sweeps` compute it, `page` renders it.
"""
