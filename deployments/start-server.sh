#!/bin/sh
# Starts Prefect's server in a container, with the password that its clients have: PREFECT_API_AUTH_STRING=user:password.
# Without one it only starts where OFFLINE_SERVER_ADDRESS, the address at which others reach it, is this machine's own.
set -eu
if [ -n "${PREFECT_API_AUTH_STRING:-}" ]; then
    export PREFECT_SERVER_API_AUTH_STRING="$PREFECT_API_AUTH_STRING"
else
    unset PREFECT_API_AUTH_STRING PREFECT_SERVER_API_AUTH_STRING # an empty one would refuse all requests
    case "${OFFLINE_SERVER_ADDRESS:-}" in
    127.* | ::1) ;;
    *)
        echo "The server has no password, and others could reach it at '${OFFLINE_SERVER_ADDRESS:-}' and run code." \
            "Set PREFECT_API_AUTH_STRING=user:password, or OFFLINE_SERVER_ADDRESS=127.0.0.1." >&2
        exit 2
        ;;
    esac
fi
exec prefect server start --host 0.0.0.0 "$@"
