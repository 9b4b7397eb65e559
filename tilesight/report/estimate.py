"""One estimate: the time, what it is made of, what binds, and the bytes."""

from collections.abc import Callable, Iterator

from tilesight.cost.estimate import Estimate, Estimates, State
from tilesight.cost.roofline import dram_bytes_per_s
from tilesight.errors import counted
from tilesight.hardware.load import list_profiles, load_profile
from tilesight.report.blocks import Bar, Block, Facts, Grid, Lines, Page, describe
from tilesight.units import format_bytes, format_bytes_binary, format_flop_per_s, format_percent, format_seconds

WHAT_IF = "what if: "
"""How assumptions begin that name a change of the GPU's profile."""
MOST = 20
"""Launches of a batch that are printed; its columns hold them all."""
NOISE, LINE_BYTES, FEW = 1e-6, 128.0, 0.01
"""Bytes below this share of the compulsory ones, or below a line where those are many, are printed as none."""
LEAST_SHARE = 0.005
"""Shares of a tensor below this round to 0 % and are not printed."""
SMALLEST = 1e-4
"""Terms below this share of the time are left out of the printed sum (the data keep them)."""


@describe.register
def describe_estimate(estimate: Estimate) -> Page:
    """Page of one estimate."""
    title = f"{estimate.problem} on {estimate.hardware}: {format_seconds(estimate.seconds)}"
    blocks: list[Block] = [
        Facts(list(_answer(estimate))),
        _terms(estimate),
        _periods(estimate),
        _busy(estimate),
        Facts(list(_bytes(estimate)), "bytes"),
        Lines([text for text in estimate.assumptions if not text.startswith(WHAT_IF)], "assumptions"),
        Facts([("profile", f"{estimate.hardware} {estimate.hardware_hash}, model {estimate.model_version}")]),
    ]
    return Page(title, blocks)


@describe.register
def describe_estimates(estimates: Estimates) -> Page:
    """Page of a batch: a line for each of its first launches, and what was refused."""
    first = estimates[:MOST]
    rows = [(each.problem, plain_config(each.config), format_seconds(each.seconds), each.binding) for each in first]
    facts = [("state", in_state(first[0].state))] if len({str(each.state) for each in first}) == 1 else []
    facts += what_if(first[0]) if first else []
    more = [f"{len(estimates) - MOST} more are not shown"] if len(estimates) > MOST else []
    if estimates.refusals:
        row, reason = estimates.refusals[0]
        more.append(f"{len(estimates.refusals)} refused, the first in place {row}: {reason}")
    title = f"{counted(len(estimates), 'estimate')} on {estimates.hardware.name}"
    return Page(title, [Facts(facts), Grid(("<problem", "<config", "time", "<bound by"), rows), Lines(more)])


def what_if(estimate: Estimate) -> list[tuple[str, str]]:
    """What was changed in the GPU's profile, a fact each; none of a profile as it is."""
    changes = (text for text in estimate.assumptions if text.startswith(WHAT_IF))
    return [("what if", text.removeprefix(WHAT_IF)) for text in changes]


def bytes_said(value_bytes: float) -> str:
    """Bytes that were moved; there are no parts of one, but what is expected on average may have some."""
    return "below 1 B" if 0 < value_bytes < 1 else format_bytes(value_bytes)


def likely(estimate: Estimate) -> str:
    """The likely interval, ``185.0 us to 213.0 us``, or nothing where it is unknown."""
    if estimate.seconds_low is None or estimate.seconds_high is None:
        return ""
    return f"{format_seconds(estimate.seconds_low)} to {format_seconds(estimate.seconds_high)}"


def binds(estimate: Estimate) -> str:
    """What binds and by how much."""
    ranked = sorted(estimate.period_s.items(), key=lambda item: -item[1])
    if len(ranked) < 2 or estimate.binding != ranked[0][0] or estimate.margin is None:
        return estimate.binding
    return f"{estimate.binding}, {estimate.margin:.2f} times the next bound ({ranked[1][0]})"


