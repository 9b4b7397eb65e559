"""Which launches of the Triton kernels are tried at a width, by rule, ten or so. Pure Python, no GPU.

Rows held in registers while they fit, a program a row or programs that walk over rows and load the next one early; and rows
streamed twice in blocks of 2048 to 16384 elements.
"""

from __future__ import annotations

import dataclasses

REGISTERS, SMEM_BYTES, WARPS = 65536, 227 * 1024, 64
"""Of an SM."""
KEPT = {  # row tensors that the held kernel has in registers at once, and vectors that it loads
    "layernorm_backward": (2, 3),
    "weighted_standardisation_backward": (3, 3),
    "pearson_backward": (2, 2),
    "softmax_backward": (2, 2),
    "lars_momentum": (3, 3),
    "quantise_int8": (1, 1),
}
HELD_ELEMENTS = 65536  # kept tensors times block that are still tried in registers
FEWEST, MOST = 4, 64  # elements of a thread: of each tensor, of all
LOOPS = (  # block, warps, stages
    *((2048, 8, 1), (2048, 8, 3), (4096, 16, 1), (4096, 16, 3)),
    *((8192, 16, 1), (8192, 32, 1), (16384, 32, 1)),
)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to launch: kernel held or looped, elements a block, warps, stages; walks: programs walk over rows."""

    kernel: str
    block: int
    warps: int
    stages: int
    walks: bool = False

    def columns(self) -> dict:
        return dict(kernel=self.kernel, block=self.block, warps=self.warps, stages=self.stages)


def candidates(workload: str, cols: int) -> list[Candidate]:
    """What is tried at a width.

    >>> [each.kernel for each in candidates("lars_momentum", 65536)].count("looped")
    7
    """
    block = 1 << max(0, cols - 1).bit_length()
    loops = [Candidate("looped", *loop) for loop in LOOPS if loop[0] <= max(block, LOOPS[0][0])]
    return held(workload, block) + loops


def held(workload: str, block: int) -> list[Candidate]:
    """Up to three numbers of warps, about 32 elements a thread first, and two that walk where the next row fits."""
    kept, loaded = KEPT[workload]
    if kept * block > HELD_ELEMENTS:
        return []
    per_thread = {warps: kept * block // (32 * warps) for warps in (4, 8, 16, 32)}
    near = sorted(per_thread, key=lambda warps: abs(per_thread[warps].bit_length() - (32).bit_length()))
    some = [warps for warps in near if FEWEST * kept <= per_thread[warps] <= MOST][:3]
    made = [Candidate("held", block, warps, 1) for warps in some]
    if 4 * loaded * block < SMEM_BYTES:
        made += [Candidate("held", block, warps, 2, walks=True) for warps in some[:2]]
    return made


def programs_of(candidate: Candidate, rows: int, registers: int, smem_bytes: int, sms: int) -> int:
    """A program a row; those that walk fill every SM once.

    >>> programs_of(Candidate("held", 4096, 8, 2, walks=True), 4096, 64, 49184, 132) // 132
    4
    """
    if not candidate.walks:
        return rows
    by_registers = REGISTERS // max(1, registers * 32 * candidate.warps)
    by_smem = SMEM_BYTES // (smem_bytes + 1024)
    return min(rows, sms * max(1, min(by_registers, by_smem, WARPS // candidate.warps)))


def recorded(row: dict) -> Candidate:
    """The candidate of a row of the record.

    >>> recorded(dict(configuration="block=4096 warps=8 stages=1 programs=4096", kinds="held", rows="4096"))
    Candidate(kernel='held', block=4096, warps=8, stages=1, walks=False)
    """
    words = {key: int(value) for key, value in (word.split("=") for word in row["configuration"].split())}
    sizes = {name: words[name] for name in ("block", "warps", "stages")}
    return Candidate(row["kinds"], **sizes, walks=words["programs"] < int(row["rows"]))
