"""All that a reader sees of a run: `documents.documents` returns its page, Markdown, tables and figures as files.

Every renderer takes a comparison, or the views that were made of it once, and returns a text or a drawing: none
computes attention, chooses where something is written, or prints. What a terminal shows is in `terminal`, what a
notebook shows in `notebook`; `figures/` holds one figure a file. A page needs nothing from elsewhere, and what needs
JavaScript is hidden until it runs. A run waits for its report, so figures are plain data (`charts/`) that become SVG as
text, Matplotlib is loaded for other formats alone, and templates are compiled once.
"""
