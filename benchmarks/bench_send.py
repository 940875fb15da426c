"""The price of one send: processor time of the broker per message. Run: python -m benchmarks.bench_send

A broker in a process of its own, everything on (index, statistics, long polling), and this process as the
load: raw frames with JSON headers, 128-byte bodies, a fixed number in flight. Processor time is steadier
than messages/s on a machine that does other work; the best round is the one least disturbed.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import raw_load
from benchmarks.meter import cpu_seconds, machine
from tests.interop.brokers import PocketBroker

TOPIC, QUEUES = "BenchTopic", 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line for each number of requests in flight."""
    options = argparse.ArgumentParser(description=__doc__, add_help=True)
    options.add_argument("--messages", type=int, default=100_000, help="messages of one round")
    options.add_argument("--rounds", type=int, default=5, help="rounds after one to get warm")
    options.add_argument("--body", type=int, default=128, help="bytes of one body")
    options.add_argument("--in-flight", type=int, nargs="*", default=[64, 512])
    given = options.parse_args(arguments)
    print(machine())
    print(f"{'in flight':>9}  {'msg/s best':>10}  {'us/msg best':>11}  {'us/msg median':>13}")
    with tempfile.TemporaryDirectory() as folder:
        broker = PocketBroker(Path(folder))
        broker.start()
        try:
            raw_load.create_topic(broker.address, TOPIC, QUEUES)
            frames = raw_load.Frames(TOPIC, QUEUES, given.body).frames
            for in_flight in given.in_flight:
                measure(broker, frames, in_flight, given.messages, given.rounds)
        finally:
            broker.kill()


def measure(
    broker: PocketBroker, frames: Sequence[bytes], in_flight: int, messages: int, rounds: int
) -> None:
    """Rounds of `messages` sends; the first, in which everything gets warm, is not counted."""
    rates: list[float] = []
    prices_us: list[float] = []
    for place in range(rounds + 1):
        before = cpu_seconds(broker.process.pid)
        seconds = raw_load.send_count(
            broker.address, frames, requests=messages, in_flight=in_flight
        )
        # The index follows the log: its work belongs to the messages that caused it.
        time.sleep(0.3)
        if place:
            rates.append(messages / seconds)
            prices_us.append((cpu_seconds(broker.process.pid) - before) / messages * 1e6)
    print(
        f"{in_flight:>9}  {max(rates):>10,.0f}  {min(prices_us):>11.2f}  "
        f"{statistics.median(prices_us):>13.2f}"
    )


if __name__ == "__main__":
    main()
