"""Files of arrays: one format to a file, each read as numbers alone, so that nothing in one can run code."""
