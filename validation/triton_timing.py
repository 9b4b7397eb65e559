"""Timing, operand pools, in-kernel stamps, clock and power readings, records, shared by the Triton experiments."""

from __future__ import annotations

import csv
import datetime
import pathlib
import statistics
import subprocess
import sys
import time

import pynvml
import torch
import triton
from triton_gemm import STAMP_FIELDS, launch

POOL_ELEMENTS = 220_000_000
FLUSH_BYTES = 512 * 1024 * 1024
GRAPH_SECONDS = 2e-3  # launches of about this long in one graph, 50 at most
WAIT_CYCLES = 120_000

pynvml.nvmlInit()
_gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
_capture_stream = None


class Operands:
    """Views of any shape on fixed random normal data; C is poisoned once and shared by all shapes."""

    def __init__(self, elements: int = POOL_ELEMENTS, c_elements: int = POOL_ELEMENTS):
        generator = torch.Generator(device="cuda").manual_seed(7)
        self._a, self._b = (
            torch.empty(elements, device="cuda", dtype=torch.bfloat16).normal_(generator=generator) for _ in range(2)
        )
        self._c = torch.full((c_elements,), float("nan"), device="cuda", dtype=torch.bfloat16)
        self.stamps = torch.zeros(STAMP_FIELDS * 65536, device="cuda", dtype=torch.int64)

    def views(self, m: int, n: int, k: int, pitch_b: int | None = None):
        """A (m, k), B (k, n) with row pitch ``pitch_b`` elements, C (m, n)."""
        pitch = pitch_b or n
        b = self._b[: k * pitch].view(k, pitch)[:, :n]
        return self._a[: m * k].view(m, k), b, self._c[: m * n].view(m, n)


def event_seconds(run, repeats: int = 1, *, wait_cycles: int = WAIT_CYCLES) -> list[float]:
    """Time of each of ``repeats`` calls, between two events around it, in seconds.

    The GPU waits ``wait_cycles`` first, so that the host has issued the work by the time the first event passes.
    """
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if wait_cycles:
            torch.cuda._sleep(wait_cycles)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)
    return times


