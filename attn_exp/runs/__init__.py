"""Runs on disk: written atomically, listed, and loaded again without computing anything.

`store.save` writes a hidden folder and renames it at the end: tables as CSV, arrays as `.npz`, `run.json` last;
`store.load` restores the same `Comparison`, which is all that renderers need. `folders` lists runs and writes the index
page; the folders are the only record. Nothing that is read from disk runs code; `trust` checks what it may decide.

`sheets` writes the worksheets of a class and their keys, `answers` reads what students typed, `grades` marks it.
"""
