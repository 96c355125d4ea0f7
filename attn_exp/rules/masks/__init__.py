"""The masks, one per file, found by file name: which places may attend."""
