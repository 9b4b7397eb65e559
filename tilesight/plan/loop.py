"""The main loop of a CTA: how often its body runs and how deep its buffer ring is."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilesight.plan.tile import Counts


@dataclass(frozen=True)
class Loop:
    """``iterations`` of the body per tile (k-steps) and ``stages`` of the ring, each of shape (L,)."""

    iterations: Counts
    stages: Counts

    @property
    def columns(self) -> Mapping[str, Counts]:
        """The columns that edge distances may name."""
        return {"stages": self.stages, "iterations": self.iterations}
