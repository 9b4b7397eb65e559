"""Which tiles a launch touches, in which order: the input of every cache question.

Tiles of an (n_m, n_n) grid are visited group by group: a group is ``group`` rows of tiles, walked column by column with
the row index fastest (the grouped raster of the Triton tutorial; group = 1 is row-major, group >= n_m column-major).
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tilesight.plan.tile import Counts, tiles_to_cover


@dataclass(frozen=True)
class Access:
    """Operands and raster of a tiled product C[m, n] += A[m, k] B[k, n]; arrays of shape (L,).

    ``k`` counts the elements that one tile sums over (a split's share); ``batch`` products are computed at once.
    ``multicast_a`` and ``multicast_b`` are the CTAs of a cluster that receive one copy of an A or B tile.
    """

    m: Counts
    n: Counts
    k: Counts
    split: Counts
    batch: Counts
    tile_m: Counts
    tile_n: Counts
    tile_k: Counts
    element_bytes: Counts
    output_bytes: Counts
    group: Counts
    multicast_a: Counts
    multicast_b: Counts

    def __getitem__(self, rows: NDArray[np.intp]) -> "Access":
        """The batch of the given row numbers."""
        return Access(**{entry.name: getattr(self, entry.name)[rows] for entry in fields(self)})

    @property
    def tiles_m(self) -> Counts:
        """Tiles along m, shape (L,)."""
        return tiles_to_cover(self.m, self.tile_m)

    @property
    def tiles_n(self) -> Counts:
        """Tiles along n, shape (L,)."""
        return tiles_to_cover(self.n, self.tile_n)

    @property
    def parts(self) -> Counts:
        """Grids of tiles in the launch: splits times batch, shape (L,)."""
        return self.split * self.batch

    @property
    def a_bytes(self) -> Counts:
        """Bytes of A over all splits and the batch, shape (L,)."""
        return self.m * self.k * self.parts * self.element_bytes

    @property
    def b_bytes(self) -> Counts:
        """Bytes of B over all splits and the batch, shape (L,)."""
        return self.n * self.k * self.parts * self.element_bytes

    @property
    def c_bytes(self) -> Counts:
        """Bytes of the output C, shape (L,)."""
        return self.m * self.n * self.output_bytes * self.batch

    @property
    def requested_bytes(self) -> Counts:
        """Operand bytes that all CTAs ask for, edges clipped, before multicast and merging, shape (L,)."""
        rows = self.tiles_n * self.m + self.tiles_m * self.n
        return rows * self.k * self.parts * self.element_bytes
