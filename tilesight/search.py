"""Candidates, legality on a GPU, pricing in batches, and the ranking of configurations."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tilesight.cost.clock import energy_j_per_flop
from tilesight.cost.estimate import FIELD_CHECKS, NUMBER_COLUMNS, WORD_COLUMNS, Estimate, Estimates, columns_of
from tilesight.cost.occupancy import cluster_sms, registers_per_cta
from tilesight.cost.price import Situation, price
from tilesight.display import Displayable
from tilesight.dtypes import DTYPES, DType, dtype
from tilesight.errors import ConfigError, TilesightError, UnsupportedError, check_place, counted
from tilesight.hardware.derive import changes_of
from tilesight.hardware.profile import Profile
from tilesight.hardware.unread import unread
from tilesight.kernels.gemm import QUANTISER_INPUT_BYTES, gemm_plan
from tilesight.kernels.gemm_config import KERNELS, Gemm, GemmColumns, GemmConfig
from tilesight.kernels.gemm_legal import (
    WARP_SPECIALIZED,
    accumulators_per_thread,
    illegal,
    least_registers,
    least_smem_bytes,
    registers,
    smem_bytes,
    threads,
)
from tilesight.kernels.instructions import FAMILIES, MatrixFamily, matrix_family
from tilesight.units import format_bytes

TIE = 0.02
"""Predictions within this share of the best are ties: repeats of a measurement differ by as much."""
CHUNK = 4096
"""Configurations priced at once, to bound memory."""
CTA_THREADS_MAX = 1024
MOSTLY = 0.5
"""Share of a profile's numbers beyond which estimates say how many of them are assumed."""
ACCUMULATORS_MAX = 216
"""fp32 accumulators a thread of a specialised kernel can hold beside its addresses (240 registers after the shift)."""


def refusal_reasons(columns: GemmColumns, hardware: Profile, sms: int) -> dict[int, str]:
    """Rows that ``sms`` SMs of this GPU can't run or no compiler emits, with the first reason for each.

    Says by how much a CTA exceeds shared memory or registers, or what is stated of it falls short.
    """
    reasons: dict[int, str] = {}

    def note(mask: NDArray[np.bool_], message: str, extra: Mapping[str, NDArray[Any]] | None = None) -> None:
        for row in np.flatnonzero(mask):
            if int(row) not in reasons:
                values = {name: getattr(columns, name)[row] for name in _FIELDS}
                values |= {name: value[row] for name, value in (extra or {}).items()}
                values |= {f"{word}s_said": counted(int(values[f"{word}s"]), word) for word in ("stage", "warp")}
                verb = "s" if values["stages"] == 1 else ""
                reasons[int(row)] = message.format(**values, gpu=hardware.name, need=f"need{verb}", take=f"take{verb}")

    for mask, message in illegal(columns):
        note(mask, message)
    sm = hardware.sm
    limit = sm.registers_per_thread_max
    least = least_smem_bytes(columns)
    note(
        columns.smem_bytes < least,  # false where nothing is stated
        "smem_bytes = {smem_bytes:.0f}, and {stages_said} of {tile_m:g}x{tile_n:g}x{tile_k:g} {take} at least {least:.0f} B",
        {"least": least},
    )
    least = np.minimum(least_registers(columns), limit)  # a kernel that has all there are may spill, unsaid
    note(
        columns.registers < least,
        "registers = {registers:.0f}, and the accumulators of {tile_m:g}x{tile_n:g} on {warps_said} take at least "
        "{least:.0f} per thread; say how many spills there are, if any",
        {"least": least},
    )
    shared, regs, cta_threads = smem_bytes(columns), registers(columns), threads(columns)
    over = shared - sm.smem_per_cta_max_bytes
    note(
        over > 0,
        "{stages_said} of {tile_m:g}x{tile_n:g}x{tile_k:g} {need} {shared:.0f} B of shared memory, "
        f"{{over:.0f}} B more than the {sm.smem_per_cta_max_bytes} B a CTA can have",
        {"shared": shared, "over": over},
    )
    note(
        regs > limit,
        "tile {tile_m:g}x{tile_n:g} on {warps_said} needs about {regs:.0f} registers per thread, "
        f"{{more:.0f}} more than the {limit} there are",
        {"regs": regs, "more": regs - limit},
    )
    held = accumulators_per_thread(columns)
    note(
        (columns.kernel == WARP_SPECIALIZED) & (held > ACCUMULATORS_MAX),
        "tile {tile_m:g}x{tile_n:g} on {warps_said} needs {held:.0f} accumulators per thread, "
        f"{{more:.0f}} more than the {ACCUMULATORS_MAX} that fit in registers",
        {"held": held, "more": held - ACCUMULATORS_MAX},
    )
    most = min(CTA_THREADS_MAX, sm.threads_max)
    note(cta_threads > most, f"{{warps_said}}: a CTA has at most {most} threads", None)
    file = registers_per_cta(regs, cta_threads, hardware)
    note(
        file > sm.registers,
        "a CTA needs {file:.0f} registers, {more:.0f} more than the SM has",
        {"file": file, "more": file - sm.registers},
    )
    size = columns.cluster_m * columns.cluster_n
    for clusters in np.unique(size):
        try:
            cluster_sms(np.array([clusters]), float(hardware.sm_count), hardware)
        except TilesightError as error:
            note(size == clusters, str(error).replace("{", "{{").replace("}", "}}"))
    note(
        size > sms,
        f"cluster {{cluster_m:g}}x{{cluster_n:g}} wants as many SMs at once; {sms} may be used",
    )
    return reasons


