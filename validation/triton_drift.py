"""How CTAs of the Triton products drift apart along k, and what that does to their L2 and DRAM traffic.

Run        python3 validation/triton_drift.py OUT_DIR PLACES.csv [--stages]
Output     OUT_DIR/triton_drift.csv, triton_drift_tiles.csv and their .toml; with --stages, which goes through rings of two
           to five stages instead, triton_drift_stages.csv, triton_drift_stages_tiles.csv

The profiler runs this script with `OUT_DIR PLACES.csv --launch FIRST LAST FILE`, which launches points FIRST..LAST-1 once
each and writes stamps to FILE. PLACES.csv is the record `gpc_clock` of the same board: GPC, TPC and CPC of each SM. Every
launch stamps begin, end and SM of every tile.
triton_drift        Nsight Compute, caches flushed before each launch (cache control all), clocks left alone; beside the
                    counters, spreads of the last pass of that same launch. Metric names are kept verbatim as column names
triton_drift_tiles  the same points launched back to back without a profiler: one row a launch (part = run), and of attempt
                    0 one a tile rank (part = rank)

Rank r of a tile: its slot on an SM computes it after r others. Position along k of a CTA: k times the elapsed share of
its tile's time, and for `k_spread_run` k times the rank more. Spreads and sd are standard deviations; `within` means inside
groups, pooled: tiles of the same rank in a GPC, on four SMs (two TPCs) next to each other, on a TPC, in a row of tiles
(they share A), in a column (B).
lateness_slope: change of tile time with the start of the tile; clock_slope: change of the mean tile time of a GPC with
the mean cycle time of its SMs, both relative to their means (1: the clock alone makes the difference).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import multiprocessing
import pathlib
import subprocess
import sys
import time

import numpy as np
from script import parsed, parser_of

if __name__ == "__main__":  # before PyTorch is imported, so that --help needs none
    PARSER = parser_of(__doc__)
    PARSER.add_argument("places", metavar="PLACES.csv", help="the record gpc_clock of the same board")
    PARSER.add_argument("--stages", action="store_true", help="rings of two to five stages in place of the usual ones")
    PARSER.add_argument("--launch", nargs=3, metavar=("FIRST", "LAST", "FILE"), help="launch these points alone")
    OPTIONS = parsed(PARSER, tools=() if "--launch" in sys.argv else ("ncu",))

import torch
import triton
import triton.language as tl
from triton_gemm import STAMP_FIELDS, _descriptor, _read_clocks, _store_stamp, _tile_row_col, compile_only, launch
from triton_plans import SM_COUNT, Config
from triton_timing import Operands, event_seconds, sm_clock_hz, write_record

METRICS = [
    "gpu__time_duration.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sector_hit_rate.pct",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
]
SECTOR_BYTES = 32
DEPTHS = (2112, 6208, 14272, 30016, 60096)
CLASSES = [  # configuration, tiles of one wave (rows, columns)
    (Config("ptr", 128, 256, 64, 3, 8), (12, 11)),
    (Config("tma", 128, 256, 64, 3, 8), (12, 11)),
    (Config("tma", 128, 128, 64, 4, 8), (12, 11)),
    (Config("ptr", 128, 128, 64, 3, 8), (17, 15)),
    (Config("ptr", 128, 128, 64, 3, 4), (17, 15)),
    (Config("ptr", 64, 128, 64, 3, 4), (22, 18)),
    (Config("ptr", 64, 64, 64, 4, 4), (22, 18)),
]
STAGED = [
    *(Config("tma", 128, 128, 64, stages, 8) for stages in (2, 3, 4, 5)),
    *(Config(kernel, 128, 256, 64, stages, 8) for kernel in ("tma", "ptr") for stages in (2, 3)),
    *(Config("ptr", 128, 128, 64, stages, 8) for stages in (2, 4)),
]
STAGED_WIDTHS, STAGED_DEPTHS = (1, 8, 32), (6208, 30016)
MANY_M, MANY_N = 5632, 6656  # 8.7 waves of 128x256 tiles
ATTEMPTS = 3  # of the deepest points
SHOWN_RANKS = (0, 1, 5, 14)
FULL_GRIDS = ((22, 12), (16, 16))  # 128x128 tiles, two an SM: no SM with one CTA only, and eight
SUFFIX = "_stages" if __name__ == "__main__" and OPTIONS.stages else ""
DIGITS = 4  # of the numbers in triton_drift_tiles


def points() -> list[dict]:
    """Every launch, in the order it is made; `attempt` numbers equal ones."""
    made = []
    if OPTIONS.stages:
        for config, width, k in itertools.product(STAGED, STAGED_WIDTHS, STAGED_DEPTHS):
            wide = dataclasses.replace(config, group_m=width)
            made.append(dict(waves="many", config=wide, m=MANY_M, n=MANY_N, k=k, attempt=0))
        return made
    for attempt in range(ATTEMPTS):
        for waves, widths in (("many", (1, 8, 4, 32)), ("one", (8, 1))):
            for config, (rows, cols) in CLASSES:
                m, n = (MANY_M, MANY_N) if waves == "many" else (rows * config.tile_m, cols * config.tile_n)
                for width in widths:
                    for k in DEPTHS if attempt == 0 else DEPTHS[-1:]:
                        wide = dataclasses.replace(config, group_m=width)
                        made.append(dict(waves=waves, config=wide, m=m, n=n, k=k, attempt=attempt))
    for config in (config for config, _ in CLASSES if config.kernel == "ptr" and config.tile_m == config.tile_n == 128):
        for rows, cols in FULL_GRIDS:
            for k in DEPTHS[-2:]:
                made.append(dict(waves="one", config=config, m=rows * 128, n=cols * 128, k=k, attempt=0))
    return made


def tiles_of(point: dict) -> tuple[int, int]:
    """Rows and columns of tiles."""
    config = point["config"]
    return -(-point["m"] // config.tile_m), -(-point["n"] // config.tile_n)


def columns_of(point: dict) -> dict:
    """What a row says about its point."""
    named = {key: value for key, value in point.items() if key != "config"}
    rows, cols = tiles_of(point)
    config = point["config"].columns()
    del config["even_k"], config["tile_k"]
    return named | config | dict(tiles=rows * cols)


# ---- launches that stamp every tile


@triton.jit
def gemm_tma_tiles(
    a_in,
    b_in,
    c_in,
    stamp_ptr,
    m,
    n,
    k,
    pitch_a,
    pitch_b,
    pitch_c,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    group_m: tl.constexpr,
):
    """`gemm_tma` with a stamp a tile: begin is that of the kernel, end that of the tile."""
    start = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    cycle_begin, time_begin = _read_clocks()
    a_desc = _descriptor(a_in, [m, k], [pitch_a, 1], [tile_m, tile_k])
    b_desc = _descriptor(b_in, [k, n], [pitch_b, 1], [tile_k, tile_n])
    c_desc = _descriptor(c_in, [m, n], [pitch_c, 1], [tile_m, tile_n])
    tiles_m = tl.cdiv(m, tile_m)
    tiles_n = tl.cdiv(n, tile_n)
    for tile in tl.range(start, tiles_m * tiles_n, programs, flatten=True):
        row, col = _tile_row_col(tile, tiles_m, tiles_n, group_m)
        total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
        for step in range(tl.cdiv(k, tile_k)):
            a = a_desc.load([row * tile_m, step * tile_k])
            b = b_desc.load([step * tile_k, col * tile_n])
            total = tl.dot(a, b, total)
        c_desc.store([row * tile_m, col * tile_n], total.to(tl.bfloat16))
        cycle_end, time_end = _read_clocks()
        _store_stamp(stamp_ptr, tile, cycle_begin, time_begin, cycle_end, time_end)


def _tma_options(config: Config) -> dict:
    names = ("tile_m", "tile_n", "tile_k", "group_m")
    return {name: getattr(config, name) for name in names} | dict(num_warps=config.warps, num_stages=config.stages)


def start(config: Config, a, b, c, stamps) -> None:
    """Start one product whose every tile is stamped."""
    if config.kernel == "ptr":
        launch(config, a, b, c, stamps, stamped=True)
        return
    (m, k), n = a.shape, b.shape[1]
    tiles = -(-m // config.tile_m) * -(-n // config.tile_n)
    pitches = (a.stride(0), b.stride(0), c.stride(0))
    gemm_tma_tiles[(min(tiles, SM_COUNT),)](a, b, c, stamps, m, n, k, *pitches, **_tma_options(config))


def _compile(job: tuple) -> None:
    config, stamped = job
    if config.kernel == "tma" and stamped:
        types = (torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int64)
        gemm_tma_tiles.warmup(*types, *[256] * 6, grid=(1,), **_tma_options(config))
    else:
        compile_only(config, stamped=stamped)


def check() -> list[str]:
    """Products of the stamped persistent kernel against float64, C poisoned; one line for each failure."""
    failures = []
    for config in dict.fromkeys(point["config"] for point in points()):
        for m, n, k in ((272, 304, 336), (5632, 3328, 192)):
            generator = torch.Generator(device="cuda").manual_seed(1)
            a, b = (
                torch.randn(*shape, device="cuda", generator=generator).to(torch.bfloat16) for shape in ((m, k), (k, n))
            )
            c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            start(config, a, b, c, torch.zeros(1 << 17, device="cuda", dtype=torch.int64))
            exact = a.double() @ b.double()
            error = float((c.double() - exact).norm() / exact.norm())
            if not error < 5e-3:
                failures.append(f"{config} {m}x{n}x{k}: relative error {error}")
    return failures


# ---- what the stamps say


@dataclasses.dataclass(frozen=True)
class Places:
    """GPC, TPC (rank in its GPC) and CPC of each SM, and whether the CPC has fewer SMs than others of the GPC."""

    gpc: np.ndarray
    tpc: np.ndarray
    small: np.ndarray

    @staticmethod
    def read(path: pathlib.Path) -> Places:
        rows = [r for r in csv.DictReader(path.open()) if (r["part"], r["load"], r["state"]) == ("sm", "chain", "held")]
        gpc, tpc, cpc = (np.array([int(r[name]) for r in rows]) for name in ("gpc", "tpc", "cpc"))
        counts = {pair: int(((gpc == pair[0]) & (cpc == pair[1])).sum()) for pair in set(zip(gpc, cpc, strict=True))}
        size = np.array([counts[pair] for pair in zip(gpc, cpc, strict=True)])
        return Places(gpc, tpc, size < 6)


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Every tile of one launch: times in ns since the first begin, cycles it took, SM, rank, place in the raster."""

    begin: np.ndarray
    end: np.ndarray
    cycles: np.ndarray
    sm: np.ndarray
    rank: np.ndarray
    younger: np.ndarray  # not the first of its rank on its SM
    row: np.ndarray
    col: np.ndarray
    resident: int

    @staticmethod
    def of(point: dict, table: np.ndarray) -> Tiles:
        config, count = point["config"], len(table)
        cycle_begin, begin, cycle_end, end, sm = table.T.copy()
        if config.kernel == "tma" and count > SM_COUNT:  # a tile begins where the one before it ended
            begin[SM_COUNT:], cycle_begin[SM_COUNT:] = end[:-SM_COUNT], cycle_end[:-SM_COUNT]
        zero = begin.min()
        order = np.lexsort((np.arange(count), begin, sm))
        place = np.empty(count, dtype=int)  # of a tile among those of its SM
        first_of_sm = np.r_[0, np.flatnonzero(np.diff(sm[order])) + 1]
        lengths = np.diff(np.r_[first_of_sm, count])
        place[order] = np.arange(count) - np.repeat(first_of_sm, lengths)
        first_end = np.full(SM_COUNT, np.inf)
        np.minimum.at(first_end, sm, end)
        resident = int(np.bincount(sm[begin < first_end[sm]]).max())
        rows, cols = tiles_of(point)
        number = np.arange(count)
        group = number // (config.group_m * cols)
        height = np.minimum(rows - group * config.group_m, config.group_m)
        inside = number % (config.group_m * cols)
        return Tiles(
            (begin - zero).astype(float),
            (end - zero).astype(float),
            (cycle_end - cycle_begin).astype(float),
            sm,
            place // resident,
            place % resident > 0,
            group * config.group_m + inside % height,
            inside // height,
            resident,
        )


