"""The brokers, the name server and the clients live through stories full of faults, in simulated time."""

import os
import subprocess
import sys

import pytest

from tests.simulation.run import run
from tests.simulation.shrink import shrink
from tests.simulation.story import Story, story_of

_TOLD = """
import hashlib, sys
from tests.simulation.run import run
from tests.simulation.story import story_of
for seed in sys.argv[1:]:
    print(hashlib.sha256("\\n".join(run(story_of(int(seed))).said).encode()).hexdigest())
"""


def _fails(story: Story) -> bool:
    return bool(run(story).wrong)


@pytest.mark.slow
def test_what_was_acknowledged_outlives_crashes_and_is_processed(seeds: range) -> None:
    for seed in seeds:
        outcome = run(story_of(seed))
        if outcome.wrong:
            part = shrink(story_of(seed), _fails)
            numbers = ",".join(str(event.number) for event in part.events)
            wrong = "\n".join(run(part).wrong[:20])
            pytest.fail(
                f"{part}\n{wrong}\npython -m tests.simulation {seed} --only {numbers} --said"
            )


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Otherwise a failing seed could not be looked at."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _TOLD, "3", "8", "11"],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "random")
    }
    assert len(found) == 1


def test_shrinking_leaves_what_is_needed_to_fail() -> None:
    story = story_of(1)
    needed = {story.events[2].number, story.events[-1].number}

    def fails(part: Story) -> bool:
        return needed <= {event.number for event in part.events}

    assert {event.number for event in shrink(story, fails).events} == needed