ONE_GPC = "gpc.count is not known: all SMs are taken for one group whose requests can merge"
_FIELDS = (
    "m", "n", "k", "tile_m", "tile_n", "tile_k", "stages", "warps", "group_m", "cluster_m", "cluster_n", "split_k",
    "registers", "smem_bytes",
)  # fmt: skip


def family_of(dtype: DType, hardware: Profile) -> MatrixFamily:
    """Matrix instructions that multiply a format on a GPU.

    Raises
    ------
    UnsupportedError
        If the architecture has none, or the profile no rate for it; the error names the field.
    """
    family = matrix_family(hardware.architecture, dtype.name)
    if dtype.rate_name not in hardware.tensor:
        name = f"tensor.{dtype.rate_name}"
        raise UnsupportedError(f"profile {hardware.name!r} has no {name}; measure it or state it", field=name)
    return family


def modelled_formats(hardware: Profile) -> tuple[str, ...]:
    """Formats whose products can be priced on a GPU: its instructions take them, and its profile has their rate.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> modelled_formats(load_profile("h200_sxm"))
    ('tf32', 'bf16', 'fp16', 'fp8', 'fp8_e5m2', 'int8')
    """
    family = FAMILIES[hardware.architecture]
    return tuple(name for name, kind in DTYPES.items() if name in family.dtypes and kind.rate_name in hardware.tensor)


def price_many(
    problems: Sequence[Gemm],
    configs: Sequence[GemmConfig],
    hardware: Profile,
    situation: Situation,
    *,
    skip_refused: bool = False,
) -> Estimates:
    """Estimates of a batch, grouped by kernel family inside, in the order given.

    Raises
    ------
    ConfigError
        If a configuration is illegal and ``skip_refused`` is false: the first one, by position.
    UnsupportedError
        If GPU or dtype can't be priced, or the profile lacks a number.
    """
    if not problems:
        raise ConfigError("no problems to price")
    family = family_of(dtype(problems[0].dtype), hardware)
    columns = GemmColumns.of(problems, configs, family)
    sms = hardware.sm_count if situation.sms is None else situation.sms
    reasons = refusal_reasons(columns, hardware, sms)
    if reasons and not skip_refused:
        row = min(reasons)
        where = f"configuration {row}: " if len(columns) > 1 else ""
        raise ConfigError(f"{where}{reasons[row]}")
    positions = np.array([row for row in range(len(columns)) if row not in reasons], dtype=np.intp)
    numbers: dict[str, NDArray[np.float64]] = {name: np.empty(len(positions)) for name in NUMBER_COLUMNS}
    words: dict[str, NDArray[Any]] = {name: np.empty(len(positions), dtype=object) for name in WORD_COLUMNS}
    assumed: list[tuple[str, ...]] = [()] * len(positions)
    of_hardware = hardware_assumptions(hardware, columns.dtype)
    too_large = dram_shortage(columns, hardware)
    for places in _groups(columns, positions):
        rows = positions[places]
        part = columns[rows]
        plan = gemm_plan(part, cluster_sms(part.cluster_m * part.cluster_n, float(sms), hardware))
        got, said = columns_of(price(plan, hardware, situation.rows(rows)), hardware)
        for index, place in enumerate(places):
            said_of_it = [text for text, holds in plan.assumptions.items() if holds[index]]
            said_of_it += [too_large[row]] if (row := int(rows[index])) in too_large else []
            assumed[place] = (*said_of_it, *of_hardware)
        for name, column in numbers.items():
            column[places] = got[name]
        for name, column in words.items():
            column[places] = said[name]

    def pick(items: Sequence[Any]) -> list[Any]:
        return [items[0] if len(items) == 1 else items[row] for row in positions]

    return Estimates(
        columns=numbers,
        names=words,
        problems=pick(problems),
        configs=pick(configs),
        hardware=hardware,
        situation=situation.rows(positions),
        positions=positions,
        refusals=tuple(sorted(reasons.items())),
        assumptions=assumed,
    )


