"""Hosts and offset ids as text, for many records at once.

Host: 4 or 16 address bytes and the port as an int; IPv6 in the form that Java prints, eight groups
without shortening (0:0:0:0:0:0:0:1), so that rows equal those of Java's tools. Offset id: upper-case hex of
store host and position, 32 digits, 56 for IPv6 (disk.md section 3).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocketmq.bulk.columns.arrays import Bools, Int64s

_HEX = np.frombuffer("".join(f"{b:02X}" for b in range(256)).encode(), "V2")
Hosts = npt.NDArray[Any]


def host_texts(short: Hosts, is_v6: Bools | None, long: Hosts | None) -> pa.StringArray:
    """Return `ip:port` of each row: from the V8 values, or from the V20 ones where is_v6."""
    if is_v6 is None or long is None:
        return _texts_of(short)
    return _merge(_texts_of(short[~is_v6]), _texts_of(long), is_v6)


def _texts_of(hosts: Hosts) -> pa.StringArray:
    """Format each distinct host once, since many rows have few hosts."""
    if not len(hosts):
        return pa.array([], pa.string())
    if (hosts == hosts[0]).all():
        return pa.repeat(pa.scalar(_host_text(hosts[0].tobytes()), pa.string()), len(hosts))
    # Void values do not sort; fixed strings would lose trailing zeros, hence the raw bytes as numbers.
    if hosts.itemsize == 8:
        keys = np.ascontiguousarray(hosts).view(np.uint64)
        different, inverse = np.unique(keys, return_inverse=True)
        values = [_host_text(v.tobytes()) for v in different]
    else:
        rows = np.ascontiguousarray(hosts).view(np.uint8).reshape(len(hosts), hosts.itemsize)
        table, inverse = np.unique(rows, axis=0, return_inverse=True)
        values = [_host_text(v.tobytes()) for v in table]
    return pa.array(values, pa.string()).take(pa.array(inverse.reshape(-1)))


def _host_text(host: bytes) -> str:
    port = int.from_bytes(host[-4:], "big", signed=True)
    address = host[:-4]
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}:{port}"
    groups = (address[i] << 8 | address[i + 1] for i in range(0, 16, 2))
    return f"{':'.join(f'{g:x}' for g in groups)}:{port}"


def offset_ids(
    positions: Int64s, short: Hosts, is_v6: Bools | None, long: Hosts | None
) -> pa.StringArray:
    """Return the offset id of each row."""
    places = positions.astype(">i8").view("V8")
    if is_v6 is None or long is None:
        return _hex(short, places)
    return _merge(_hex(short[~is_v6], places[~is_v6]), _hex(long, places[is_v6]), is_v6)


def _hex(hosts: Hosts, places: Hosts) -> pa.StringArray:
    count = len(hosts)
    width = hosts.itemsize + 8
    raw = np.empty((count, width), np.uint8)
    raw[:, :-8] = np.ascontiguousarray(hosts).view(np.uint8).reshape(count, width - 8)
    raw[:, -8:] = np.ascontiguousarray(places).view(np.uint8).reshape(count, 8)
    text = _HEX[raw.reshape(-1)]
    offsets = np.arange(0, (count + 1) * 2 * width, 2 * width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _merge(v4: pa.StringArray, v6: pa.StringArray, is_v6: Bools) -> pa.StringArray:
    order = np.empty(len(is_v6), np.int64)
    order[~is_v6] = np.arange(len(v4))
    order[is_v6] = len(v4) + np.arange(len(v6))
    return pa.concat_arrays([v4, v6]).take(pa.array(order))
