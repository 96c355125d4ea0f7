"""Reports of a run: `documents.documents` returns its page, Markdown, tables and figures as files.

Every renderer takes a comparison, or the views made of it once, and returns a text or a drawing. None computes
attention, chooses where something is written, or prints. `sentences` has the text for a terminal, `notebook` the HTML
and the DataFrames for Python; `figures/` holds one figure per file. A page is self-contained, and hides what needs
JavaScript until it runs. A run waits for its report, so figures are plain data (`charts/`) that become SVG as text,
Matplotlib is loaded for other formats alone, and templates are compiled once.
"""
