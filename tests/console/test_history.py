"""The history of the charts: any times, any clock, any damage; the file that keeps it over restarts."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pocketmq.client import Message, Producer
from pocketmq.console.time.history import IMAGE_SIZE, NAMES_MAX, RINGS, History, Ring, SeriesKind
from pocketmq.console.time.history_file import NAME, kept_history
from tests.console.console_peer import site
from tests.kit.waiting import until_async

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
# A clock that advances, stands, leaps by hours, days or years, in either direction.
LEAPS = st.sampled_from([0, 1_000, 3_000, 10_000, 61_000, DAY_MS, 400 * DAY_MS, -5_000, -DAY_MS])
SAMPLES = st.lists(
    st.tuples(LEAPS, st.integers(0, 1_000_000), st.integers(0, 1_000_000)), min_size=1, max_size=40
)


def one(rate: float, lag: float) -> dict[SeriesKind, dict[str, dict[str, float]]]:
    return {SeriesKind.CLUSTER: {"cluster": {"in": rate, "out": 0.0, "lag": lag, "latency": lag}}}


def whole(
    history: History, kind: SeriesKind = SeriesKind.CLUSTER, name: str = "cluster"
) -> list[Any]:
    """What each ring shows, as rows of (time, in or out, lag)."""
    found: list[Any] = []
    for ring in RINGS:
        view = history.view(kind, name, NOW_MS - ring.span_ms, NOW_MS + 1, NOW_MS)
        if not view["series"]:
            found.append([])
            continue
        values = view["series"][0]["values"]
        first = values["in"] if "in" in values else values["out"]
        found.append(list(zip(view["times"], first, values["lag"], strict=True)))
    return found


def model(ring: Ring, samples: list[tuple[int, int, int]]) -> list[tuple[int, float, float]]:
    """What a ring must show: of each step the mean and the highest, the last one at its place."""
    places: dict[int, tuple[int, list[tuple[int, int]]]] = {}
    for at_ms, rate, lag in samples:
        start = at_ms // ring.step_ms * ring.step_ms
        place = start // ring.step_ms % ring.points
        if places.get(place, (None,))[0] != start:
            places[place] = (start, [])
        places[place][1].append((rate, lag))
    return sorted(
        (start, sum(r for r, _ in seen) / len(seen), max(lag for _, lag in seen))
        for start, seen in places.values()
        if NOW_MS - ring.span_ms - ring.step_ms < start <= NOW_MS
    )


def test_a_late_request_for_an_hour_gets_the_finest_steps() -> None:
    history = History(3_000)
    history.add(NOW_MS, one(1, 2))
    for ring, since_ms in zip(RINGS, (3_600_000, 24 * 3_600_000, 30 * 24 * 3_600_000), strict=True):
        late_ms = NOW_MS - since_ms - 800
        assert history.view(SeriesKind.CLUSTER, "cluster", late_ms, NOW_MS + 1, NOW_MS)[
            "intervalMs"
        ] == (ring.step_ms)


@settings(max_examples=60, deadline=None)
@given(SAMPLES)
def test_rings_show_mean_and_maximum_under_any_clock(
    leaps: list[tuple[int, int, int]],
) -> None:
    history = History(3_000)
    at_ms, samples = NOW_MS, []
    for leap, rate, lag in leaps:
        at_ms += leap
        samples.append((at_ms, rate, lag))
        history.add(at_ms, one(rate, lag))
    for ring, rows in zip(RINGS, whole(history), strict=True):
        wanted = model(ring, samples)
        assert [row[0] for row in rows] == [row[0] for row in wanted]
        for row, each in zip(rows, wanted, strict=True):
            assert row[1:] == pytest.approx(each[1:], rel=1e-4, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(-(1 << 65), 1 << 65), st.floats(allow_nan=True, allow_infinity=True))
def test_no_time_and_no_figure_breaks_it(at_ms: int, value: float) -> None:
    # Figures of one step are averaged.
    assume(abs(at_ms - NOW_MS) >= 3_000)
    history = History(3_000)
    history.add(at_ms, one(value, value))
    history.add(NOW_MS, one(1, 2))
    assert (NOW_MS, 1, 2) in whole(history)[0]


class Image:
    """What the writes of a History leave."""

    def __init__(self) -> None:
        self.data = bytearray(IMAGE_SIZE)

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data


def filled() -> tuple[History, Image]:
    image = Image()
    history = History(3_000, write=image.write)
    for step in range(200):
        values: dict[SeriesKind, dict[str, dict[str, float]]] = {
            **one(step, step),
            SeriesKind.GROUPS: {"g": {"lag": float(step), "out": 1.0, "latency": 5.0}},
        }
        history.add(NOW_MS - 60_000 * (199 - step), values)
    return history, image


FILLED, FILLED_IMAGE = filled()


def test_what_was_written_is_read_back_and_goes_on() -> None:
    again = History(3_000, bytes(FILLED_IMAGE.data))
    assert whole(again) == whole(FILLED)
    assert whole(again, SeriesKind.GROUPS, "g") == whole(FILLED, SeriesKind.GROUPS, "g")
    again.add(NOW_MS, one(999, 999))
    assert whole(again)[2][-1][2] == 999


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, IMAGE_SIZE - 1), st.binary(min_size=1, max_size=5_000)), max_size=5
    ),
    st.integers(0, IMAGE_SIZE + 1),
)
def test_a_damaged_image_shows_gaps_and_no_invented_figures(
    damages: list[tuple[int, bytes]], size: int
) -> None:
    image = bytearray(FILLED_IMAGE.data)
    for at, data in damages:
        image[at : at + len(data)] = data[: IMAGE_SIZE - at]
    for data in (bytes(image), bytes(image[:size])):
        history = History(3_000, data)
        for kind, name in ((SeriesKind.CLUSTER, "cluster"), (SeriesKind.GROUPS, "g")):
            for rows, before in zip(
                whole(history, kind, name), whole(FILLED, kind, name), strict=True
            ):
                assert set(rows) <= set(before)
        history.add(NOW_MS, one(1, 77_777))
        assert whole(history)[0][-1][2] == 77_777


def test_the_names_with_the_largest_figures_are_shown() -> None:
    """Of many groups the chart showed those that stood last in the file, not the one that was far behind."""
    history = History(3_000)
    names = [f"g{number}" for number in range(12)]
    for minute in range(30):
        lags = {each: {"lag": 1.0, "out": 1.0} for each in names}
        lags["g3"]["lag"] = lags["g0"]["lag"] = 20_000.0 + minute
        lags["g0"]["lag"] += 1
        history.add(NOW_MS - 1_800_000 + minute * 60_000, {SeriesKind.GROUPS: lags})
    view = history.view(SeriesKind.GROUPS, None, NOW_MS - 3_600_000, NOW_MS, NOW_MS)
    assert [each["name"] for each in view["series"]][:2] == ["g0", "g3"]
    assert len(view["series"]) == 8


def test_a_name_makes_room_only_after_an_hour_without_activity() -> None:
    """Bounded: an idle one goes first; what it showed is not shown as another's."""
    history = History(3_000)
    places = NAMES_MAX[SeriesKind.TOPICS]

    def add(at_ms: int, *names: str, rate: float = 1.0) -> None:
        history.add(at_ms, {SeriesKind.TOPICS: {each: {"in": rate, "lag": 9.0} for each in names}})

    def names() -> set[str]:
        view = history.view(SeriesKind.TOPICS, None, 0, 2 * NOW_MS, NOW_MS, count_max=1_000)
        return {each["name"] for each in view["series"]}

    busy = [f"t{number}" for number in range(places)]
    add(NOW_MS - 3_700_000, *busy)
    add(NOW_MS - 3_000, *busy[1:])
    add(NOW_MS - 2_000, "new", rate=0.0)
    history.add(NOW_MS - 1_000, {SeriesKind.TOPICS: {"idle": {"in": 0.0, "out": 0.0}}})
    assert names() == {*busy[1:], "new"}
    assert [row[1:] for row in whole(history, SeriesKind.TOPICS, "new")[2]] == [
        (None, None),
        (0, 9),
    ]
    add(NOW_MS, "more")
    assert "more" not in names()
    assert len(names()) == places


