"""kombu's transport, and so Celery's broker: `import pocketmq.integrations.kombu` makes `pocketmq://` known.

    app = Celery("tasks", broker="pocketmq://127.0.0.1:9876")

transport.py has the URL and the options; docs/celery.md says what works.
"""

from pocketmq.remoting.lazy_names import without_extra

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as missing:
    raise without_extra("pocketmq.integrations.kombu", missing, "celery") from None

from pocketmq.integrations.kombu.transport import Transport

__all__ = ["Transport"]

TRANSPORT_ALIASES["pocketmq"] = "pocketmq.integrations.kombu:Transport"
