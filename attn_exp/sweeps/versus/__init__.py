"""Two runs, or two sweeps, side by side: which settings differ, which numbers moved, and from where on.

`versus` is what a comparison says; `two_runs` and `two_sweeps` make it, `page` writes it down.
"""
