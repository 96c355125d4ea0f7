"""Reports of a run: `documents.documents` returns the page, Markdown, tables and figures as files.

Every renderer takes a comparison, or the views computed from it once, and returns text or a drawing. No renderer
computes attention, decides where files go, or prints. `sentences` writes the text for a terminal, `notebook` makes HTML
and DataFrames for Python, and `figures/` has one file per figure. A page is self-contained. Its parts that need
JavaScript are hidden until its script runs.

A run waits for its report, so reports must be fast. Figures are plain data (`charts/`) that become SVG text, Matplotlib
is only loaded for other formats, and templates are compiled once.
"""
