"""Clock and power of GEMMs by protocol, and the cost of a cold start.

power: the same product (a) once after idling, (b) in a warm graph of min(50, 2 ms / time) launches, five replays,
(c) for one second without pause. The SM clock is cycles over nanoseconds read by the kernel's own CTAs (stamps); for
torch.mm, and at the end of every protocol, by a stamped one-tile probe right behind.
cold: one launch between two events after 512 MiB were written, after 512 MiB were read, and after a wait of 0.1 ms (warm).

Run        python3 validation/triton_power.py OUT_DIR
Output     OUT_DIR/triton_power.csv, triton_cold.csv and their .toml
"""

from __future__ import annotations

import itertools
import pathlib
import statistics
import threading
import time

from script import parsed, parser_of

if __name__ == "__main__":  # before PyTorch is imported, so that --help needs none
    OPTIONS = parsed(parser_of(__doc__))

import torch
from triton_gemm import launch
from triton_plans import COLD_CONFIGS, COLD_SHAPES, POWER_CONFIGS, POWER_SHAPES, SM_COUNT, Config
from triton_timing import (
    FLUSH_BYTES,
    GRAPH_SECONDS,
    Operands,
    capture,
    event_seconds,
    flushed_seconds,
    graph_seconds,
    power_w,
    read_stamps,
    sm_clock_hz,
    spread,
    write_record,
)

PROBE = Config("ptr", 64, 64, 64, 4, 4)
IDLE_S = 0.8


class Sampler(threading.Thread):
    """Samples power and the driver's SM clock every 10 ms until stopped."""

    def __init__(self):
        super().__init__(daemon=True)
        self.rows: list[tuple[float, float, float]] = []
        self._stop_event = threading.Event()

    def run(self):
        while not self._stop_event.is_set():
            self.rows.append((time.perf_counter(), power_w(), sm_clock_hz()))
            time.sleep(0.01)

    def stop(self) -> list[tuple[float, float, float]]:
        self._stop_event.set()
        self.join()
        return self.rows


def probe_clock_hz(operands: Operands) -> float:
    """SM clock during a 64x64 tile of 4160 k started right behind whatever runs."""
    a, b, c = operands.views(64, 64, 4160)
    launch(PROBE, a, b, c, operands.stamps, stamped=True)
    return read_stamps(operands.stamps, 1)["clock_hz"]


def power_rows(operands: Operands, name: str, config: Config | None, shape: tuple[int, int, int]) -> list[dict]:
    """The three protocols for one kernel and shape."""
    m, n, k = shape
    a, b, c = operands.views(m, n, k)
    tiles = 0 if config is None else -(-m // config.tile_m) * -(-n // config.tile_n)
    stamped_ctas = min(tiles, SM_COUNT) if name == "tma" else tiles

    def run():
        if config is None:
            torch.mm(a, b, out=c)
        else:
            launch(config, a, b, c, operands.stamps, stamped=True)

    def row(protocol: str, times, clock_hz: float, behind_hz: float, **more) -> dict:
        time_s = statistics.median(times)
        return (
            dict(
                bench="power",
                kernel=name,
                m=m,
                n=n,
                k=k,
                protocol=protocol,
                time_s=time_s,
                spread=spread(times),
                rate_flop_per_s=2.0 * m * n * k / time_s,
                clock_hz=clock_hz,
                clock_behind_hz=behind_hz,
            )
            | more
        )

    def own_clock() -> float:
        return 0.0 if config is None else read_stamps(operands.stamps, stamped_ctas)["clock_hz"]

    run()
    probe_clock_hz(operands)
    torch.cuda.synchronize()
    rows = []
    for _ in range(2):
        time.sleep(IDLE_S)
        idle_w = power_w()
        times = event_seconds(run, wait_cycles=1_000_000)  # the host is slow to issue after idling
        own = own_clock()
        rows.append(row("single", times, own, probe_clock_hz(operands), power_before_w=idle_w))
    time.sleep(0.3)
    nodes = max(1, min(50, int(GRAPH_SECONDS / times[0])))
    graph = capture(run, nodes)
    graph.replay()
    replay_s = [t / nodes for t in event_seconds(graph.replay, 5)]
    own = own_clock()
    rows.append(
        row("graph", replay_s, own, probe_clock_hz(operands), nodes=nodes, first_s=replay_s[0], last_s=replay_s[-1])
    )
    time.sleep(0.3)
    sustained_nodes = max(1, min(50, int(5e-3 / times[0])))
    sustained = capture(run, sustained_nodes)
    sampler, begun = Sampler(), time.perf_counter()
    sampler.start()
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    while time.perf_counter() - begun < 1.0:
        sustained.replay()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) > 4:
            marks[-4].synchronize()
    behind = probe_clock_hz(operands)
    samples = sampler.stop()
    own = own_clock()
    each = [x.elapsed_time(y) * 1e-3 / sustained_nodes for x, y in itertools.pairwise(marks)]
    ends = [marks[0].elapsed_time(y) * 1e-3 for y in marks[1:]]

    def window(low: float, high: float) -> float:
        inside = [t for t, end in zip(each, ends, strict=True) if low < end <= high]
        return statistics.median(inside) if inside else float("nan")

    late = [s for s in samples if s[0] - begun > 0.5]
    rows.append(
        row(
            "sustained",
            [t for t, end in zip(each, ends, strict=True) if end > 0.5],
            own,
            behind,
            first_s=each[0],
            window_20ms_s=window(0, 0.02),
            window_100ms_s=window(0.02, 0.1),
            window_500ms_s=window(0.1, 0.5),
            power_w=statistics.median(s[1] for s in late),
            driver_clock_hz=statistics.median(s[2] for s in late),
            nodes=sustained_nodes,
        )
    )
    return rows


