"""The stream of a tiled product, in the grouped raster of :mod:`tilesight.plan.access`."""

import numpy as np

from tilesight.errors import PlanError, shown
from tilesight.plan.access import Access
from tilesight.plan.tile import Counts
from tilesight.simulate.given import TILES_MOST, whole
from tilesight.simulate.stream import Integers, Operand, Stream


def tiled_product(access: Access, row: int = 0) -> Stream:
    """CTAs of configuration ``row`` in launch order: one for each tile of C and each part (batch, then split of k).

    Tiles lie in groups of ``group`` rows, walked column by column with the row fastest. A cluster of ``multicast_b`` x
    ``multicast_a`` CTAs takes a block of tiles that the raster visits as one; each of its CTAs loads its share of the
    operands that they receive together. Rows and columns are clipped at the matrix edge, bytes a step are those of the
    whole sum over ``k`` spread evenly over its steps of ``tile_k``.

    Raises
    ------
    PlanError
        If the batch has no such row, ``access`` is no Access of positive numbers, or has more than 10 million CTAs.

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(1)
    >>> access = Access(
    ...     m=512 * one, n=512 * one, k=256 * one, split=one, batch=one, tile_m=128 * one, tile_n=128 * one,
    ...     tile_k=64 * one, element_bytes=2 * one, output_bytes=2 * one, group=2 * one, multicast_a=one, multicast_b=one)
    >>> stream = tiled_product(access)
    >>> len(stream), stream.operands[0].tile.tolist()[:5], stream.operands[1].tile.tolist()[:5]
    (16, [0, 1, 0, 1, 0], [0, 0, 1, 1, 2])
    >>> stream.requested_bytes, float(access.requested_bytes[0] + access.c_bytes[0])
    (2621440.0, 2621440.0)
    """
    if not isinstance(access, Access):
        raise PlanError(f"access = {shown(access)}; give an Access")
    length = len(access.m)
    row = whole("row", row, PlanError, -length, length - 1)
    for name, values in vars(access).items():
        least = 0.0 if name in ("element_bytes", "output_bytes") else 1.0
        if not (np.isfinite(values[row]) and values[row] >= least):
            raise PlanError(f"{name} of row {row} = {shown(values[row])}; give a finite number, {least:g} or more")

    def number(name: str) -> float:
        return float(getattr(access, name)[row])

    def integer(name: str) -> int:
        return int(getattr(access, name)[row])

    shared_a, shared_b = integer("multicast_a"), integer("multicast_b")  # CTAs along n, and along m, of a cluster
    clusters_m, clusters_n = -(-integer("tiles_m") // shared_b), -(-integer("tiles_n") // shared_a)
    group = min(max(integer("group") // shared_b, 1), clusters_m)
    ctas = clusters_m * clusters_n * shared_a * shared_b * integer("parts")
    if ctas > TILES_MOST:
        raise PlanError(f"{ctas} CTAs; a stream has {TILES_MOST} at most")
    cluster_row, cluster_column = _raster(clusters_m, clusters_n, group)
    place = np.arange(shared_a * shared_b)
    tile_row = (cluster_row[:, None] * shared_b + place % shared_b).ravel()
    tile_column = (cluster_column[:, None] * shared_a + place // shared_b).ravel()

    parts = integer("parts")
    part = np.repeat(np.arange(parts), len(tile_row))
    tile_row, tile_column = np.tile(tile_row, parts), np.tile(tile_column, parts)
    rows = _clipped(tile_row, number("tile_m"), number("m"))
    columns = _clipped(tile_column, number("tile_n"), number("n"))
    steps = int(np.ceil(number("k") / number("tile_k")))
    step_bytes = number("k") * number("element_bytes") / steps

    tile_a = (part * clusters_m * shared_b + tile_row) * shared_a + tile_column % shared_a
    tile_b = (part * clusters_n * shared_a + tile_column) * shared_b + tile_row % shared_b
    return Stream(
        operands=(
            Operand("a", tile_a, rows * step_bytes / shared_a, copies=shared_a),
            Operand("b", tile_b, columns * step_bytes / shared_b, copies=shared_b),
        ),
        steps=np.full(len(part), steps, dtype=np.int64),
        output_bytes=rows * columns * number("output_bytes"),
        output="c",
    )


def _raster(rows: int, columns: int, group: int) -> tuple[Integers, Integers]:
    """Row and column of each tile in the order of visits, shape (rows * columns,) each."""
    starts = range(0, rows, group)
    inner = [np.arange(start, min(start + group, rows)) for start in starts]
    row = np.concatenate([np.tile(each, columns) for each in inner])
    column = np.concatenate([np.repeat(np.arange(columns), len(each)) for each in inner])
    return row, column


def _clipped(index: Integers, tile: float, size: float) -> Counts:
    """Rows of each tile that lie inside the matrix; 0 for CTAs that fill up a cluster."""
    return np.clip(size - index * tile, 0.0, tile)
