"""Where the points of a sweep are computed: one engine to a file, each known by the name of its file."""
