"""From options as typed to what the model is asked: a problem, a configuration, a GPU and its state.

Text that is a whole number becomes one; other text is passed on as it is, so that the model's own checks name it.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from tilesight.cli.options import ConfigOptions, ProblemOptions, StateOptions
from tilesight.errors import ConfigError, UnitError, shown, suggestion
from tilesight.hardware.derive import derive
from tilesight.hardware.profile import Profile
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.records.cells import decimal
from tilesight.records.given import number_or_text, sizes
from tilesight.records.gpus import canonical_gpu
from tilesight.units import parse_bytes, parse_seconds

_CLOCKS = ("burst", "sustained")


def problem_of(options: ProblemOptions) -> Gemm:
    """The product that was asked for."""
    given: dict[str, Any] = {name: value for name, value in vars(options).items() if value is not None}
    for name in ("m", "n", "k", "batch"):
        if name in given:
            given[name] = number_or_text(given[name])
    if "beta" in given:
        beta = decimal(given["beta"])
        given["beta"] = given["beta"] if beta is None else beta
    return Gemm(**given)


def config_of(options: ConfigOptions) -> GemmConfig | None:
    """The configuration that was asked for; None where the model is to choose it.

    Raises
    ------
    ConfigError
        If an option needs ``--tile``, ``--stages`` is missing beside it, or the configuration is impossible.
    """
    if options.tile is None:
        for field in fields(options):
            if getattr(options, field.name):
                raise ConfigError(
                    f"--{field.name.replace('_', '-')} belongs to a configuration; give --tile and --stages too, "
                    "or neither to have the best one chosen"
                )
        return None
    if options.stages is None:
        raise ConfigError("--tile needs --stages, the slots of the operand ring")
    tile_m, tile_n, tile_k = sizes("tile", options.tile, 3, "128x256x64")
    given: dict[str, Any] = {"tile_m": tile_m, "tile_n": tile_n, "tile_k": tile_k}
    given |= {"swap_ab": options.swap_ab, "pingpong": options.pingpong, "cta_pair": options.cta_pair}
    if options.cluster is not None:
        given["cluster_m"], given["cluster_n"] = sizes("cluster", options.cluster, 2, "2x1")
    if options.kernel is not None:
        given["kernel"] = options.kernel
    for name, text in {
        "stages": options.stages,
        "warps": options.warps,
        "group_m": options.group_m,
        "split_k": options.split_k,
        "registers": options.registers,
        "smem_bytes": options.smem_bytes,
        "spills": options.spills,
    }.items():
        if text is not None:
            given[name] = None if (name, text) == ("split_k", "auto") else number_or_text(text)
    return GemmConfig(**given)


def hardware_of(gpu: str) -> str:
    """Profile name or path that ``--gpu`` means: other names of a GPU count as its own."""
    return gpu if "/" in gpu or gpu.endswith(".toml") else canonical_gpu(gpu)


def changed_hardware(gpu: str, texts: Sequence[str] | None) -> str | Profile:
    """What ``--gpu`` means, or its what-if copy where ``--set`` changes numbers.

    Raises
    ------
    ConfigError
        If a text is not ``NAME=VALUE`` or names a number twice.
    """
    if not texts:
        return hardware_of(gpu)
    changes: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ConfigError(
                f"--set {shown(text)} is not NAME=VALUE; give it as in dram.bandwidth_read_bytes_per_s=1.5x"
            )
        if name in changes:
            raise ConfigError(f"--set {name} is given twice")
        changes[name] = value
    return derive(hardware_of(gpu), changes)


def state_of(options: StateOptions) -> dict[str, Any]:
    """Keyword arguments of ``predict`` for the GPU and its state."""
    state: dict[str, Any] = {
        "hardware": changed_hardware(options.gpu, options.changes),
        "cache": options.cache,
        "clock": _clock(options.clock),
        "resident": _shares(options.resident) if options.resident else None,
    }
    if options.sms is not None:
        state["sms"] = number_or_text(options.sms)
    if options.dirty is not None:
        state["dirty_bytes"] = parse_bytes(options.dirty)
    return state


def _clock(text: str) -> str | float:
    if text in _CLOCKS:
        return text
    try:
        seconds = parse_seconds(text)
    except UnitError:
        seconds = -1.0
    if seconds < 0:
        raise ConfigError(f"clock = {shown(text)}; give burst, sustained, or a time under load such as '50 ms'")
    return seconds


def _shares(texts: Sequence[str]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for text in ",".join(texts).split(","):
        name, equals, value = text.partition("=")
        share = decimal(value)
        if not equals or share is None:
            raise ConfigError(f"resident {shown(text)} is not TENSOR=SHARE, a share of 0 to 1; give it as in a=0.5")
        if name in shares:
            raise ConfigError(f"resident {name!r} is given twice")
        shares[name] = share
    return shares


Options = tuple[ProblemOptions, ConfigOptions, StateOptions]
_SHORT = {"group": "group_m", "smem": "smem_bytes"}
_FLAGS = ("bias", "quantise_a", "swap_ab", "pingpong", "cta_pair")
_NOT_AGAINST = ("gpu", "changes")
"""Options that --against does not take: --against-gpu does."""


def changed(options: Options, text: str) -> Options:
    """The options with some of them changed, written ``tile=128x128x64,cache=cold``; the others stay as they are.

    ``cache`` and ``resident`` take each other's place. Several shares are written ``resident=a=0.5,b=1``.

    Raises
    ------
    ConfigError
        If a part is not ``name=value``, the name is no option, or it is given twice.
    """
    known = [field.name for group in options for field in fields(group) if field.name not in _NOT_AGAINST]
    changes: dict[str, Any] = {}
    last = ""
    for part in text.split(","):
        typed, equals, value = (piece.strip() for piece in part.partition("="))
        if last == "resident" and typed in ("a", "b", "c"):
            changes["resident"].append(part.strip())
            continue
        name = typed.replace("-", "_")
        last = name = _SHORT.get(name, name)
        if not (typed and equals and value):
            raise ConfigError(f"--against {shown(part)} is not NAME=VALUE; give it as in tile=128x128x64,cache=cold")
        if name not in known:
            names = [option.replace("_", "-") for option in known]
            raise ConfigError(f"--against has no option {shown(typed)}; {suggestion(typed, names, len(names))}")
        if name in changes:
            raise ConfigError(f"--against gives {typed} twice")
        changes[name] = _truth(part, value) if name in _FLAGS else [value] if name == "resident" else value
    for name, other in (("cache", "resident"), ("resident", "cache")):
        if name in changes and other not in changes:
            changes[other] = None
    problem, config, state = (
        replace(group, **{name: value for name, value in changes.items() if name in group.__dataclass_fields__})
        for group in options
    )
    return problem, config, state  # type: ignore[return-value]


def _truth(part: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ConfigError(f"--against {shown(part)}: give true or false")
    return text == "true"
