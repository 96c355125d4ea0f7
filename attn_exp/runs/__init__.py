"""One run on disk: written whole or not at all, found, and opened again without computing anything.

`store.save` writes a hidden folder that gets its name at the end: tables as CSV, arrays as `.npz`, `run.json` last;
`store.load` gives back the same `Comparison`, which is all that renderers need. `folders` lists them and makes
the page of all runs:
the folders are the truth, and whoever writes looks again afterwards, so that runs which end at once are all there
without a lock. Nothing that is read from disk runs code; `trust` says what it may decide.
"""
