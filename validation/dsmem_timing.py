"""Time of a launch that is repeated in a CUDA graph: PyTorch's and Triton's, as the CUDA programs time theirs."""

from __future__ import annotations

import math
import statistics
import time

import torch
from triton_timing import capture, event_seconds, spread

GRAPH_SECONDS = 2e-3  # a replay takes at least this long


def launch_seconds(run, repeats: int) -> tuple[float, float, int]:
    """(median seconds of a launch, (p90 - p10) / median, launches in a replay) of ``repeats`` replays, warm.

    ``run`` has been called before: everything is compiled. It is captured on a side stream; what it allocates goes back
    to the graph's own pool from call to call, so that all launches write the same buffers.
    """
    run()
    launches = max(1, math.ceil(GRAPH_SECONDS / min(event_seconds(run, 3))))
    graph, replay_s = _captured(run, launches)
    if replay_s < GRAPH_SECONDS:
        launches = math.ceil(1.05 * launches * GRAPH_SECONDS / replay_s)
        graph, _ = _captured(run, launches)
    times = [replay_s / launches for replay_s in event_seconds(graph.replay, repeats)]
    graph.reset()
    return statistics.median(times), spread(times), launches


def _captured(run, launches: int):
    """A graph that has been replayed, and how long a second replay took."""
    graph = capture(run, launches)
    graph.replay()
    return graph, event_seconds(graph.replay)[0]


def warm_clock(seconds: float = 0.1) -> None:
    """Keep the GPU busy, so that the clock has left its idle value."""
    block = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            block.bitwise_not_()
        torch.cuda.synchronize()
