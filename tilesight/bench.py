"""How fast tilesight itself is: import, first and further predictions, a ranking of 10,000, measured on the spot."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from tilesight.api import Hardware, load_profile, predict, predict_many, rank
from tilesight.cost.gemm_body import gemm_body
from tilesight.cost.occupancy import cluster_sms
from tilesight.cost.orders import find_schedule
from tilesight.cost.price import Situation, price
from tilesight.display import Displayable
from tilesight.errors import TilesightError
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm import gemm_plan
from tilesight.kernels.gemm_config import Gemm, GemmColumns, GemmConfig, Kernel
from tilesight.report.blocks import Facts, Page, describe
from tilesight.units import format_seconds

PROBLEM = Gemm(4096, 4096, 4096)
CONFIG = GemmConfig(128, 256, 64, stages=4)
CONFIGURATIONS = 10_000
SINGLES = 200
"""Configurations priced one by one to compare with the batch."""


@dataclass(frozen=True)
class Bench(Displayable):
    """Times of tilesight on this machine; medians of ``repeats`` each.

    Attributes
    ----------
    import_s
        Importing ``tilesight.api`` in a fresh interpreter.
    first_predict_s
        The first prediction in it: the profile is read and the graph of the kernel family built.
    predict_gemm_ms
        One prediction of a product not seen before, from then on, in milliseconds.
    rank_10000_s
        Ranking 10,000 legal configurations of all kernel families, cache model included.
    schedule_ms
        Searching the orders of one GEMM's loop body in which load, convert, product and store compete, in milliseconds.
    batch_difference
        Largest relative difference between times priced in one batch and one by one.
    """

    import_s: float
    first_predict_s: float
    predict_gemm_ms: float
    rank_10000_s: float
    schedule_ms: float
    batch_difference: float
    repeats: int
    hardware: str
    schema: str = "tilesight.bench/1"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def configurations(problem: Gemm, hardware: Profile, count: int = CONFIGURATIONS) -> list[GemmConfig]:
    """``count`` different configurations of all kernel families that can run, the same each time.

    Raises
    ------
    TilesightError
        If there are not so many.
    """
    groups = range(1, 49)
    families: tuple[Kernel, ...] = ("cp_async", "tma_persistent")
    in_order = [
        GemmConfig(tile_m, tile_n, tile_k, stages, warps=warps, kernel=kernel, group_m=group)
        for kernel, tile_m, tile_n, tile_k, stages, warps, group in product(
            families, (64, 128, 256), (64, 128, 256), (32, 64), (3, 4), (4, 8), groups
        )
    ]
    specialized = [
        GemmConfig(tile_m, tile_n, 64, stages, group_m=group, cluster_m=cluster, cluster_n=3 - cluster, split_k=split)
        for tile_m, tile_n, stages, cluster, split, group in product(
            (64, 128, 256), (64, 128, 192, 256), (3, 4), (1, 2), (1, 2, 4), groups
        )
    ]
    found = [*in_order, *specialized]
    priced = predict_many([problem], found, hardware=hardware, skip_refused=True)
    legal = [found[row] for row in priced.positions]
    if len(legal) < count:
        raise TilesightError(f"only {len(legal)} of {len(found)} configurations can run on {hardware.name}")
    return [legal[i] for i in np.linspace(0, len(legal) - 1, count).round().astype(int)]


def measure(hardware: Hardware, *, repeats: int = 5, count: int = CONFIGURATIONS) -> Bench:
    """Measure all of it, a few seconds long.

    Raises
    ------
    TilesightError
        If the profile can't price the products, or the fresh interpreter fails.
    """
    profile = load_profile(hardware)
    predict(PROBLEM, CONFIG, hardware=profile)  # refuses by name before anything is timed
    path = str(hardware)
    fresh = [_fresh_interpreter(path) for _ in range(repeats)]
    configs = configurations(PROBLEM, profile, count)
    return Bench(
        import_s=median(row["import_s"] for row in fresh),
        first_predict_s=median(row["first_predict_s"] for row in fresh),
        predict_gemm_ms=1e3 * _median_seconds(repeats * 20, lambda i: _predict_new(i, profile)),
        rank_10000_s=_median_seconds(repeats, lambda _: rank(PROBLEM, configs, hardware=profile)),
        schedule_ms=1e3 * _schedule_seconds(repeats * 20, profile),
        batch_difference=_largest_difference(configs, profile),
        repeats=repeats,
        hardware=profile.name,
    )


_FRESH = """
import json, sys, time
start = time.perf_counter()
import tilesight, tilesight.api
imported = time.perf_counter()
tilesight.predict(tilesight.Gemm(4096, 4096, 4096), tilesight.GemmConfig(128, 256, 64, stages=4), hardware=sys.argv[1])
print(json.dumps({"import_s": imported - start, "first_predict_s": time.perf_counter() - imported}))
"""


def _fresh_interpreter(hardware: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", _FRESH, hardware], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TilesightError(f"a fresh interpreter failed: {done.stderr.strip().splitlines()[-1:]}")
    times: dict[str, float] = json.loads(done.stdout)
    return times


def _predict_new(number: int, hardware: Profile) -> None:
    predict(Gemm(4096, 4096, 4096 + 64 * (number + 1)), CONFIG, hardware=hardware)


def _schedule_seconds(repeats: int, hardware: Profile) -> float:
    columns = GemmColumns.of([PROBLEM], [CONFIG])
    slots = cluster_sms(columns.cluster_m * columns.cluster_n, float(hardware.sm_count), hardware)
    plan = gemm_plan(columns, slots)
    stage_bytes = plan.demands["load"].global_bytes
    assert stage_bytes is not None  # every product loads its operands
    priced = price(plan, hardware, Situation("warm", np.asarray(1.0)))
    body = gemm_body(priced, 0, hardware, convert_bytes=float(stage_bytes[0]), store=True)
    return _median_seconds(repeats, lambda _: find_schedule(body))


def _median_seconds(repeats: int, action: Callable[[int], object]) -> float:
    times = []
    for number in range(repeats):
        start = time.perf_counter()
        action(number)
        times.append(time.perf_counter() - start)
    return median(times)


def _largest_difference(configs: list[GemmConfig], hardware: Profile) -> float:
    """max |batch - single| / single over evenly spaced configurations, priced among all of them and by themselves."""
    batch = predict_many([PROBLEM], configs, hardware=hardware).seconds
    rows = np.unique(np.linspace(0, len(configs) - 1, min(SINGLES, len(configs))).round().astype(int))
    single = np.array([predict(PROBLEM, configs[row], hardware=hardware).seconds for row in rows])
    return float(np.max(np.abs(batch[rows] - single) / single))


@describe.register
def describe_bench(bench: Bench) -> Page:
    """Page of a run."""
    rows = [
        ("import", format_seconds(bench.import_s)),
        ("first predict", format_seconds(bench.first_predict_s)),
        ("predict", format_seconds(bench.predict_gemm_ms / 1e3)),
        ("rank 10,000", format_seconds(bench.rank_10000_s)),
        ("schedule of a loop body", format_seconds(bench.schedule_ms / 1e3)),
        ("batch against single", f"{bench.batch_difference:.1e} largest relative difference"),
    ]
    return Page(f"tilesight on this machine, medians of {bench.repeats}, {bench.hardware}", [Facts(rows)])
