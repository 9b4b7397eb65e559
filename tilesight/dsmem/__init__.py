"""Distributed shared memory: which reductions gain from clusters, how large, and by how much."""
