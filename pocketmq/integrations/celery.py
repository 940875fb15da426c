"""Celery's result backend: `import pocketmq.integrations.celery` makes `pocketmq://` known, for both.

    app = Celery("tasks", broker="pocketmq://127.0.0.1:9876", backend="pocketmq://127.0.0.1:9876")

1. Results are values of kombu/results.py: get() waits for the broker to bring them, any process may ask.
2. What ends a chord is in celery_chords.py.
"""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from pocketmq.remoting.lazy_names import without_extra

try:
    import kombu
    from celery import signals
    from celery.app.backends import BACKEND_ALIASES
    from celery.backends.asynchronous import AsyncBackendMixin, BaseResultConsumer
    from celery.backends.base import BaseKeyValueStoreBackend
    from celery.result import result_from_tuple
    from celery.utils.functional import _regen
    from kombu.utils.encoding import bytes_to_str, ensure_bytes
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.celery", missing, "celery") from None

import pocketmq.integrations.kombu  # noqa: F401 - makes `pocketmq://` known
from pocketmq.client.errors import OutcomeUnknown, TransientError
from pocketmq.integrations.celery_chords import Chord, Chords
from pocketmq.integrations.kombu import link as links
from pocketmq.integrations.kombu.link import Link
from pocketmq.integrations.kombu.results import Results
from pocketmq.integrations.kombu.transport import where

log = logging.getLogger(__name__)

_RETRIED = (TransientError, OutcomeUnknown)
_SCHEDULER = "pocketmq.integrations.celery_beat:Scheduler"


class ResultConsumer(BaseResultConsumer):
    """What this process waits for. Values arrive in the link's thread, and are handed on by drain_events."""

    _connection_errors = _RETRIED

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begin()

    def _begin(self) -> None:
        self._arrived: deque[bytes] = deque()
        self._news = threading.Condition()
        self._keys: set[str] = set()

    def on_after_fork(self) -> None:
        self._begin()

    def take(self, key: str, value: bytes) -> None:
        """Note a value that arrived; in the link's thread."""
        if key in self._keys:
            with self._news:
                self._arrived.append(value)
                self._news.notify_all()

    def start(self, initial_task_id: str, **options: Any) -> None:
        self.consume_from(initial_task_id)

    def consume_from(self, task_id: str) -> None:
        key = self.backend.get_key_for_task(task_id)
        if key not in self._keys:
            self._keys.add(key)
            self.backend.post(lambda results: results.follow(key))

    def cancel_for(self, task_id: str) -> None:
        # Called by the garbage collector, too: it may not wait.
        key = self.backend.get_key_for_task(task_id)
        if key in self._keys:
            self._keys.discard(key)
            self.backend.post(lambda results: results.leave(key))

    def drain_events(self, timeout: float | None = None) -> None:
        with self._news:
            if not self._arrived:
                self._news.wait(timeout)
            arrived, self._arrived = self._arrived, deque()
        for value in arrived:
            self.on_state_change(self.backend.decode_result(value), None)
        if arrived:
            # One of them may be what another thread waits for.
            with self._news:
                self._news.notify_all()
        elif timeout is not None:
            raise TimeoutError

    def on_state_change(self, meta: dict[str, Any], message: Any) -> None:
        super().on_state_change(meta, message)
        if meta["status"] in self.backend.READY_STATES:
            self.cancel_for(meta["task_id"])

    def on_wait_for_pending(self, result: Any, **options: Any) -> None:
        # The time-out, too: a wait of 0 looks once.
        for meta in result._iter_meta(**options):
            if meta is not None:
                self.on_state_change(meta, None)


class _Counting(threading.local):
    """The chord that this thread ends."""

    chord: Chord | None = None


