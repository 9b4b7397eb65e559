"""The event loop: slots advance chunk by chunk in order of time, and their requests merge, hit or miss."""

from heapq import heapify, heappop, heapreplace

import numpy as np

from tilesight.simulate.blocks import Blocks, Step
from tilesight.simulate.chip import Chip, Pace
from tilesight.simulate.memory import L2
from tilesight.simulate.stream import Stream

OPEN_MOST = 1 << 18
"""Requests remembered for merging; beyond it those that have closed are forgotten."""


class Slot:
    """A place for one CTA on an SM: the tile that it works on, what has arrived, and what it has done."""

    __slots__ = ("arrived", "chunk", "chunks", "done", "end_s", "ends_s", "gpc", "parts", "sm_step_s", "step_s", "tile")

    def __init__(self, tile: int, gpc: int, sm_step_s: float) -> None:
        self.tile, self.gpc, self.sm_step_s = tile, gpc, sm_step_s
        self.step_s = sm_step_s
        self.parts: list[Step] = []
        self.chunk, self.chunks = -1, 0  # -1: the tile is to begin
        self.end_s = 0.0  # of the chunk
        self.arrived: list[tuple[float, float]] = []  # first and last byte of each chunk that was sent for
        self.ends_s, self.done = [0.0], [0.0]


class Run:
    """A launch under way. ``ahead`` chunks lie between a load and its use; it is sent as step ``frees`` of a chunk ends."""

    def __init__(self, stream: Stream, blocks: Blocks, memory: L2, chip: Chip, stages: int) -> None:
        self.blocks, self.memory, self.chip = blocks, memory, chip
        self.steps, self.output_bytes = stream.steps.tolist(), stream.output_bytes.tolist()
        self.each = blocks.steps_per_block
        self.ahead = -(-stages // self.each)
        self.frees = self.ahead * self.each - stages + 1
        self.slots: list[Slot] = []

    def set_pace(self, pace: Pace, step_s: float, slots: int, ctas_per_sm: int, seed: int) -> None:
        """Place the slots on SMs, and draw the speed of SMs and tiles and the delays of tiles."""
        rng, tiles = np.random.default_rng(seed), len(self.steps)
        factors = pace.sm_factors(self.chip, ctas_per_sm > 1, rng).tolist()
        self.tile_factor = pace.tile_factors(tiles, rng).tolist()
        self.delay_s = pace.start_delays_s(tiles, rng).tolist()
        sms = -(-slots // ctas_per_sm)
        self.stride = slots
        self.slots = [
            Slot(slot, self.chip.gpc[slot % sms], step_s * factors[slot % sms]) for slot in range(min(slots, tiles))
        ]

    def set_merging(self, requests: int, window_s: float) -> None:
        """Requests of a GPC that share a lookup, and how long after a hit they may come."""
        self.requests, self.window_s = requests, window_s
        self.gpcs = len(self.chip.side)
        self.open: dict[int, list[float]] = {}  # block and GPC: open until, requests left, first and last arrival

    def go(self, persistent: bool, tile_s: float) -> float:
        """Work through all tiles; the time of the last store, in seconds."""
        heap = [(self.delay_s[place], place) for place in range(len(self.slots))]
        heapify(heap)
        next_tile, tiles, seconds = len(self.slots), len(self.steps), 0.0
        while heap:
            now, place = heap[0]
            slot = self.slots[place]
            if slot.chunk == -1:
                self._begin(slot, now)
            elif slot.chunk == slot.chunks - 1:
                seconds = max(seconds, now)
                size = self.output_bytes[slot.tile]
                if size > 0:
                    self.memory.write(slot.tile, size, now)
                if persistent:
                    slot.tile += self.stride
                else:
                    slot.tile, next_tile = next_tile, next_tile + 1
                slot.chunk = -1
                if slot.tile < tiles:
                    heapreplace(heap, (now + tile_s + self.delay_s[slot.tile], place))
                else:
                    heappop(heap)
                continue
            elif slot.chunk + self.ahead < slot.chunks:
                slot.arrived.append(self._send(slot, slot.chunk + self.ahead, now))
            heapreplace(heap, (self._advance(slot), place))
        return seconds

    def _begin(self, slot: Slot, now_s: float) -> None:
        """Begin a tile: fill the ring."""
        slot.parts = self.blocks.of_cta(slot.tile)
        slot.step_s = slot.sm_step_s * self.tile_factor[slot.tile]
        slot.chunks = -(-self.steps[slot.tile] // self.each)
        slot.arrived = [self._send(slot, chunk, now_s) for chunk in range(min(self.ahead, slot.chunks))]
        slot.end_s = now_s
        slot.ends_s.append(now_s)
        slot.done.append(slot.done[-1])
        if len(self.open) > OPEN_MOST:
            self.open = {key: request for key, request in self.open.items() if request[0] >= now_s}

    def _advance(self, slot: Slot) -> float:
        """Work through the next chunk, and further ones while nothing is left to send; the time of the next event."""
        steps, each, step_s = self.steps[slot.tile], self.each, slot.step_s
        chunk, end = slot.chunk, slot.end_s
        while True:
            chunk += 1
            first, last = slot.arrived[chunk]
            begin = end if end > first else first
            length = min(each, steps - chunk * each)
            end = begin + length * step_s
            if last + step_s > end:
                end = last + step_s
            slot.ends_s.append(end)
            slot.done.append(slot.done[-1] + length)
            slot.chunk, slot.end_s = chunk, end
            if chunk + self.ahead < slot.chunks:
                return begin + self.frees * (end - begin) / each
            if chunk == slot.chunks - 1:
                return end

    def _send(self, slot: Slot, chunk: int, now_s: float) -> tuple[float, float]:
        """Send the loads and stores of a chunk of steps: when what its first and its last step need has arrived."""
        each, memory, still_open = self.each, self.memory, self.open
        gpc, step, first, last = slot.gpc, chunk * self.each, now_s, now_s
        for begin, step_bytes, first_chunk, stop, period, writes in slot.parts:
            if chunk < first_chunk or step >= stop:
                continue
            count = each if step + each <= stop else stop - step
            block = begin + (chunk - first_chunk) % period
            if writes:
                memory.write(block, step_bytes * count, now_s)
                continue
            key = block * self.gpcs + gpc
            request = still_open.get(key)
            if request is not None and now_s <= request[0] and request[1] > 0:
                request[1] -= 1
                arrives, ends = request[2], request[3]
            else:
                slack_s = (count - 1) * slot.step_s
                arrives, ends, missed = memory.read(
                    self.chip.side[gpc], block, step_bytes * count, step_bytes, slack_s, now_s
                )
                until = now_s + self.window_s
                if missed and arrives > until:
                    until = arrives
                still_open[key] = [until, self.requests - 1, arrives, ends]
            if arrives > first:
                first = arrives
            if ends > last:
                last = ends
        return first, last
