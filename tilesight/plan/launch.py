"""The launch: how many CTAs, how large, and how tiles are dealt to them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class Launch:
    """A kernel launch, one per configuration; arrays of shape (L,).

    ``tiles`` output tiles (splits of k counted separately) are worked on by CTAs of ``threads`` threads with
    ``registers`` per thread and ``smem_bytes`` of shared memory, in clusters of ``cluster`` CTAs. A ``persistent``
    kernel starts one CTA a slot and walks the tiles; otherwise one CTA is launched per tile.
    ``device_descriptors`` tensor maps are built on the device before the first load. ``dependent_kernels`` further
    kernels of this operation follow (the reduction of a split), ``earlier_kernels`` come before it (operands transposed
    or quantised); both say what they read and write in all.
    """

    tiles: Counts
    threads: Counts
    registers: Counts
    smem_bytes: Counts
    cluster: Counts
    persistent: NDArray[np.bool_]
    device_descriptors: Counts
    dependent_kernels: Counts
    dependent_read_bytes: Counts
    dependent_written_bytes: Counts
    earlier_kernels: Counts
    earlier_read_bytes: Counts
    earlier_written_bytes: Counts
