"""Where the points of a sweep are computed: one engine to a file."""
