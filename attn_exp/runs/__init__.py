"""Runs on disk: written atomically, listed, and loaded again without computing anything.

- `execution` computes a run, and writes and renders it.
- `store.save` writes tables as CSV, arrays as `.npz`, and `run.json` last, to a hidden folder that it renames at the
  end. `store.load` restores the same `Comparison`, which is all that renderers need.
- `folders` lists runs and writes the index page; there is no record of runs other than the folders.
- `provenance` records versions, code and input files. Nothing read from disk runs code.
- `trust` checks files that may come from somebody else.
- `sheets` writes the worksheets of a class and their keys, `answers` reads students' answers, `grades` grades them.
"""
