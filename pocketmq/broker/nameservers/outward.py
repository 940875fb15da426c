"""NameServers: the broker's relations to the name servers."""

from dataclasses import dataclass

from pocketmq.broker.nameservers.announcements import Announcements
from pocketmq.broker.nameservers.registration import Registration
from pocketmq.broker.pop.assignment import TopicRoutes


@dataclass(frozen=True, slots=True)
class NameServers:
    """registration: its own entry. announcements: values for other brokers. routes: the brokers of topics."""

    registration: Registration
    announcements: Announcements
    routes: TopicRoutes
