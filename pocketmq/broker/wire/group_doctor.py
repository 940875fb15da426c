"""Diagnosis of groups, for `pocketmq group doctor` and the console. Ours: PocketRequestCode."""

from collections.abc import Callable
from typing import Any

from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.modes.guard import GroupGuard
from pocketmq.broker.modes.mode import GroupModes
from pocketmq.broker.wire.admin.answers import json_answer
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.requests import GetGroupFindingsHeader, PocketRequestCode
from pocketmq.remoting.transport.connection import Connection, Handler


class GroupDoctorProcessor:
    """The handler of GET_GROUP_FINDINGS."""

    def __init__(
        self,
        consumers: ConsumerManager,
        guard: GroupGuard,
        modes: GroupModes,
        sub_groups: Callable[[str], list[dict[str, Any]]],
    ) -> None:
        self._consumers = consumers
        self._guard = guard
        self._modes = modes
        self._sub_groups = sub_groups

    def handlers(self) -> dict[int, Handler]:
        return {PocketRequestCode.GET_GROUP_FINDINGS: self.get_findings}

    def get_findings(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        """Return everything about one group, or every group with a finding."""
        asked = GetGroupFindingsHeader.parse(request.ext).group
        names = [asked] if asked else sorted({each.group for each in self._guard.findings()})
        return json_answer(
            request,
            {
                "activeCount": self._guard.active_count,
                "groups": [self.group(name) for name in names],
                "raisedCount": self._guard.raised_count,
            },
        )

    def group(self, name: str) -> dict[str, Any]:
        """Return what is known of one group; an unknown one has no members and no findings."""
        online = self._consumers.get(name)
        members = [] if online is None else list(online.channels.values())
        return {
            "findings": [each.to_json() for each in self._guard.findings(name)],
            "group": name,
            "members": [
                {
                    "clientAddr": member.connection.address,
                    "clientId": member.client_id,
                    "language": member.language,
                    "lastUpdate": member.last_update_ms,
                    "subscriptions": [
                        each.to_json() for _, each in sorted(member.subscriptions.items())
                    ],
                    "version": member.version,
                }
                for member in members
            ],
            "mode": self._modes.mode(name),
            "offlineSince": None if members else self._consumers.offline_since.get(name),
            "subGroups": self._sub_groups(name),
        }
