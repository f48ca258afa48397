#!/bin/sh
# Starts Prefect's server in a container, with the password that its clients have: PREFECT_API_AUTH_STRING=user:password.
# Without one it only starts where OFFLINE_SERVER_ADDRESS, the address at which others reach it, is this machine's own.
# Web pages of other addresses than its own UI's may not ask it, with a password or without.
set -eu
ui="${PREFECT_SERVER_UI_API_URL:-http://127.0.0.1:4200/api}"
export PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS="${PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS:-${ui%/api},http://localhost:4200}"
if [ -n "${PREFECT_API_AUTH_STRING:-}" ]; then
    export PREFECT_SERVER_API_AUTH_STRING="$PREFECT_API_AUTH_STRING"
    echo "The server asks for the password in PREFECT_API_AUTH_STRING." >&2
else
    unset PREFECT_API_AUTH_STRING PREFECT_SERVER_API_AUTH_STRING # an empty one would refuse all requests
    case "${OFFLINE_SERVER_ADDRESS:-}" in
    127.* | ::1)
        echo "The server has no password: every program on this machine can run code by it. Set PREFECT_API_AUTH_STRING." >&2
        ;;
    *)
        echo "The server has no password, and others could reach it at '${OFFLINE_SERVER_ADDRESS:-}' and run code." \
            "Set PREFECT_API_AUTH_STRING=user:password, or OFFLINE_SERVER_ADDRESS=127.0.0.1." >&2
        exit 2
        ;;
    esac
fi
exec prefect server start --host 0.0.0.0 "$@"
