"""Matrix instructions by GPU architecture: shapes, where operands and accumulators live, which formats they take.

Sources: PTX ISA, sections on ``mma``, ``wgmma`` and ``tcgen05.mma``; AMD CDNA2 instruction set, MFMA.
"""

from dataclasses import dataclass
from types import MappingProxyType

from tilesight.errors import UnsupportedError, suggestion


@dataclass(frozen=True)
class MatrixFamily:
    """One kind of matrix instruction.

    Attributes
    ----------
    name
        ``"mma_sync"``, ``"wgmma"``, ``"tcgen05"`` or ``"mfma"``.
    rows
        Rows of one instruction; a tile's row side is covered by whole instructions.
    column_step, columns_max
        Sizes along the other side: multiples of the step up to the maximum.
    k_bytes
        Bytes of one operand row that an instruction consumes.
    from_smem
        Operands come from shared memory (else through registers, by ldmatrix or its like).
    in_tensor_memory
        Accumulators live in tensor memory (else in registers).
    dtypes
        Formats it takes, by name.
    not_modelled
        Formats that the architecture multiplies too, and that are not modelled.
    kernels
        Kernel families that exist for it.
    k_major_bits
        Widths of formats that it takes with k contiguous only.
    register_bits
        Those of them of which it takes one operand from registers, whose loads turn any layout.
    warp_threads
        Threads of a warp (wave).
    """

    name: str
    rows: int
    column_step: int
    columns_max: int
    k_bytes: int
    from_smem: bool
    in_tensor_memory: bool
    dtypes: frozenset[str]
    kernels: frozenset[str]
    k_major_bits: tuple[int, ...] = ()
    register_bits: tuple[int, ...] = ()
    warp_threads: int = 32
    not_modelled: frozenset[str] = frozenset(("fp64",))


_AMPERE = frozenset(("bf16", "fp16", "tf32", "int8"))
_ADA = _AMPERE | {"fp8", "fp8_e5m2"}
_BLOCK_SCALED = frozenset(("fp4", "mxfp8", "mxfp4", "nvfp4"))
_FP64_INT4 = frozenset(("fp64", "int4"))
_FP64_FP6 = frozenset(("fp64", "fp6"))
_POINTER = frozenset(("cp_async",))
_BULK = _POINTER | {"tma", "tma_persistent", "warp_specialized"}

WGMMA = MatrixFamily("wgmma", 64, 8, 256, 32, True, False, _ADA, _BULK, (8, 32), (32,))
_TCGEN05 = MatrixFamily(
    "tcgen05", 128, 16, 256, 32, True, True, _ADA | _BLOCK_SCALED, _BULK, (4,), not_modelled=_FP64_FP6
)
_MMA_80 = MatrixFamily("mma_sync", 16, 8, 256, 32, False, False, _AMPERE, _POINTER, (8,), not_modelled=_FP64_INT4)
_MMA_89 = MatrixFamily("mma_sync", 16, 8, 256, 32, False, False, _ADA, _POINTER, (8,), not_modelled=_FP64_INT4)
_MMA_120 = MatrixFamily(
    "mma_sync", 16, 8, 256, 32, False, False, _ADA | _BLOCK_SCALED, _BULK, (4, 8), not_modelled=_FP64_FP6
)
_MFMA = MatrixFamily(
    "mfma",
    32,
    32,
    256,
    16,
    False,
    False,
    frozenset(("bf16", "fp16", "int8")),
    _POINTER,
    warp_threads=64,
    not_modelled=frozenset(("fp64", "fp32")),
)

FAMILIES = MappingProxyType(
    {
        "sm_80": _MMA_80,
        "sm_89": _MMA_89,
        "sm_90": WGMMA,
        "sm_100": _TCGEN05,
        "sm_103": _TCGEN05,
        "sm_120": _MMA_120,
        "cdna2": _MFMA,
    }
)
"""Matrix instructions of each architecture."""


def matrix_family(architecture: str, dtype: str) -> MatrixFamily:
    """Instructions that multiply a format on an architecture.

    Raises
    ------
    UnsupportedError
        If the architecture is unknown, or the format is one that it has not or that is not modelled; the message says
        which of the two, and lists those that are.

    Examples
    --------
    >>> matrix_family("sm_90", "bf16").name
    'wgmma'
    >>> matrix_family("sm_80", "fp8")
    Traceback (most recent call last):
    tilesight.errors.UnsupportedError: sm_80 has no fp8 matrix instructions; modelled there are bf16, fp16, int8, tf32
    """
    if architecture not in FAMILIES:
        raise UnsupportedError(
            f"no matrix instructions known for {architecture!r}; {suggestion(architecture, FAMILIES)}"
        )
    family = FAMILIES[architecture]
    if dtype not in family.dtypes:
        have = ", ".join(sorted(family.dtypes))
        known = dtype in family.not_modelled
        why = (
            f"{dtype} products on {architecture} are not modelled"
            if known
            else f"{architecture} has no {dtype} matrix instructions"
        )
        raise UnsupportedError(f"{why}; modelled there are {have}", field=None if known else f"tensor.{dtype}")
    return family
