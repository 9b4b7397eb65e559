"""Blocks of a stream, numbered so that CTAs that share a tile of a tensor share its blocks."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilesight.errors import ConfigError, PlanError, shown
from tilesight.simulate.given import real
from tilesight.simulate.memory import L2
from tilesight.simulate.stream import Stream

Step = tuple[int, float, int, int, int, bool]
"""Of an operand of one CTA: first block, bytes a step, first chunk, step behind the last, chunks in a period, writes."""


@dataclass(frozen=True)
class _Part:
    """What of an operand the CTAs touch, in blocks: its first one for each CTA, and plain lists of the rest."""

    begin: list[int]
    step_bytes: list[float]
    stop: list[int]
    first: int
    period: int
    writes: bool


class Blocks:
    """Blocks of a stream, numbered tensor by tensor, tile by tile, along the steps."""

    def __init__(self, stream: Stream, steps_per_block: int) -> None:
        self.steps_per_block = each = steps_per_block
        self.stream = stream
        chunks: dict[str, int] = {}
        offset: dict[str, int] = {}
        for operand in stream.operands:
            repeats = operand.period is not None and operand.period < operand.active_steps(stream.steps).max()
            for name, steps in (("first", operand.first), ("period", operand.period if repeats else 0)):
                if (steps or 0) % each:
                    raise PlanError(
                        f"{name} = {steps} of operand {operand.tensor!r} is no multiple of steps_per_block = {each}"
                    )
            most = max(-(-int(operand.span(stream.steps).max()) // each), 1)
            chunks[operand.tensor] = max(chunks.get(operand.tensor, 1), most)
        used = len(stream)  # the first numbers are the outputs'
        for name in chunks:
            offset[name] = used
            used += (1 + max(int(o.tile.max()) for o in stream.operands if o.tensor == name)) * chunks[name]
        self.parts = tuple(
            _Part(
                begin=(offset[operand.tensor] + operand.tile * chunks[operand.tensor]).tolist(),
                step_bytes=operand.step_bytes.tolist(),
                stop=operand.stop(stream.steps).tolist(),
                first=operand.first // each,
                period=max(-(-int(operand.span(stream.steps).max()) // each), 1),
                writes=operand.writes,
            )
            for operand in stream.operands
        )

    def of_cta(self, cta: int) -> list[Step]:
        """What the CTA asks for in each step, operand by operand."""
        return [
            (part.begin[cta], part.step_bytes[cta], part.first, part.stop[cta], part.period, part.writes)
            for part in self.parts
            if part.step_bytes[cta] > 0
        ]

    def place(self, resident: Mapping[str, float], memory: L2) -> None:
        """Put the given shares of tensors into L2: block i of a tensor where i * share passes a whole number."""
        if not isinstance(resident, Mapping):
            raise ConfigError(f"resident = {shown(resident)}; give shares by tensor, such as {{'x': 0.5}}")
        names = {operand.tensor for operand in self.stream.operands} | {self.stream.output}
        for name, share in resident.items():
            if name not in names:
                raise PlanError(f"resident = {shown(name)}, but the stream has {', '.join(sorted(names))}")
            share = real(f"resident share of {name!r}", share, ConfigError, "a share", 0.0, 1.0)
            sizes = self._sizes(name)
            for i, (block, size) in enumerate(sorted(sizes.items())):
                if int((i + 1) * share + 1e-9) > int(i * share + 1e-9):
                    memory.place(block, size)

    def _sizes(self, name: str) -> dict[int, float]:
        """Bytes of each block of a tensor."""
        if name == self.stream.output:
            return {cta: size for cta, size in enumerate(self.stream.output_bytes.tolist()) if size > 0}
        sizes: dict[int, float] = {}
        for operand, part in zip(self.stream.operands, self.parts, strict=True):
            if operand.tensor != name:
                continue
            spans = operand.span(self.stream.steps).tolist()
            for begin, size, span in sorted(set(zip(part.begin, part.step_bytes, spans, strict=True))):
                for place in range(0, span if size > 0 else 0, self.steps_per_block):
                    block = begin + place // self.steps_per_block
                    held = size * min(self.steps_per_block, span - place)
                    sizes[block] = max(sizes.get(block, 0.0), held)
        return sizes
