"""ChangedSettings: what administrators changed while the broker ran, config/changedSettings.json.

1. A change is applied at once, and is on disk before it is answered: it holds after a restart, too. If it
   cannot be saved it still holds until the broker stops, and the answer says so.
2. The later one holds: once the configuration (option, environment, file) gives the setting another value
   than at the time of the change, the change is forgotten, and the log says so.
3. Set back to what the configuration says, a setting is no longer changed. A setting of _OF_ONE_RUN is never
   stored: a migration has the old broker refuse sends by it, until that one stops.
RocketMQ writes all settings to store/config/broker.properties and never reads them again: that file is
neither read nor written here, or a store of RocketMQ's would bring Java's defaults.
Owner: assembly.py, which applies the changes before it creates any other part.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pocketmq.broker.tables.stored_table import StoredTable
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.settings import Key, Settings
from pocketmq.store import ConfigFile

log = logging.getLogger(__name__)

FILE = "changedSettings.json"
_OF_ONE_RUN = ("startAcceptSendRequestTimeStamp",)


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting's value; `was`: the configuration's at the time, ms; by: the address that asked for it."""

    name: str
    value: str
    was: str
    time: int = 0
    by: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse a row. Raises: KeyError, TypeError, ValueError if it is malformed."""
        texts = (data["name"], data["value"], data["was"])
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("name, value and was are texts")
        return cls(*texts, int(data.get("time", 0)), str(data.get("by", "")))


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What reading the configuration again did: settings changed, those that wait for a restart, an error."""

    changed: list[str] = field(default_factory=list)
    needs_restart: list[str] = field(default_factory=list)
    failure: str = ""


def _no_files() -> Reloaded:
    return Reloaded(failure="this broker was started by a program, and has no configuration file")


class ChangedSettings(StoredTable[ChangedSetting]):
    """The settings that differ from the configuration."""

    table, key, row_class, key_name = "settings", "name", ChangedSetting, "name"

    def __init__(
        self,
        file: ConfigFile,
        groups: Sequence[Settings],
        now_ms: int = 0,
        when_changed: Callable[[set[str]], object] = lambda names: None,
    ) -> None:
        """groups: the settings as configured; changes are made in them. when_changed: told their names."""
        super().__init__(file, now_ms)
        self._when_changed = when_changed
        self._read_again: Callable[[], Reloaded] = _no_files
        self._groups = groups
        # What the configuration says of settings that are, or were, changed.
        self._configured: dict[str, str] = {}

    def holding(self) -> dict[str, ChangedSetting]:
        """Return the stored changes that still hold (invariant 2), with no effect on anything."""
        return {name: row for name, row in self.rows.items() if not self._fault(row)}

    def apply(self) -> None:
        """Make the stored changes that still hold, and forget the others."""
        for name, row in list(self.rows.items()):
            fault = self._fault(row)
            place = self._place(name)
            if fault or place is None:
                self._forget(row, fault)
                continue
            self._configured[name] = _value(*place)
            place[0].update(name, row.value)
            log.info(
                "setting as changed while the broker ran name=%s value=%r by=%s file=%s",
                name,
                row.value,
                row.by,
                self._file.path,
            )

    def _fault(self, row: ChangedSetting) -> str:
        """Return why a stored change does not hold; empty if it does."""
        place = self._place(row.name)
        if place is None or not place[1].runtime:
            return "this setting cannot be changed"
        configured = self._configured.get(row.name, _value(*place))
        if configured != row.was:
            return f"the configuration has changed since, to {configured!r}"
        try:
            place[1].parse(row.value)
        except IllegalArgument as error:
            return str(error)
        return ""

    def change(self, values: Mapping[str, str], by: str, now_ms: int) -> set[str]:
        """Change settings, all of which may change and whose values are allowed; return their names.

        `stored()` tells when they are on disk (invariant 1).
        """
        changed: set[str] = set()
        for name, value in values.items():
            place = self._place(name)
            if place is None:
                continue
            group, known = place
            was = self._configured.setdefault(name, _value(group, known))
            group.update(name, value)
            changed.add(name)
            log.warning("setting changed name=%s value=%r by=%s", name, value, by)
            now = _value(group, known)
            self.data_version = self.data_version.next(now_ms)
            row = None if now == was else ChangedSetting(name, now, was, now_ms, by)
            if name not in _OF_ONE_RUN and self.rows.get(name) != row:
                self.put(name, row, keep=True)
        if changed:
            self._when_changed(changed)
        return changed

    def configured_by(self, read_again: Callable[[], Reloaded]) -> None:
        """Set what reads the configuration again, and calls `configured_anew`."""
        self._read_again = read_again

    def read_again(self) -> Reloaded:
        """Read the configuration again, for an administrator who asks."""
        return self._read_again()

    def configured_anew(self, values: Mapping[str, str]) -> set[str]:
        """Take values that the configuration gives now (invariant 2).

        Returns the names of those changed: others cannot change while the broker runs.
        """
        changed: set[str] = set()
        for name, value in values.items():
            place = self._place(name)
            if place is None or not place[1].runtime:
                continue
            self._configured[name] = value
            row = self.rows.get(name)
            if row is not None:
                self._forget(row, f"the configuration has changed since, to {value!r}")
            place[0].update(name, value)
            changed.add(name)
            log.warning("setting changed in the configuration name=%s value=%r", name, value)
        if changed:
            self._when_changed(changed)
        return changed

    def _forget(self, row: ChangedSetting, reason: str) -> None:
        log.warning(
            "forgot a change that was made while the broker ran name=%s value=%r by=%s reason=%s",
            row.name,
            row.value,
            row.by,
            reason,
        )
        self.put(row.name, None, keep=True)

    def _place(self, name: str) -> tuple[Settings, Key] | None:
        for group in self._groups:
            if known := group.keys().get(name):
                return group, known
        return None


def _value(group: Settings, known: Key) -> str:
    return known.format(getattr(group, known.attribute))
