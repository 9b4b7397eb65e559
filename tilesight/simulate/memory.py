"""L2 as partitions that replace the least recently used block, and the DRAM behind them.

Each of P partitions is the home of 1/P of every block. An SM looks up the partition on its side of the chip:

    home share     1/P      a hit, or a DRAM read
    far shares     1 - 1/P  a hit if the partition holds its copy; else they cross from their homes, which hit or read
                            DRAM, and are then kept in both

so that a block read from one side takes 1 + (P-1)/P times its bytes, and one read from all sides P times. Writes go to
their homes, take room there and end the copies elsewhere; dirty blocks are written to DRAM when they are evicted.
"""

from collections import OrderedDict

from tilesight.simulate.chip import Service

SIZE, READY, DIRTY = range(3)
"""Places of an entry: bytes, when they are there (s), whether they are dirty."""


class L2:
    """State, servers and byte counts of the memory system. Blocks are whole numbers, times in seconds and never fall."""

    def __init__(self, capacity_bytes: float, partitions: int, service: Service) -> None:
        self.service = service
        self.partitions = partitions
        self.capacity_bytes = capacity_bytes / partitions
        # homes under 2 * block, copies under 2 * block + 1
        self.held: list[OrderedDict[int, list[float]]] = [OrderedDict() for _ in range(partitions)]
        self.used_bytes = [0.0] * partitions
        self.others = [[other for other in range(partitions) if other != side] for side in range(partitions)]
        self.s_per_lookup, self.s_per_dram = 1 / service.lookup_bytes_per_s, 1 / service.dram_bytes_per_s
        self.lookup_free_s = self.dram_free_s = 0.0
        self.read_lookup_bytes = self.crossing_bytes = 0.0
        self.written_bytes = self.dram_read_bytes = self.dram_write_bytes = 0.0

    def read(
        self, side: int, block: int, size: float, part: float, slack_s: float, now_s: float
    ) -> tuple[float, float, bool]:
        """Read ``size`` bytes of a block from ``side``: when its first ``part`` and its last arrive, whether DRAM was read.

        The block stands for requests that are spread over ``slack_s`` from ``now_s`` on, ``part`` bytes at a time:
        servers delay it only as far as they are behind by more than that.
        """
        service = self.service
        self.read_lookup_bytes += size
        free = self.lookup_free_s
        begin = free - slack_s if free - slack_s > now_s else now_s
        self.lookup_free_s = free = (free if free > now_s else now_s) + size * self.s_per_lookup
        first = begin + part * self.s_per_lookup
        last = first + slack_s if first + slack_s > free else free
        begin, latency = first, service.near_s

        held = self.held[side]
        home_bytes, home, copy = size / self.partitions, 2 * block, 2 * block + 1
        ready, missed, new = 0.0, 0.0, []
        entry = held.get(home)
        if entry is None:
            missed = home_bytes
            new.append((side, home, home_bytes))
        else:
            held.move_to_end(home)
            ready = entry[READY]
        if self.partitions > 1:
            entry = held.get(copy)
            if entry is None:
                latency = service.far_s
                self.crossing_bytes += size - home_bytes
                for other in self.others[side]:
                    entry = self.held[other].get(home)
                    if entry is None:
                        missed += home_bytes
                        new.append((other, home, home_bytes))
                    else:
                        self.held[other].move_to_end(home)
                        ready = max(ready, entry[READY])
                new.append((side, copy, size - home_bytes))
            else:
                held.move_to_end(copy)
                if entry[READY] > ready:
                    ready = entry[READY]
        first += latency
        last += latency
        if missed:
            self.dram_read_bytes += missed
            free = self.dram_free_s
            start = free - slack_s if free - slack_s > begin else begin
            self.dram_free_s = free = (free if free > begin else begin) + missed * self.s_per_dram
            start += missed * part / size * self.s_per_dram
            first = max(first, start + service.dram_s)
            last = max(last, start + slack_s + service.dram_s, free + service.dram_s)
        if ready > first:
            first = ready
            last = max(last, ready + slack_s)
        for where, key, held_bytes in new:
            self._keep(where, key, held_bytes, first, False, now_s)
        return first, last, missed > 0

    def write(self, block: int, size: float, now_s: float) -> None:
        """Write ``size`` bytes of a block from any side."""
        self.written_bytes += size
        self.lookup_free_s = max(self.lookup_free_s, now_s) + size * self.s_per_lookup
        for where in range(self.partitions):
            self._drop(where, 2 * block + 1)
            self._drop(where, 2 * block)
            self._keep(where, 2 * block, size / self.partitions, now_s, True, now_s)

    def place(self, block: int, size: float) -> None:
        """Put a clean block into its homes, as an earlier launch left it."""
        for where in range(self.partitions):
            self._keep(where, 2 * block, size / self.partitions, 0.0, False, 0.0)

    @property
    def dirty_bytes(self) -> float:
        """Bytes still to be written to DRAM."""
        return sum(entry[SIZE] for held in self.held for entry in held.values() if entry[DIRTY])

    def _keep(self, where: int, key: int, size: float, ready_s: float, dirty: bool, now_s: float) -> None:
        held = self.held[where]
        held[key] = [size, ready_s, dirty]
        used = self.used_bytes[where] + size
        while used > self.capacity_bytes * (1 + 1e-12):  # sums of equal parts may round up
            _, entry = held.popitem(last=False)
            used -= entry[SIZE]
            if entry[DIRTY]:
                self.dram_write_bytes += entry[SIZE]
                self.dram_free_s = max(self.dram_free_s, now_s) + entry[SIZE] * self.s_per_dram
        self.used_bytes[where] = used if held else 0.0

    def _drop(self, where: int, key: int) -> None:
        entry = self.held[where].pop(key, None)
        if entry is not None:
            self.used_bytes[where] -= entry[SIZE]
