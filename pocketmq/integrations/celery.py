"""Celery's result backend: `import pocketmq.integrations.celery` makes `pocketmq://` known, for both.

    app = Celery("tasks", broker="pocketmq://127.0.0.1:9876", backend="pocketmq://127.0.0.1:9876")

1. Results are values of kombu/results.py: get() waits for the broker to bring them, any process may ask.
2. A chord counts its finished parts in a topic of its own, of one queue, where each part is noted. A part's
   place is that of its first note: one that runs again, or is noted again, does not end the chord early. How
   many parts there are is noted there, too, before the last of them is sent. A process reads each note once.
"""

import asyncio
import logging
import sys
import threading
import weakref
from collections import OrderedDict, deque
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
    from kombu.utils.encoding import bytes_to_str, ensure_bytes
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.celery", missing, "celery") from None

import pocketmq.integrations.kombu  # noqa: F401 - makes `pocketmq://` known
from pocketmq.client import Message, MessageQueue, NoRoute
from pocketmq.client.errors import OutcomeUnknown, TransientError
from pocketmq.integrations.kombu import link as links
from pocketmq.integrations.kombu.link import Link
from pocketmq.integrations.kombu.results import Results
from pocketmq.integrations.kombu.transport import where
from pocketmq.integrations.queue_names import topic_of

log = logging.getLogger(__name__)

_RETRIED = (TransientError, OutcomeUnknown)
_VISIBLE_S = 5.0
_LOOK_S = 0.02
_WAIT_MS = 1_000
_CHORDS_MAX = 100
_SCHEDULER = "pocketmq.integrations.celery_beat:Scheduler"
_SIZE, _PART = "size", "part"


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
    """The request whose part of a chord this thread is about to count."""

    request: Any = None


class _Chord:
    """What a process has read of a chord's notes. places: of the parts; size: 0 until it is noted."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.size = 0
        self.offset = 0


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
        self._opened: tuple[Link, Results] | None = None
        self._counting = _Counting()
        self._chords: OrderedDict[str, _Chord] = OrderedDict()
        self.result_consumer = self.ResultConsumer(
            self, self.app, self.accept, self._pending_results, self._pending_messages
        )

    # ------------------------------------------------------------ the link

    def _running(self) -> tuple[Link, Results]:
        """Return this process's link; a forked child opens its own."""
        if self._opened is None or self._opened[0].is_inherited:
            options = self.app.conf.get("result_backend_transport_options") or {}
            connection = kombu.Connection(self.url, transport_options=options)
            target = where(connection)
            link = links.acquire(target)
            weakref.finalize(self, links.release, link)
            self._opened = link, Results(link, target.prefix, self.result_consumer.take)
        return self._opened

    def post(self, act: Any) -> None:
        """Have something done with the results, later."""
        link, results = self._running()
        link.post(partial(act, results))

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        return isinstance(exc, _RETRIED)

    # ------------------------------------------------------------ values

    def _age_ms_max(self) -> int | None:
        return int(self.expires * 1000) if self.expires else None

    def get(self, key: str) -> bytes | None:
        link, results = self._running()
        return link.call(results.get(key, self._age_ms_max()))

    def mget(self, keys: Iterable[str]) -> list[bytes | None]:
        link, results = self._running()
        return link.call(results.get_all(keys, self._age_ms_max()))

    def set(self, key: str, value: Any) -> None:
        link, results = self._running()
        link.call(results.set(key, ensure_bytes(value)))

    def delete(self, key: str) -> None:
        link, results = self._running()
        if key.startswith(self.chord_keyprefix):
            topic = topic_of(key)
            self._chords.pop(topic, None)
            link.call(link.admin.topics.delete(topic, cluster=link.where.cluster))
        else:
            link.call(results.set(key, b""))

    def on_task_call(self, producer: Any, task_id: str) -> Any:
        self.result_consumer.consume_from(task_id)
        return {}

    # ------------------------------------------------------------ chords

    def _apply_chord_incr(self, header_result_args: Any, body: Any, **options: Any) -> None:
        super()._apply_chord_incr(header_result_args, body, **options)
        group = self.app.GroupResult(*header_result_args).id
        link, _ = self._running()
        link.call(_create_counter(link, topic_of(self.get_key_for_chord(group))))

    def set_chord_size(self, group_id: str, chord_size: int) -> None:
        """Note how many parts return; Celery sends the last of them after that."""
        link, _ = self._running()
        try:
            link.call(
                _note(link, topic_of(self.get_key_for_chord(group_id)), str(chord_size), _SIZE)
            )
        except NoRoute:
            # A group in a part of a chord: its tasks are counted with those of the chord.
            return

    def incr(self, key: str) -> int:
        """Note the part that has returned; return its place. Raises: NoRoute if the chord is over."""
        link, _ = self._running()
        request, topic = self._counting.request, topic_of(key)
        chord = self._chords.setdefault(topic, _Chord())
        while len(self._chords) > _CHORDS_MAX:
            self._chords.popitem(last=False)
        link.call(_count(link, topic, request.id, chord))
        # Celery looks there next; while it is not noted, a part has yet to be sent.
        request.chord["chord_size"] = chord.size or sys.maxsize
        return chord.places[request.id]

    def on_chord_part_return(self, request: Any, state: str, result: Any, **options: Any) -> None:
        if request.group:
            link, results = self._running()
            link.call(_until_visible(results, self.get_key_for_group(request.group)))
            # Celery does not give it to incr().
            self._counting.request = request
        super().on_chord_part_return(request, state, result, **options)


async def _create_counter(link: Link, topic: str) -> None:
    [master, *_] = await link.admin.site.masters(link.where.cluster)
    await link.admin.topics.create(topic, queues=1, broker=master.name)


async def _note(link: Link, topic: str, text: str, kind: str) -> MessageQueue:
    route = await link.admin.topics.route(topic)
    queue = MessageQueue(topic, route.brokers[0].broker_name, 0)
    await link.send(Message(topic, text.encode(), tags=kind), queue=queue)
    return queue


async def _count(link: Link, topic: str, part: str, chord: _Chord) -> None:
    """Note a part, and read what has been noted up to its first note."""
    queue = await _note(link, topic, part, _PART)
    while part not in chord.places:
        result = await link.pull(queue, chord.offset, "*", _WAIT_MS)
        for message in result.messages:
            text = message.body.decode()
            if message.tags == _SIZE:
                chord.size = chord.size or int(text)
            else:
                chord.places.setdefault(text, len(chord.places) + 1)
        chord.offset = max(chord.offset, result.next_begin_offset)


async def _until_visible(results: Results, key: str) -> None:
    """Wait until a value that was stored a moment ago is in the index; not for ever."""
    try:
        async with asyncio.timeout(_VISIBLE_S):
            while await results.get(key, None) is None:
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        log.warning("a chord's group is not stored key=%s", key)


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
