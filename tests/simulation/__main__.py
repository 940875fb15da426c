"""Run seeds, one after the other, and say what was wrong with each.

python -m tests.simulation 42              one seed
python -m tests.simulation 1-1000          many
python -m tests.simulation 42 --only 3,7   the events 3 and 7 of its story alone
python -m tests.simulation 42 --said       with everything that happened, line by line
python -m tests.simulation 42 --shrink     the part of the story that suffices
"""

import argparse
import sys
import time

from tests.simulation.run import run
from tests.simulation.shrink import shrink
from tests.simulation.story import story_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seeds", help="a number, or two with - between them")
    parser.add_argument("--only", default="", help="numbers of events, with commas between them")
    parser.add_argument("--said", action="store_true", help="print what happened")
    parser.add_argument(
        "--shrink", action="store_true", help="leave out what is not needed to fail"
    )
    asked = parser.parse_args()
    low, _, high = asked.seeds.partition("-")
    began, virtual_s, wrong = time.process_time(), 0.0, 0
    for seed in range(int(low), int(high or low) + 1):
        story = story_of(seed)
        if asked.only:
            story = story.only({int(each) for each in asked.only.split(",")})
        outcome = run(story)
        virtual_s += outcome.virtual_s
        if outcome.wrong and asked.shrink:
            story = shrink(story, lambda part: bool(run(part).wrong))
            outcome = run(story)
        if outcome.wrong or asked.said:
            _say(str(story), *(outcome.said if asked.said else ()), *outcome.wrong[:20])
        wrong += bool(outcome.wrong)
    took = time.process_time() - began
    _say(
        f"{wrong} seeds failed; {virtual_s:.0f} virtual s in {took:.1f} s of CPU: x {virtual_s / took:.0f}"
    )
    return min(wrong, 1)


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