def within(values: np.ndarray, *keys: np.ndarray) -> float:
    """Standard deviation inside groups of equal keys, pooled; NaN without a group of two."""
    _, group = np.unique(np.stack(keys), axis=1, return_inverse=True)
    count = np.bincount(group)
    mean = np.bincount(group, values) / count
    squares = np.bincount(group, (values - mean[group]) ** 2)
    freedom = (count[count > 1] - 1).sum()
    return float(np.sqrt(squares[count > 1].sum() / freedom)) if freedom else float("nan")


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of the straight line through the points; NaN where x does not vary."""
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 2 and x.std() > 0 else float("nan")


def spreads(point: dict, tiles: Tiles) -> dict:
    """Spread of positions along k at three moments, elements, in the tile and in the run."""
    span, found = tiles.end.max(), {}
    for percent in (10, 50, 90):
        now = span * percent / 100
        on = (tiles.begin <= now) & (now < tiles.end)
        position = point["k"] * (now - tiles.begin[on]) / (tiles.end[on] - tiles.begin[on])
        found[f"k_spread_{percent}pct"] = float(position.std()) if on.any() else float("nan")
        run = position + point["k"] * tiles.rank[on]
        found[f"k_spread_run_{percent}pct"] = float(run.std()) if on.any() else float("nan")
    return found


def neighbours(tiles: Tiles, places: Places) -> dict:
    """Share of consecutive tiles that are in one GPC, in the first wave and in later ones (NaN where there are few)."""
    gpc, wave = places.gpc[tiles.sm], np.arange(len(tiles.sm)) // (SM_COUNT * tiles.resident)
    same = gpc[1:] == gpc[:-1]
    first, later = same[wave[1:] == 0], same[wave[1:] > 0]
    few = len(later) < SM_COUNT // 2
    return dict(same_gpc_first=float(first.mean()), same_gpc_later=float("nan") if few else float(later.mean()))


def run_columns(point: dict, tiles: Tiles) -> dict:
    """One launch as a whole."""
    took = tiles.end - tiles.begin
    clock = tiles.cycles / took
    return dict(
        resident=tiles.resident,
        span_s=tiles.end.max() * 1e-9,
        tile_time_s=float(np.median(took)) * 1e-9,
        tile_time_rel_sd=float(took.std() / took.mean()),
        clock_hz=float(np.median(clock)) * 1e9,
    ) | spreads(point, tiles)


def rank_columns(tiles: Tiles, places: Places, rank: int) -> dict:
    """The tiles of one rank."""
    of = tiles.rank == rank
    begin, sm = tiles.begin[of], tiles.sm[of]
    took, younger = (tiles.end - tiles.begin)[of], tiles.younger[of]
    gpc, tpc, small = places.gpc[sm], places.tpc[sm], places.small[sm]
    gpcs = np.unique(gpc)
    mean = np.array([took[gpc == g].mean() for g in gpcs])
    cycle = np.array([(took[gpc == g] / tiles.cycles[of][gpc == g]).mean() for g in gpcs])
    start_mean = np.array([begin[gpc == g].mean() for g in gpcs])
    split = np.isin(gpc, [g for g in gpcs if small[gpc == g].any()])  # GPCs that have a small CPC
    fast, slow = took[split & small], took[split & ~small]
    return dict(
        rank=rank,
        tiles_of_rank=int(of.sum()),
        tile_time_s=float(np.median(took)) * 1e-9,
        clock_hz=1e9 / float(np.median(took / tiles.cycles[of])),
        tile_time_rel_sd=float(took.std() / took.mean()),
        tile_time_rel_sd_gpc=float(mean.std() / mean.mean()),
        tile_time_rel_sd_within_gpc=within(took, gpc) / took.mean(),
        tile_time_rel_sd_within_four=within(took, gpc, tpc // 2) / took.mean(),
        start_sd_s=float(begin.std()) * 1e-9,
        start_sd_gpc_s=float(start_mean.std()) * 1e-9,
        start_sd_within_gpc_s=within(begin, gpc) * 1e-9,
        start_sd_within_four_s=within(begin, gpc, tpc // 2) * 1e-9,
        start_sd_within_tpc_s=within(begin, gpc, tpc) * 1e-9,
        start_sd_sharers_a_s=within(begin, tiles.row[of]) * 1e-9,
        start_sd_sharers_b_s=within(begin, tiles.col[of]) * 1e-9,
        small_cpc_ratio=float(np.median(fast) / np.median(slow)) if len(fast) and len(slow) else float("nan"),
        younger_ratio=float(np.median(took[younger]) / np.median(took[~younger])) if younger.any() else float("nan"),
        lateness_slope=slope(begin, took),
        clock_rel_sd_gpc=float(cycle.std() / cycle.mean()),
        clock_slope=slope(cycle / cycle.mean(), mean / mean.mean()),
    )


# ---- counts


def launch_points(first: int, last: int, file: str) -> None:
    """Launch the points once each and keep their stamps; nothing else of ours runs a kernel named gemm_*."""
    operands, kept = Operands(401_000_000, 40_000_000), {}
    for index, point in enumerate(points()[first:last], first):
        a, b, c = operands.views(point["m"], point["n"], point["k"])
        start(point["config"], a, b, c, operands.stamps)
        kept[str(index)] = read_table(point, operands)
    np.savez_compressed(file, **kept)


def read_table(point: dict, operands: Operands) -> np.ndarray:
    """Stamps of the last launch, (tiles, STAMP_FIELDS)."""
    rows, cols = tiles_of(point)
    return operands.stamps[: rows * cols * STAMP_FIELDS].view(-1, STAMP_FIELDS).cpu().numpy()


def profile(folder: pathlib.Path, places: Places, first: int, last: int) -> list[dict]:
    """Counted rows of points FIRST..LAST-1."""
    stamps = folder / f"counted_{first}.npz"
    options = "--clock-control none --cache-control all -k regex:^gemm_ --csv --page raw --print-units base --metrics"
    launching = [
        sys.executable,
        __file__,
        OPTIONS.folder,
        OPTIONS.places,
        *(["--stages"] if OPTIONS.stages else []),
        "--launch",
        str(first),
        str(last),
        str(stamps),
    ]
    command = ["ncu", *options.split(), ",".join(METRICS), *launching]
    done = subprocess.run(command, capture_output=True, text=True)
    (folder / f"ncu_{first}.txt").write_text(done.stdout + done.stderr)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    counted = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row["ID"].isdigit()]
    wanted = points()[first:last]
    if len(counted) != len(wanted):
        print(done.stdout[-1500:], done.stderr[-1500:], f"{len(counted)} of {len(wanted)} launches counted")
        return []
    tables, rows = np.load(stamps), []
    for index, (point, row) in enumerate(zip(wanted, counted, strict=True), first):
        config, (tiles_m, tiles_n) = point["config"], tiles_of(point)
        values = {name: float(row[name].replace(",", "")) for name in METRICS}
        asked = tiles_m * tiles_n * (config.tile_m + config.tile_n) * point["k"] * 2
        lookups = values["lts__t_sectors_srcunit_tex.sum"] * SECTOR_BYTES - 2 * point["m"] * point["n"]
        shares = dict(asked_bytes=asked, lookup_share=lookups / asked, passes=int(row["profiler__replayer_passes"]))
        tiles = Tiles.of(point, tables[str(index)])
        rows.append(columns_of(point) | shares | values | run_columns(point, tiles) | neighbours(tiles, places))
    return rows


def count(folder: pathlib.Path, places: Places, share: int = 70) -> None:
    """Write the record of the counters."""
    rows, begun, before_hz = [], time.time(), sm_clock_hz()
    for first in range(0, len(points()), share):
        rows += profile(folder, places, first, min(first + share, len(points())))
        notes = (
            "Nsight Compute, three passes, caches flushed before each launch, clocks as found; "
            "every tile stamped, spreads are of the last pass"
        )
        if rows:
            write_record(folder, f"triton_drift{SUFFIX}", rows, notes, [before_hz, sm_clock_hz()])
        print(f"counted: {len(rows)} rows, {time.time() - begun:.1f} s", flush=True)


# ---- times


def stamp(folder: pathlib.Path, places: Places, last: int | None = None) -> None:
    """Write the record of the tiles."""
    operands, rows, kept, begun, before_hz = Operands(401_000_000, 40_000_000), [], {}, time.time(), sm_clock_hz()
    for index, point in enumerate(points()[:last]):
        a, b, c = operands.views(point["m"], point["n"], point["k"])
        plain_s = sorted(event_seconds(lambda a=a, b=b, c=c: launch(point["config"], a, b, c, operands.stamps), 3))[1]  # noqa: B023
        for _ in range(3):
            start(point["config"], a, b, c, operands.stamps)
        table = read_table(point, operands)
        times = table[:, [1, 3]] - table[:, 1].min()
        kept[str(index)] = np.c_[times, table[:, 2] - table[:, 0], table[:, 4]].astype(np.int32)
        tiles = Tiles.of(point, table)
        columns = columns_of(point)
        rows.append(dict(part="run") | columns | dict(plain_s=plain_s) | run_columns(point, tiles))
        if point["attempt"]:
            continue
        full = [r for r in range(tiles.rank.max() + 1) if (tiles.rank == r).sum() >= 0.9 * SM_COUNT * tiles.resident]
        for rank in dict.fromkeys([r for r in full if r in SHOWN_RANKS] + full[-1:]):
            rows.append(dict(part="rank") | columns | rank_columns(tiles, places, rank))
    for row in rows:
        row |= {name: float(f"{value:.{DIGITS}g}") for name, value in row.items() if isinstance(value, float)}
    notes = "third of three launches in a row, no profiler; plain_s: time of one launch without stamps"
    write_record(folder, f"triton_drift{SUFFIX}_tiles", rows, notes, [before_hz, sm_clock_hz()])
    np.savez_compressed(folder / "stamped.npz", **kept)
    print(f"stamped: {len(rows)} rows, {time.time() - begun:.1f} s", flush=True)


def main() -> None:
    folder, places = pathlib.Path(OPTIONS.folder), Places.read(pathlib.Path(OPTIONS.places))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.time()
    jobs = [(config, stamped) for config in dict.fromkeys(p["config"] for p in points()) for stamped in (True, False)]
    with multiprocessing.get_context("fork").Pool(14) as pool:
        list(pool.imap_unordered(_compile, jobs))
    print(f"compiled in {time.time() - begun:.1f} s", flush=True)
    if failures := check():
        sys.exit("\n".join(failures))
    print(f"agrees with float64 ({time.time() - begun:.1f} s)", flush=True)
    stamp(folder, places)
    torch.cuda.empty_cache()
    count(folder, places)


if __name__ == "__main__":
    if OPTIONS.launch:
        first, last, file = OPTIONS.launch
        launch_points(int(first), int(last), file)
    else:
        main()
