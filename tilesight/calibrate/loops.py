"""Loops of our own kernels, from stamps inside them: the specialised product where tensor cores bind, and mma.sync."""

import numpy as np

from tilesight.calibrate.found import Derivation, Found, Numbers
from tilesight.calibrate.power import tensor_clock
from tilesight.calibrate.records import Records, straight_line
from tilesight.errors import TableError

STEPS_LEAST = 13
"""k-steps from which the prologue is over."""
TENSOR_BOUND_CYCLES = 380
"""Cycles of a k-step's instructions from which nothing else binds."""


def wgmma_cycles(tile_m: int, tile_n: int) -> float:
    """Cycles of the instructions of a k-step of 64: m64nNk16 takes max(N/2, 16 + N/4).

    Examples
    --------
    >>> wgmma_cycles(128, 256)
    1024.0
    """
    return tile_m / 64 * 4 * max(tile_n / 2, 16 + tile_n / 4)


def specialized_loop(records: Records) -> Numbers:
    """Overhead of a k-step of our own specialised product where tensor cores bind, and the store of its tiles.

    One CTA: cycles from k-step to k-step less those of the instructions; cycles from the last instruction to the end of
    the store against the tile's bytes.
    """
    tensor_hz = tensor_clock(records)
    slopes = records["ws_gemm"].pick(part="slope", cluster=1, mode="full", ctas=1, epilogue=1)
    extra, size, store = [], [], []
    for tile_m, tile_n in sorted({(int(row["tile_m"]), int(row["tile_n"])) for row in slopes.rows}):
        rows = slopes.pick(tile_m=tile_m, tile_n=tile_n)
        steps, last = rows.column("k_steps"), rows.column("last_mma_cycles")
        many = steps >= STEPS_LEAST
        size.append(2.0 * tile_m * tile_n)
        store.append(np.median((rows.column("store_done_cycles") - last)[many]))
        ideal = wgmma_cycles(tile_m, tile_n)
        if ideal >= TENSOR_BOUND_CYCLES:
            extra.append(straight_line(steps[many], last[many], "ws_gemm")[0] - ideal)
    if not extra:
        raise TableError("no tile that tensor cores bind", file="ws_gemm.csv")
    slope, fixed = straight_line(np.array(size), np.array(store), "ws_gemm")
    used = slopes.where(slopes.column("k_steps") >= STEPS_LEAST, f"{STEPS_LEAST} k-steps and more")
    values = {
        "loop.step_specialized_cycles": max(float(np.median(extra)), 0.0),
        "epilogue.specialized_fixed_s": fixed / tensor_hz,
        "epilogue.specialized_bytes_per_s": tensor_hz / slope,
    }
    return {name: Found(value, used.middle_spread, ("ws_gemm",)) for name, value in values.items()}


def register_loop(records: Records) -> Numbers:
    """Rate of mma.sync over the tensor cores' full rate, and the time of a k16 that one CTA alone can't go below."""
    rows = records["mma_sync_loop"].pick(order="free", sms=records.sm_count)
    full = records.stated("tensor.bf16.flop_per_cycle_per_sm")
    best = int(np.argmax(rows.column("mma_flop_per_cycle")))
    fastest = rows.pick(**{name: rows.rows[best][name] for name in ("tile_m", "tile_n", "ctas_per_sm")})
    single = rows.pick(ctas_per_sm=1)
    # four instructions a warp and more
    large = single.where(single.column("tile_m") * single.column("tile_n") >= 2048, "tiles of 2048 outputs and more")
    alone: dict[tuple[str, str], float] = {}
    for row, cycles in zip(large.rows, large.column("cycles_per_k16"), strict=True):
        tile = (row["tile_m"], row["tile_n"])
        alone[tile] = min(alone.get(tile, np.inf), float(cycles))
    note = "ldmatrix and mma.sync m16n8k16 from shared memory, 4 warps"
    share = float(rows.column("mma_flop_per_cycle").max()) / full
    chain = float(np.median(list(alone.values())))
    return {
        "loop.mma_sync_rate_share": Found(share, fastest.spread, ("mma_sync_loop",), note=note),
        "loop.chain_registers_k16_cycles": Found(chain, large.middle_spread, ("mma_sync_loop",), note=note),
    }


SPECIALIZED = ("loop.step_specialized_cycles", "epilogue.specialized_fixed_s", "epilogue.specialized_bytes_per_s")
DERIVATIONS = (
    Derivation(SPECIALIZED, ("ws_gemm", "power_clock"), specialized_loop),
    Derivation(("loop.mma_sync_rate_share", "loop.chain_registers_k16_cycles"), ("mma_sync_loop",), register_loop),
)
