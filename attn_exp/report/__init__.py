"""All that a reader sees: terminal, page, figures and tables."""
