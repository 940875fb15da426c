"""shrink: the part of a story that still goes wrong, for its reader."""

from collections.abc import Callable

from tests.simulation.story import Story


def shrink(story: Story, fails: Callable[[Story], bool], tries_max: int = 150) -> Story:
    """Leave out events, many at once and then one by one, while the rest still fails.

    tries_max bounds the runs; what is reached by then is the answer.
    """
    numbers = [event.number for event in story.events]
    size = max(1, len(numbers) // 2)
    while tries_max > 0:
        found = False
        for at in range(0, len(numbers), size):
            rest = numbers[:at] + numbers[at + size :]
            tries_max -= 1
            if fails(story.only(set(rest))):
                numbers, found = rest, True
                break
            if tries_max <= 0:
                break
        if not found:
            if size == 1:
                break
            size = max(1, size // 2)
    return story.only(set(numbers))
