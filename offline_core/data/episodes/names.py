"""What others call the columns of steps, for import, plan and refusal: RLlib, gymnasium, D4RL, Minari, LeRobot, RLDS."""

from __future__ import annotations

import re
from collections.abc import Iterable

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK, NEW_ACTION_MASK

SYNONYMS: dict[str, tuple[str, ...]] = {
    columns.EPS_ID: (
        *("eps_id", "episode_id", "episode_index", "episode", "ep_id", "eps", "ep", "trajectory_id", "traj_id", "trajectory"),
        *("traj", "rollout_id", "run_id", "session_id", "run", "session", "episode_nr", "episode_number", "rollout", "trip_id"),
    ),
    columns.T: (
        *("t", "step", "timestep", "time_step", "step_id", "step_index", "step_nr", "env_step", "frame_index", "frame", "k"),
        *("timestamp", "time", "datetime", "date_time", "ts", "utc", "time_utc", "event_time", "recorded_at", "measured_at"),
    ),
    columns.NEW_OBS: (
        *("new_obs", "next_obs", "next_observation", "next_observations", "new_observation", "o_tp1", "obs_tp1", "obs_next"),
        *("next_state", "next_states", "new_state", "s_tp1", "s_next", "s_prime", "state_next", "next_observation_state", "o2"),
    ),
    columns.OBS: (
        *("obs", "observation", "observations", "o_t", "obs_t", "state", "states", "s_t", "observation_state", "s", "o", "ob"),
        *("sensors", "features", "x_t"),
    ),
    columns.ACTIONS: (
        *("actions", "action", "a_t", "act", "acts", "u_t", "control", "controls", "a", "u", "command", "commands", "cmd"),
    ),
    columns.REWARDS: ("rewards", "reward", "r_t", "rew", "rews", "r", "next_reward"),
    columns.TERMINATEDS: (
        *("terminateds", "terminated", "terminal", "terminals", "termination", "terminations", "next_terminated"),
        *("is_terminal", "is_terminated", "next_terminal", "episode_terminated", "terminal_flag", "term"),
    ),
    columns.TRUNCATEDS: (
        *("truncateds", "truncated", "truncation", "truncations", "timeouts", "timeout", "next_truncated", "time_limit"),
        *("is_truncated", "is_timeout", "next_timeout", "episode_truncated", "timed_out", "time_limit_reached", "trunc"),
    ),
    columns.DONES: (
        *("dones", "done", "d_t", "is_done", "next_done", "d", "episode_end", "end_of_episode", "episode_done", "done_flag"),
        *("episode_over", "episode_ended", "game_over", "is_end"),
    ),
    columns.IS_LAST: ("is_last", "is_last_step", "last_step"),
    columns.IS_FIRST: ("is_first", "is_first_step", "first_step", "episode_start", "episode_starts", "is_start"),
    columns.AGENT_ID: ("agent_id", "agent", "agent_index", "agent_name", "agent_nr", "player_id", "player", "player_index"),
    columns.INFOS: ("infos", "info", "i_t", "env_info", "env_infos"),
    columns.ACTION_LOGP: (
        *("action_logp", "logp", "log_prob", "logprob", "log_probs", "logprobs", "logprobs_t", "action_log_prob", "log_pi"),
        *("action_logprob", "behavior_logp", "behaviour_logp"),
    ),
    ACTION_MASK: ("action_mask", "legal_actions", "available_actions", "avail_actions", "valid_actions", "allowed_actions"),
    NEW_ACTION_MASK: ("new_action_mask", "next_action_mask", "next_legal_actions", "next_available_actions"),
}
"""By canonical name; the likelier ones first. All as `plain` writes them."""

ENDS = (columns.TERMINATEDS, columns.TRUNCATEDS, columns.DONES, columns.IS_LAST)
"""What says where an episode ends."""

UNDERSTOOD = (*ENDS, columns.IS_FIRST, columns.NEW_OBS)
"""What an import takes by its name, whichever of its names that is, and what a mapping may call by any of them."""

CANONICAL = {name: role for role in UNDERSTOOD for name in SYNONYMS[role] if len(name) > 2}
"""The canonical name for each of those; one or two letters say too little."""

RLDS = ("is_first", "is_terminal", "discount")
"""Beside one of these, `is_last` marks a row that is no step: it holds the observation after the last one, and fillers."""

STEP_TYPES = ("step_type",)
"""What dm_env and TF-Agents have: 0 in the first row, 2 in the last one."""

VECTORS = (columns.NEW_OBS, columns.OBS, columns.ACTIONS)
"""What may lie in a column a number: `next_obs_0`, `obs_0`, `action.valve`."""

PROBABILITIES = ("p", "prob", "propensity", "action_prob", "action_probability", "behavior_prob", "probability")
ACTION_WORDS = (
    *("setpoint", "set_point", "valve", "command", "cmd", "control", "act", "throttle", "torque", "power_set", "price", "bid"),
    *("offer", "discount", "dose", "treatment", "arm", "choice", "decision", "ad", "item", "shown"),
)
REWARD_WORDS = (
    *("cost", "costs", "score", "penalty", "energy", "profit", "revenue", "gain", "loss", "click", "clicks", "clicked"),
    *("conversion", "converted", "sales", "margin", "payoff", "utility", "return", "delay", "kwh"),
)
"""What columns of actions and rewards are often called: for the order of candidates, and for nothing else."""


def plain(name: str) -> str:
    """In lower case, the words joined by underscores: `nextObs`, `next.obs` and `Next Obs` are `next_obs`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def named(role: str, names: Iterable[str]) -> list[str]:
    """Those of the names that are others for a role, the likeliest first."""
    known = SYNONYMS[role]
    found = [name for name in names if plain(name) in known]
    return sorted(found, key=lambda name: known.index(plain(name)))


def parts_of(role: str, names: Iterable[str]) -> list[str]:
    """The columns that are the numbers of one vector, in the order of their numbers, else of the source."""
    prefix = "|".join(sorted(SYNONYMS[role], key=len, reverse=True))
    numbered = re.compile(rf"(?:{prefix})_?(\d+)")
    worded = re.compile(rf"(?:{'|'.join(known for known in SYNONYMS[role] if len(known) > 2)})_[a-z].*")
    names = list(names)
    by_number = {name: int(match[1]) for name in names if (match := numbered.fullmatch(plain(name)))}
    if by_number:
        return sorted(by_number, key=lambda name: by_number[name])
    return [name for name in names if worded.fullmatch(plain(name))]


def has_word(name: str, words: Iterable[str]) -> bool:
    """Whether one of the words occurs in a name."""
    return bool(set(words) & {plain(name), *plain(name).split("_")})
