"""PullFilters: what a pull lets through, by the group's subscription or by its own expression.

Steps 23 to 28 of a pull. Source: PullMessageProcessor, RocketMQ 4.9.7; acceptance S73-S80.
"""

import logging
from collections.abc import Callable
from functools import lru_cache

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.filters.tag_filter import TagFilter
from pocketmq.broker.groups.consumer_group import BROADCASTING
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.broker.modes.sub_group_order import SubGroupFilter
from pocketmq.broker.refused import Refused
from pocketmq.broker.sql92.consumer_filter import ConsumerFilterData, ConsumerFilterManager
from pocketmq.broker.sql92.message_filter import ExpressionMessageFilter
from pocketmq.model.names import FAQ
from pocketmq.model.sql92 import SelectorError, compile_expression
from pocketmq.model.subscription import TAG, SubscriptionData, build_subscription
from pocketmq.model.tables import GroupConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.flags import PullSysFlag
from pocketmq.remoting.headers import PullMessageHeader
from pocketmq.store import EntryFilter

log = logging.getLogger(__name__)

_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)
_TAGS = (TAG, "", None)
# A longer expression is read anew for each pull.
_KEPT_SIZE_MAX = 256


def brings_its_own(pull: PullMessageHeader) -> bool:
    """Return True if a pull carries the expression to filter by."""
    return bool(pull.sys_flag & _SUBSCRIPTION)


def properties_filter(matches: EntryFilter | None) -> Callable[[bytes], bool] | None:
    """Return the filter of a held pull on a new message's properties; None if its tag code suffices."""
    if isinstance(matches, ExpressionMessageFilter | SubGroupFilter):
        return matches.properties
    return None


class PullFilters:
    """Creates filters; caches those of groups that filter by SQL92."""

    def __init__(
        self, config: BrokerConfig, consumers: ConsumerManager, filters: ConsumerFilterManager
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._filters = filters
        self._expression_filters: dict[tuple[str, str], ExpressionMessageFilter] = {}

    def of_group(self, pull: PullMessageHeader, group: GroupConfig) -> EntryFilter | None:
        """Return the filter of a pull; None lets everything through. Raises: Refused (steps 23 to 28)."""
        if brings_its_own(pull):
            return self.own(pull)
        name, topic = pull.consumer_group, pull.topic
        online = self._consumers.groups.get(name)
        if online is None:
            raise self.nobody(name)
        if not group.consume_broadcast_enable and online.message_model == BROADCASTING:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        subscription = online.subscriptions.get(topic)
        if subscription is None:
            raise self.not_subscribed(name, topic)
        if subscription.sub_version < pull.sub_version:
            log.warning(
                "The broker's subscription is not latest, group: %s %s",
                name,
                subscription.sub_string,
            )
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if subscription.is_tag:
            return self.tags(subscription)
        self._check_property_filter(subscription.expression_type)
        data = self._filters.get(topic, name)
        if data is None:
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if data.client_version < pull.sub_version:
            log.warning(
                "The broker's consumer filter data is not latest, group: %s, topic: %s, "
                "serverV: %s, clientV: %s",
                name,
                topic,
                data.client_version,
                pull.sub_version,
            )
            raise Refused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        cached = self._expression_filters.get((topic, name))
        if cached is None or cached.data is not data:
            cached = ExpressionMessageFilter(data, self._filters.bloom)
            self._expression_filters[topic, name] = cached
        return cached

    def own(self, pull: PullMessageHeader) -> EntryFilter | None:
        """Return the filter of a pull that carries its expression (PullSysFlag.SUBSCRIPTION)."""
        expression = pull.subscription
        try:
            if pull.expression_type in _TAGS and len(expression or "") <= _KEPT_SIZE_MAX:
                return _own_tags(expression)
            subscription = build_subscription(pull.topic, expression, pull.expression_type)
        except IllegalArgument:
            log.warning(
                "Parse the consumer's subscription[%s] failed, group: %s",
                (pull.subscription or "")[:300],
                pull.consumer_group,
            )
            raise Refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                "parse the consumer's subscription failed",
            ) from None
        if subscription.is_tag:
            return self.tags(subscription)
        self._check_property_filter(subscription.expression_type)
        try:
            compiled = compile_expression(subscription.sub_string)
        except SelectorError as error:
            # RocketMQ lets everything pass to an expression that does not compile.
            log.warning(
                "cannot compile an expression, all messages pass group=%s reason=%s",
                pull.consumer_group,
                error,
            )
            compiled = None
        data = ConsumerFilterData(
            group=pull.consumer_group,
            topic=pull.topic,
            expression=subscription.sub_string,
            expression_type=subscription.expression_type,
            bloom=None,
            client_version=pull.sub_version,
            born_ms=0,
            dead_ms=0,
            compiled=compiled,
        )
        return ExpressionMessageFilter(data)

    def _check_property_filter(self, expression_type: str) -> None:
        if not self._config.enable_property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {expression_type}",
            )

    def tags(self, subscription: SubscriptionData) -> EntryFilter | None:
        """Return the filter for the tags of a subscription."""
        return _tags(subscription)

    def nobody(self, group: str) -> Refused:
        """Return the refusal of a pull by a group that has no members here."""
        log.warning("the consumer's group info not exist, group: %s", group)
        return Refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist" + FAQ
        )

    def not_subscribed(self, group: str, topic: str) -> Refused:
        """Return the refusal of a pull of a topic that is not subscribed."""
        log.warning("the consumer's subscription not exist, group: %s, topic:%s", group, topic)
        return Refused(
            ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist" + FAQ
        )


def _tags(subscription: SubscriptionData) -> EntryFilter | None:
    if subscription.class_filter_mode or subscription.is_all:
        return None
    return TagFilter.of(subscription)


@lru_cache(maxsize=1024)
def _own_tags(expression: str | None) -> EntryFilter | None:
    """Return the filter for tags that a pull carries: the same pull after pull. Raises: IllegalArgument."""
    return _tags(build_subscription("", expression))
