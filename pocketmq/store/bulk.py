"""The former name of pocketmq.bulk."""

from pocketmq.bulk import *  # noqa: F403
