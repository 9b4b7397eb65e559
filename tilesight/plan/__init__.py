"""Tile execution plans: what a kernel does, counted in flop, bytes and tiles, on no GPU in particular."""
