"""Hardware: what tilesight knows about GPUs, each number with its range and its source."""
