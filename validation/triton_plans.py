"""What the Triton experiments run: tile configurations and the points of each experiment. Pure Python, no GPU.

Sizes in elements. `points_*` give dictionaries that `triton_loops.py`, `triton_power.py` and `triton_lookups.py` execute.
"""

from __future__ import annotations

import dataclasses

SM_COUNT = 132
L2_RESIDENT_BYTES = 30e6  # operands and C below this stay in L2 over repeats (each half of the L2 keeps a copy)
STREAMED_BYTES = 120e6  # operands above this come from DRAM in every repeat


@dataclasses.dataclass(frozen=True)
class Config:
    """One compiled tile: kernel `ptr` or `tma`, tile sizes, pipeline stages, warps, raster width."""

    kernel: str
    tile_m: int
    tile_n: int
    tile_k: int
    stages: int
    warps: int
    group_m: int = 8
    even_k: bool = False  # ptr only: leave the k mask out

    def columns(self) -> dict:
        return dataclasses.asdict(self)


def _configs(kernel: str, *specs: str) -> list[Config]:
    """'128x256x64 s3 w8' -> Config."""
    made = []
    for spec in specs:
        tile, stages, warps = spec.split()
        tile_m, tile_n, tile_k = (int(x) for x in tile.split("x"))
        made.append(Config(kernel, tile_m, tile_n, tile_k, int(stages[1:]), int(warps[1:])))
    return made


LOOP_CONFIGS = [
    *_configs(
        "ptr",
        "128x256x64 s3 w8",
        "128x256x64 s4 w8",
        "256x128x64 s3 w8",
        "256x128x64 s4 w8",
        "128x128x64 s3 w8",
        "128x128x64 s4 w8",
        "128x128x64 s2 w8",
        "128x128x64 s3 w4",
        "128x128x64 s4 w4",
        "128x128x128 s2 w8",
        "128x128x32 s4 w4",
        "256x128x32 s4 w8",
        "64x128x64 s3 w4",
        "64x128x64 s4 w4",
        "128x64x64 s3 w4",
        "128x64x64 s4 w4",
        "64x64x64 s4 w4",
        "64x64x64 s3 w4",
        "64x64x64 s2 w4",
        "64x64x32 s3 w4",
        "64x256x64 s3 w4",
        "256x64x64 s4 w8",
        "32x128x64 s4 w4",
    ),
    Config("ptr", 128, 256, 64, 3, 8, even_k=True),
    Config("ptr", 128, 128, 64, 3, 8, even_k=True),
    Config("ptr", 64, 64, 64, 4, 4, even_k=True),
    *_configs(
        "tma",
        "128x256x64 s3 w8",
        "128x256x64 s2 w8",
        "256x128x64 s3 w8",
        "128x128x64 s4 w8",
        "128x128x64 s3 w8",
        "128x128x64 s2 w8",
        "128x128x64 s3 w4",
        "128x128x128 s2 w8",
        "64x128x128 s3 w4",
        "64x256x64 s4 w4",
        "64x128x64 s4 w4",
        "128x64x64 s4 w4",
        "64x64x64 s4 w4",
    ),
]
CHECK_CONFIGS = LOOP_CONFIGS
CHECK_SIZES = [(256, 512, 256), (272, 304, 336), (208, 528, 80), (1424, 1616, 144)]


def _point(bench: str, config: Config, m: int, n: int, k: int, **more) -> dict:
    return dict(bench=bench, config=config, m=m, n=n, k=k, **more)


