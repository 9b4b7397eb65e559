"""Resources of a GPU and vectors of busy time (the resource vector, equation 1 of the TileSight paper).

    busy_s[r] = demand[r] / rate[r]        for each resource r

One vector, or a batch of them: the first axis of ``seconds`` is the resource, the others are the batch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilesight.errors import PlanError, suggestion

RESOURCES = ("tensor", "fp32", "sfu", "issue", "tmem", "smem", "l2", "dram", "link")
"""tensor cores, fp32 lanes, special functions, instruction issue, tensor memory, shared memory, L2 lookups, DRAM, links."""

_INDEX = {name: index for index, name in enumerate(RESOURCES)}
NOTHING = "none"
"""What ``binds`` says of a vector without any busy time."""


def _index(name: str) -> int:
    if name not in _INDEX:
        raise PlanError(f"no resource {name!r}; {suggestion(name, RESOURCES)}")
    return _INDEX[name]


@dataclass(frozen=True, eq=False)
class BusyTime:
    """Seconds for which each resource is busy, shape ``(resources, *batch)``, read-only.

    A resource that is not used, or that a GPU lacks, has 0. Build one with :meth:`of`.
    """

    seconds: NDArray[np.float64]

    def __post_init__(self) -> None:
        seconds = np.array(self.seconds, dtype=np.float64)
        if seconds.ndim == 0 or seconds.shape[0] != len(RESOURCES):
            raise PlanError(
                f"busy time has shape {seconds.shape}; the first axis must be the {len(RESOURCES)} resources"
            )
        if not (np.isfinite(seconds).all() and (seconds >= 0).all()):
            raise PlanError("busy time must be finite and not negative")
        seconds.setflags(write=False)
        object.__setattr__(self, "seconds", seconds)

    @classmethod
    def of(cls, **busy_s: ArrayLike) -> "BusyTime":
        """Vector with the named resources; the values broadcast to one batch.

        Raises
        ------
        PlanError
            If a name is no resource, or a value is negative or not finite.

        Examples
        --------
        >>> BusyTime.of(tensor=2e-6, dram=[1e-6, 3e-6]).binds()
        array(['tensor', 'dram'], dtype='<U6')
        """
        rows = {_index(name): np.asarray(value, dtype=np.float64) for name, value in busy_s.items()}
        seconds = np.zeros((len(RESOURCES), *np.broadcast_shapes(*(row.shape for row in rows.values()))))
        for index, row in rows.items():
            seconds[index] = row
        return cls(seconds)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch: () for one vector."""
        return self.seconds.shape[1:]

    def __getitem__(self, name: str) -> Any:
        """Busy seconds of one resource: a float for one vector, an array of the batch's shape otherwise."""
        return self.seconds[_index(name)][()]

    def __add__(self, other: "BusyTime") -> "BusyTime":
        """Work done one after the other, resource by resource; batches broadcast."""
        shape = np.broadcast_shapes(self.batch_shape, other.batch_shape)
        return BusyTime(self._as(shape) + other._as(shape))

    def scale(self, factor: ArrayLike) -> "BusyTime":
        """The work repeated ``factor`` times; the factor broadcasts against the batch.

        Raises
        ------
        PlanError
            If a factor is negative or not finite.

        Examples
        --------
        >>> float(BusyTime.of(dram=2e-6).scale(3)["dram"])
        6e-06
        """
        factors = np.asarray(factor, dtype=np.float64)
        if not (np.isfinite(factors).all() and (factors >= 0).all()):
            raise PlanError("a factor of busy time must be finite and not negative")
        return BusyTime(self._as(np.broadcast_shapes(self.batch_shape, factors.shape)) * factors)

    def bound_s(self) -> Any:
        """Resource bound: no schedule is faster than the busiest resource. A float, or an array of the batch's shape."""
        return self.seconds.max(axis=0)[()]

    def total_s(self) -> Any:
        """Time when nothing overlaps: the sum over resources. A float, or an array of the batch's shape."""
        return self.seconds.sum(axis=0)[()]

    def binds(self) -> Any:
        """Name of the busiest resource: a str, or an array of str. Ties go to the first in ``RESOURCES``.

        A vector without busy time gives ``"none"``.
        """
        names = np.where(self.seconds.max(axis=0) > 0, np.array(RESOURCES)[self.seconds.argmax(axis=0)], NOTHING)
        return names if self.batch_shape else str(names)

    def to_dict(self) -> dict[str, Any]:
        """Busy seconds by name, resources without busy time left out; floats or lists."""
        return {name: row.tolist() for name, row in zip(RESOURCES, self.seconds, strict=True) if row.any()}

    def _as(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Seconds with the batch broadcast to ``shape``: new batch axes go between the resource and the old ones."""
        padding = (1,) * (len(shape) - len(self.batch_shape))
        return np.broadcast_to(
            self.seconds.reshape(len(RESOURCES), *padding, *self.batch_shape), (len(RESOURCES), *shape)
        )