def plain_config(config: str) -> str:
    """``GemmConfig(128x256x64, ...)`` without its wrapping."""
    return config.removeprefix("GemmConfig(").removesuffix(")") if config.startswith("GemmConfig(") else config


def in_state(state: State) -> str:
    """The state that was asked for: ``warm cache, sustained clock``, ``50 % of a in L2, 50.00 ms under load``, ..."""
    shares = ", ".join(f"{_percent(share)} of {name}" for name, share in (state.resident or {}).items())
    cache = f"{state.cache} cache" if state.cache is not None else f"{shares or 'nothing'} in L2"
    parts = [f"{format_bytes(state.dirty_bytes)} of other data dirty in L2"] if state.dirty_bytes else []
    parts += [f"{counted(state.sms, 'SM')} at most"] if state.sms is not None else []
    clock = f"{state.clock} clock" if state.busy_s is None else f"{format_seconds(state.busy_s)} under load"
    return ", ".join([cache, *parts, clock])


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _answer(estimate: Estimate) -> Iterator[tuple[str, str]]:
    interval = likely(estimate)
    yield "config", plain_config(estimate.config)
    yield "time", format_seconds(estimate.seconds) + (f" (likely {interval})" if interval else "")
    yield from _hint(estimate)
    yield "rate", f"{format_flop_per_s(estimate.flop_per_s)}, {format_percent(estimate.share_of_peak)} of peak"
    ratio = estimate.seconds / estimate.roofline_s
    below = f", {_below_the_roofline(estimate)}" if ratio < 1 else ""
    yield "roofline", f"{format_seconds(estimate.roofline_s)}; the estimate is {ratio:.2f} times that{below}"
    yield "bound by", binds(estimate)
    of_cache = f", {estimate.cache_regime} in the cache" if estimate.cache_regime != estimate.regime else ""
    yield "regime", f"{estimate.regime}{of_cache}"
    yield "state", f"{in_state(estimate.state)}: {estimate.clock_hz / 1e6:.0f} MHz"
    yield from what_if(estimate)
    yield "launch", _launch(estimate)
    yield "occupancy", _occupancy(estimate)


DRAM_ROOF = "which reads all operands from DRAM at the rate of a copy: what L2 holds, and reads alone, are faster"
TENSOR_ROOF = (
    "which goes at the tensor rate that a load at the power limit reached: one that draws less keeps a higher clock"
)


def _below_the_roofline(estimate: Estimate) -> str:
    """Why a launch can be faster: by the term that is the roof, where the GPU is still what it was; else both."""
    if estimate.hardware in list_profiles() and (gpu := load_profile(estimate.hardware)).hash == estimate.hardware_hash:
        memory_s = estimate.compulsory_bytes / dram_bytes_per_s(gpu) + (gpu.launch.kernel_start_s or 0.0)
        return DRAM_ROOF if memory_s >= (1 - NOISE) * estimate.roofline_s else TENSOR_ROOF
    return f"{DRAM_ROOF}; or {TENSOR_ROOF}"


