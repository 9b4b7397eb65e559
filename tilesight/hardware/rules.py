"""Rules between the numbers of a profile: what each may be beside the others.

Some follow from what the numbers mean (a line holds whole sectors, a burst ends before the clock settles) and hold for
every profile. Others hold a number against what the datasheet states (no stream passes the peak, clusters fit on the
SMs there are). A what-if copy changes what it names and nothing else, so it may pass those.

Peaks of tensor cores are checked against SMs * flop per cycle * boost clock. Datasheets round, some to two digits, and
some state peaks at a lower clock: 5 % above and a tenth are the limits, which a wrong unit or a sparse rate breaks.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from tilesight.hardware.numbers import Number, plain_number

Numbers = Mapping[str, Number]

AT_MOST = (
    ("clock.base_hz", "clock.boost_hz"),
    ("clock.tensor_hz", "clock.boost_hz"),
    ("sm.warp_size", "sm.threads_max"),
    ("sm.registers_per_thread_max", "sm.registers"),
    ("sm.register_allocation_unit", "sm.registers"),
    ("sm.smem_per_cta_max_bytes", "sm.smem_bytes"),
    ("l2.sector_bytes", "l2.line_bytes"),
)
"""The first is at most the second, in every profile."""

AT_MOST_STATED = (
    ("dram.bandwidth_sustained_bytes_per_s", "dram.bandwidth_peak_bytes_per_s"),
    ("dram.bandwidth_read_bytes_per_s", "dram.bandwidth_peak_bytes_per_s"),
    ("dram.bandwidth_write_bytes_per_s", "dram.bandwidth_peak_bytes_per_s"),
    ("power.idle_w", "power.limit_w"),
    ("gpc.count", "sm_count"),
)
"""The first is at most the second, except in a what-if copy."""

PEAK_ABOVE_MOST, PEAK_SHARE_LEAST = 1.05, 0.1
"""Tensor peak over SMs * flop per cycle * boost clock."""


def broken_rules(numbers: Numbers, *, what_if: bool) -> Iterator[str]:
    """What is wrong between the numbers, one line each: the names, the values, what is allowed.

    Parameters
    ----------
    numbers
        Dotted name to value, of well-formed fields.
    what_if
        Whether they are those of a what-if copy.
    """
    yield from _at_most(numbers, AT_MOST)
    yield from _by_meaning(numbers)
    if not what_if:
        yield from _at_most(numbers, AT_MOST_STATED)
        yield from _tensor_rates(numbers)
        yield from _clusters(numbers)


def _one(numbers: Numbers, name: str) -> float | None:
    """A number that is no list, None if it is unknown."""
    return cast("float | None", numbers.get(name))


def _is(numbers: Numbers, name: str) -> str:
    value = _one(numbers, name)
    assert value is not None  # only known numbers are spoken of
    return f"{name} = {plain_number(value)}"


def _at_most(numbers: Numbers, pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, limit in pairs:
        value, most = _one(numbers, name), _one(numbers, limit)
        if value is not None and most is not None and value > most:
            yield f"{_is(numbers, name)} is above {_is(numbers, limit)}"


def _by_meaning(numbers: Numbers) -> Iterator[str]:
    most, reserved, held = (
        cast("int", numbers[f"sm.{name}"])
        for name in ("smem_per_cta_max_bytes", "smem_reserved_per_cta_bytes", "smem_bytes")
    )
    if most + reserved > held:
        yield (
            f"{_is(numbers, 'sm.smem_per_cta_max_bytes')} and {_is(numbers, 'sm.smem_reserved_per_cta_bytes')} are "
            f"together above {_is(numbers, 'sm.smem_bytes')}"
        )
    line, capacity = cast("int", numbers["l2.line_bytes"]), cast("int", numbers["l2.capacity_bytes"])
    if line % cast("int", numbers["l2.sector_bytes"]):
        yield f"{_is(numbers, 'l2.sector_bytes')} does not divide {_is(numbers, 'l2.line_bytes')}"
    ways = _one(numbers, "l2.associativity")
    if ways is not None and ways > capacity // line:
        yield (
            f"{_is(numbers, 'l2.associativity')} is above the {capacity // line} lines of "
            f"{_is(numbers, 'l2.capacity_bytes')}"
        )
    copies, partitions = _one(numbers, "l2.copies_one_reader"), _one(numbers, "l2.partitions")
    if copies is not None and partitions is not None and copies > partitions > 1:
        yield f"{_is(numbers, 'l2.copies_one_reader')} is above {_is(numbers, 'l2.partitions')}"
    per_gpc, count = cast("tuple[int, ...]", numbers.get("gpc.sms_per_gpc", ())), _one(numbers, "gpc.count")
    if per_gpc and count is not None and len(per_gpc) != count:
        yield f"gpc.sms_per_gpc has {len(per_gpc)} entries and {_is(numbers, 'gpc.count')}; give an entry a GPC"
    start, end = _one(numbers, "power.burst_s"), _one(numbers, "power.settle_s")
    if start is not None and end is not None and start >= end:
        yield f"{_is(numbers, 'power.burst_s')} is not below {_is(numbers, 'power.settle_s')}"


def _tensor_rates(numbers: Numbers) -> Iterator[str]:
    sms, boost_hz = cast("int", numbers["sm_count"]), cast("float", numbers["clock.boost_hz"])
    dtypes = [name.split(".")[1] for name in numbers if name.endswith(".rate_peak_flop_per_s")]
    for dtype in dtypes:
        per_cycle, peak, burst, sustained = (
            f"tensor.{dtype}.{name}"
            for name in (
                "flop_per_cycle_per_sm", "rate_peak_flop_per_s", "rate_burst_flop_per_s", "rate_sustained_flop_per_s"
            )
        )  # fmt: skip
        at_boost = sms * cast("float", numbers[per_cycle]) * boost_hz
        product = f"sm_count * {per_cycle} * clock.boost_hz = {plain_number(float(f'{at_boost:.4g}'))}"
        share = cast("float", numbers[peak]) / at_boost
        if share > PEAK_ABOVE_MOST:
            yield f"{_is(numbers, peak)} is more than {PEAK_ABOVE_MOST:g} times {product}; give the dense rate"
        if share < PEAK_SHARE_LEAST:
            yield f"{_is(numbers, peak)} is less than {PEAK_SHARE_LEAST:g} times {product}"
        yield from _at_most(numbers, ((burst, peak), (sustained, burst if burst in numbers else peak)))


def _clusters(numbers: Numbers) -> Iterator[str]:
    """Clusters fit on the SMs there are, and a cluster of 2 P makes way for two of P."""
    sms = cast("int", numbers["sm_count"])
    per_gpc = cast("tuple[int, ...]", numbers.get("gpc.sms_per_gpc", ()))
    if sum(per_gpc) > sms:
        yield f"gpc.sms_per_gpc adds up to {sum(per_gpc)}, above sm_count = {sms}"
    most, above = sms, f"sm_count = {sms}"
    names = [name for name in numbers if name.startswith("gpc.max_active_clusters.")]
    for name in sorted(names, key=lambda name: int(name.split(".")[2])):
        taken = int(name.split(".")[2]) * cast("int", numbers[name])
        if taken > most:
            yield f"{_is(numbers, name)} takes {taken} SMs, above {above}"
        most, above = taken, f"the {taken} of {_is(numbers, name)}"
