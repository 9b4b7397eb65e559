"""Time of a launch: what the chip moves, or what a row takes from end to end on the CTA that works on it.

    T = gap + start + (throughput^q + latency^q)^(1/q),
    throughput = first + rows * chip + rounds * apart + idle + last,        latency = rounds * period

- gap, start: from one kernel of a graph to the next, and from there to the first instruction of a CTA.
- q (``SHARPNESS``): queues make the shorter bound felt too.
- chip: the largest of DRAM, L2 and SM time of one row, over all SMs that have work. A byte written beside reads takes
  2 / copy rate - 1 / read rate; CTAs that walk from row to row write as a copy does, and those that the scheduler hands one
  row each, in order, as a copy in order (``dram.bandwidth_in_order_bytes_per_s``).
- period: time from one row to the next in one CTA. Where each row is a CTA of its own, the sum of its phases and a start;
  where the only slot is filled anew once its row is in registers and reduced, take + reduce + the larger of load and the
  rest; with two slots the larger of the work and (load + work) / 2.
- rounds: rows of the CTA, or cluster, that has most: ceil(rows / places), places = CTAs an SM * SMs / P that clusters fill,
  at most eight CTAs of clusters an SM.
- first, last: the latency of the first load, and what follows the last one.
- apart: a split row has no slot for inputs that all rows share: each pass reads them anew, with nothing else under way.
- idle: CTAs begin together and load together, so that DRAM idles while all of them reduce: by the gap between the loads of
  one CTA, less what loads of the others on its SM take, which queue behind each other. By how much their paces differ
  (``drift.bound_spread``) SMs drift apart, and fill each other's gaps after gap / (spread * period) rounds.

Phases of a row: load = blocks * latency + bytes / rate of one SM, as a CTA waits for a block before it asks for the next,
full or not, and in passes over memory works on it in between; take = shared memory into registers, with the statistics;
reduce = shuffles and a barrier for each stage; exchange by cluster size and by the warps of the other CTAs on the SM, which
exchange too; write = replay, arithmetic, stores. All overlap among CTAs of an SM, up to the rates of the SM. Rows that fit
in L1 are read again there.

Arrays have the shape (ends, candidates, widths); the ends are the likely time, the low and the high one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilesight.dsmem.alternatives import Candidates
from tilesight.dsmem.rates import Rates
from tilesight.dsmem.staging import Floats
from tilesight.dsmem.traffic import again_hit_share, warm_share
from tilesight.dsmem.workload import Workload

WARP_LINES = 32
"""Lines of 16-byte loads that a warp waits for."""
CONTROL_WARPS, CONTROL_BYTES = 8.0, 16.0
"""Warps of a CTA, and bytes of its partial, of the exchange that was measured."""
SHARPNESS = 5.0
"""How sharply the longer of two bounds wins; by kernels without clusters, which say 4 to 6."""
BOUNDS = ("dram", "l2", "sm", "latency")
FOOTPRINTS = np.array([1.0, 0.8, 1.5]).reshape(3, 1, 1)
"""Bytes that pass by between two uses, over those counted: likely, and the two ends of the interval."""
DRIFTS = np.array([1.0, 0.0, 1.0]).reshape(3, 1, 1)
"""Share of the idle time until CTAs have drifted apart."""
KEPT_STEP = np.array([0.0, 0.0, 1.0]).reshape(3, 1, 1)
"""Whether rows keep step for the whole launch: at the far end of the interval."""
KEPT_APART = 1 / 3
"""Share of the gap that then stays where each row is a CTA of its own: at most so much, by kernels without clusters."""


@dataclass(frozen=True)
class Priced:
    """Times of candidates, shape (3, C, W), infinite where one is not legal; the rest at the likely end, shape (C, W).

    ``dram_seconds`` is what the bytes from and to DRAM take at the rates of the memory, a part of ``seconds``.
    """

    candidates: Candidates
    seconds: Floats
    dram_seconds: Floats
    dram_bytes: Floats
    hit_share: Floats
    rounds: Floats
    latency_share: Floats
    binding: NDArray[np.intp]


@dataclass(frozen=True)
class Phases:
    """Seconds of one row in one CTA, and what it asks of its SM and of L2."""

    load: Floats
    take: Floats
    reduce: Floats
    exchange: Floats
    write: Floats
    latency: Floats
    gaps: Floats
    sm_busy: Floats
    lookup_bytes: Floats
    apart: Floats


@dataclass(frozen=True)
class _Work:
    """Shares and arithmetic that phases are made of."""

    hits: Floats
    latency: Floats
    statistics: Floats
    output: Floats
    stored: Floats


def price(given: Candidates, workload: Workload, rows: int, cols: Floats, *, cache: str, rates: Rates) -> Priced:
    """Times of candidates at each width."""
    placed, moved = given.placement, given.walks
    ctas = np.maximum(placed.ctas_per_sm, 1.0)
    sms = np.array([[rates.cluster_slots.get(label.cluster, float(rates.sms))] for label in given.labels])
    places = np.maximum(np.floor(ctas * sms / given.cluster), 1.0)
    at_once = np.minimum(places, rows)

    warm = warm_share(moved, rows, cols, rates) if cache == "warm" else np.zeros_like(cols)
    hits = _hits(given, cols, at_once, warm, rates)
    again = 0.0 if given.on_chip else moved.again_bytes
    read = cols * (moved.input_bytes * (1 - warm) + again * (1 - hits))
    written = cols * moved.output_bytes

    phases = _phases(given, workload, hits, warm, rates)
    in_order = given.streaming & ~placed.walking
    write = np.where(in_order, rates.chip_write_in_order_s_per_byte, rates.chip_write_s_per_byte)
    dram = read * rates.chip_read_s_per_byte + written * write
    lookups = given.cluster * phases.lookup_bytes * rates.chip_lookup_s_per_byte
    l2 = lookups + written * rates.chip_store_s_per_byte
    sm = phases.sm_busy * given.cluster / np.minimum(sms, at_once * given.cluster)  # rows go to empty SMs first
    chip = np.maximum(dram, np.maximum(l2, sm))
    if given.split:
        throughput, latency = _split_s(given, rows, np.maximum(dram, l2), rates), np.zeros_like(chip)
    else:
        throughput, latency = _launch_s(given, phases, rows, at_once, np.ceil(rows / places), chip, rates)
    binding = np.where(dram[0] >= np.maximum(l2, sm[np.newaxis])[0], 0, np.where(l2 >= sm, 1, 2))
    share = np.broadcast_to((latency / np.maximum(throughput, latency))[0], placed.elements.shape)
    seconds = rates.gap_s + rates.start_s + _both(throughput, latency)
    return Priced(
        candidates=given,
        seconds=np.where(placed.legal, seconds, np.inf),
        dram_seconds=np.broadcast_to(rows * dram[0], placed.elements.shape),
        dram_bytes=rows * (read + written)[0],
        hit_share=hits[0],
        rounds=np.ceil(rows / places),
        latency_share=share,
        binding=np.where(share >= 1 - 1e-9, 3, binding).reshape(placed.elements.shape),
    )


def _both(throughput: Floats, latency: Floats) -> Floats:
    """Time where neither bound hides the other: (throughput^q + latency^q)^(1/q), q = ``SHARPNESS``."""
    together: Floats = throughput * (1.0 + (latency / throughput) ** SHARPNESS) ** (1.0 / SHARPNESS)
    return together


def _hits(given: Candidates, cols: Floats, at_once: Floats, warm: Floats, rates: Rates) -> Floats:
    """Share of later reads found in L2, shape (3, C, W)."""
    shape = (3, *at_once.shape)
    if given.split:  # a kernel a pass: what the whole launch leaves
        return np.broadcast_to(warm, shape)
    if given.on_chip or given.walks.again_bytes == 0:
        return np.ones(shape)
    return again_hit_share(given.walks, cols, at_once * FOOTPRINTS, given.backwards, rates)


def _launch_s(
    given: Candidates, phases: Phases, rows: int, at_once: Floats, rounds: Floats, chip: Floats, rates: Rates
) -> tuple[Floats, Floats]:
    """Time by throughput, and by the rows that one CTA does one after the other."""
    period, gap = _period(given, phases, rates)
    alone = phases.load + phases.take + phases.reduce + phases.exchange + phases.write
    latency = rounds * period + np.maximum(alone - period, 0.0) * given.placement.walking
    step = np.maximum(np.maximum(at_once * chip, period), 1e-12)
    others = 1.0 - 1.0 / np.maximum(given.placement.ctas_per_sm, 1.0)
    gap = np.maximum(gap - others * step, 0.0)  # loads of other CTAs of the SM, which queue behind each other
    together = np.minimum(gap / (rates.pace_spread * step), rounds) if rates.pace_spread > 0 else 2.0 * rounds
    kept = np.where(given.placement.walking, 1.0, KEPT_APART)
    idle = np.maximum(DRIFTS * gap * together / 2.0, KEPT_STEP * gap * rounds * kept)
    last = phases.take + phases.reduce + phases.exchange + phases.write
    return phases.latency + rows * chip + rounds * phases.apart + idle + last, latency


def _period(given: Candidates, phases: Phases, rates: Rates) -> tuple[Floats, Floats]:
    """Time from row to row of a CTA, and what of it leaves DRAM idle while all CTAs keep step."""
    before, after = phases.take + phases.reduce, phases.exchange + phases.write
    work, slots, early = before + after, given.placement.slots, given.placement.early
    start = rates.cta_start_s
    # one slot: the next load begins when the row has left it, or when the row is done
    ahead = np.where(early, before + np.maximum(phases.load, after), phases.load + work + phases.apart)
    period = np.where(slots > 1, np.maximum(work, (phases.load + work) / slots), ahead)
    gap = np.where(slots > 1, 0.0, phases.latency + np.where(early, before, work))
    walking = given.placement.walking
    return np.where(walking, period, phases.load + work + start), np.where(walking, gap, phases.gaps + work + start)


def _split_s(given: Candidates, rows: int, chip: Floats, rates: Rates) -> Floats:
    """A row split among CTAs: for each stage a kernel of partial sums and one that adds them, then the output."""
    kernels = 2.0 * sum(1 for each in given.walks.passes if each.statistics) + 1.0
    return rows * chip + kernels * rates.latency_dram_s + (kernels - 1.0) * rates.gap_s


def _reduce_s(given: Candidates, rates: Rates) -> Floats:
    """From a thread's sums to those of the CTA: five steps in a warp, one barrier, log2(warps) steps in another.

    A step is a shuffle and about as much again for the merge.
    """
    warps = np.maximum(given.placement.threads / 32.0, 1.0)
    return (5.0 + np.ceil(np.log2(warps))) * 2.0 * rates.shuffle_s + rates.barrier_s


def _exchange_s(given: Candidates, statistics: int, scalar_bytes: int, rates: Rates) -> Floats:
    """One exchange of each cluster: remote stores, until they are seen, and the merge of P partials; shape (C, W).

    Measured: a latency by P, and for each further CTA on the SM what its warps take from it, by their number. Else one way
    of a store, or two barriers, and log2(P) steps of a merge.
    """
    none = 0.0 * given.placement.elements
    others = np.maximum(given.placement.ctas_per_sm - 1.0, 0.0) * given.placement.threads / (32.0 * CONTROL_WARPS)
    found = []
    for place, cluster in enumerate(label.cluster for label in given.labels):
        if cluster == 1:
            found.append(none[place])
            continue
        paid = rates.exchange[cluster]
        pushed = (cluster - 1) * statistics * scalar_bytes / paid.store_bytes_per_cycle
        merge = float(np.log2(cluster)) * 2.0 * rates.shuffle_s
        if given.barriers:
            seconds = none[place] + (2.0 * paid.busy_barrier_cycles + pushed) / rates.clock_hz + merge
        elif paid.measured_cycles is None:
            seconds = none[place] + (paid.one_way_cycles + pushed) / rates.clock_hz + merge
        else:
            beyond = max(statistics * scalar_bytes - CONTROL_BYTES, 0.0) * (cluster - 1) / paid.store_bytes_per_cycle
            seconds = (paid.measured_cycles + beyond + others[place] * paid.service_cycles) / rates.clock_hz
        found.append(seconds)
    return np.array(found)


def _phases(given: Candidates, workload: Workload, hits: Floats, warm: Floats, rates: Rates) -> Phases:
    elements = given.placement.elements
    busy = [
        max(each.instructions / rates.lanes_per_s, each.special / rates.special_per_s) for each in given.walks.passes
    ]
    stages = [each for each in given.walks.passes if each.statistics]
    statistics = sum(time for time, each in zip(busy, given.walks.passes, strict=True) if each.statistics)
    most = rates.bulk_bytes_per_s if given.bulk else rates.load_bytes_per_s
    work = _Work(
        hits=hits,
        latency=rates.latency_l2_s + (rates.latency_dram_s - rates.latency_l2_s) * (warm < 0.5) + 0.0 * elements,
        statistics=elements * statistics,
        output=elements * (sum(busy) - statistics),
        stored=elements * given.walks.output_bytes / rates.store_bytes_per_s,
    )
    ends = len(stages) * _reduce_s(given, rates)
    if not given.on_chip:
        return _streamed(given, work, ends, most, rates)
    exchange = sum(
        (_exchange_s(given, each.statistics, workload.scalar_bytes, rates) for each in stages), 0.0 * elements
    )
    return _on_chip(given, work, ends, exchange, most, rates)


def _on_chip(given: Candidates, work: _Work, ends: Floats, exchange: Floats, most: float, rates: Rates) -> Phases:
    """Phases of a kernel that loads the row once: replays come from shared memory, or from registers for nothing."""
    elements, passes = given.placement.elements, len(given.walks.passes)
    loaded, shared = elements * given.walks.input_bytes, elements * given.walks.shared_bytes
    in_smem = given.on_chip == "smem"
    read = np.where(given.placement.early, loaded, passes * loaded) + shared
    smem = (loaded + read) / rates.smem_bytes_per_s * in_smem
    asked = loaded + shared * ~(
        given.placement.walking & ~given.placement.split
    )  # who walks brings what rows share once
    lookups = loaded + (asked - loaded) / _merged(given, rates)
    replays = read / rates.smem_bytes_per_s * in_smem
    last = replays / passes * ~given.placement.early
    # a split row has no slot for what rows share: each pass brings it anew while nothing else is under way
    apart = np.where(given.placement.split, shared / rates.load_bytes_per_s, 0.0)
    return Phases(
        load=np.ceil(elements / given.block) * work.latency + (asked - shared * given.placement.split) / most,
        take=np.maximum(work.statistics, replays - last),
        reduce=ends,
        exchange=exchange,
        write=np.maximum(np.maximum(work.output, work.stored), last),
        latency=work.latency,
        gaps=work.latency,
        sm_busy=np.maximum.reduce([asked / most, work.stored, work.statistics + work.output, smem]),
        lookup_bytes=lookups,
        apart=apart,
    )


def _merged(given: Candidates, rates: Rates) -> float:
    """Rows that begin together ask together for what all of them share: so many requests take one lookup."""
    return rates.bulk_shared if given.bulk else rates.load_shared


def _streamed(given: Candidates, work: _Work, ends: Floats, most: float, rates: Rates) -> Phases:
    """Phases of a kernel that walks over memory in every pass: all of it is load, but for what ends each pass."""
    elements, passes = given.placement.elements, given.walks.passes
    # a warp waits for the slowest of its lines
    again = rates.latency_l2_s + (rates.latency_dram_s - rates.latency_l2_s) * (1.0 - work.hits**WARP_LINES)
    blocks = np.ceil(elements / given.block)
    whole = np.maximum(
        blocks * given.block / elements, 1.0
    )  # a block that is partly filled takes as long as a full one
    load, asked, gaps = 0.0 * work.hits, 0.0 * elements, 0.0 * work.hits
    for each in passes:
        read = elements * (each.first_bytes + each.again_bytes + each.shared_bytes)
        busy = work.statistics / max(len(passes) - 1, 1) if each.statistics else np.maximum(work.output, work.stored)
        waits = work.latency if each.first_bytes else again
        load = load + blocks * waits + read * whole / most + busy
        asked, gaps = asked + read, gaps + waits
    none = 0.0 * elements
    sm_busy = np.maximum.reduce([asked / most, work.stored, work.statistics + work.output])
    lookups = asked - elements * given.walks.shared_bytes * (1.0 - 1.0 / _merged(given, rates))
    # what no slot takes of an SM's memory is its L1: rows that fit there are read again, and shared ones found, without L2
    a_row = given.walks.input_bytes + max(each.shared_bytes for each in passes)
    in_l1 = given.placement.ctas_per_sm * elements * a_row <= rates.smem_sm_bytes
    lookups = np.where(in_l1, elements * given.walks.input_bytes, lookups)
    return Phases(load, none, ends, none, none, work.latency, gaps, sm_busy, lookups, none)
