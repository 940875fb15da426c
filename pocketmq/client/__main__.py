"""`python -m pocketmq.client --describe MODULE:NAME ...`: what consumers of a program will subscribe.

NAME is a consumer, a router, or a function without arguments that makes one; nothing is started. A list for
`pocketmq subs plan`.
"""

import argparse
import inspect
import json
import sys
from importlib import import_module
from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """Return exit code 2 if a consumer cannot be found."""
    parser = argparse.ArgumentParser(prog="python -m pocketmq.client", description=__doc__)
    parser.add_argument("--describe", nargs="+", metavar="MODULE:NAME", required=True)
    found = [_described(parser, each) for each in parser.parse_args(arguments).describe]
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


def _described(parser: argparse.ArgumentParser, place: str) -> Any:
    module, _, name = place.partition(":")
    sys.path.insert(0, "")
    try:
        consumer = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        parser.error(f"{place}: {error}")
    if inspect.isfunction(consumer):
        consumer = consumer()
    describe = getattr(consumer, "describe", None)
    if describe is None:
        parser.error(f"{place} is a {type(consumer).__name__}, not a consumer with subscriptions")
    return describe().to_json()


if __name__ == "__main__":
    sys.exit(main())
