"""Which places may attend: one mask to a file, found by its name."""