def _hint(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """Which layouts would spare a transposing kernel."""
    if not any("transposed by a kernel" in text for text in estimate.assumptions):
        return
    problem = estimate.problem_fields
    spared = ["row-major A"] if problem.get("layout_a") == "column" and not problem.get("quantise_a") else []
    spared += ["column-major B"] if problem.get("layout_b") == "row" else []
    if spared:
        yield "hint", f"{' and '.join(spared)} avoid{'' if spared[1:] else 's'} preparation by a transposing kernel"


def quiet_bytes(of_bytes: float) -> float:
    """Bytes that are rounding beside so many: a millionth of them, and less than a line unless there are few."""
    return max(NOISE * of_bytes, min(LINE_BYTES, FEW * of_bytes))


def _launch(estimate: Estimate) -> str:
    parts = f" in {estimate.split_k} parts of k" if estimate.split_k > 1 else ""
    rounds = (
        f"{counted(estimate.ctas, 'tile')}{parts}, {estimate.waves:.2f} waves in {counted(estimate.rounds, 'round')}"
    )
    if not 0 < estimate.tail_share < 1:
        return rounds
    which = "it" if estimate.rounds == 1 else "the last"
    return f"{rounds}, {which} fills {format_percent(estimate.tail_share, 0)} of the slots"


def _occupancy(estimate: Estimate) -> str:
    smem = format_bytes_binary(estimate.smem_bytes)
    return (
        f"{counted(estimate.ctas_per_sm, 'CTA')} an SM, limited by {estimate.occupancy_limiter}: "
        f"{estimate.registers} registers a thread, {smem} of shared memory a CTA"
    )


def _terms(estimate: Estimate) -> Grid:
    def row(name: str, seconds: float) -> tuple[str, str, str, Bar]:
        share = seconds / estimate.seconds
        return name, format_seconds(seconds), format_percent(share), Bar(share)

    rows = [row(name, value) for name, value in estimate.terms.items() if abs(value) >= SMALLEST * estimate.seconds]
    total = ("sum", format_seconds(sum(estimate.terms.values())), format_percent(1.0), "")
    return Grid(("<where the time goes", "time", "share", "<"), rows, total=total)


def _periods(estimate: Estimate) -> Grid:
    ranked = sorted(estimate.period_s.items(), key=lambda item: -item[1])
    largest = ranked[0][1] if ranked else 1.0
    rows = [
        (name, format_seconds(bound), format_percent(bound / largest), Bar(bound / largest)) for name, bound in ranked
    ]
    return Grid(("<one k-step by", "time", "of period", "<"), rows)


def _busy(estimate: Estimate) -> Grid:
    ranked = sorted(estimate.busy_s.items(), key=lambda item: -item[1])
    shares = estimate.busy_share
    rows = [
        (name, format_seconds(busy), format_percent(shares[name]), Bar(shares[name])) for name, busy in ranked if busy
    ]
    return Grid(("<busy", "time", "share", "<"), rows)


def _range(estimate: Estimate, name: str, form: Callable[[float], str]) -> str:
    """`` (likely 1.2 GB to 1.4 GB)``, or nothing where the interval is unknown."""
    ends = estimate.likely.get(name)
    return f" (likely {form(ends[0])} to {form(ends[1])})" if ends else ""


def _bytes(estimate: Estimate) -> Iterator[tuple[str, str]]:
    noise = quiet_bytes(estimate.compulsory_bytes)
    read, late, write, dirty = (
        value if value > noise else 0.0
        for value in (
            estimate.dram_read_bytes,
            estimate.drift_read_bytes,
            estimate.dram_write_bytes,
            estimate.dirty_after_bytes,
        )
    )
    yield "asked by CTAs", bytes_said(estimate.requested_bytes)
    looked_up, hit_rate = bytes_said(estimate.lookup_bytes), format_percent(estimate.l2_hit_rate)
    hits = _range(estimate, "l2_hit_rate", format_percent)
    yield "L2 lookups", f"{looked_up}{_range(estimate, 'lookup_bytes', bytes_said)}, {hit_rate} hit{hits}"
    ratio = (read + write) / estimate.compulsory_bytes
    drift = f", {bytes_said(late)} of them by drift" if read and late else ""
    reads = f"{bytes_said(read)} read{drift}{_range(estimate, 'dram_read_bytes', bytes_said) if read else ''}"
    yield "DRAM", f"{reads} + {bytes_said(write)} written, {ratio:.2f} times the compulsory"
    yield "compulsory", bytes_said(estimate.compulsory_bytes)
    left = ", ".join(
        f"{format_percent(share, 0)} of {name}"
        for name, share in estimate.resident_after.items()
        if share >= LEAST_SHARE
    )
    if dirty:
        left += f"{', ' if left else ''}{bytes_said(dirty)} to be written back"
    yield "left in L2", left or "nothing"
