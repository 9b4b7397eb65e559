"""SM clock under load, launch by launch: how far and how fast it falls with the kind of work, CTAs and data.

After an idle pause a graph of 200 launches runs, each stamping its own slice; a launch's clock is cycles over nanoseconds,
median of its CTAs. Work: a product of `triton_gemm` (normal or zero operands), a loop of FMAs, a loop of naps.

Run        python3 validation/triton_clock.py OUT_DIR
Output     OUT_DIR/triton_clock.csv and .toml
"""

from __future__ import annotations

import pathlib
import time

from script import parsed, parser_of

if __name__ == "__main__":  # before PyTorch is imported, so that --help needs none
    OPTIONS = parsed(parser_of(__doc__))

import torch
import triton
import triton.language as tl
from triton_gemm import STAMP_FIELDS, _read_clocks, _store_stamp, launch
from triton_plans import Config
from triton_timing import Operands, capture, read_stamps, sm_clock_hz, write_record

LAUNCHES = 200
SHOWN = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 75, 100, 150, 199)
IDLE_S = 0.4


@triton.jit
def busy_loop(out_ptr, stamp_ptr, iterations, nap: tl.constexpr):
    cycle_begin, time_begin = _read_clocks()
    slot = tl.program_id(axis=0)
    x = tl.arange(0, 1024).to(tl.float32) + slot
    for _ in range(iterations):
        if nap:
            x += tl.inline_asm_elementwise(
                "nanosleep.u32 1000; mov.f32 $0, 0f00000000;", "=f,f", [x], dtype=tl.float32, is_pure=False, pack=1
            )
        else:
            for _ in tl.static_range(16):
                x = x * 0.999 + 0.5
    tl.store(out_ptr + slot * 1024 + tl.arange(0, 1024), x)
    cycle_end, time_end = _read_clocks()
    _store_stamp(stamp_ptr, slot, cycle_begin, time_begin, cycle_end, time_end)


def clock_rows(operands: Operands, stamps: torch.Tensor, name: str, ctas: int, run) -> list[dict]:
    """Rows of the SHOWN launches; ``run(slice of stamps)`` starts one launch of ``ctas`` CTAs."""
    padded = ctas + ctas % 2  # slices stay 16-byte aligned
    size = STAMP_FIELDS * padded
    run(stamps)
    counter = iter(range(LAUNCHES))
    graph = capture(lambda: run(stamps[next(counter) * size :]), LAUNCHES)
    torch.cuda.synchronize()
    time.sleep(IDLE_S)
    graph.replay()
    torch.cuda.synchronize()
    begins = (
        stamps[: LAUNCHES * size].view(LAUNCHES, padded, STAMP_FIELDS)[:, :ctas, 1].min(dim=1).values.cpu().tolist()
    )
    rows = []
    for index in SHOWN:
        stamp = read_stamps(stamps[index * size :], ctas)
        rows.append(
            dict(
                bench="clock",
                work=name,
                ctas=ctas,
                launch=index,
                since_begin_s=(begins[index] - begins[0]) * 1e-9,
                clock_hz=stamp["clock_hz"],
                cta_cycles_median=stamp["cta_cycles_median"],
                span_s=stamp["span_s"],
            )
        )
    return rows


def gemm_run(operands: Operands, config: Config, rows: int, cols: int, k: int):
    """A function that launches one stamped product of rows x cols tiles."""
    a, b, c = operands.views(rows * config.tile_m, cols * config.tile_n, k)
    return lambda stamps: launch(config, a, b, c, stamps, stamped=True)


def main() -> None:
    folder = pathlib.Path(OPTIONS.folder)
    operands, out = Operands(40_000_000, 20_000_000), torch.zeros(1024 * 1024, device="cuda")
    stamps = torch.zeros(STAMP_FIELDS * 800 * LAUNCHES, device="cuda", dtype=torch.int64)
    wide, square, small = (
        Config("ptr", 128, 256, 64, 3, 8),
        Config("ptr", 128, 128, 64, 3, 8),
        Config("ptr", 64, 64, 64, 4, 4),
    )
    bulk, half = Config("tma", 128, 256, 64, 3, 8), Config("ptr", 32, 128, 64, 4, 4)
    rows, before_hz = [], sm_clock_hz()
    for nap, iterations in ((True, 20), (False, 100)):
        for ctas in (1, 132):
            name = "naps" if nap else "FMA loop"
            rows += clock_rows(
                operands,
                stamps,
                name,
                ctas,
                lambda s, c=ctas, i=iterations, nap=nap: busy_loop[(c,)](out, s, i, nap=nap, num_warps=8),
            )
    grids = {1: (1, 1), 8: (2, 4), 33: (3, 11), 66: (6, 11), 99: (9, 11), 132: (11, 12), 264: (22, 12), 396: (18, 22)}
    for data in ("normal", "zero"):
        if data == "zero":
            operands._a.zero_()
            operands._b.zero_()
        for name, config, counts, k in (
            ("ptr 128x256", wide, (1, 8, 33, 66, 99, 132), 1152),
            ("tma 128x256", bulk, (132,), 1152),
            ("ptr 128x128", square, (33, 132, 264), 1152),
            ("ptr 64x64", small, (33, 132, 396), 2176),
            ("ptr 32x128", half, (33, 132), 1152),
        ):
            for ctas in counts:
                rows += clock_rows(
                    operands, stamps, f"{name} {data}", ctas, gemm_run(operands, config, *grids[ctas], k)
                )
    write_record(
        folder,
        "triton_clock",
        rows,
        f"{LAUNCHES} launches in a graph after {IDLE_S} s idle",
        [before_hz, sm_clock_hz()],
    )
    print(f"clock: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
