"""A check, in seconds, that this process can join the Ray cluster at an address.

Ray itself waits for minutes, and its clients may end the calling process: so a subprocess asks, with a time limit.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

from offline_core.errors import ClusterError

ANSWER_SECONDS = 10.0
CONNECT_SECONDS = 3.0


def check_address(address: str) -> None:
    """Check that this process can join the cluster at `address` (`host:port`, or `auto` for one on this machine).

    Raises:
        ClusterError: it cannot, and why; within 15 seconds.
    """
    if "://" in address:
        raise ClusterError(
            f"RAY_ADDRESS is {address}, for a client outside of the cluster. Run where a node of the cluster runs, and set "
            "RAY_ADDRESS to the host and port of its head, such as 10.0.0.5:6379."
        )
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "offline_core.runtime.ray_address", address],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        trouble = "it does not answer as Ray does. Check the port (a head's is 6379 by default) and the head's log"
    else:
        trouble = asked.stdout.strip()
        if asked.returncode:  # Ray's C++ ended the process
            trouble = f"asking it ended with {asked.returncode}: {asked.stderr.strip().partition('*** StackTrace')[0][-500:]}"
    if trouble:
        raise ClusterError(f"The Ray cluster at RAY_ADDRESS={address} cannot be joined: {trouble}.")


def _trouble(address: str) -> str:
    """Return why the cluster cannot be joined and what to do; empty if it can."""
    from ray._private import services
    from ray._private.authentication import authentication_token_setup as tokens
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError

    try:
        head_address = services.canonicalize_bootstrap_address(address)
        host, _, port = (head_address or "").rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS):
            pass
        if address == "auto":
            tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
        tokens.ensure_token_if_auth_enabled(create_token_if_missing=False)
        nodes = GcsClient(address=head_address).get_all_node_info(timeout=CONNECT_SECONDS)
    except ValueError:
        return "that is no valid address. Set it to the host and port of the cluster's head, such as 10.0.0.5:6379, or to auto"
    except AuthenticationError:
        return (
            "it requires a token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the "
            "cluster's own ('ray get-auth-token' on its head shows it)"
        )
    except socket.gaierror:
        return f"the host {host} does not exist. Correct the name, or use an IP address"
    except OSError as error:
        return f"nothing answers there ({error}). Start its head with 'ray start --head', or unset RAY_ADDRESS for a local Ray"
    except Exception as error:  # whatever Ray's clients raise
        return f"it does not answer as Ray does ({error}). Check the port: a head's is 6379 by default"
    alive = {node_id.hex() for node_id, node in nodes.items() if node.state == 0}
    if not alive & services.find_node_ids():
        return (
            f"this machine runs no node of it, as flows need. Start one with 'ray start --address={address}' "
            "(and --num-cpus=0 to keep work off it), or run the flow on one of its machines"
        )
    return ""


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        trouble = _trouble(sys.argv[1])
    sys.stdout.write(trouble)
    sys.stdout.flush()
    os._exit(0)  # Ray's threads may still be waiting
