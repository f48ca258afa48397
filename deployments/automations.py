"""Creates or updates what the server does by itself: `python -m deployments.automations`.

Zombies: a run of which nothing was heard for some time is marked as crashed; else one whose machine died runs forever.
Failures: a run that failed or crashed is told to a webhook.
Data ready: a recorded or imported dataset is pruned, a pruned one checked, and what passed is learned from. These come switched
off, as schedules do.

Each is found again by its name, and keeps its switch as it is.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import cast
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState, RunDeployment
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from pydantic import SecretStr

from deployments.definitions import Profile, full_name
from deployments.server import readable_errors
from flows.events import RESOURCE
from offline_core.errors import ConfigError
from offline_core.runtime.stage import Event

RUNS = {"prefect.resource.id": "prefect.flow-run.*"}
EACH = {"prefect.resource.id"}
BLOCK = "offline-failures"
MESSAGE = (
    "{{ flow.name }} failed: run {{ flow_run.name }}{% if deployment %} of {{ deployment.name }}{% endif %} is "
    "{{ flow_run.state.name }}. {{ flow_run.state.message }} {{ flow_run | ui_url }}"
)


def zombies(silence_seconds: int) -> AutomationCore:
    """Runs send a heartbeat every 180 s (PREFECT_FLOWS_HEARTBEAT_FREQUENCY); after `silence_seconds` without they are dead."""
    return AutomationCore(
        name="zombies",
        description=f"A run that was not heard of for {silence_seconds} s has crashed.",
        trigger=EventTrigger(
            match=RUNS,
            for_each=EACH,
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            posture=Posture.Proactive,
            within=timedelta(seconds=silence_seconds),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"Nothing was heard of this run for {silence_seconds} s: its process or machine is gone. "
                "Retry it; it goes on where it stopped.",
            )
        ],
    )


def failures(webhook: UUID) -> AutomationCore:
    """Calls the webhook with {"text": …}, which chats understand."""
    return AutomationCore(
        name="failures",
        description="A run that failed or crashed is told to a webhook.",
        trigger=EventTrigger(match=RUNS, for_each=EACH, expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}),
        actions=[
            CallWebhook(
                block_document_id=webhook, payload=f'{{% set text %}}{MESSAGE}{{% endset %}}{{"text": {{{{ text | tojson }}}}}}'
            )
        ],
    )


def data_ready(name: str, *, events: set[Event], deployment: UUID, suffix: str | None = None) -> AutomationCore:
    """Runs a deployment on the version that an event tells of; its output is the dataset's URI with `suffix`, if any."""
    uri = "{{ event.payload.uri }}"
    parameters = {"dataset": uri, "version": "{{ event.payload.version }}"}
    if suffix is not None:
        parameters["output"] = uri + suffix
    return AutomationCore(
        name=name,
        description=f"After {' or '.join(sorted(events))}, on that version of that dataset.",
        enabled=False,
        trigger=EventTrigger(match={"prefect.resource.id": f"{RESOURCE}.*"}, expect=set(events)),
        actions=[RunDeployment(deployment_id=deployment, parameters=parameters)],
    )


def wanted(
    client: SyncPrefectClient, *, profile: Profile, silence_seconds: int, webhook_url: str | None
) -> Iterator[AutomationCore]:
    """All automations; the block that keeps the webhook's URL, encrypted, is written on the way.

    Raises:
        ConfigError: what should run is not deployed yet.
    """
    yield zombies(silence_seconds)
    yield data_ready(
        "prune what was recorded",
        events={"dataset.recorded", "dataset.imported"},
        deployment=deployed(client, full_name("prune", profile)),
        suffix="-pruned",
    )
    yield data_ready(
        "check what was pruned",
        events={"dataset.pruned"},
        deployment=deployed(client, full_name("check", profile)),
    )
    yield data_ready(
        "train on what passed",
        events={"dataset.passed"},
        deployment=deployed(client, full_name("train", profile)),
        suffix="-policy",
    )
    if webhook_url is not None:
        yield failures(cast(UUID, Webhook(url=SecretStr(webhook_url)).save(BLOCK, overwrite=True)))


def deployed(client: SyncPrefectClient, name: str) -> UUID:
    """The id of a deployment, by its full name.

    Raises:
        ConfigError: it is not there; says how to put it there.
    """
    try:
        return client.read_deployment_by_name(name).id
    except ObjectNotFound:
        raise ConfigError(
            f"The server at {client.api_url} has no deployment {name}. First: "
            "prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml"
        ) from None


def put(client: SyncPrefectClient, automation: AutomationCore) -> bool:
    """Creates the automation, or updates the one of its name and leaves it switched on or off. Returns whether it is on."""
    there = client.read_automations_by_name(automation.name)
    if not there:
        client.create_automation(automation)
        return automation.enabled
    is_on = there[0].enabled
    # Made anew from its values: the client sends only fields that were set, and the server wants the types among the defaults.
    values = automation.model_dump(exclude={"owner_resource"}) | {"enabled": is_on}
    client.update_automation(there[0].id, AutomationCore(**values))
    return is_on


def main() -> None:
    """Puts them all on the server that PREFECT_API_URL names, and says which are on."""
    parser = argparse.ArgumentParser(prog="python -m deployments.automations", description="Creates or updates automations.")
    parser.add_argument(
        "--profile", choices=("default", "smoke", "nightly"), default="default", help="Deployments that new data starts."
    )
    parser.add_argument("--silence-seconds", type=int, default=540, help="After so long without a heartbeat a run is dead.")
    parser.add_argument("--webhook-url-env", metavar="NAME", help="Environment variable with the URL to tell failures to.")
    chosen = parser.parse_args()
    webhook_url = os.environ.get(chosen.webhook_url_env) if chosen.webhook_url_env else None
    if chosen.webhook_url_env and not webhook_url:
        parser.error(f"the environment variable {chosen.webhook_url_env} is not set; it has to hold the webhook's URL")
    with readable_errors(), get_client(sync_client=True) as client:
        for automation in wanted(
            client, profile=chosen.profile, silence_seconds=chosen.silence_seconds, webhook_url=webhook_url
        ):
            is_on = put(client, automation)
            print(f"{automation.name}: {'on' if is_on else f'off; on: prefect automation resume {automation.name!r}'}")


if __name__ == "__main__":
    main()
