"""Simulate: a launch's way through L2, step by step; the reference that bounds the error of closed forms.

Slow beside the closed forms of ``cost/`` (microseconds for each step of a CTA) and without any law fitted to traffic.
"""

from tilesight.simulate.chip import Chip, Pace, Service, chip_of, service_of
from tilesight.simulate.launch import simulate
from tilesight.simulate.result import Simulated
from tilesight.simulate.stream import Operand, Stream, own_regions, read_write_read, shared_region
from tilesight.simulate.tiles import tiled_product

__all__ = [
    "Chip",
    "Operand",
    "Pace",
    "Service",
    "Simulated",
    "Stream",
    "chip_of",
    "own_regions",
    "read_write_read",
    "service_of",
    "shared_region",
    "simulate",
    "tiled_product",
]
