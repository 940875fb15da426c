"""Outward: what a broker is to the name servers, and what it learns of them."""

from dataclasses import dataclass

from pocketmq.broker.announcements import Announcements
from pocketmq.broker.pop.assignment import TopicRoutes
from pocketmq.broker.registration import Registration


@dataclass(frozen=True, slots=True)
class Outward:
    """registration: its own entry there. announcements: values for others. routes: the topics' brokers."""

    registration: Registration
    announcements: Announcements
    routes: TopicRoutes
