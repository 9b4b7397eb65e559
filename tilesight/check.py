"""How the numbers of a profile are known, and which ones it lacks for pricing matrix products and for scoring tables.

Nothing here lists what the model needs: it is asked. A few products that between them use every kernel and every special
case are priced, and each number that a refusal names is noted and lent by a calibrated profile until nothing is refused.
What measured times contain besides is what their protocols add.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tilesight.cost.clock import busy_seconds
from tilesight.cost.price import Situation
from tilesight.errors import TilesightError, UnsupportedError
from tilesight.hardware.load import load_profile
from tilesight.hardware.profile import Profile, field_names
from tilesight.hardware.tables import SourceKind
from tilesight.hardware.unread import OF_PROTOCOLS
from tilesight.kernels.gemm_config import Gemm, GemmConfig
from tilesight.search import price_many

LENDER = "h200_sxm"


@dataclass(frozen=True)
class ProfileCheck:
    """What is known about a valid profile.

    ``kinds`` has the names of numbers by kind of source, ``not_known`` the optional numbers that are absent.
    ``gemm_lacks`` are the absent ones that a matrix product needs, ``gemm_refused`` other reasons for which none is priced.
    ``tables_lack`` are those that measured times contain besides the product: ``compare`` refuses rows that need one.
    """

    profile: Profile
    kinds: Mapping[str, tuple[str, ...]]
    not_known: tuple[str, ...]
    gemm_lacks: tuple[str, ...]
    gemm_refused: tuple[str, ...]
    tables_lack: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = ("name", "vendor", "architecture", "sm_count", "hash")
        return {
            "schema": "tilesight.profile_check/1",
            **{name: getattr(self.profile, name) for name in names},
            "numbers": len(self.profile.numbers),
            "kinds": {kind: list(found) for kind, found in self.kinds.items()},
            "not_known": list(self.not_known),
            "gemm": {"lacks": list(self.gemm_lacks), "refused": list(self.gemm_refused)},
            "tables": {"lack": list(self.tables_lack)},
        }


def check_profile(hardware: Any) -> ProfileCheck:
    """Check a profile: it must load; then how its numbers are known and what it lacks.

    Parameters
    ----------
    hardware
        A profile, its name or the path of its file.

    Raises
    ------
    UnknownProfileError, MissingFileError, ProfileError
        If there is no such profile or it breaks the schema.

    Examples
    --------
    >>> check_profile("h200_sxm").gemm_lacks
    ()
    """
    profile = load_profile(hardware)
    kinds: dict[str, list[str]] = {kind: [] for kind in get_args(SourceKind)}
    for name in profile.numbers:
        kinds[profile.source[name].kind].append(name)
    lacks, refused = _what_gemm_lacks(profile)
    known = {kind: tuple(found) for kind, found in kinds.items()}
    of_tables = tuple(name for name in OF_PROTOCOLS if name not in profile.numbers)
    return ProfileCheck(profile, known, absent(profile), lacks, refused, of_tables)


def absent(profile: Profile) -> tuple[str, ...]:
    """Optional numbers that the profile does not know; what needs one refuses by its name."""
    return tuple(name for name in field_names() if "*" not in name and name not in profile.numbers)


COLD = Situation(cache="cold", busy_s=busy_seconds("sustained"), dirty_bytes=1e7)


def _what_gemm_lacks(profile: Profile) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lent = load_profile(LENDER).numbers
    lacks: list[str] = []
    refused: dict[str, None] = {}
    for problem, config in _products():
        for _ in range(len(field_names())):  # each turn learns one more number
            try:
                price_many([problem], [config], profile, COLD)
            except UnsupportedError as error:
                name = error.field or ""
                if name not in lent or name in profile.numbers:
                    refused[str(error)] = None
                    break
                lacks.append(name)
                why = {name: {"kind": "assumed", "note": "lent"}}
                what_if = {"derived": {"parent": profile.name, "changed": (name,)}}  # may pass what a datasheet states
                profile = profile.with_numbers({name: lent[name]}, why, about=what_if)
            except TilesightError:
                break  # a kernel that this architecture does not have
            else:
                break
    return tuple(lacks), tuple(refused)


def _products() -> Iterator[tuple[Gemm, GemmConfig]]:
    """Products that use each kernel: aligned, ragged, of unaligned pitch, element-wise, spilled, small rows, split."""
    aligned = Gemm(4096, 4096, 4096)
    for extra in (0, 8, 16, 32):  # rows of 128, 16, 32 and 64 aligned bytes
        problem = Gemm(4000 + extra, 4096 + extra, 4096 + extra)
        yield problem, GemmConfig(128, 128, 64, stages=3, kernel="cp_async")
        yield problem, GemmConfig(128, 128, 64, stages=3, kernel="tma_persistent")
    odd = Gemm(4001, 4003, 4005)
    yield odd, GemmConfig(128, 128, 64, stages=3, kernel="cp_async")
    yield odd, GemmConfig(128, 128, 64, stages=3, kernel="cp_async", spills=8)
    yield aligned, GemmConfig(16, 128, 64, stages=3, kernel="cp_async")
    yield aligned, GemmConfig(64, 64, 64, stages=3, kernel="cp_async", split_k=4)
    yield aligned, GemmConfig(128, 128, 64, stages=4)
    yield aligned, GemmConfig(128, 256, 64, stages=4, cluster_m=2)
    yield aligned, GemmConfig(128, 128, 64, stages=4, split_k=None)
