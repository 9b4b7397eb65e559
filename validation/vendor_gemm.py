"""The vendor's products on shapes of our own: what a k-step, the ends, further tiles and a split cost in its kernels.

`torch.mm` bf16, row-major A[m, k], B[k, n], C[m, n], random normal data. Kernel names come from the profiler (they are
column-major: name N x M), durations of each kernel too; times from a graph of the same launch repeated, as
`triton_timing.graph_seconds`, and cold ones between two events after a 512 MB write.

Run        python3 validation/vendor_gemm.py OUT_DIR
Output     OUT_DIR/vendor_gemm.csv and .toml: part, m, n, k, kernel, main_s, extra_kernels, extra_s, warm_s, spread, cold_s
"""

from __future__ import annotations

import itertools
import pathlib

from script import parsed, parser_of

if __name__ == "__main__":  # before PyTorch is imported, so that --help needs none
    OPTIONS = parsed(parser_of(__doc__))

import torch
from torch.profiler import ProfilerActivity, profile
from triton_timing import FLUSH_BYTES, Operands, flushed_seconds, graph_seconds, sm_clock_hz, write_record

# m runs over sizes of no power of two; n and k are multiples of 64, so that every row of A and B starts a line ...
STEPS_M = (16, 48, 80, 112, 144, 208, 272)
STEPS_N = (192, 320, 576, 1088, 1856)
STEPS_K = (192, 448, 960, 1984, 4032, 8128)
WIDE_M, WIDE_N = (528, 1040, 1552), (1088, 1856, 4160)
ROUNDS_M = (1552, 3088, 5136, 6672)
ROUNDS_N = (2624, 4160, 6208, 9280)
ROUNDS_K = (64, 192, 320, 576)
STREAM_M = (1, 8, 24, 48)
STREAM_N = (6208, 12352, 24640)
STREAM_K = (1984, 5184, 10304)
# ... but for these, whose pitch is a multiple of 32 bytes only
ODD_N, ODD_K = (144, 528, 1040), (208, 976, 4048)


MARKER = "spin_kernel"  # torch.cuda._sleep's, between one product and the next


def kernels_of(runs) -> list[list[tuple[str, float]]]:
    """(name, seconds) of the kernels of each call, by the profiler, in one session with a marker after each call."""
    for run in runs:
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for run in runs:
            run()
            torch.cuda._sleep(1000)
        torch.cuda.synchronize()
    events = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    groups: list[list[tuple[str, float]]] = [[]]
    for event in events:
        if MARKER in event.name:
            groups.append([])
        else:
            groups[-1].append((event.name, event.time_range.elapsed_us() * 1e-6))
    assert len(groups) == len(runs) + 1, f"{len(groups) - 1} groups of kernels for {len(runs)} products"
    return groups[:-1]


def main() -> None:
    out = pathlib.Path(OPTIONS.folder)
    operands = Operands(elements=270_000_000, c_elements=70_000_000)
    scratch = torch.empty(FLUSH_BYTES // 4, device="cuda", dtype=torch.float32)
    plans = [("steps", *shape) for shape in itertools.product(STEPS_M, STEPS_N, STEPS_K)]
    plans += [("steps", *shape) for shape in itertools.product(WIDE_M, WIDE_N, STEPS_K)]
    plans += [("rounds", *shape) for shape in itertools.product(ROUNDS_M, ROUNDS_N, ROUNDS_K)]
    plans += [("odd", *shape) for shape in itertools.product(STEPS_M, ODD_N, ODD_K)]
    plans += [("stream", *shape) for shape in itertools.product(STREAM_M, STREAM_N, STREAM_K)]
    a, b, _ = operands.views(256, 512, 1024)
    reference = a.double() @ b.double()
    error = ((torch.mm(a, b).double() - reference).norm() / reference.norm()).item()
    assert error < 1e-2, f"torch.mm is off by {error}"

    def product(m: int, n: int, k: int):
        a, b, c = operands.views(m, n, k)
        return lambda: torch.mm(a, b, out=c)

    before_hz = sm_clock_hz()
    runs = [product(*shape) for _, *shape in plans]
    timed = [(graph_seconds(run), flushed_seconds(run, lambda: scratch.fill_(1.0))[0]) for run in runs]
    rows = []
    # profiled last: what the profiler leaves behind slows later launches
    for (part, m, n, k), ((warm_s, spread, nodes), cold_s), kernels in zip(plans, timed, kernels_of(runs), strict=True):
        main_name, main_s = max(kernels, key=lambda item: ("nvjet" in item[0], item[1]))
        extra_s = [seconds for name, seconds in kernels if name != main_name]
        rows.append(
            dict(
                bench="vendor_gemm",
                part=part,
                m=m,
                n=n,
                k=k,
                kernel=main_name,
                main_s=main_s,
                extra_kernels=len(extra_s),
                extra_s=sum(extra_s),
                warm_s=warm_s,
                spread=spread,
                nodes=nodes,
                cold_s=cold_s,
            )
        )
    notes = "main_s and extra_s are kernel durations of one profiled call; warm_s a graph of nodes launches"
    write_record(out, "vendor_gemm", rows, notes, [before_hz, sm_clock_hz()])
    print(len(rows), "rows", len({row["kernel"] for row in rows}), "kernels")


if __name__ == "__main__":
    main()
