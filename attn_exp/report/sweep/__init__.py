"""Reports of sweeps: `page` and Markdown, and `plots`, drawn from plain data that `plotted` describes."""
