"""Records: measured tables, what their columns mean, and what their times contain."""

from tilesight.records.gpus import canonical_gpu
from tilesight.records.protocol import PROTOCOLS, Protocol, counters
from tilesight.records.read import Condition, Table, filter_rows, parse_where, read_table
from tilesight.records.requests import Requests, requests
from tilesight.records.schema import KINDS, TableKind, recognise

__all__ = [
    "KINDS",
    "PROTOCOLS",
    "Condition",
    "Protocol",
    "Requests",
    "Table",
    "TableKind",
    "canonical_gpu",
    "counters",
    "filter_rows",
    "parse_where",
    "read_table",
    "recognise",
    "requests",
]
