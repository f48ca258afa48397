#!/bin/bash
# Starts a worker beside a Ray node of its own, without CPUs, that joins the cluster at RAY_HEAD=host:port.
# A run joins by the node on its machine. When node or worker ends, so does the other, and the container with them.
set -um # m: else the two ignore SIGINT, by which Prefect's worker stops itself
stopped="" early=""
trap 'early=yes' TERM INT # until there is a worker to stop
ray start --address="$RAY_HEAD" --num-cpus=0 --disable-usage-stats --block &
node=$!
# Runs join by the head's address, and wait for it there.
RAY_ADDRESS="$RAY_HEAD" prefect worker start --pool offline --limit 1 --with-healthcheck &
worker=$!
stop() {
    stopped=yes
    kill -TERM "$worker" 2>/dev/null
}
trap stop TERM INT
[ -z "$early" ] || stop
wait -n "$node" "$worker"
code=$?
if [ -n "$stopped" ]; then
    code=143
else
    kill -TERM "$worker" 2>/dev/null # once: a second one would kill it
fi
wait "$worker" 2>/dev/null # first, for its run needs the node
kill -KILL "$node" 2>/dev/null # it would wait for its children, which end with the container
exit "$code"
