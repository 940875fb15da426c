"""Quiet: the findings of the overview that a user has dismissed or snoozed, for every viewer of this console.

    quiet.json, in the console's folder: [{"kind", "subject", "topic", "severity", "until": wall ms or null}]

1. A snoozed finding stays away until its time, a dismissed one until it ends: it returns if it begins anew.
2. A finding that has become graver since is shown again.
3. Without a folder, or where it cannot be written, they end with this process.
Owner: the console, on its event loop; the file is written in a thread.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pocketmq.remoting.clock import Clock

log = logging.getLogger(__name__)

NAME = "quiet.json"
QUIET_MAX = 1_000
GRAVITY = ("error", "warning", "info")
Finding = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Silence:
    """One finding. until: wall ms; None: until it ends."""

    kind: str
    subject: str
    topic: str
    severity: str
    until: int | None

    @property
    def finding(self) -> Finding:
        return self.kind, self.subject, self.topic


def finding_of(warning: Mapping[str, Any]) -> Finding:
    """Return what a finding is known by."""
    return warning["kind"], warning["subject"], warning["topic"] or ""


class Quiet:
    """Owner of the file."""

    def __init__(self, folder: str, clock: Clock) -> None:
        self._path = Path(folder) / NAME if folder else None
        self._clock = clock
        self._silences = {each.finding: each for each in _read(self._path)}

    def of(self, warning: Mapping[str, Any]) -> dict[str, int | None] | None:
        """Return until when a finding is quiet; None if it is to be shown."""
        found = self._silences.get(finding_of(warning))
        if found is None or (found.until is not None and found.until <= self._clock.now_ms()):
            return None
        if GRAVITY.index(warning["severity"]) < GRAVITY.index(found.severity):
            return None
        return {"until": found.until}

    def silence(self, warning: Mapping[str, Any], until: int | None) -> None:
        """Dismiss a finding, or snooze it; of too many the oldest is shown again."""
        kind, subject, topic = finding = finding_of(warning)
        self._silences.pop(finding, None)
        self._silences[finding] = Silence(kind, subject, topic, warning["severity"], until)
        if len(self._silences) > QUIET_MAX:
            del self._silences[next(iter(self._silences))]

    def show(self, finding: Finding) -> None:
        """Show a finding again."""
        self._silences.pop(finding, None)

    def settle(self, ended: Iterable[Finding]) -> bool:
        """Forget findings that have ended, and snoozes that are over. Returns: whether there were any."""
        now_ms = self._clock.now_ms()
        over = {*ended} & self._silences.keys()
        over |= {f for f, each in self._silences.items() if (each.until or now_ms) < now_ms}
        for finding in over:
            del self._silences[finding]
        return bool(over)

    @property
    def dismissed(self) -> set[Finding]:
        """Return the findings that wait for their end."""
        return {finding for finding, each in self._silences.items() if each.until is None}

    def save(self) -> None:
        """Write the file; call it in a thread. A failure is logged: they are kept in memory."""
        if self._path is None:
            return
        text = json.dumps([asdict(each) for each in list(self._silences.values())], indent=1)
        beside = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, self._path)
        except OSError as error:
            log.warning("cannot keep what was dismissed; it ends with this process: %s", error)


def _read(path: Path | None) -> list[Silence]:
    """Return what the file holds; nothing if it is absent or damaged."""
    if path is None:
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        found = [Silence(**row) for row in rows]
        return [each for each in found if each.severity in GRAVITY][:QUIET_MAX]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        log.warning("cannot read what was dismissed: %s", error)
        return []