def dram_shortage(columns: GemmColumns, hardware: Profile) -> dict[int, str]:
    """Rows whose operands and result are more than the GPU's memory holds, with what is assumed of them."""
    a, b, c = columns.m * columns.k, columns.k * columns.n, columns.m * columns.n
    held = columns.batch * ((a + b) * columns.operand_bytes + c * columns.output_bytes)
    held = held + columns.batch * a * np.where(columns.quantise_a, QUANTISER_INPUT_BYTES, 0.0)
    capacity = hardware.dram.capacity_bytes
    return {
        int(
            row
        ): f"operands and result fit in DRAM, though they take {format_bytes(held[row])} of {format_bytes(capacity)}"
        for row in np.flatnonzero(held > capacity)
    }


def hardware_assumptions(hardware: Profile, dtype: DType) -> tuple[str, ...]:
    """What every estimate of a format takes for granted about its GPU.

    Numbers of another GPU, changes of a what-if, and an energy that nobody measured.

    Examples
    --------
    >>> from tilesight.hardware.load import load_profile
    >>> hardware_assumptions(load_profile("h200_sxm"), dtype("fp8_e5m2"))
    ('a flop of fp8_e5m2 takes 0.4109 pJ: its energy is not known, and that of bf16 by cycle of the tensor cores stands in',)
    >>> from tilesight.hardware.derive import derive
    >>> hardware_assumptions(derive("h200_sxm", {"power.limit_w": 350}), dtype("bf16"))
    ('what if: power.limit_w = 350.0 instead of 700.0, which no time of a matrix product goes by',)
    """
    changes = changes_of(hardware)
    said = [
        f"what if: {text}{f', {why}' if (why := unread(name, hardware, dtype)) else ''}"
        for name, text in changes.items()
    ]
    said += _borrowed_energy(hardware, dtype)
    if hardware.gpc.count is None:
        said.append(ONE_GPC)
    assumed = sum(source.kind == "assumed" and name not in changes for name, source in hardware.source.items())
    origins = Counter(hardware.copied.values())
    if origins and assumed > MOSTLY * len(hardware.numbers):
        copied = ", ".join(f"{count} from {origin}" for origin, count in origins.most_common())
        said.append(f"{assumed} of {len(hardware.numbers)} numbers of {hardware.name} are assumed: copies, {copied}")
    return tuple(said)


def _borrowed_energy(hardware: Profile, dtype: DType) -> Iterator[str]:
    """The energy that bf16 lends a format, where a law of power gives the clock and the format's own is not known."""
    rates = hardware.tensor.get(dtype.rate_name)
    if (
        rates is None
        or rates.energy_j_per_flop is not None
        or dtype.rate_name == "bf16"
        or "bf16" not in hardware.tensor
    ):
        return
    if hardware.power.static_w is None or hardware.power.energy_j_per_flop is None:
        return
    joule = energy_j_per_flop(dtype.rate_name, hardware)
    yield (
        f"a flop of {dtype.rate_name} takes {joule * 1e12:.4g} pJ: its energy is not known, and that of bf16 by cycle of "
        "the tensor cores stands in"
    )


