"""What one decoding run did, as plain numbers and strings: ``Trace`` and its ``Round`` s.

A trace can be saved, sent to a browser, read by pandas and replayed. Nothing here imports torch.
Both a live run and a recorded run are seen only through this module. Every field, the CSV columns and the
conventions of the files are listed in docs/trace.md.

``schema``: the dataclasses and the sums over them. ``counterfactual``: what other trees would have got
accepted. ``tokens``: tokens as labels, JSON strings and hex. ``jsonform``: JSON, run id, older versions.
``check``: is a trace consistent. ``files``: save and load. ``tables``: CSV.
"""

from dominotree.trace.check import check
from dominotree.trace.counterfactual import counterfactual_path, finish
from dominotree.trace.files import load, save
from dominotree.trace.jsonform import content_id, from_json, plain, to_json
from dominotree.trace.schema import (
    MAX_BYTES,
    SCHEMA,
    SCORERS,
    STAGES,
    TREE_BITS,
    VERSION,
    Counterfactual,
    Counts,
    DepthCount,
    Float,
    Nodes,
    Pop,
    Round,
    Trace,
    TraceError,
    Visit,
)
from dominotree.trace.tables import NODE_COLUMNS, ROUND_COLUMNS, export_csv, nodes_csv, rounds_csv, write_csv
from dominotree.trace.tokens import token_escaped, token_hex, token_text, token_unescaped

__all__ = [
    "MAX_BYTES",
    "NODE_COLUMNS",
    "ROUND_COLUMNS",
    "SCHEMA",
    "SCORERS",
    "STAGES",
    "TREE_BITS",
    "VERSION",
    "Counterfactual",
    "Counts",
    "DepthCount",
    "Float",
    "Nodes",
    "Pop",
    "Round",
    "Trace",
    "TraceError",
    "Visit",
    "check",
    "content_id",
    "counterfactual_path",
    "export_csv",
    "finish",
    "from_json",
    "load",
    "nodes_csv",
    "plain",
    "rounds_csv",
    "save",
    "to_json",
    "token_escaped",
    "token_hex",
    "token_text",
    "token_unescaped",
    "write_csv",
]
