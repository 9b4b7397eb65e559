"""The access stream of a launch: which blocks its CTAs read and write, in launch order and step by step.

A block is the part of a tile that one step touches: an A tile of ``tile_m`` rows is cut along k into steps. Blocks are
named by tensor, tile and step, so that CTAs with the same tile of the same tensor share them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilesight.errors import PlanError, shown
from tilesight.plan.tile import Counts
from tilesight.simulate.given import (
    BYTES_MOST,
    STEPS_MOST,
    TILES_MOST,
    integers,
    real,
    reals,
    truth,
    whole,
    word,
)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Operand:
    """What every CTA reads, or writes, of one tensor: ``step_bytes`` of its tile in each step.

    Parameters
    ----------
    tensor
        Name; operands of one name share tiles.
    tile
        Tile that each CTA walks, shape (ctas,): whole numbers of any dtype, kept as int64. Tiles of a tensor are numbered
        from 0 on without large gaps, below 10 million: what is kept of a tensor grows with the largest number.
    step_bytes
        Bytes that each CTA moves in a step, shape (ctas,); 0 where it takes no part.
    first, count
        Steps ``first`` to ``first + count - 1`` touch it; ``count`` None: to the CTA's last step.
    period
        The tile begins anew after so many steps; None: never.
    writes
        Whether it is stored, not loaded.
    copies
        CTAs of a cluster that receive each load (multicast).

    Raises
    ------
    PlanError
        If arrays differ in shape, or a value is of the wrong kind, negative, not finite, too large or 0 where it must
        not be.
    """

    tensor: str
    tile: Integers
    step_bytes: Counts
    first: int = 0
    count: int | None = None
    period: int | None = None
    writes: bool = False
    copies: int = 1

    def __post_init__(self) -> None:
        tensor = word("tensor of an operand", self.tensor, PlanError)
        of = f"of operand {tensor!r}"
        given: dict[str, object] = {
            "tensor": tensor,
            "tile": integers(f"tile {of}", self.tile, 0, TILES_MOST - 1),
            "step_bytes": reals(f"step_bytes {of}", self.step_bytes, BYTES_MOST),
            "writes": truth(f"writes {of}", self.writes, PlanError),
            "copies": whole(f"copies {of}", self.copies, PlanError, 1, STEPS_MOST),
            "first": whole(f"first {of}", self.first, PlanError, 0, STEPS_MOST),
        }
        for name in ("count", "period"):
            value = getattr(self, name)
            given[name] = None if value is None else whole(f"{name} {of}", value, PlanError, 1, STEPS_MOST)
        for name, value in given.items():
            object.__setattr__(self, name, value)
        if self.tile.shape != self.step_bytes.shape:
            sizes = f"{len(self.tile)} values of tile and {len(self.step_bytes)} of step_bytes"
            raise PlanError(f"operand {tensor!r} has {sizes}; give one value for each CTA")

    def stop(self, steps: Integers) -> Integers:
        """Step behind the last that touches it, shape (ctas,)."""
        return steps if self.count is None else np.minimum(self.first + self.count, steps)

    def active_steps(self, steps: Integers) -> Integers:
        """Steps of each CTA that touch it, shape (ctas,)."""
        return np.maximum(self.stop(steps) - self.first, 0)

    def span(self, steps: Integers) -> Integers:
        """Steps of the tile that each CTA touches, each counted once, shape (ctas,)."""
        active = self.active_steps(steps)
        return active if self.period is None else np.minimum(active, self.period)


@dataclass(frozen=True)
class Stream:
    """Operands of a launch's CTAs, their steps, and what each writes behind its last step.

    Parameters
    ----------
    operands
        In the order in which a step asks for them.
    steps
        Steps of each CTA, shape (ctas,).
    output_bytes
        Bytes that each CTA writes at its end, to a tile of its own, shape (ctas,).
    output
        Name of the tensor that they go to.

    Raises
    ------
    PlanError
        If arrays differ in shape, no byte moves, or a tile has other bytes a step in one CTA than in another.

    Examples
    --------
    >>> stream = shared_region(ctas=4, steps=8, step_bytes=1024.0)
    >>> stream.requested_bytes, stream.distinct_read_bytes
    (32768.0, 8192.0)
    """

    operands: tuple[Operand, ...]
    steps: Integers
    output_bytes: Counts
    output: str = "output"

    def __post_init__(self) -> None:
        operands = tuple(self.operands) if isinstance(self.operands, list | tuple) else (self.operands,)
        for operand in operands:
            if not isinstance(operand, Operand) or not isinstance(self.operands, list | tuple):
                raise PlanError(f"operands = {shown(self.operands)}; give a tuple of Operand")
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "steps", integers("steps", self.steps, 1, STEPS_MOST))
        object.__setattr__(self, "output_bytes", reals("output_bytes", self.output_bytes, BYTES_MOST))
        object.__setattr__(self, "output", word("output", self.output, PlanError))
        ctas = len(self.steps)
        if len(self.output_bytes) != ctas:
            raise PlanError(f"output_bytes has {len(self.output_bytes)} values; give one for each of {ctas} CTAs")
        for operand in self.operands:
            if len(operand.tile) != ctas:
                raise PlanError(f"operand {operand.tensor!r} has {len(operand.tile)} CTAs, the stream {ctas}")
            if operand.tensor == self.output:
                raise PlanError(f"operand {operand.tensor!r} has the name of the output; give another")
        if not self.requested_bytes > 0:
            raise PlanError("the stream moves no byte; give operands or an output")
        for name, tiles, sizes, _ in self._walks():
            low, high = np.full(tiles.max() + 1, np.inf), np.zeros(tiles.max() + 1)
            np.minimum.at(low, tiles, sizes)
            np.maximum.at(high, tiles, sizes)
            if np.any((high > 0) & (low < high)):
                tile = int(np.argmax((high > 0) & (low < high)))
                raise PlanError(f"tile {tile} of {name!r} has {low[tile]} and {high[tile]} bytes a step; give one size")

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def requested_bytes(self) -> float:
        """Bytes that all CTAs ask for and write, before multicast and merging."""
        asked = sum(
            float(np.sum(operand.step_bytes * operand.active_steps(self.steps))) * operand.copies
            for operand in self.operands
        )
        return asked + float(np.sum(self.output_bytes))

    @cached_property
    def written_bytes(self) -> float:
        """Bytes that all CTAs write."""
        written = sum(
            float(np.sum(operand.step_bytes * operand.active_steps(self.steps)))
            for operand in self.operands
            if operand.writes
        )
        return written + float(np.sum(self.output_bytes))

    @cached_property
    def distinct_read_bytes(self) -> float:
        """Bytes of all blocks that are read, each counted once."""
        total = 0.0
        for _, tiles, sizes, spans in self._walks(writes=False):
            held = np.zeros(tiles.max() + 1)
            np.maximum.at(held, tiles, sizes * spans)
            total += float(held.sum())
        return total

    def _walks(self, writes: bool = True) -> Iterator[tuple[str, Integers, Counts, Integers]]:
        """Each tensor with its tiles, bytes a step and steps touched, one row for each operand and CTA that moves some."""
        for name in dict.fromkeys(operand.tensor for operand in self.operands):
            walkers = [each for each in self.operands if each.tensor == name and (writes or not each.writes)]
            if not walkers:
                continue
            tiles = np.concatenate([each.tile for each in walkers])
            sizes = np.concatenate([each.step_bytes for each in walkers])
            spans = np.concatenate([each.span(self.steps) for each in walkers])
            moved = (sizes > 0) & (spans > 0)
            if np.any(moved):
                yield name, tiles[moved], sizes[moved], spans[moved]


def own_regions(ctas: int, steps: int, step_bytes: float, passes: int = 1, output_bytes: float = 0.0) -> Stream:
    """Every CTA reads a region of its own, ``steps`` of ``step_bytes``, ``passes`` times over.

    Examples
    --------
    >>> stream = own_regions(ctas=2, steps=4, step_bytes=100.0, passes=3)
    >>> stream.requested_bytes, stream.distinct_read_bytes
    (2400.0, 800.0)
    """
    tiles = np.arange(whole("ctas", ctas, PlanError, 1, TILES_MOST), dtype=np.int64)
    return _regions(tiles, steps, step_bytes, passes, output_bytes)


def shared_region(ctas: int, steps: int, step_bytes: float, passes: int = 1, output_bytes: float = 0.0) -> Stream:
    """All CTAs read the same region, ``steps`` of ``step_bytes``, ``passes`` times over."""
    tiles = np.zeros(whole("ctas", ctas, PlanError, 1, TILES_MOST), dtype=np.int64)
    return _regions(tiles, steps, step_bytes, passes, output_bytes)


def read_write_read(ctas: int, steps: int, step_bytes: float) -> Stream:
    """Every CTA reads its own region of ``x`` while it writes one of ``y`` as large, and then reads that one.

    Examples
    --------
    >>> stream = read_write_read(ctas=2, steps=4, step_bytes=100.0)
    >>> stream.requested_bytes, stream.written_bytes, len(stream)
    (2400.0, 800.0, 2)
    """
    tiles = np.arange(whole("ctas", ctas, PlanError, 1, TILES_MOST), dtype=np.int64)
    steps = whole("steps", steps, PlanError, 1, STEPS_MOST // 2)
    sizes = np.full(len(tiles), real("step_bytes", step_bytes, PlanError, "bytes", 0.0, BYTES_MOST))
    operands = (
        Operand("x", tiles, sizes, count=steps),
        Operand("y", tiles, sizes, count=steps, writes=True),
        Operand("y", tiles, sizes, first=steps, count=steps),
    )
    return Stream(operands, np.full(len(tiles), 2 * steps, dtype=np.int64), np.zeros(len(tiles)))


def _regions(tiles: Integers, steps: int, step_bytes: float, passes: int, output_bytes: float) -> Stream:
    ctas = len(tiles)
    steps = whole("steps", steps, PlanError, 1, STEPS_MOST)
    passes = whole("passes", passes, PlanError, 1, STEPS_MOST // steps)
    sizes = np.full(ctas, real("step_bytes", step_bytes, PlanError, "bytes", 0.0, BYTES_MOST))
    output = np.full(ctas, real("output_bytes", output_bytes, PlanError, "bytes", 0.0, BYTES_MOST))
    operand = Operand("x", tiles, sizes, period=steps)
    return Stream((operand,), np.full(ctas, steps * passes, dtype=np.int64), output)