def _groups(columns: GemmColumns, positions: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Indices into ``positions`` of each kernel family, in chunks."""
    for kernel in range(len(KERNELS)):
        places = np.flatnonzero(columns.kernel[positions] == kernel)
        for start in range(0, len(places), CHUNK):
            yield places[start : start + CHUNK]


def _refused_fields(data: Mapping[str, Any]) -> Iterator[str]:
    """Fields of a matrix product's estimate that no Gemm, or no GemmConfig, takes."""
    if not data["kernel"].startswith("gemm."):
        return
    for name, kind in (("problem_fields", Gemm), ("config_fields", GemmConfig)):
        try:
            kind(**data[name])
        except (TilesightError, TypeError) as error:
            yield f"{name}: {error}"


FIELD_CHECKS.append(_refused_fields)


def estimate_of(data: Mapping[str, Any]) -> Estimate:
    """:meth:`Estimate.from_dict`, with the checks of every family of kernels."""
    return Estimate.from_dict(data)


@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Displayable, Sequence[Estimate]):
    """Configurations of one problem, fastest first; compared and hashed by identity.

    ``estimates`` are in that order, ``configs`` likewise; ``top`` is how many were asked for, None for all. The first
    ``ties`` are within 2 % of the best and should be told apart by measuring. Of ``tried`` candidates ``pruned`` lists
    the illegal ones with their reasons.
    """

    problem: Gemm
    estimates: Estimates
    configs: tuple[GemmConfig, ...]
    ties: int
    tried: int
    pruned: tuple[tuple[GemmConfig, str], ...]
    top: int | None = None

    def __repr__(self) -> str:
        return f"Ranking({counted(len(self), 'configuration')} of {self.problem} on {self.estimates.hardware.name})"

    def __len__(self) -> int:
        return len(self.configs)

    @overload
    def __getitem__(self, row: int) -> Estimate: ...

    @overload
    def __getitem__(self, row: slice) -> list[Estimate]: ...

    def __getitem__(self, row: int | slice) -> Estimate | list[Estimate]:
        check_place(row)
        return self.estimates[row]

    @property
    def best(self) -> GemmConfig:
        """The configuration predicted fastest."""
        return self.configs[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the problem, candidates tried, ties, ranked configurations with seconds, pruned ones with reasons."""
        return {
            "schema": "tilesight.ranking/1",
            "problem": str(self.problem),
            "problem_fields": asdict(self.problem),
            "hardware": self.estimates.hardware.name,
            "tried": self.tried,
            "ties": self.ties,
            "ranked": [estimate.to_dict() for estimate in self.estimates],
            "pruned": [{"config": str(config), "reason": reason} for config, reason in self.pruned],
        }


@dataclass(frozen=True, eq=False)
class Rankings(Displayable, Sequence[Ranking]):
    """Rankings of several problems, in the order of the problems; compared and hashed by identity.

    ``positions`` are the places of the ranked ones among those asked for, counted from 0, ``refusals`` the places of the
    others with their reasons; they are skipped on request alone.
    """

    rankings: tuple[Ranking, ...]
    positions: tuple[int, ...]
    refusals: tuple[tuple[int, str], ...] = ()

    def __len__(self) -> int:
        return len(self.rankings)

    @overload
    def __getitem__(self, row: int) -> Ranking: ...

    @overload
    def __getitem__(self, row: slice) -> tuple[Ranking, ...]: ...

    def __getitem__(self, row: int | slice) -> Ranking | tuple[Ranking, ...]:
        check_place(row)
        return self.rankings[row]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: that of each ranking, the places of them, and the refused ones."""
        return {
            "schema": "tilesight.rankings/1",
            "rankings": [
                {"index": index} | ranking.to_dict()
                for index, ranking in zip(self.positions, self.rankings, strict=True)
            ],
            "refused": [{"index": index, "reason": reason} for index, reason in self.refusals],
        }


def rank_configs(
    problem: Gemm,
    candidates: Sequence[GemmConfig],
    hardware: Profile,
    situation: Situation,
    top: int | None,
) -> Ranking:
    """Candidates by predicted time; illegal ones are pruned before pricing. Equal times keep the order given.

    Raises
    ------
    ConfigError
        If there are no candidates or none is legal.
    """
    if not candidates:
        raise ConfigError("no candidates to rank")
    priced = price_many([problem], candidates, hardware, situation, skip_refused=True)
    if not len(priced):
        _, reason = priced.refusals[0]
        none = f"none of {len(candidates)} candidates is" if len(candidates) > 1 else "the only candidate is not"
        raise ConfigError(f"{none} legal for {problem}; {'the first: ' if len(candidates) > 1 else ''}{reason}")
    order = np.argsort(priced.seconds, kind="stable")
    ties = int(np.sum(priced.seconds <= priced.seconds[order[0]] * (1 + TIE)))
    order = order[:top]
    chosen = Estimates(
        columns={name: value[order] for name, value in priced.columns.items()},
        names={name: value[order] for name, value in priced.names.items()},
        problems=[priced.problems[i] for i in order],
        configs=[priced.configs[i] for i in order],
        hardware=hardware,
        situation=priced.situation.rows(order),
        positions=priced.positions[order],
        assumptions=[priced.assumptions[i] for i in order],
    )
    return Ranking(
        problem=problem,
        estimates=chosen,
        configs=tuple(chosen.configs),
        ties=ties,
        tried=len(candidates),
        pruned=tuple((candidates[row], reason) for row, reason in priced.refusals),
        top=top,
    )
