"""The brokers, the name server and the clients live through stories full of faults, in simulated time."""

import os
import subprocess
import sys

import pytest
from tests.simulation.run import run
from tests.simulation.shrink import shrink
from tests.simulation.story import Story, story_of

_TWICE = """
import hashlib, sys
from tests.simulation.run import run
from tests.simulation.story import story_of
said = "\\n".join(run(story_of(int(sys.argv[1]))).said)
print(hashlib.sha256(said.encode()).hexdigest())
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


@pytest.mark.parametrize("seed", [3, 8, 11])
def test_a_seed_is_the_same_run_in_every_process(seed: int) -> None:
    """Otherwise a failing seed could not be looked at."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _TWICE, str(seed)],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "1", "random")
    }
    assert len(found) == 1


def test_shrinking_leaves_what_is_needed_to_fail() -> None:
    story = story_of(1)
    needed = {story.events[2].number, story.events[-1].number}

    def fails(part: Story) -> bool:
        return needed <= {event.number for event in part.events}

    assert {event.number for event in shrink(story, fails).events} == needed
