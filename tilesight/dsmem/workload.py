"""A row-wise reduction as data: what it reads, in which passes, what it keeps, what it writes.

A reduction-reuse workload reduces a row to a few statistics, in L dependent stages, and reads the row again to compute a
full-size output (CREDIT, eq. 1):

    r[l, j] = sum over i of g[l, j](x[i], r[<l]),    j = 1 .. q[l],        y[i] = h(x[i], r[1..L])

The same workload has three forms: the passes of its definition, those that a compiler makes of it, and those of a kernel
that merges stages where the mathematics allows (a shifted or merged variance, a running maximum and sum).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from operator import index
from typing import Any, Literal, get_args

from tilesight.dtypes import dtype as known_dtype
from tilesight.errors import ConfigError, ProblemError, shown

Structure = Literal["reduction_reuse", "elementwise", "scan", "selection", "stencil"]
Form = Literal["definition", "compiled", "merged"]
DTYPES = ("fp32", "bf16", "fp16")
SIZE_MOST = 2**31 - 1
"""Rows or columns of the largest problem."""
INPUTS_MOST, STATISTICS_MOST = 16, 10**6
"""Inputs of the largest workload, of each of which a thread keeps a vector in registers; scalars of its largest stage."""
COUNT_MOST = 1e12
"""Largest number that is taken for instructions, bytes or cycles: sums of them stay finite."""
SECONDS_MOST = 1e9
"""Longest time that is taken for one."""


def _refuse(problem: object) -> None:
    raise ProblemError(str(problem))


@dataclass(frozen=True)
class Tensor:
    """One input or output of a row.

    Attributes
    ----------
    name
        As the passes call it.
    element_bytes
        Bytes of an element; None: those of the dtype that is asked for.
    shared
        Whether it is a single row that all rows read, such as the weight of a LayerNorm.
    """

    name: str
    element_bytes: float | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        given = self.element_bytes
        if not isinstance(self.name, str) or not self.name.strip():
            _refuse(f"a tensor is called {shown(self.name)}; give a name")
        if given is not None and not (_is_real(given) and 0 < given <= 16):
            _refuse(f"{self.name}: element_bytes = {shown(given)}; give bytes above 0, up to 16, or None")
        shared: object = self.shared
        if not isinstance(shared, bool):
            _refuse(f"{self.name}: shared = {shown(self.shared)}; give True or False")

    def bytes_of(self, dtype: str) -> float:
        """Bytes of an element where values have that dtype."""
        return known_dtype(dtype).bytes_per_element if self.element_bytes is None else self.element_bytes


@dataclass(frozen=True)
class Pass:
    """One walk over the row: a stage that ends in statistics, or the output pass, which has none.

    Attributes
    ----------
    reads
        Names of the inputs it reads.
    statistics
        Scalars q that it reduces the row to; 0 for the output pass.
    instructions
        Arithmetic instructions an element, counted by hand from the definition, loads and stores apart.
    special
        Of them on the special-function units: exponentials, roots, reciprocals.
    """

    reads: tuple[str, ...]
    statistics: int = 0
    instructions: float = 2.0
    special: float = 0.0

    def __post_init__(self) -> None:
        reads: object = self.reads
        if not isinstance(reads, tuple) or not all(isinstance(name, str) for name in reads):
            _refuse(f"a pass reads {shown(self.reads)}; give a tuple of names of inputs, such as ('x',)")
        if not _is_whole(self.statistics) or not 0 <= self.statistics <= STATISTICS_MOST:
            _refuse(
                f"a pass has statistics = {shown(self.statistics)}; give a whole number from 0 to {STATISTICS_MOST}"
            )
        for name in ("instructions", "special"):
            value = getattr(self, name)
            if not is_count(value):
                _refuse(f"a pass has {name} = {shown(value)}; give a number from 0 to 1e12")
        if self.special > self.instructions:
            _refuse(
                f"a pass has special = {self.special!r} of instructions = {self.instructions!r}; special is part of them"
            )


@dataclass(frozen=True)
class StaticInputs:
    """What the published model takes of a workload: bytes an element, and statistics of each stage.

    ``modelled_bytes`` is b_B, all that the global-reread kernel moves; ``reread_bytes`` b_reread, what clusters save of
    it; ``kept_bytes`` b_keep, what stays in shared memory; ``statistics`` q of each stage. Those of the catalogue are the
    static inputs that the authors list with their published artefact. For LayerNorm these are 32, 12 and 4 B; figure 5 of
    the paper measures 24 B without and 12 B with a cluster on an RTX 5090.
    """

    modelled_bytes: float
    reread_bytes: float
    kept_bytes: float
    statistics: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("modelled_bytes", "reread_bytes", "kept_bytes"):
            if not is_count(getattr(self, name)):
                _refuse(f"static inputs: {name} = {shown(getattr(self, name))}; give bytes from 0 to 1e12")
        if not self.reread_bytes < self.modelled_bytes:
            of = f"reread_bytes = {self.reread_bytes!r}, modelled_bytes = {self.modelled_bytes!r}"
            _refuse(f"static inputs: {of}; needs 0 <= reread_bytes < modelled_bytes")
        counts = self.statistics
        if not isinstance(counts, tuple) or not counts or not all(_is_whole(each) and each >= 0 for each in counts):
            _refuse(
                f"static inputs: statistics = {shown(counts)}; give a tuple of whole numbers, one a stage, such as (2, 2)"
            )


@dataclass(frozen=True)
class Workload:
    """A row-wise workload.

    Attributes
    ----------
    inputs, outputs
        Tensors of one row each, unless shared.
    passes
        Of the definition, in order; the last one writes the outputs and has no statistics, unless only statistics
        come out.
    merged, compiled
        Passes of a kernel that merges stages, and of torch.compile; None: as the definition.
    keeps
        Inputs that stay on chip between passes; None: all that more than one merged pass reads.
    published
        The static inputs that were published for it, None where none were.
    structure
        What else than a reduction that is reused it may be: such workloads are rejected, with the reason.
    group
        Elements that share their statistics where that is not the whole row, as in group-wise quantisation.
    """

    name: str
    title: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    passes: tuple[Pass, ...]
    merged: tuple[Pass, ...] | None = None
    compiled: tuple[Pass, ...] | None = None
    keeps: tuple[str, ...] | None = None
    published: StaticInputs | None = None
    structure: Structure = "reduction_reuse"
    group: int | None = None
    scalar_bytes: int = 4
    by_name: Mapping[str, Tensor] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_kinds(self)
        object.__setattr__(self, "by_name", {tensor.name: tensor for tensor in (*self.inputs, *self.outputs)})
        inputs = {tensor.name for tensor in self.inputs}
        where = f"workload {self.name!r}"
        if len(self.by_name) != len(self.inputs) + len(self.outputs):
            _refuse(f"{where}: two tensors have one name")
        if not inputs or not self.passes:
            _refuse(f"{where} has no inputs or no passes")
        if len(inputs) > INPUTS_MOST:
            _refuse(f"{where} has {len(inputs)} inputs; at most {INPUTS_MOST} are modelled")
        if all(tensor.shared for tensor in self.inputs) or any(tensor.shared for tensor in self.outputs):
            _refuse(f"{where}: give at least one input of the row itself, not shared, and no shared output")
        for form in get_args(Form):
            _check_passes(self, form, inputs)
        own = sorted(tensor.name for tensor in self.inputs if not tensor.shared)
        for name in self.keeps or ():
            if name not in own:
                _refuse(f"{where} keeps {shown(name)}, which is no input of the row itself; those: {', '.join(own)}")

    def form(self, form: Form) -> tuple[Pass, ...]:
        """The passes of that form."""
        return {"definition": self.passes, "merged": self.merged, "compiled": self.compiled}[form] or self.passes

    @property
    def kept(self) -> tuple[str, ...]:
        """Inputs that a kernel without rereads keeps on chip."""
        if self.keeps is not None:
            return self.keeps
        seen = [name for each in self.form("merged") for name in each.reads if not self.by_name[name].shared]
        return tuple(dict.fromkeys(name for name in seen if seen.count(name) > 1))

    def counted(self, dtype: str = "fp32", form: Form = "definition") -> StaticInputs:
        """Static inputs counted from the passes of a form.

        Examples
        --------
        >>> from tilesight.dsmem.catalogue import workload
        >>> workload("softmax_backward").counted()
        StaticInputs(modelled_bytes=28.0, reread_bytes=16.0, kept_bytes=8.0, statistics=(1, 1, 1))
        """
        read = sum(self.read_bytes(each.reads, dtype) for each in self.form(form))
        written = self.written_bytes(dtype)
        statistics = tuple(each.statistics for each in self.form(form) if each.statistics) or (0,)
        kept = self.read_bytes(self.kept, dtype)
        return StaticInputs(read + written, read + written - self.compulsory_bytes(dtype), kept, statistics)

    def read_bytes(self, names: Iterable[str], dtype: str, *, shared: bool = False) -> float:
        """Bytes an element of these inputs: of the row's own ones, or of those that all rows share."""
        tensors = (self.by_name[name] for name in names)
        return sum(tensor.bytes_of(dtype) for tensor in tensors if tensor.shared == shared)

    def written_bytes(self, dtype: str) -> float:
        """Bytes an element of the outputs."""
        return sum(tensor.bytes_of(dtype) for tensor in self.outputs)

    def compulsory_bytes(self, dtype: str = "fp32") -> float:
        """Bytes an element that any kernel moves: each input once, each output once."""
        used = dict.fromkeys(name for each in self.passes for name in each.reads)
        return self.read_bytes(used, dtype) + self.written_bytes(dtype)

    def shape(self, rows: int, cols: int) -> tuple[int, int]:
        """Rows and columns as a kernel sees them: groups count as rows."""
        return (rows, cols) if self.group is None else (rows * -(-cols // self.group), min(self.group, cols))


def _check_kinds(workload: Workload) -> None:
    for name in ("name", "title"):
        text = getattr(workload, name)
        if not isinstance(text, str) or not text.strip():
            _refuse(f"a workload's {name} is {shown(text)}; give text")
    where = f"workload {workload.name!r}"
    for name, kind in (("inputs", Tensor), ("outputs", Tensor), ("passes", Pass), ("merged", Pass), ("compiled", Pass)):
        given, may_lack = getattr(workload, name), name in ("merged", "compiled")
        if may_lack and given is None:
            continue
        if not isinstance(given, tuple) or not all(isinstance(each, kind) for each in given):
            _refuse(
                f"{where}: {name} = {shown(given)}; give a tuple of {kind.__name__}{' or None' if may_lack else ''}"
            )
        if may_lack and not given:
            _refuse(f"{where}: {name} is empty; give passes, or None for those of the definition")
    keeps: object = workload.keeps
    if keeps is not None and not isinstance(keeps, tuple):
        _refuse(f"{where}: keeps = {shown(keeps)}; give a tuple of names of inputs, or None")
    published: object = workload.published
    if published is not None and not isinstance(published, StaticInputs):
        _refuse(f"{where}: published = {shown(published)}; give StaticInputs or None")
    if workload.structure not in get_args(Structure):
        _refuse(f"{where}: structure = {shown(workload.structure)}; known: {', '.join(get_args(Structure))}")
    if workload.group is not None and not (_is_whole(workload.group) and 1 <= workload.group <= SIZE_MOST):
        _refuse(f"{where}: group = {shown(workload.group)}; give elements, from 1 to {SIZE_MOST}, or None")
    if not _is_whole(workload.scalar_bytes) or not 1 <= workload.scalar_bytes <= 16:
        _refuse(f"{where}: scalar_bytes = {shown(workload.scalar_bytes)}; give whole bytes from 1 to 16")


def _check_passes(workload: Workload, form: Form, inputs: set[str]) -> None:
    defined = {name for each in workload.passes for name in each.reads}
    for number, each in enumerate(workload.form(form)):
        where = f"workload {workload.name!r}, {form} pass {number}"
        for name in each.reads:
            if name not in inputs:
                _refuse(f"{where} reads {shown(name)}, which is no input; inputs: {', '.join(sorted(inputs))}")
            if name not in defined:
                _refuse(f"{where} reads {shown(name)}, which no pass of the definition reads")
    lacks = sorted(defined - {name for each in workload.form(form) for name in each.reads})
    if lacks:
        _refuse(f"workload {workload.name!r}: no {form} pass reads {shown(lacks[0])}, which the definition does")


def checked_dtype(name: Any) -> str:
    """The dtype's name; :class:`ConfigError` if it is none that rows may have."""
    if name not in DTYPES:
        raise ConfigError(f"dtype = {shown(name)}; rows have {', '.join(DTYPES)}")
    return str(name)


def checked_size(name: str, value: Any) -> int:
    """Rows or columns as an int; :class:`ProblemError` if it is none from 1 to 2**31 - 1."""
    try:
        number = index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or not 1 <= number <= SIZE_MOST:
        raise ProblemError(f"{name} = {shown(value)}; give a whole number from 1 to {SIZE_MOST}")
    return number


def checked_seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """A time as a float; :class:`ConfigError` if it is none, or 0 where that is not allowed."""
    try:
        known = float(value) if _is_real(value) else -1.0
    except OverflowError:  # an integer beyond any float
        known = -1.0
    if not isfinite(known) or not 0 <= known <= SECONDS_MOST or (known == 0 and not zero):
        raise ConfigError(
            f"{name} = {shown(value)}; give seconds, {'0 or more' if zero else 'more than 0'}, at most 1e9"
        )
    return known


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    """Whether it is a number from 0 to ``COUNT_MOST``."""
    return _is_real(value) and 0 <= value <= COUNT_MOST
