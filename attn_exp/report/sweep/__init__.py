"""Reports of sweeps: `page` and Markdown, and `plots` of the plain data in `plotted`."""
