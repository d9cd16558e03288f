"""`attnc schema`: the JSON Schema by which editors complete and check specs."""

from __future__ import annotations

import json
from argparse import Namespace

from attnc.spec import json_schema


def run(options: Namespace) -> int:
    """Print the schema; it is JSON with --json or without."""
    print(json.dumps(json_schema(), indent=2))
    return 0
