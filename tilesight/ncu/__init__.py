"""Nsight Compute: reports and raw pages, what their counters are called, and what their launches compute."""

from tilesight.ncu.names import COUNTERS, metrics_option
from tilesight.ncu.page import Launch
from tilesight.ncu.points import Point, point_of_texts, read_points
from tilesight.ncu.repeats import read_counted
from tilesight.ncu.report import is_report, read_launches

__all__ = [
    "COUNTERS",
    "Launch",
    "Point",
    "is_report",
    "metrics_option",
    "point_of_texts",
    "read_counted",
    "read_launches",
    "read_points",
]
