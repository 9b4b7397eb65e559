"""Calibrate: microbenchmarks built, run and recorded, and the records turned into the numbers of a profile."""
