"""DRAM reads of the closed form beside the step-by-step simulation of the same mechanism, on seeded plans.

    python validation/closed_form.py [PLANS] [SEEDS]       2000 plans, 3 seeds of the GPCs' paces each

Products of one CTA an SM of random shape, tile and raster, k of 2,048 to 49,152, in lockstep or with GPCs that differ in
pace by up to 1 %; cold. The simulation has fully associative partitions, the closed form the ways of the profile, so that
products at the edge of capacity differ most.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from tilesight import load_profile
from tilesight.cost.cache import flow
from tilesight.cost.drift import Pace
from tilesight.hardware.profile import Profile
from tilesight.plan.access import Access
from tilesight.simulate import Pace as SimulatedPace
from tilesight.simulate import simulate, tiled_product

TILES = ((128, 256), (128, 128), (256, 128))
STEPS = (32, 64, 96, 256, 448, 768)
MOST_TILES, BLOCKS = 800, 48
EDGE = 0.02
KINDS = (("at the edge of capacity", True), ("others", False))
STEP_S, STAGES, TILE_K = 0.6e-6, 4, 64


@dataclass(frozen=True)
class Compared:
    """A plan in words, DRAM reads over its compulsory bytes: closed form, and simulation (mean of its seeds), and whether
    the closed form has it at the edge of capacity, where some blocks read again hit and others don't."""

    plan: str
    closed: float
    simulated: float
    edge: bool

    @property
    def error(self) -> float:
        """Relative."""
        return self.closed / self.simulated - 1


def compare(seed: int, hardware: Profile, seeds: int = 1) -> Compared:
    """The plan of a seed."""
    draw = np.random.default_rng(seed)
    tile_m, tile_n = TILES[draw.integers(len(TILES))]
    tiles_m, tiles_n = (int(count) for count in draw.integers(2, 40, 2))
    while tiles_m * tiles_n > MOST_TILES:
        tiles_m //= 2
    m, n = tiles_m * tile_m - int(draw.integers(tile_m // 2)), tiles_n * tile_n - int(draw.integers(tile_n // 2))
    group, steps = int(draw.choice([1, 2, 4, 8, 16])), int(draw.choice(STEPS))
    spread = float(draw.choice([0.0, 0.002, 0.005, 0.01]))
    k, one = steps * TILE_K, np.ones(1)
    sizes = (m, n, k, 1, 1, tile_m, tile_n, TILE_K, 2, 2, group, 1, 1)
    access = Access(*(size * one for size in sizes))
    no = np.zeros(1, dtype=bool)
    pace = Pace(spread * one, *np.zeros((5, 1)), ctas_per_sm=one, loads_plainly=no, restarts=no)
    slots = hardware.sm_count
    moved = flow(access, slots * one, pace, hardware, 0 * one)
    closed, lost = float(moved.read_bytes[0]), float(moved.lost_bytes[0] / max(moved.again_bytes[0], 1.0))
    simulated = [
        simulate(
            tiled_product(access),
            hardware,
            slots=slots,
            stages=STAGES,
            step_s=STEP_S,
            pace=SimulatedPace(gpc_spread=spread),
            seed=seed + 1_000_000 * repeat,
            steps_per_block=max(1, steps // BLOCKS),
        ).dram_read_bytes
        for repeat in range(seeds)
    ]
    compulsory = (m + n) * k * 2
    words = f"{m} x {n} x {k}, {tile_m} x {tile_n}, width {group}, GPCs {100 * spread:g} % apart"
    return Compared(words, closed / compulsory, float(np.mean(simulated)) / compulsory, EDGE < lost < 1 - EDGE)


def main(plans: int = 2000, seeds: int = 3) -> None:
    """Compare and print."""
    hardware = load_profile("h200_sxm")
    found = sorted((compare(seed, hardware, seeds) for seed in range(plans)), key=lambda each: -abs(each.error))
    for name, kind in (("all", found), *((name, [each for each in found if each.edge == at]) for name, at in KINDS)):
        errors = np.array([each.error for each in kind])
        mean, worst = 100 * abs(errors).mean(), 100 * abs(errors).max()
        most, bias = 100 * np.quantile(abs(errors), 0.95), 100 * errors.mean()
        print(
            f"{name}: {len(kind)} plans, mean {mean:.2f} %, bias {bias:+.2f}, 95 % within {most:.1f}, worst {worst:.0f}"
        )
    for each in found[:10]:
        print(
            f"{100 * each.error:+.0f} %: {each.plan}: {each.closed:.2f}, simulated {each.simulated:.2f} of compulsory"
        )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:3]))