def capture(run, nodes: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``nodes`` calls in a row (``run`` has been called before: everything is compiled)."""
    global _capture_stream
    _capture_stream = _capture_stream or torch.cuda.Stream()
    graph, stream = torch.cuda.CUDAGraph(), _capture_stream
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(nodes):
            run()
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


def graph_seconds(run, *, graph_s: float = GRAPH_SECONDS, replays: int = 5) -> tuple[float, float, int]:
    """(median time of a launch, spread (p90 - p10) / median, nodes): the same launch repeated inside one graph."""
    run()
    estimate = min(event_seconds(run, 3))
    nodes = max(1, min(50, int(graph_s / estimate)))
    graph = capture(run, nodes)
    graph.replay()
    times = sorted(t / nodes for t in event_seconds(graph.replay, replays))
    return statistics.median(times), spread(times), nodes


def spread(values) -> float:
    """(p90 - p10) / median."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return (ordered[round(0.9 * last)] - ordered[round(0.1 * last)]) / statistics.median(ordered)


def flushed_seconds(run, flush, repeats: int = 9) -> tuple[float, float]:
    """(median, spread) of one launch between two events, ``flush`` before each."""
    run()
    times = []
    for _ in range(repeats):
        flush()
        times += event_seconds(run, wait_cycles=0)  # the flush keeps the GPU busy meanwhile
    return statistics.median(times), spread(times)


def read_stamps(stamps: torch.Tensor, ctas: int) -> dict:
    """What the CTAs' own clocks say of the last stamped launch.

    cta_cycles_* : cycles from a CTA's first to its last instruction; span_s: first begin to last end on the global timer;
    start_spread_s: last begin minus first begin among the first 132 CTAs; gap_s: median time from the end of a CTA to the
    begin of its successor on the same SM (0 if none); clock_hz: cycles over nanoseconds, median of CTAs.
    """
    table = stamps[: ctas * STAMP_FIELDS].view(ctas, STAMP_FIELDS).cpu().tolist()
    cycles = sorted(row[2] - row[0] for row in table)
    rates = [(row[2] - row[0]) / (row[3] - row[1]) for row in table if row[3] > row[1]]
    first = min(row[1] for row in table)
    by_sm: dict[int, list] = {}
    for row in table:
        by_sm.setdefault(row[4], []).append(row)
    gaps = []
    for rows in by_sm.values():
        begins, ends = sorted(r[1] for r in rows), sorted(r[3] for r in rows)
        resident = sum(begin < ends[0] for begin in begins)
        gaps += [begin - end for begin, end in zip(begins[resident:], ends, strict=False)]
    return dict(
        cta_cycles_median=cycles[len(cycles) // 2],
        cta_cycles_min=cycles[0],
        cta_cycles_max=cycles[-1],
        span_s=(max(row[3] for row in table) - first) * 1e-9,
        start_spread_s=(max(row[1] for row in table[:132]) - first) * 1e-9,
        gap_s=statistics.median(gaps) * 1e-9 if gaps else 0.0,
        sms=len(by_sm),
        most_ctas_per_sm=max(len(rows) for rows in by_sm.values()),
        clock_hz=statistics.median(rates) * 1e9 if rates else 0.0,
    )


def measure(operands: Operands, point: dict, *, stamped: bool = True, graph_s: float = GRAPH_SECONDS) -> dict:
    """One row: warm time of the plain kernel in a graph, then the stamps of the same launch repeated."""
    config, options = point["config"], dict(host_descriptors=point.get("host_descriptors", False))
    a, b, c = operands.views(point["m"], point["n"], point["k"], point.get("pitch_b"))
    kernel = launch(config, a, b, c, operands.stamps, **options)
    time_s, spread_, nodes = graph_seconds(lambda: launch(config, a, b, c, operands.stamps, **options), graph_s=graph_s)
    tiles = -(-point["m"] // config.tile_m) * -(-point["n"] // config.tile_n)
    row = (
        {key: value for key, value in point.items() if key != "config"}
        | config.columns()
        | dict(
            tiles=tiles,
            registers=kernel.n_regs,
            spills=kernel.n_spills,
            smem_bytes=kernel.metadata.shared,
            time_s=time_s,
            spread=spread_,
            nodes=nodes,
        )
    )
    if stamped:

        def run():
            launch(config, a, b, c, operands.stamps, stamped=True, **options)

        for _ in range(3):
            run()
        row |= read_stamps(operands.stamps, tiles if config.kernel == "ptr" else min(tiles, 132))
    return row


def sm_clock_hz() -> float:
    """SM clock as the driver reports it now."""
    return pynvml.nvmlDeviceGetClockInfo(_gpu, pynvml.NVML_CLOCK_SM) * 1e6


def power_w() -> float:
    """Board power now (the instantaneous field, not the one-second average)."""
    value = pynvml.nvmlDeviceGetFieldValues(_gpu, [186])[0]  # NVML_FI_DEV_POWER_INSTANT
    return value.value.uiVal * 1e-3


def write_record(folder: pathlib.Path, name: str, rows: list[dict], notes: str, clocks_hz: list[float]) -> None:
    """NAME.csv (one row a point) and NAME.toml (where, when and how it was measured) in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(folder / f"{name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})
    header = dict(
        gpu=torch.cuda.get_device_name(),
        driver=pynvml.nvmlSystemGetDriverVersion(),
        cuda=torch.version.cuda,
        compiler=f"Triton {triton.__version__}",
        pytorch=torch.__version__,
        power_limit_w=pynvml.nvmlDeviceGetEnforcedPowerLimit(_gpu) / 1000,
        date=datetime.date.today().isoformat(),
        command="python3 " + " ".join(pathlib.Path(word).name if "/" in word else word for word in sys.argv),
        notes=notes,
    )
    lines = [f"{key} = {value}" if isinstance(value, float) else f'{key} = "{value}"' for key, value in header.items()]
    lines.append("sm_clock_mhz = [" + ", ".join(f"{clock / 1e6:.0f}" for clock in clocks_hz) + "]  # before, after")
    (folder / f"{name}.toml").write_text("\n".join(lines) + "\n")


def software_versions() -> str:
    """One line on the machine for the log."""
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.limit", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    )
    return f"{smi.stdout.strip()} torch {torch.__version__} triton {triton.__version__} {time.strftime('%F')}"
