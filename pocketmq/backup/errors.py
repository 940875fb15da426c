"""What goes wrong with a backup."""

from pocketmq.remoting.errors import PocketMQError


class BackupRefused(PocketMQError):
    """A backup or a restore cannot begin: something is not as it has to be; nothing was changed."""


class BackupDamaged(PocketMQError):
    """Something of a backup is missing, or is not what was written."""
