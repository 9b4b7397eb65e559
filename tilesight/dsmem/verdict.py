"""Should this row-wise workload use a cluster, of which size, and what does that gain: answered without running anything."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from os import PathLike
from typing import Any, Literal

from tilesight.display import Displayable
from tilesight.dsmem.alternatives import ALTERNATIVES, Kernels
from tilesight.dsmem.answer import (
    TIE,
    AlternativeTime,
    answer,
    best_cluster,
    best_other,
    is_slower,
    sharpened,
)
from tilesight.dsmem.catalogue import workload as known_workload
from tilesight.dsmem.published import CLUSTERS
from tilesight.dsmem.rates import rates_of
from tilesight.dsmem.workload import Workload, checked_dtype, checked_seconds, checked_size
from tilesight.errors import ConfigError, shown, suggestion
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile
from tilesight.units import format_percent, format_seconds

Cache = Literal["warm", "cold"]
SHORT_COLS = 16384
"""Columns up to which a row that its exchanges bind is called short."""
UNKNOWN = (
    "how long CTAs that begin together keep step (low: not at all, high: for the whole launch)",
    "what passes through L2 between two uses (low: 0.8 times the bytes counted, high: 1.5 times, as of rows out of step)",
)


@dataclass(frozen=True)
class Verdict(Displayable):
    """Whether a cluster pays, its size, the time of every alternative, and where the crossover is.

    Attributes
    ----------
    cluster
        Whether the cluster to take is more than 2 % faster than the kernel to take without one.
    cluster_size
        P of the cluster to take, whether it pays or not; None where none is legal. Above 8 only where that gains 5 %; of
        sizes that tie, the smaller one that latency does not bind, then that whose worst case is best.
    margin, margin_low, margin_high
        Time of the other kernel to take (``best_other``) over that of the cluster to take; above 1 the cluster is faster.
        The ends pair the low time of one side with the high one of the other, and enclose the margin.
    crossover_cols
        N*: of the widths tried (1024 apart up to 32768, then more, up to 262144), the smallest at which a cluster pays and
        from which on it is nowhere more than 2 % slower while one is legal; by predictions alone, timings or not. None
        where there is none, or the workload is rejected.
    hardware_parent
        The profile of which ``hardware`` is a what-if copy; None where it is none.
    rejected
        Why no cluster can help, from the structure of the workload or the GPU; None where one might.
    common_half_width
        Relative error that all times share, from the rates of the memory; None where nobody knows it.
    """

    workload: str
    title: str
    rows: int
    cols: int
    dtype: str
    cache: str
    kernels: str
    hardware: str
    hardware_parent: str | None
    hardware_hash: str
    cluster: bool
    cluster_size: int | None
    times: tuple[AlternativeTime, ...]
    margin: float | None
    margin_low: float | None
    margin_high: float | None
    crossover_cols: int | None
    reason: str
    rejected: str | None
    compulsory_bytes: float
    common_half_width: float | None
    assumptions: tuple[str, ...]

    @property
    def best(self) -> AlternativeTime | None:
        """The alternative to take; None where nothing is priced."""
        if self.cluster:
            return self.best_cluster
        return self.best_other

    @property
    def best_cluster(self) -> AlternativeTime | None:
        """The cluster of ``cluster_size``."""
        found = [each for each in self.times if each.name == "cluster" and each.cluster == self.cluster_size]
        return found[0] if found else None

    @property
    def best_other(self) -> AlternativeTime | None:
        """The alternative to take without clusters: of those within 3.5 % of the fastest, one with a good worst case."""
        return best_other(self.times)

    def seconds(self, name: str, cluster: int | None = None) -> float | None:
        """Time of an alternative; of a cluster, that of its size, or of the best one.

        Raises
        ------
        ConfigError
            If there is no such alternative, or no such cluster size.
        """
        if name not in ALTERNATIVES:
            raise ConfigError(f"no alternative {shown(name)}; {suggestion(str(name), ALTERNATIVES)}")
        sizes = CLUSTERS if name == "cluster" else (1,)
        if cluster is not None and (isinstance(cluster, bool) or cluster not in sizes):
            raise ConfigError(f"cluster = {shown(cluster)} of {name}; known: {', '.join(map(str, sizes))}")
        size = self.cluster_size if name == "cluster" and cluster is None else cluster
        found = [each for each in self.times if each.name == name and (name != "cluster" or each.cluster == size)]
        return found[0].seconds if found else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data in a versioned schema."""
        fields = {name: value for name, value in vars(self).items() if name not in ("times", "assumptions")}
        best = self.best
        return {
            "schema": "tilesight.dsmem/1",
            **fields,
            "best": None if best is None else {"name": best.name, "cluster": best.cluster, "seconds": best.seconds},
            "times": [asdict(each) for each in self.times],
            "assumptions": list(self.assumptions),
        }