class ResultBackend(BaseKeyValueStoreBackend, AsyncBackendMixin):
    """Results in a topic. Options: `result_backend_transport_options`, as those of the transport."""

    ResultConsumer = ResultConsumer
    key_t = staticmethod(bytes_to_str)
    implements_incr = True
    supports_native_join = True
    supports_autoexpire = True
    persistent = True

    def __init__(self, app: Any, url: str | None = None, **options: Any) -> None:
        super().__init__(app=app, url=url, **options)
        self._opened: tuple[Link, Results, Chords] | None = None
        self._counting = _Counting()
        self.result_consumer = self.ResultConsumer(
            self, self.app, self.accept, self._pending_results, self._pending_messages
        )

    # ------------------------------------------------------------ the link

    def _running(self) -> tuple[Link, Results, Chords]:
        """Return this process's link; a forked child opens its own."""
        if self._opened is None or self._opened[0].is_inherited:
            options = self.app.conf.get("result_backend_transport_options") or {}
            connection = kombu.Connection(self.url, transport_options=options)
            target = where(connection)
            link = links.acquire(target)
            weakref.finalize(self, links.release, link)
            results = Results(link, target.prefix, self.result_consumer.take)
            self._opened = link, results, Chords(link, results)
        return self._opened

    def post(self, act: Any) -> None:
        """Have something done with the results, later."""
        link, results, _ = self._running()
        link.post(partial(act, results))

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, _RETRIED)

    # ------------------------------------------------------------ values

    def _age_ms_max(self) -> int | None:
        return int(self.expires * 1000) if self.expires else None

    def get(self, key: str) -> bytes | None:
        link, results, _ = self._running()
        return link.call(results.get(key, self._age_ms_max()))

    def mget(self, keys: Iterable[str]) -> list[bytes | None]:
        link, results, _ = self._running()
        return link.call(results.get_all(keys, self._age_ms_max()))

    def set(self, key: str, value: Any) -> None:
        link, results, _ = self._running()
        link.call(results.set(key, ensure_bytes(value)))

    def delete(self, key: str) -> None:
        # Of a chord, Celery deletes its group.
        if not key.startswith(self.chord_keyprefix):
            self.set(key, b"")

    def on_task_call(self, producer: Any, task_id: str) -> Any:
        self.result_consumer.consume_from(task_id)
        return {}

    # ------------------------------------------------------------ chords

    def _apply_chord_incr(self, header_result_args: Any, body: Any, **options: Any) -> None:
        group, results = header_result_args
        if isinstance(results, _regen):
            # A generator: its parts are sent while it is read. Which they were is noted.
            results = []
        super()._apply_chord_incr((group, results), body, **options)

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Note how many parts return; Celery sends the last of them after that."""
        link, _, chords = self._running()
        link.call(chords.note_size(self.get_key_for_group(group_id), chord_size))

    def add_to_chord(self, chord_id: str, result: Any) -> None:
        """Note one part more, before it is sent."""
        link, _, chords = self._running()
        link.call(chords.note_more(self.get_key_for_group(chord_id), result.as_tuple()))

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        if not request.group:
            return
        link, _, chords = self._running()
        key = self.get_key_for_group(request.group)
        chord = link.call(chords.count(key, request.id, request.group_index))
        if chord is not None and (chord.is_over or chord.places[request.id] != chord.size):
            # This part has run again, or others are still to return.
            return
        if chord is not None:
            request.chord["chord_size"] = chord.size
        self._counting.chord = chord
        try:
            super().on_chord_part_return(request, state, result, **options)
            link.call(chords.note_end(key))
        finally:
            self._counting.chord = None

    def incr(self, key: str) -> int | None:
        """Return the place of the last part, which on_chord_part_return has counted."""
        chord = self._counting.chord
        return None if chord is None else chord.size

    def _restore_group(self, group_id: str) -> Any:
        meta, chord = super()._restore_group(group_id), self._counting.chord
        if meta and chord is not None:
            found = meta["result"].results or [
                self.app.AsyncResult(part)
                for part in sorted(chord.indexes, key=chord.indexes.__getitem__)
            ]
            added = [result_from_tuple(each, self.app) for each in chord.added]
            known = {each.id for each in found}
            # Made anew: a group waits for what it was made of.
            meta["result"] = self.app.GroupResult(
                group_id, [*found, *(each for each in added if each.id not in known)]
            )
        return meta

    def is_cached(self, task_id: str) -> bool:
        """Whether a look finds the result; Celery asks it to name the part of a chord that failed."""
        return True


def _worker_ready(sender: Any, **options: Any) -> None:
    if sender.app.conf.beat_scheduler == _SCHEDULER:
        # Few programs have one.
        from pocketmq.integrations.celery_beat import keep_schedules

        keep_schedules(sender.app)


def _worker_init(sender: Any, **options: Any) -> None:
    # Only workers have a panel.
    from pocketmq.integrations.celery_revoke import install

    install()


signals.worker_init.connect(_worker_init)
signals.worker_ready.connect(_worker_ready)
BACKEND_ALIASES["pocketmq"] = "pocketmq.integrations.celery:ResultBackend"
