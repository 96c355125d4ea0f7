"""Charts as plain data, in inches, and their two renderers.

A figure of the report says what stands where: `chart` holds the words for it. `svg` writes a chart as text, so that a
page waits for no plotting library; `matplotlib_figure` draws the same as a Matplotlib figure, for `pdf` and `png`. A
sheet of shapes, such as the picture of the flow, is written and drawn by both as well. Widths of text come from a table
(`widths`), so all is laid out alike on every machine.
"""
