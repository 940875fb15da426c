"""The background services of a broker, and everything that handles requests, without a socket."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketmq.broker.node import Node
from pocketmq.broker.parts import Members, Messages, Tables

if TYPE_CHECKING:
    from pocketmq.broker.figures.lags import Lags
    from pocketmq.broker.groups.member_reports import MemberReports
    from pocketmq.broker.ha.replication import Replication
    from pocketmq.broker.ledger.watch import BalanceWatch
    from pocketmq.broker.pop.service import PopService
    from pocketmq.broker.schedules.service import ScheduleService
    from pocketmq.broker.transaction_check import HalfMessages, TransactionCheck
    from pocketmq.broker.waiting.long_polling import LongPolling
    from pocketmq.store import DelayService
    from pocketmq.store.timer.service import TimerService


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The background services."""

    delay: "DelayService"
    timer: "TimerService"
    schedules: "ScheduleService"
    half: "HalfMessages"
    check: "TransactionCheck"
    pop: "PopService"
    replication: "Replication"
    long_polling: "LongPolling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that handles requests, without a socket."""

    node: Node
    tables: Tables
    members: Members
    messages: Messages
    services: Services
    lags: "Lags"
    reports: "MemberReports"
    balances: "BalanceWatch"
