"""Bytes that each alternative moves: once from DRAM, again from L2 or DRAM, or from where the row was kept.

    reads from DRAM = first reads (1 - warm) + later reads (1 - hit),        hit = P(hit at the bytes in between)

Between two passes over its row a CTA finds what least-recently-used replacement left after all rows that are worked on at
once have passed by: their inputs, with the copies that L2 keeps of a line, and their outputs (:func:`again_hit_share`).
``warm`` is what a repeated launch finds of its own inputs. Both are the stochastic distance-based model of the cache
(``cost/reuse.py``).
"""

from dataclasses import dataclass

import numpy as np

from tilesight.cost.reuse import hit_probability_gaussian
from tilesight.dsmem.rates import Rates
from tilesight.dsmem.staging import Floats
from tilesight.dsmem.workload import Form, Workload

ENDS = (np.arange(8) + 0.5) / 8
"""Places of a row at which a pass that goes backwards is looked at, as shares of the row from its end."""


@dataclass(frozen=True)
class Walk:
    """One pass in bytes an element: inputs read for the first time, read again, and shared by all rows."""

    first_bytes: float
    again_bytes: float
    shared_bytes: float
    instructions: float
    special: float
    statistics: int


@dataclass(frozen=True)
class Walks:
    """The passes of one form of a workload, and bytes an element of a row: inputs, outputs, and what passes read again."""

    passes: tuple[Walk, ...]
    input_bytes: float
    output_bytes: float

    @property
    def again_bytes(self) -> float:
        """Bytes an element that later passes read again."""
        return sum(each.again_bytes for each in self.passes)

    @property
    def shared_bytes(self) -> float:
        """Bytes an element of inputs that all rows share, over all passes."""
        return sum(each.shared_bytes for each in self.passes)


def walks(workload: Workload, form: Form, dtype: str) -> Walks:
    """Passes of a form with what each reads first and again.

    Examples
    --------
    >>> from tilesight.dsmem.catalogue import workload
    >>> [(each.first_bytes, each.again_bytes) for each in walks(workload("lars_momentum"), "merged", "fp32").passes]
    [(8.0, 0), (4.0, 8.0)]
    """
    seen: set[str] = set()
    found = []
    for each in workload.form(form):
        new = [name for name in each.reads if name not in seen]
        old = [name for name in each.reads if name in seen]
        seen |= set(each.reads)
        found.append(
            Walk(
                workload.read_bytes(new, dtype),
                workload.read_bytes(old, dtype),
                workload.read_bytes(each.reads, dtype, shared=True),
                # a 16-byte load or store for each input and output, and the loop around them
                each.instructions
                + 0.25 * len(each.reads)
                + 0.5
                + (0 if each.statistics else 0.25 * len(workload.outputs)),
                each.special,
                each.statistics,
            )
        )
    return Walks(tuple(found), workload.read_bytes(seen, dtype), workload.written_bytes(dtype))


def hit_share(held_bytes: Floats, rates: Rates) -> Floats:
    """Chance that a line is still in L2 after so many bytes have passed by, copies counted."""
    ways = min(rates.l2_ways, int(rates.l2_bytes / rates.l2_line_bytes))
    return hit_probability_gaussian(held_bytes / rates.l2_line_bytes, ways, rates.l2_bytes / rates.l2_line_bytes)


def again_hit_share(moved: Walks, elements: Floats, rows_at_once: Floats, backwards: bool, rates: Rates) -> Floats:
    """Share of later reads that L2 still holds, where the rows that are worked on keep step.

    A pass in the direction of the one before finds what a whole row ago was read: the inputs of all rows, and what was
    written of their outputs. One that goes backwards begins with what was read last: an element at the share f of the row
    from its end comes back when that share of every row has been read, and written.
    """
    writes = moved.output_bytes if backwards else moved.output_bytes / max(len(moved.passes), 1)
    held = rows_at_once * elements * (moved.input_bytes * rates.copies + writes)
    if not backwards:
        return hit_share(held, rates)
    share: Floats = np.mean(hit_share(ENDS.reshape(-1, *[1] * held.ndim) * held, rates), axis=0)
    return share


def warm_share(moved: Walks, rows: int, cols: Floats, rates: Rates) -> Floats:
    """Share of the inputs that a repeated launch finds in L2."""
    held = rows * cols * (moved.input_bytes * rates.copies + moved.output_bytes)
    return hit_share(np.asarray(held, dtype=float), rates)
