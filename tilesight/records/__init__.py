"""Records: measured tables, what their columns mean, and what their times contain."""

from tilesight.records.gpus import canonical_gpu, is_known
from tilesight.records.protocol import COUNTED_CACHES, PROTOCOLS, Protocol, counters
from tilesight.records.read import Condition, Table, filter_rows, parse_where, read_header, read_table
from tilesight.records.requests import Requests, requests
from tilesight.records.schema import KINDS, NCU, TableKind, recognise

__all__ = [
    "COUNTED_CACHES",
    "KINDS",
    "NCU",
    "PROTOCOLS",
    "Condition",
    "Protocol",
    "Requests",
    "Table",
    "TableKind",
    "canonical_gpu",
    "counters",
    "filter_rows",
    "is_known",
    "parse_where",
    "read_header",
    "read_table",
    "recognise",
    "requests",
]