def test_a_second_console_keeps_its_history_in_memory(tmp_path: Path) -> None:
    folder = tmp_path / "console"
    with kept_history(str(folder), 3_000) as first, kept_history(str(folder), 3_000) as second:
        first.add(NOW_MS, one(1, 1))
        second.add(NOW_MS, one(2, 2))
    (size,) = (each.stat().st_size for each in folder.iterdir())
    assert size == IMAGE_SIZE
    with kept_history(str(folder), 3_000) as again:
        assert whole(again)[0] == [(NOW_MS, 1, 1)]
    with open(folder / NAME, "r+b") as file:
        os.ftruncate(file.fileno(), 100)
    with kept_history(str(folder), 3_000) as cut:
        assert whole(cut)[0] == []
        cut.add(NOW_MS, one(3, 3))
    with kept_history(str(folder), 3_000) as again:
        assert whole(again)[0] == [(NOW_MS, 3, 3)]


async def test_a_restarted_console_shows_earlier_rates_and_waits(
    tmp_path: Path,
) -> None:
    """The same folder, another life: the rates of the first are in the second's chart."""
    console = {"folder": str(tmp_path / "console")}
    async with site(tmp_path, console=console) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        await user.do("PUT", "/groups/G", {})
        async with Producer("P", name_server=running.name_server) as producer:
            await producer.send(Message("T", b"x"))
            await user.do(
                "POST", "/groups/G/offset", {"topic": "T", "broker": "b", "queueId": 0, "offset": 0}
            )

            async def seen() -> Any:
                await producer.send(Message("T", b"x"))
                shown = await user.read("/history", kind="groups", name="G")
                if not shown["series"]:
                    return None
                values = shown["series"][0]["values"]
                overview = await user.read("/overview")
                waits = any(values["lag"]) and any(values["latency"])
                return shown if waits and overview["totals"]["latencyMs"] > 0 else None

            before = await until_async(seen)
            assert before["intervalMs"] == RINGS[0].step_ms
            month = await user.read("/history", kind="groups", name="G", since=1)
            assert month["intervalMs"] == RINGS[-1].step_ms
            assert (await user.get("/history", since=5, until=5)).status == 400
    async with site(tmp_path, console=console) as running:
        after = await running.user.read(
            "/history", kind="groups", name="G", until=before["times"][-1] + 1
        )
        assert set(before["times"]) <= set(after["times"])
        assert highest(after) >= highest(before)


def highest(shown: Any) -> float:
    """The highest lag of a chart; a name that came late has gaps before."""
    lags: list[float | None] = shown["series"][0]["values"]["lag"]
    return max(each for each in lags if each is not None)
