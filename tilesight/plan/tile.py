"""A tile: the block of a matrix that one CTA loads, computes or stores at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import PlanError

Counts = NDArray[np.float64]
"""One value per configuration of a batch, shape (L,); whole numbers are kept as float64."""


@dataclass(frozen=True)
class Tile:
    """A block of ``rows`` x ``cols`` elements, one per configuration of a batch.

    Parameters
    ----------
    rows, cols
        Shape of the tile, each of shape (L,), row-major.
    element_bytes
        Size of one element, in bytes, shape (L,).

    Raises
    ------
    PlanError
        If a size is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> Tile(np.array([128.0]), np.array([64.0]), np.array([2.0])).bytes
    array([16384.])
    """

    rows: Counts
    cols: Counts
    element_bytes: Counts

    def __post_init__(self) -> None:
        for name in ("rows", "cols", "element_bytes"):
            if not np.all(getattr(self, name) > 0):
                raise PlanError(f"tile {name} must be positive, got {getattr(self, name)}")

    @property
    def bytes(self) -> Counts:
        """Bytes of the whole tile, shape (L,)."""
        return self.rows * self.cols * self.element_bytes


def tiles_to_cover(size: Counts, tile: Counts) -> Counts:
    """Tiles needed to cover ``size`` elements, ceil(size / tile), shape (L,).

    >>> import numpy as np
    >>> tiles_to_cover(np.array([4096.0, 4097.0]), np.array([128.0]))
    array([32., 33.])
    """
    return np.ceil(size / tile)
