"""R12 guided by coverage: mutations that reach something new are kept, and mutated further.

python -m tests.fuzz.guided http2 --seconds 600 --corpus FOLDER

Needs atheris (`pip install atheris`, Linux), which is no part of the development requirements. What fails is
printed with its traceback, and kept beside the corpus.
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, required=True)
    asked = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["pocketmq"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[asked.target]
    folder: Path = asked.corpus / asked.target
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.corpus):
        (folder / f"seed-{number}").write_bytes(data)
    found = f"-artifact_prefix={asked.corpus}/{asked.target}-"
    times = [f"-max_total_time={asked.seconds}", "-print_final_stats=1", "-rss_limit_mb=1024"]
    atheris.Setup([sys.argv[0], str(folder), found, "-max_len=8192", *times], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
