"""Charts as plain data, and two renderers with the same result.

A figure of the report places maps, plots and shapes, in the classes of `chart`. `layout` places maps and axes on a
sheet, and turns a chart into rectangles, paths, texts and pictures. `svg` writes these as text, so that a page does not
wait for a plotting library; `matplotlib_figure` draws them for `pdf` and `png`. Widths of text come from a table
(`widths`), so the layout is the same on every machine.
"""
