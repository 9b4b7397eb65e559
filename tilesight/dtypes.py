"""Number formats: width, which accumulators tensor cores offer for them, and the names people use.

Sources: widths from IEEE 754 and the OCP 8-bit and microscaling (MX) format specifications; accumulators from the PTX
ISA, sections on ``mma`` and ``wgmma``. An accumulator listed here exists on some GPU; whether a GPU has it, and at which
rate, is for its hardware profile to say.
"""

from dataclasses import dataclass
from types import MappingProxyType

from tilesight.errors import UnknownDTypeError, suggestion


@dataclass(frozen=True, slots=True)
class DType:
    """One number format.

    Attributes
    ----------
    name
        The name that profiles, tables and plans use.
    bits
        Width of one stored element. tf32 is stored in 32 bits and computed with 19.
    accumulators
        Names of the formats in which products of this one are summed, the usual one first.
    aliases
        Other accepted names, in lower case.
    scale_block
        Elements that share one 8-bit scale, for block-scaled formats; None for plain ones.
    plain
        The format of the elements themselves, whose tensor rate applies; None for plain formats.
    output
        Format in which libraries store products of this one; None: the same.
    """

    name: str
    bits: int
    accumulators: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    scale_block: int | None = None
    plain: str | None = None
    output: str | None = None

    @property
    def bytes_per_element(self) -> float:
        """Width in bytes, the share of a block's scale included; 0.5 for 4-bit formats.

        Examples
        --------
        >>> dtype("bf16").bytes_per_element, dtype("fp4").bytes_per_element, dtype("nvfp4").bytes_per_element
        (2.0, 0.5, 0.5625)
        """
        return self.bits / 8 + (1 / self.scale_block if self.scale_block else 0.0)

    @property
    def rate_name(self) -> str:
        """The format under which profiles list the tensor rate."""
        return self.plain or self.name

    @property
    def stored(self) -> str:
        """The format in which libraries store products of this one, if nothing else is asked for."""
        return self.output or self.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """Formats in which a product of this one may be stored: what an epilogue makes of its sums.

        Floating sums become fp32, bf16, fp16 or an 8-bit float, integer ones also int32 and int8; fp64 may stay fp64.

        Examples
        --------
        >>> dtype("tf32").outputs
        ('fp32', 'bf16', 'fp16', 'fp8', 'fp8_e5m2')
        """
        return {"int32": ("int32", "int8"), "fp64": ("fp64",)}.get(self.accumulator, ()) + FLOAT_OUTPUTS

    @property
    def accumulator(self) -> str:
        """The usual accumulator: fp32 for the floating formats, int32 for the integer ones."""
        return self.accumulators[0]

    def __str__(self) -> str:
        return self.name


FLOAT_OUTPUTS = ("fp32", "bf16", "fp16", "fp8", "fp8_e5m2")
"""Formats in which sums are stored."""

_TABLE = (
    DType("fp64", 64, ("fp64",), ("float64", "double", "f64")),
    DType("fp32", 32, ("fp32",), ("float32", "float", "f32")),
    DType("tf32", 32, ("fp32",), ("tensorfloat32",), output="fp32"),
    DType("bf16", 16, ("fp32",), ("bfloat16",)),
    DType("fp16", 16, ("fp32", "fp16"), ("float16", "half", "f16")),
    DType("fp8", 8, ("fp32", "fp16"), ("fp8_e4m3", "e4m3", "float8_e4m3fn", "fp8e4m3"), output="bf16"),
    DType("fp8_e5m2", 8, ("fp32", "fp16"), ("e5m2", "float8_e5m2", "fp8e5m2"), output="bf16"),
    DType("mxfp8", 8, ("fp32",), (), 32, "fp8", "bf16"),
    DType("fp6", 6, ("fp32",), ("fp6_e2m3", "e2m3", "fp6_e3m2", "e3m2"), output="bf16"),
    DType("fp4", 4, ("fp32",), ("fp4_e2m1", "e2m1", "float4_e2m1fn"), output="bf16"),
    DType("mxfp4", 4, ("fp32",), (), 32, "fp4", "bf16"),
    DType("nvfp4", 4, ("fp32",), (), 16, "fp4", "bf16"),
    DType("int32", 32, ("int32",), ("i32", "s32")),
    DType("int8", 8, ("int32",), ("i8", "s8", "u8", "uint8"), output="int32"),
    DType("int4", 4, ("int32",), ("i4", "s4"), output="int32"),
)

DTYPES = MappingProxyType({entry.name: entry for entry in _TABLE})
_BY_ANY_NAME = {name: entry for entry in _TABLE for name in (entry.name, *entry.aliases)}


def dtype(name: str | DType) -> DType:
    """The number format of a name or alias, in any case, with or without a ``torch.`` prefix.

    Raises
    ------
    UnknownDTypeError
        If no format has that name; the message lists the known ones and the nearest.

    Examples
    --------
    >>> dtype("bfloat16").name, dtype("torch.float16").name, dtype("E4M3").bits
    ('bf16', 'fp16', 8)
    """
    if isinstance(name, DType):
        return name
    entry = _BY_ANY_NAME.get(str(name).lower().removeprefix("torch."))
    if entry is None:
        near = suggestion(str(name), DTYPES, len(DTYPES))
        raise UnknownDTypeError(f"no data type {str(name)!r}; {near}")
    return entry
