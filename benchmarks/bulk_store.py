"""A generated store for benchmarks and large tests: records of one size, written by numpy.

Message i (0, 1, 2 ...) of `messages`:
    queue i % queues, queue offset i // queues, tag `tag000` .. of i % tags, key `key` + 12 digits in no order
    store time START_MS + i * step, UNIQ_KEY 32 hex digits ending in i, body: 8 bytes of i, then noise by i,
    which does not compress, alone or beside others
Layout as RocketMQ 5.x writes it (every property closed by 0x02).
"""

import argparse
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pocketmq.model.java_hash import string_hash
from pocketmq.model.record import MAGIC_BLANK, MAGIC_V1, Record, write_record

START_MS = 1_790_000_000_000
BODY_SIZE = 1024
_ENTRY = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
_CHUNK = 8192
# 3 ** 18 has no factor in common with 10 ** 12: every message has a key of its own.
_STRIDE = 387_420_489


def body_noise(body_size: int) -> npt.NDArray[np.uint8]:
    """The bytes that bodies are windows of: fixed for all runs."""
    return np.random.default_rng(20261121).integers(0, 256, body_size + 4096, np.uint8)


def body_of(i: int, body_size: int, noise: npt.NDArray[np.uint8]) -> bytes:
    """The body of message i."""
    shift = i * 7 % 4096
    window = noise[shift : shift + body_size - 8] ^ _masks(np.array([i]), body_size - 8)[0]
    return i.to_bytes(8, "big") + bytes(window)


def _masks(i: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
    """Bytes that make the noise of each message another one: a hash of i, again and again."""
    x = i.astype(np.uint64) + np.uint64(1)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    eight = x.astype(">u8").view(np.uint8).reshape(len(i), 8)
    return np.tile(eight, -(-size // 8))[:, :size]


def key_of(i: int) -> str:
    """The key of message i."""
    return f"key{i * _STRIDE % 10**12:012d}"


def properties_of(i: int, tags: int) -> bytes:
    """The properties of message i, always of one length."""
    pairs = (
        ("UNIQ_KEY", f"{i:032X}"),
        ("WAIT", "true"),
        ("TAGS", f"tag{i % tags:03d}"),
        ("KEYS", key_of(i)),
        ("CLUSTER", "DefaultCluster"),
    )
    return "".join(f"{k}\x01{v}\x02" for k, v in pairs).encode()


def write_store(
    root: Path,
    messages: int,
    *,
    body_size: int = BODY_SIZE,
    topic: str = "bench",
    queues: int = 8,
    tags: int = 100,
    step_ms: int = 1,
    log_file_size: int = 1 << 30,
    queue_file_entries: int = 300_000,
) -> int:
    """Writes commit log and ConsumeQueue files. Returns the bytes of all records."""
    record = _template(body_size, topic, tags)
    size = len(record)
    per_file = (log_file_size - 8) // size
    log = root / "commitlog"
    log.mkdir(parents=True)
    noise = body_noise(body_size)
    entries = np.zeros(messages, _ENTRY)
    entries["size"] = size
    codes = np.array([string_hash(f"tag{t:03d}") for t in range(tags)], np.int64)
    numbers = np.arange(messages)
    entries["code"] = codes[numbers % tags]
    entries["position"] = numbers // per_file * log_file_size + numbers % per_file * size
    for first in range(0, messages, per_file):
        base = first // per_file * log_file_size
        with (log / f"{base:020d}").open("wb") as file:
            last = min(first + per_file, messages)
            for begin in range(first, last, _CHUNK):
                i = np.arange(begin, min(begin + _CHUNK, last))
                rows = np.tile(np.frombuffer(record, np.uint8), (len(i), 1))
                _fill(rows, i, base, per_file, size, body_size, queues, tags, step_ms, noise)
                file.write(rows.data)
            room = log_file_size - (last - first) * size
            if last < messages or room >= 8:
                file.write(struct.pack(">ii", room, MAGIC_BLANK) if last < messages else b"")
            file.truncate(log_file_size)
    for queue_id in range(queues):
        mine = entries[queue_id::queues].copy()
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for start in range(0, max(1, len(mine)), queue_file_entries):
            with (folder / f"{start * 20:020d}").open("wb") as file:
                file.write(mine[start : start + queue_file_entries].view(np.uint8).data)
                file.truncate(queue_file_entries * 20)
    return messages * size


def _template(body_size: int, topic: str, tags: int) -> bytes:
    return write_record(
        Record(
            size=0,
            magic=MAGIC_V1,
            body_crc=0,
            queue_id=0,
            flag=0,
            queue_offset=0,
            position=0,
            sys_flag=0,
            born_ms=0,
            born_host=bytes((10, 0, 0, 1)) + (40000).to_bytes(4, "big"),
            store_ms=0,
            store_host=bytes((10, 0, 0, 9)) + (10911).to_bytes(4, "big"),
            reconsume_times=0,
            prepared_offset=0,
            body=memoryview(bytes(body_size)),
            topic=topic,
            properties=properties_of(0, tags),
        )
    )


def _fill(
    rows: npt.NDArray[np.uint8],
    i: npt.NDArray[np.int64],
    base: int,
    per_file: int,
    size: int,
    body_size: int,
    queues: int,
    tags: int,
    step_ms: int,
    noise: npt.NDArray[np.uint8],
) -> None:
    def put(at: int, values: npt.NDArray[np.int64], kind: str) -> None:
        width = np.dtype(kind).itemsize
        rows[:, at : at + width] = values.astype(kind).view(np.uint8).reshape(len(i), width)

    def digits(at: int, values: npt.NDArray[np.int64], count: int, radix: int) -> None:
        table = np.frombuffer(b"0123456789ABCDEF", np.uint8)
        for place in range(count):
            rows[:, at + count - 1 - place] = table[values // radix**place % radix]

    put(12, i % queues, ">i4")
    put(20, i // queues, ">i8")
    put(28, base + i % per_file * size, ">i8")
    put(40, START_MS + i * step_ms, ">i8")
    put(56, START_MS + i * step_ms, ">i8")
    put(88, i, ">i8")
    windows = np.lib.stride_tricks.sliding_window_view(noise, body_size - 8)
    rows[:, 96 : 88 + body_size] = windows[i * 7 % 4096] ^ _masks(i, body_size - 8)
    text = rows[0].tobytes()
    at = text.index(b"UNIQ_KEY\x01")
    digits(at + 9 + 32 - 15, i, 15, 16)
    digits(text.index(b"TAGS\x01", at) + 8, i % tags, 3, 10)
    digits(text.index(b"KEYS\x01", at) + 8, i * _STRIDE % 10**12, 12, 10)
    crcs = np.fromiter((zlib.crc32(r[88 : 88 + body_size]) for r in rows), np.int64, len(i))
    put(8, crcs & 0x7FFFFFFF, ">i4")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--messages", type=int, default=860_000)
    parser.add_argument("--body-size", type=int, default=BODY_SIZE)
    parser.add_argument("--queues", type=int, default=8)
    options = parser.parse_args()
    began = time.perf_counter()
    size = write_store(
        options.root, options.messages, body_size=options.body_size, queues=options.queues
    )
    print(
        f"{options.messages} messages, {size / 2**20:.0f} MiB, {time.perf_counter() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
