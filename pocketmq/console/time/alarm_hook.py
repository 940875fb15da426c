"""AlarmWatch: evaluates the rules after each sample, and notifies a web hook of alarms that begin and end.

1. The rules' file is read again when it changes; a faulty one leaves the rules unchanged, and the reason is
   in the log and on the page.
2. A notice is sent as JSON by POST and counts as delivered on a 2xx answer. Otherwise it is retried, after 1
   s and then twice as long each time, TRIES in all; a 4xx answer except 408 and 429 is not retried.
3. Each rule has its own queue, of WAITING_MAX notices, in order: a hanging hook delays no other, and what
   does not fit is dropped and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketmq.console.outbound import OutboundThread
from pocketmq.console.time.alarms import AlarmFacts, Alarms, Rule, parse_rules
from pocketmq.console.time.sampler import Sampler
from pocketmq.remoting import json_codec
from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import IllegalArgument

log = logging.getLogger(__name__)

TRIES = 6
WAITING_MAX = 100
_REMEMBERED = 50
# To connect, to write, to read some; and for a whole call.
_TIMEOUT_S = 3.0
_WITHIN_S = 10.0
_BREATH_S = 0.1
_TRY_AGAIN = frozenset({408, 429})


@dataclass(slots=True)
class NoticeDelivery:
    """One notice being delivered. state: trying, delivered, given up or dropped."""

    rule: Rule
    notice: Mapping[str, Any]
    state: str = "trying"
    tries: int = 0
    error: str | None = None


def read_rules(path: str) -> list[Rule]:
    """Read the rules of a file; none without one. Raises: IllegalArgument that names the file."""
    if not path:
        return []
    try:
        return parse_rules(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, IllegalArgument) as error:
        raise IllegalArgument(f"cannot read the alarm rules of {path}: {error}") from error


class AlarmWatch:
    """Owner of the alarms and of pending notices. fault: why the file's last change was rejected."""

    def __init__(self, path: str, sampler: Sampler, clock: Clock, *, pause_ms: int = 1_000) -> None:
        """pause_ms: before the second try. Raises: IllegalArgument."""
        self.path = path
        self._sampler = sampler
        self._clock = clock
        self._pause_ms = pause_ms
        self._stamp = self._stamped()
        self.alarms = Alarms(read_rules(path))
        self.fault: str | None = None
        self.deliveries: deque[NoticeDelivery] = deque(maxlen=_REMEMBERED)
        self._lines: dict[str, asyncio.Queue[NoticeDelivery]] = {}
        self._threads: dict[str, OutboundThread[tuple[int, str | None]]] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        if not self.path:
            return
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._sampler.sampled()
                self._take_up()
                for rule, notice in self._look():
                    self._put(tasks, NoticeDelivery(rule, notice))
                # While the console closes, `sampled` no longer waits: without this pause the loop would spin.
                await asyncio.sleep(_BREATH_S)

    # ------------------------------------------------------------ looking

    def _stamped(self) -> tuple[int, int] | None:
        try:
            stat = Path(self.path).stat() if self.path else None
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_size)

    def _take_up(self) -> None:
        """Apply invariant 1."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.alarms.replace(read_rules(self.path))
        except IllegalArgument as error:
            self.fault = str(error)
            log.error(
                "cannot read changed alarm rules, the old ones stay in force reason=%s", error
            )
        else:
            self.fault = None
            log.info("changed alarm rules are in force count=%d", len(self.alarms.rules))

    def _look(self) -> list[tuple[Rule, dict[str, Any]]]:
        sampler = self._sampler
        if sampler.last.failure is not None or not any(
            each["reachable"] for each in sampler.last.brokers
        ):
            return []
        found: dict[str, AlarmFacts] = {}
        for name, figures in sampler.groups.items():
            symptoms = sampler.symptoms.get(name)
            kinds = None if symptoms is None else [str(each.kind) for each in symptoms]
            found[name] = AlarmFacts(figures.lag, figures.latency_ms, figures.members, kinds)
        return self.alarms.look(self._clock.now_ms(), found)

    # ------------------------------------------------------------ telling

    def _put(self, tasks: asyncio.TaskGroup, delivery: NoticeDelivery) -> None:
        """Add a notice to its rule's queue (invariant 3)."""
        self.deliveries.append(delivery)
        name = delivery.rule.name
        notice = delivery.notice
        log.warning("alarm %s name=%r group=%s", notice["status"], name, notice["group"])
        if name not in self._lines:
            self._lines[name] = asyncio.Queue(WAITING_MAX)
            tasks.create_task(self._tell_all(self._lines[name]), name=f"alarm {name}")
        try:
            self._lines[name].put_nowait(delivery)
        except asyncio.QueueFull:
            delivery.state = "dropped"
            log.error(
                "dropped an alarm name=%r group=%s: too many wait for the hook",
                name,
                notice["group"],
            )

    async def _tell_all(self, line: "asyncio.Queue[NoticeDelivery]") -> None:
        while True:
            await self._tell(await line.get())

    async def _tell(self, delivery: NoticeDelivery) -> None:
        """Apply invariant 2."""
        data = json_codec.dumps(dict(delivery.notice))
        pause_ms = self._pause_ms
        while delivery.state == "trying":
            delivery.tries += 1
            status, delivery.error = await self._posted(delivery.rule, data)
            if delivery.error is None:
                delivery.state = "delivered"
            elif (400 <= status < 500 and status not in _TRY_AGAIN) or delivery.tries == TRIES:
                delivery.state = "given up"
                name, group = delivery.rule.name, delivery.notice["group"]
                log.error(
                    "cannot deliver an alarm name=%r group=%s: %s", name, group, delivery.error
                )
            else:
                await asyncio.sleep(pause_ms / 1_000)
                pause_ms *= 2

    async def _posted(self, rule: Rule, data: bytes) -> tuple[int, str | None]:
        """As _post, of which one a rule is under way: a hook may answer byte by byte."""
        thread = self._threads.setdefault(rule.name, OutboundThread(f"alarm {rule.name}"))
        try:
            return await thread.call(lambda: _post(rule, data), _WITHIN_S)
        except (TimeoutError, RuntimeError) as error:
            return 0, f"cannot reach the hook: {error}"


def _post(rule: Rule, data: bytes) -> tuple[int, str | None]:
    """Return the status, 0 without an answer, and why it does not count as delivered. In a thread."""
    # Most consoles send no notices: the client for HTTP and TLS is loaded when it is needed.
    from http.client import HTTPException
    from urllib import request as client
    from urllib.error import HTTPError

    class NoRedirect(client.HTTPRedirectHandler):
        """Refuses redirects: a redirected POST would become a GET without its body."""

        def redirect_request(self, *args: Any) -> None:
            return None

    headers = {"Content-Type": "application/json", "User-Agent": "PocketMQ", **rule.headers}
    try:
        request = client.Request(rule.url, data, headers, method="POST")
        with client.build_opener(NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
            return answer.status, None
    except HTTPError as error:
        error.close()
        return error.code, f"the hook answered {error.code} {error.reason}"
    except (OSError, HTTPException, ValueError) as error:
        return 0, f"cannot reach the hook: {getattr(error, 'reason', error)}"