def occupancy_by_smem(config: Config) -> int:
    """CTAs an SM holds by shared memory alone (228 KiB, 1 KiB reserved a CTA); 1 for the persistent kernel."""
    if config.kernel == "tma":
        return 1
    smem_bytes = config.stages * (config.tile_m + config.tile_n) * config.tile_k * 2
    return min(233472 // (smem_bytes + 1024), 2048 // (32 * config.warps))


def points_steps() -> list[dict]:
    """Time against k on grids of 1, 16, 54, 132 (and 2, 3 CTAs an SM) tiles, operands in L2, and streamed from DRAM."""
    grids = {1: (1, 1), 16: (2, 8), 54: (6, 9), 132: (11, 12), 264: (12, 22), 396: (18, 22)}
    points = []
    for config in LOOP_CONFIGS:
        for ctas, (rows, cols) in grids.items():
            if ctas > SM_COUNT * occupancy_by_smem(config):
                continue
            m, n = rows * config.tile_m, cols * config.tile_n
            for k in (64, 128, 192, 384, 1152, 2176, 4224, 9472):
                powers_of_two = all(size & (size - 1) == 0 for size in (m, n, k))  # sizes others publish: left alone
                resident = (m + n) * k * 2 + 2 * m * n <= L2_RESIDENT_BYTES
                if k % config.tile_k == 0 and resident and not powers_of_two:
                    points.append(_point("steps_l2", config, m, n, k))
            if ctas in (16, 132):
                k_small = round(STREAMED_BYTES / (2 * (m + n)) / 256) * 256 + 128
                for k in (k_small, 256 * round(1.6 * k_small / 256) + 128):
                    points.append(_point("steps_dram", config, m, n, k))
    return points


def points_rounds() -> list[dict]:
    """132 * c * r tiles, r = 1..4 rounds of c CTAs an SM."""
    cases = [
        (c, s)
        for c, kind, spec in (
            (1, "ptr", "128x256x64 s3 w8"),
            (1, "tma", "128x256x64 s3 w8"),
            (2, "ptr", "128x128x64 s3 w8"),
            (2, "ptr", "128x128x64 s3 w4"),
            (1, "ptr", "128x128x64 s4 w8"),
            (1, "tma", "128x128x64 s4 w8"),
            (1, "tma", "128x128x64 s3 w4"),
            (3, "ptr", "64x64x64 s4 w4"),
            (3, "ptr", "64x128x64 s3 w4"),
            (1, "tma", "64x256x64 s4 w4"),
        )
        for s in _configs(kind, spec)
    ]
    return [
        _point("rounds", config, 12 * config.tile_m, 11 * c * r * config.tile_n, k, resident=c, rounds=r)
        for c, config in cases
        for r in (1, 2, 3, 4)
        for k in (64, 192, 576, 1152, 4160)
    ] + [  # C grows past the L2
        _point("rounds_long", config, 12 * config.tile_m, 11 * c * r * config.tile_n, k, resident=c, rounds=r)
        for c, config in cases
        for r in (8, 16, 32)
        for k in (64, 448)
    ]


def points_tails() -> list[dict]:
    """132 * c + {1, 33, 66, 100} tiles, and partly filled first waves."""
    grids = {
        33: (3, 11),
        66: (6, 11),
        100: (10, 10),
        132: (11, 12),
        133: (7, 19),
        165: (11, 15),
        198: (11, 18),
        232: (8, 29),
        264: (12, 22),
        265: (5, 53),
        297: (11, 27),
        330: (11, 30),
        364: (14, 26),
        396: (18, 22),
    }
    configs = _configs(
        "ptr", "128x256x64 s3 w8", "128x128x64 s3 w8", "128x128x64 s3 w4", "128x128x64 s4 w8"
    ) + _configs("tma", "128x256x64 s3 w8", "128x128x64 s4 w8")
    return [
        _point("tails", config, rows * config.tile_m, cols * config.tile_n, k)
        for config in configs
        for rows, cols in grids.values()
        for k in (1152, 4160)
    ]


def points_descriptors() -> list[dict]:
    """The persistent kernel with descriptors made by the device or the host, and pointer twins, on tiny products."""
    configs = _configs("tma", "128x256x64 s3 w8", "128x128x64 s4 w8", "64x64x64 s4 w4", "64x256x64 s4 w4")
    twins = _configs("ptr", "128x256x64 s3 w8", "128x128x64 s4 w8", "64x64x64 s4 w4", "64x256x64 s3 w4")
    shapes = [(48, 112, 80), (272, 304, 208), (272, 304, 1104), (1168, 1456, 208)]
    return [
        _point("descriptors", config, m, n, k, host_descriptors=host)
        for config in configs + twins
        for m, n, k in shapes
        for host in ((False, True) if config.kernel == "tma" else (False,))
    ]


def points_ragged() -> list[dict]:
    """Boxes partly outside the matrix: n (or m) not a multiple of the tile; and B pitch varied on its own."""
    points = []
    wide, tall = _configs("tma", "64x256x64 s4 w4", "256x128x64 s3 w8")
    control, pointer = _configs("tma", "128x256x64 s3 w8")[0], _configs("ptr", "64x256x64 s3 w4")[0]
    for k in (448, 1856):
        for n in (256, 272, 288, 304, 320, 352, 384, 416, 448, 480, 496, 512):
            for config in (wide, control, pointer):
                points.append(_point("ragged_n", config, 54 * config.tile_m, n, k))
            points.append(_point("ragged_m", tall, n, 54 * tall.tile_n, k))
        for n, pitch in (
            (512, 528),
            (512, 544),
            (512, 576),
            (512, 640),
            (512, 704),
            (512, 768),
            (448, 512),
            (320, 512),
            (384, 512),
            (256, 320),
            (256, 384),
            (256, 512),
        ):
            points.append(_point("ragged_pitch", wide, 54 * 64, n, k, pitch_b=pitch))
    for m, n in ((5952, 5824), (5952, 5888), (5952, 5632), (5952, 5760), (5968, 5888), (2368, 1696), (2368, 1792)):
        for config in (wide, control, pointer):
            points.append(_point("ragged_many", config, m, n, 448))
            if config is wide and n % 256:
                points.append(_point("ragged_many", config, m, n, 448, pitch_b=-(-n // 256) * 256))
    return points


def points_outside() -> list[dict]:
    """How many tiles stick out of B (or A) at once, by how much: one round, times against k."""
    wide, tall, square = _configs("tma", "64x256x64 s4 w4", "256x128x64 s3 w8", "128x128x64 s4 w8")
    points = []
    for k in (448, 1856):
        for edges in (6, 13, 27, 40, 66):
            for n in (320, 384):
                points.append(_point("outside_b", wide, edges * wide.tile_m, n, k))
        points.append(_point("outside_b", wide, 13 * wide.tile_m, 512, k))
        for edges in (13, 27):
            points.append(_point("outside_a", tall, 320, edges * tall.tile_n, k))
            points.append(_point("outside_a", tall, 512, edges * tall.tile_n, k))
        for edges in (13, 40):
            for n in (192, 256):
                points.append(_point("outside_b", square, edges * square.tile_m, n, k))
        for edges in (27, 132):  # every tile sticks out
            points.append(_point("outside_b", wide, edges * wide.tile_m, 64, k))
    return points


def points_unaligned() -> list[dict]:
    """Row pitches of 8 mod 16 elements (k, n or both), beside 16- and 64-element multiples."""
    configs = _configs(
        "ptr",
        "128x256x64 s3 w8",
        "128x128x64 s3 w8",
        "128x128x64 s3 w4",
        "64x64x64 s4 w4",
        "64x128x64 s3 w4",
        "32x128x64 s4 w4",
        "64x64x32 s3 w4",
        "128x64x64 s3 w4",
    ) + _configs("tma", "128x256x64 s3 w8", "128x128x64 s4 w8", "64x256x64 s4 w4", "64x64x64 s4 w4")
    return [
        _point("unaligned", config, 1408, n, k)
        for config in configs
        for n, k in ((3400, 3400), (3400, 3392), (3392, 3400), (3408, 3408), (3392, 3392))
    ]


def points_lookups() -> list[dict]:
    """Configurations and shapes whose L2 and DRAM traffic a profiler counts, the telling ones first."""
    specs = [
        ("ptr", "128x256x64 s3 w8", (8, 1, 4, 16)),
        ("ptr", "128x128x64 s3 w8", (8, 1, 4, 16)),
        ("ptr", "128x128x64 s4 w8", (8, 1)),
        ("ptr", "128x128x64 s3 w4", (8, 1)),
        ("tma", "128x256x64 s3 w8", (8, 1)),
        ("tma", "128x128x64 s4 w8", (8, 1)),
        ("ptr", "64x64x64 s4 w4", (8, 1)),
        ("ptr", "64x128x64 s3 w4", (8, 1)),
        ("ptr", "256x128x64 s3 w8", (8,)),
        ("ptr", "128x64x64 s3 w4", (8,)),
        ("tma", "64x256x64 s4 w4", (8,)),
        ("tma", "128x128x64 s3 w4", (8,)),
    ]
    shapes = [
        (2176, 3328, 576),
        (2176, 3328, 3712),
        (2176, 3328, 20736),
        (1408, 3072, 3712),
        (1408, 3072, 20736),
        (4736, 6272, 1664),
        (4736, 6272, 9984),
        (7424, 6272, 3712),
        (416, 7424, 3712),
    ]
    return [
        _point("lookups", dataclasses.replace(config, group_m=group_m), m, n, k)
        for kind, spec, groups in specs
        for group_m in groups
        for config in _configs(kind, spec)
        for m, n, k in shapes
    ]


# About 0.1, 0.3, 1 and 3 ms: whole rounds of 132 tiles of 128x256.
POWER_SHAPES = [(2816, 3072, 4352), (4224, 6144, 4352), (8448, 6144, 7232), (8448, 12288, 10816)]
POWER_CONFIGS = _configs("ptr", "128x256x64 s3 w8") + _configs("tma", "128x256x64 s3 w8")
COLD_SHAPES = [
    (48, 112, 80),
    (272, 304, 208),
    (272, 304, 1104),
    (688, 432, 560),
    (16, 3664, 3344),
    (16, 7232, 7232),
    (48, 11584, 6208),
    (64, 14464, 14528),
]
COLD_CONFIGS = _configs("ptr", "64x64x64 s4 w4", "32x128x64 s4 w4", "128x128x64 s3 w8")


def all_points() -> list[dict]:
    """Every point of every experiment, for a check that no shape is in a table the model is scored on."""
    points = (
        points_steps()
        + points_rounds()
        + points_tails()
        + points_descriptors()
        + points_ragged()
        + points_unaligned()
        + points_lookups()
    )
    extra = [dict(bench="power", m=m, n=n, k=k) for m, n, k in POWER_SHAPES]
    extra += [dict(bench="cold", m=m, n=n, k=k) for m, n, k in COLD_SHAPES]
    return points + extra