def verdict(
    workload: str | Workload,
    rows: int,
    cols: int,
    *,
    hardware: Profile | str | PathLike[str],
    dtype: str = "fp32",
    cache: Cache = "warm",
    timing_s: float | Mapping[str, float] | None = None,
    control_s: Mapping[int, float] | None = None,
    kernels: Kernels = "ours",
) -> Verdict:
    """Whether a row-wise workload should use a cluster, of which size, and what every alternative takes.

    Parameters
    ----------
    workload
        A name (:data:`tilesight.dsmem.catalogue.WORKLOADS`) or a :class:`~tilesight.dsmem.workload.Workload`.
    hardware
        A profile, its name or the path of its TOML file.
    dtype
        Of the rows: fp32, bf16 or fp16; sums are float32.
    cache
        ``"warm"``: the same launch repeated on the same buffers; ``"cold"``: nothing of it in L2.
    timing_s
        Timings of one's own, by alternative (``staged``, ``reread``, ``triton``, ``torch_compile``), or one of the fastest
        of them. They replace what is predicted, and the DRAM part of the cluster's time is scaled by measured / predicted
        time of the fastest of them (eq. 7). One without a name also says that nothing else without a cluster is faster.
    control_s
        What takes the place of the rest of the cluster's time, by cluster size, where a control kernel measured it (T_ctrl
        of eq. 9).
    kernels
        ``"ours"``, or ``"published"``: CUDA kernels as in the publication, a cluster for each row, two barriers a stage.

    Raises
    ------
    ProblemError
        If there is no such workload, or rows or columns are no sizes.
    ConfigError
        If an option is out of range.
    UnsupportedError
        If the profile lacks a number that has no other route; the error names the field.

    Examples
    --------
    >>> found = verdict("softmax_backward", 4096, 65536, hardware="h200_sxm")
    >>> found.cluster, found.cluster_size in (4, 8, 16), found.margin > 1.2
    (True, True, True)
    >>> verdict("cumulative_sum", 4096, 65536, hardware="h200_sxm").reason
    'each element needs those before it: an exchange for every step of the scan, not one a row'
    """
    which = known_workload(workload)
    shape = which.shape(checked_size("rows", rows), checked_size("cols", cols))
    dtype = checked_dtype(dtype)
    if cache not in ("warm", "cold"):
        raise ConfigError(f"cache = {shown(cache)}; known: warm, cold")
    if not isinstance(hardware, Profile | str | PathLike):
        raise ConfigError(f"hardware is a {type(hardware).__name__}; give a Profile, its name or its file")
    profile = hardware if isinstance(hardware, Profile) else load_profile(hardware)
    if kernels not in ("ours", "published"):
        raise ConfigError(f"kernels = {shown(kernels)}; known: ours, published")
    timed, control = _timings(timing_s), _controls(control_s)
    if control and not timed:
        raise ConfigError("control_s belongs to timing_s: give the timing of a kernel without a cluster too")
    times: tuple[AlternativeTime, ...] = ()
    assumptions: tuple[str, ...] = ()
    rejected, crossover = _structural(which), None
    if rejected is None:
        rates = rates_of(profile)
        if not rates.cluster_slots:
            rejected = f"{profile.name} forms no clusters"
        found = answer(which, shape, dtype, cache=cache, kernels=kernels, rates=rates)
        times = sharpened(found.times, timed, control)
        crossover = None if rejected or which.group is not None else found.crossover_cols
        assumptions = (*rates.assumptions, *(f"unknown: {each}" for each in UNKNOWN))
    best = best_cluster(times)
    margin, low, high = _margins(times, best)
    pays = rejected is None and best is not None and (margin is None or margin > 1 + TIE)
    return Verdict(
        workload=which.name,
        title=which.title,
        rows=int(rows),
        cols=int(cols),
        dtype=dtype,
        cache=cache,
        kernels=kernels,
        hardware=profile.name,
        hardware_parent=profile.derived.parent if profile.derived else None,
        hardware_hash=profile.hash,
        cluster=pays,
        cluster_size=None if best is None or rejected else best.cluster,
        times=times,
        margin=margin,
        margin_low=low,
        margin_high=high,
        crossover_cols=crossover,
        reason=rejected or _reason(times, best, margin, pays, shape[1]),
        rejected=rejected,
        compulsory_bytes=which.compulsory_bytes(dtype),
        common_half_width=profile.get("uncertainty.dram"),
        assumptions=assumptions,
    )


def _structural(which: Workload) -> str | None:
    """Why the structure rules a cluster out; None where it does not."""
    known = {
        "elementwise": "elements depend on nothing else of their row: nothing is read again",
        "scan": "each element needs those before it: an exchange for every step of the scan, not one a row",
        "selection": "what CTAs would exchange grows with the row: candidates, not a few sums",
        "stencil": "neighbours need each other's elements, not a few sums of the row",
    }
    if which.structure in known:
        return known[which.structure]
    if which.counted(form="merged").reread_bytes <= 0:
        return "one pass over the row does it all: nothing is read again"
    return None


