"""Compare: predictions beside measured tables, scored by regime and beside the roofline."""

from tilesight.compare.predictions import Predictions
from tilesight.compare.result import Result
from tilesight.compare.run import compare_records

__all__ = ["Predictions", "Result", "compare_records"]
