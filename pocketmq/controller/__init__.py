"""The controller: elects the master of each set of brokers, and keeps who is in sync."""

from pocketmq.controller.config import ControllerConfig
from pocketmq.controller.controller import Controller

__all__ = ["Controller", "ControllerConfig"]