def _timings(given: float | Mapping[str, float] | None) -> dict[str, float]:
    """Timings by alternative; ``""`` stands for the fastest one without a cluster."""
    if given is None:
        return {}
    known = dict(given) if isinstance(given, Mapping) else {"": given}
    names = [name for name in ALTERNATIVES if name != "cluster"]
    for name, value in known.items():
        if name not in (*names, ""):
            raise ConfigError(f"timing_s has {shown(name)}; {suggestion(str(name), names)}")
        known[name] = checked_seconds(f"timing_s[{name!r}]" if name else "timing_s", value)
    if "" in known and isinstance(given, Mapping):
        raise ConfigError(f"timing_s has an empty name; known: {', '.join(names)}")
    return known


def _controls(given: Mapping[int, float] | None) -> dict[int, float]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"control_s is a {type(given).__name__}; give seconds by cluster size, such as {{4: 2e-5}}")
    for size in given or ():
        if type(size) is bool or not hasattr(size, "__index__") or size not in CLUSTERS:
            raise ConfigError(f"control_s has {shown(size)}; cluster sizes are {', '.join(map(str, CLUSTERS))}")
    return {int(size): checked_seconds(f"control_s[{size}]", value, zero=True) for size, value in (given or {}).items()}


def _margins(
    times: tuple[AlternativeTime, ...], best: AlternativeTime | None
) -> tuple[float | None, float | None, float | None]:
    """Time of the other kernel to take over that of the cluster: likely, low and high; None where one side is missing."""
    others = [each for each in times if each.name != "cluster" and each.seconds is not None]
    if best is None or best.seconds is None or not others:
        return None, None, None
    other = best_other(times)
    if other is None or other.seconds is None:
        return None, None, None
    low, high = (min(getattr(each, name) or inf for each in others) for name in ("seconds_low", "seconds_high"))
    margin = other.seconds / best.seconds
    ends = low / (best.seconds_high or inf), high / (best.seconds_low or inf)
    return margin, min(margin, *ends), max(margin, *ends)


def _reason(
    times: tuple[AlternativeTime, ...], best: AlternativeTime | None, margin: float | None, pays: bool, cols: int
) -> str:
    """Why, in one sentence."""
    other = best_other(times)
    if best is None:
        largest = max((each for each in times if each.name == "cluster"), key=lambda each: each.cluster)
        return f"no cluster holds the row: with P = {largest.cluster}, {largest.why}"
    if other is None or margin is None:
        return f"only a cluster of {best.cluster} holds the row"
    moved, less = other.dram_bytes_per_element or 0.0, best.dram_bytes_per_element or 0.0
    times_said = f"{format_seconds(best.seconds or 0.0)} against {format_seconds(other.seconds or 0.0)} of {other.name}"
    more = moved > less * (1 + TIE)
    if pays and more:
        bytes_said = f"{less:.1f} B an element, not {moved:.1f}"
        return f"a cluster of {best.cluster} keeps the row on chip and moves {bytes_said}: {times_said}"
    if pays and other.hit_share is None:
        return f"a cluster of {best.cluster} {_under_way(best, other)}: {times_said}"
    if pays:
        return f"a cluster of {best.cluster} reads the row once and not again from L2: {times_said}"
    if not is_slower(best.seconds or inf, other.seconds or inf):
        return (
            f"a cluster of {best.cluster} and {other.name} tie within 2 %, closer than can be told apart: {times_said}"
        )
    if best.binding == "latency" and cols <= SHORT_COLS:
        return f"rows are so short that the exchanges of a cluster of {best.cluster} bind it: {times_said}"
    bound = _BOUND_BY[best.binding or "latency"]
    if more:
        return f"the {moved - less:.1f} B an element that a cluster saves do not pay, as {bound} bind it: {times_said}"
    kept = "keeps the row in one CTA" if other.hit_share is None else "finds the row in L2 again"
    faster = f"{format_percent(1 - margin)} faster than a cluster of {best.cluster}, which {bound} bind"
    return f"{other.name} {kept} and moves no more than a cluster: it is {faster}"


_BOUND_BY = {
    "dram": "bytes from and to DRAM",
    "l2": "requests to L2",
    "sm": "loads and instructions of the SMs",
    "latency": "rows, each from end to end with its exchanges,",
}


def _under_way(best: AlternativeTime, other: AlternativeTime) -> str:
    """What a cluster gains where a single CTA keeps the row too: SMs, rows under way, or loads beside work."""
    if best.rounds <= 1:
        return f"spreads each row over {best.cluster} CTAs, of which none has another"
    rows, alone = (each.ctas_per_sm * each.slots / each.cluster for each in (best, other))
    if rows > alone:
        return f"has more rows under way, {rows:.3g} an SM in place of {alone:.3g}"
    return "loads while it works on a row"
