"""The `pocketmq` command, its servers, and RocketMQ's `mqadmin`, `mqbroker` and `mqnamesrv`."""
