#!/bin/sh
# HEALTHCHECK: asks the servers that entrypoint.sh has started. Their ports: POCKETMQ_NAMESRV_PORT and
# POCKETMQ_BROKER_PORT where they are set.
set -eu

# This container's own servers, whatever name server its clients use.
unset NAMESRV_ADDR POCKETMQ_NAMESRV_ADDR POCKETMQ_CONTEXT
case "$(cat "${POCKETMQ_ROLE_FILE:-${TMPDIR:-/tmp}/pocketmq.role}")" in
    broker | mqbroker) exec pocketmq health --namesrv - ;;
    namesrv | nameserver | mqnamesrv) exec pocketmq health --broker - ;;
    *) exec pocketmq health ;;
esac
