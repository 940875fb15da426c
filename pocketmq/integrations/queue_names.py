"""Names of a framework's queues as topics: an escape that can be read back.

Topics may hold letters, digits and `%|_-`. Other characters become `%` and two hexadecimal digits a byte,
as in a URL, and `%` itself, too. A name that is too long then keeps its beginning, and gets a digest that
cannot be read back.
"""

import hashlib
from urllib.parse import quote, unquote

from pocketmq.model.names import TOPIC_LENGTH_MAX

_DIGEST_MARK = "%%"
_DIGEST_LENGTH = 24


def topic_of(name: str) -> str:
    """Return the topic of a queue.

    >>> topic_of("celery"), topic_of("celery@host-1.pidbox"), topic_of("my_queue:9")
    ('celery', 'celery%40host-1%2Epidbox', 'my_queue%3A9')
    """
    # quote() leaves `.` and `~` alone, which topics may not hold.
    topic = quote(name, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(topic) <= TOPIC_LENGTH_MAX:
        return topic
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return topic[: TOPIC_LENGTH_MAX - len(_DIGEST_MARK) - _DIGEST_LENGTH] + _DIGEST_MARK + digest


def name_of(topic: str) -> str:
    """Return the queue of a topic.

    >>> name_of(topic_of("celery@höst.celery.pidbox"))
    'celery@höst.celery.pidbox'
    """
    return unquote(topic)
