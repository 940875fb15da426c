"""What a request does for its caller, in words: errors say it instead of the name of a code."""

from enum import IntEnum

# By the name of the code; the others are called by their own names.
WORDS: dict[str, str] = {
    "PULL_MESSAGE": "pulling messages",
    "GET_MIN_OFFSET": "asking where the queue begins",
    "GET_MAX_OFFSET": "asking where the queue ends",
    "SEARCH_OFFSET_BY_TIMESTAMP": "looking up an offset by time",
    "END_TRANSACTION": "ending a transaction",
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": "asking for the topics of the cluster",
    "GET_ROUTEINFO_BY_TOPIC": "looking up where the topic is",
    "GET_BROKER_CLUSTER_INFO": "asking for the brokers of the cluster",
    "GET_CONSUMER_LIST_BY_GROUP": "asking who is in the group",
    "GET_CONSUMER_CONNECTION_LIST": "asking who is in the group",
    "GET_CONSUMER_RUNNING_INFO": "asking the member what it runs",
    "GET_CONSUME_STATS": "asking how far the group has consumed",
    "GET_TOPIC_STATS_INFO": "asking what the topic holds",
    "HEART_BEAT": "telling the broker that this client is here",
    "UPDATE_AND_CREATE_TOPIC": "creating or changing the topic",
    "DELETE_TOPIC_IN_BROKER": "deleting the topic",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": "creating or changing the group",
    "DELETE_SUBSCRIPTIONGROUP": "deleting the group",
    "QUERY_CONSUMER_OFFSET": "asking for the group's offset",
    "UPDATE_CONSUMER_OFFSET": "committing the group's offset",
    "CONSUMER_SEND_MSG_BACK": "giving a failed message back to the broker",
    "LOCK_BATCH_MQ": "locking queues for orderly consumption",
    "RECALL_MESSAGE": "recalling the message",
    "VIEW_MESSAGE_BY_ID": "looking up the message",
    "QUERY_MESSAGE": "looking up messages by a key",
    "INVOKE_BROKER_TO_RESET_OFFSET": "resetting the group's offsets",
    "UPDATE_BROKER_CONFIG": "changing settings of the broker",
    "GET_BROKER_HA_STATUS": "asking how the broker's replicas are",
    "GET_GROUP_FINDINGS": "asking whose members differ",
    "GET_MESSAGE_TRACK": "asking what became of the message",
    "GET_TIMERS": "asking for delayed messages",
    "CHANGE_ROLE": "changing the broker's role",
}


def request_words(code: IntEnum, about: str = "") -> str:
    """Say what a request does: `asking for the group's offset (G)`."""
    words = WORDS.get(code.name) or code.name.lower().replace("_", " ")
    return f"{words} ({about})" if about else words
