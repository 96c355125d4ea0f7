"""Charts as plain data, and two renderers that draw the same of them.

A figure of the report says what stands where: `chart` holds the words for it. `layout` turns a chart into rectangles,
paths, texts and pictures. `svg` writes these as text, so that a page waits for no plotting library; `matplotlib_figure`
draws them for `pdf` and `png`. Widths of text come from a table (`widths`), so all is laid out alike on every machine.
"""