def cold_rows(operands: Operands) -> list[dict]:
    """Cold and warm times of tiny and weight-streaming products."""
    buffer = torch.zeros(FLUSH_BYTES // 4, device="cuda", dtype=torch.float32)
    sink = torch.zeros(1, device="cuda")
    flushes = {
        "write": lambda: buffer.fill_(1.0),
        "read": lambda: torch.sum(buffer, dim=0, out=sink[0]),
        "wait": lambda: torch.cuda._sleep(200_000),
    }
    rows = []
    for m, n, k in COLD_SHAPES:
        a, b, c = operands.views(m, n, k)
        for config in [*COLD_CONFIGS, None]:

            def run(config=config, a=a, b=b, c=c):
                if config is None:
                    torch.mm(a, b, out=c)
                else:
                    launch(config, a, b, c, operands.stamps)

            row = dict(
                bench="cold",
                m=m,
                n=n,
                k=k,
                kernel="cublas" if config is None else f"ptr {config.tile_m}x{config.tile_n}x{config.tile_k}",
                bytes=2 * (m * k + k * n + m * n),
            )
            row["warm_s"], row["warm_spread"], _ = graph_seconds(run)
            for name, flush in flushes.items():
                row[f"event_{name}_s"], row[f"event_{name}_spread"] = flushed_seconds(run, flush)
            rows.append(row)
    tiny = torch.zeros(32, device="cuda")
    row = dict(bench="cold", m=0, n=0, k=0, kernel="fill of 32 floats", bytes=128)
    row["warm_s"], row["warm_spread"], _ = graph_seconds(lambda: tiny.fill_(2.0))
    for name, flush in flushes.items():
        row[f"event_{name}_s"], row[f"event_{name}_spread"] = flushed_seconds(lambda: tiny.fill_(2.0), flush)
    return [*rows, row]


def main() -> None:
    folder = pathlib.Path(OPTIONS.folder)
    operands = Operands()
    before_hz, begun = sm_clock_hz(), time.time()
    write_record(
        folder,
        "triton_cold",
        cold_rows(operands),
        "one launch between events after 512 MiB written or read",
        [before_hz, sm_clock_hz()],
    )
    print(f"cold: {time.time() - begun:.1f} s", flush=True)
    rows, before_hz = [], sm_clock_hz()
    for shape in POWER_SHAPES:
        for name, config in (("ptr", POWER_CONFIGS[0]), ("tma", POWER_CONFIGS[1]), ("cublas", None)):
            rows += power_rows(operands, name, config, shape)
            write_record(
                folder,
                "triton_power",
                rows,
                f"single after {IDLE_S} s idle, warm graph, 1 s sustained; 128x256x64 tiles",
                [before_hz, sm_clock_hz()],
            )
            print(f"power {name} {shape}: {time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
