#!/bin/sh
# Starts the role that the first argument names, or POCKETMQ_ROLE, or NODE_ROLE of the official images:
#
#   up                                     name server and broker together (the default)
#   namesrv, nameserver, mqnamesrv         a name server
#   broker, mqbroker                       a broker, registered at NAMESRV_ADDR or -n
#   controller                             elects the masters of sets of brokers
#   mqadmin                                one command of administration
#
# Everything behind it goes to that command, so compose files of the official images keep working:
# `sh mqbroker -n namesrv:9876 -c conf/broker.conf`. Any other command of `pocketmq` is run as it is.
set -eu

# The official images run scripts: `sh mqbroker`, `sh bin/mqnamesrv`, `./mqbroker`.
if [ "${1:-}" = sh ] && [ $# -gt 1 ]; then
    case "$2" in
        *mqbroker | *mqnamesrv | *mqadmin) shift ;;
        *) exec "$@" ;;
    esac
fi
case "${1:-}" in
    "" | -*) set -- "${POCKETMQ_ROLE:-${NODE_ROLE:-up}}" "$@" ;;
esac
role="${1##*/}"
shift
case "$role" in
    up | broker | mqbroker | namesrv | nameserver | mqnamesrv | controller) ;;
    proxy)
        echo "pocketmq: this image has no $role; its roles are up, broker, nameserver and controller" >&2
        exit 2
        ;;
esac
if [ "$role" = mqadmin ]; then
    exec mqadmin "$@"
fi
# For healthcheck.sh, which does not get the arguments; in memory, as the root file system may be read-only.
echo "$role" >"${POCKETMQ_ROLE_FILE:-${TMPDIR:-/tmp}/pocketmq.role}"
case "$role" in
    mqbroker | mqnamesrv) exec "$role" "$@" ;;
esac
exec pocketmq "$role" "$@"
