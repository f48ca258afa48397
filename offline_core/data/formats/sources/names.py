"""What others call the columns of steps, for import, plan and refusal: RLlib, gymnasium, D4RL, Minari, LeRobot, RLDS."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from offline_core.data.episodes import columns
from offline_core.data.episodes.action_masks import ACTION_MASK, NEW_ACTION_MASK

STEP_NAMES = (
    *("t", "step", "timestep", "time_step", "step_id", "step_index", "step_nr", "env_step", "frame_index", "frame", "k"),
    *("tick", "ticks", "cycle"),
)
"""What numbers the steps of an episode, where other names of `t` may be those of times."""
SYNONYMS: dict[str, tuple[str, ...]] = {
    columns.EPS_ID: (
        *("eps_id", "episode_id", "episode_index", "episode", "ep_id", "eps", "ep", "trajectory_id", "traj_id", "trajectory"),
        *("traj", "rollout_id", "run_id", "session_id", "run", "session", "episode_nr", "episode_number", "rollout", "trip_id"),
        *("episode_uuid", "episode_guid", "sess", "sess_id"),
    ),
    columns.T: (
        *STEP_NAMES,
        *("timestamp", "time", "datetime", "date_time", "ts", "utc", "time_utc", "event_time", "recorded_at", "measured_at"),
        *(
            "time_s",
            "time_ms",
            "time_us",
            "time_ns",
            "timestamp_s",
            "timestamp_ms",
            "timestamp_us",
            "timestamp_ns",
            "unix_time",
        ),
    ),
    columns.NEW_OBS: (
        *("new_obs", "next_obs", "next_observation", "next_observations", "new_observation", "o_tp1", "obs_tp1", "obs_next"),
        *("next_state", "next_states", "new_state", "s_tp1", "s_next", "s_prime", "state_next", "next_observation_state", "o2"),
        *("next_s", "state_prime", "obs_prime"),
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
    columns.ACTION_PROB: (
        *("action_prob", "action_probability", "propensity", "propensity_score", "pscore", "action_propensity"),
        *("behavior_prob", "behaviour_prob", "logging_prob", "logging_probability", "prob_action"),
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
PROBABILITY_NAMES, DENSITY_NAMES = ("probability", "prob", "p"), ("density", "action_density", "probability_density")
"""What may be the probability of an action, or its density, if its values are such."""
ACTION_WORDS = (
    *(
        "action",
        "setpoint",
        "set_point",
        "command",
        "cmd",
        "control",
        "act",
        "tariff",
        "valve",
        "throttle",
        "steer",
        "steering",
        "torque",
    ),
    *("effort", "power_set", "price", "bid", "offer", "discount", "dose", "treatment", "arm", "choice", "decision", "order"),
    *("recommended", "recommendation", "ad", "item", "shown", "chosen", "selected", "assigned", "routed", "sent", "variant"),
    *("campaign", "banner", "coupon", "promotion", "intervention", "position", "move"),
)
REWARD_WORDS = (
    *("reward", "rewards", "return", "returns", "payoff", "utility", "profit", "pnl", "pn_l", "revenue", "income", "earnings"),
    *("margin", "result", "outcome", "success", "win", "won", "purchased", "purchase", "bought", "ordered", "conversion"),
    *("converted", "click", "clicks", "clicked", "score", "gain", "savings", "sales", "booking", "bookings", "orders", "kpi"),
    *("survived", "rating", "satisfaction", "csat", "sold", "paid", "delivered", "redeemed", "accepted"),
    *("belohnung", "gewinn", "umsatz", "ertrag", "zufriedenheit", "recompense", "benefice", "ganancia", "ingresos"),
    "recompensa",
)
COST_WORDS = (
    *("cost", "costs", "expense", "expenses", "penalty", "loss", "losses", "died", "mortality", "delay", "error", "waste"),
    *("downtime", "kwh", "energy", "refund", "refunds", "refunded", "returned", "churn", "churned", "cancelled", "canceled"),
    *("rejected", "kosten", "verlust", "verluste", "verbrauch", "strafe", "cout", "couts", "coste", "costes", "perte"),
    "pertes",
)
"""What is to be small: such a column is a reward once it is turned round."""
OUTCOME_WORDS = (*REWARD_WORDS, *COST_WORDS)
"""What columns of actions and rewards are often called, the likelier first: for the order of candidates, and nothing else."""
ID_WORDS = ("id", "uuid", "guid", "key", "index", "unnamed")
"""In the names of what tells rows or things apart, and is no quantity."""
THING_WORDS = (
    *("user", "customer", "client", "patient", "subject", "participant", "vehicle", "machine", "device", "robot", "room"),
    *("store", "shop", "site", "plant", "unit", "asset", "household", "building", "trial", "game", "match"),
)
"""What an episode is often of."""
TIME_WORDS = (
    *("time", "second", "seconds", "minute", "minutes", "hour", "hours", "day", "days", "week", "month", "tick", "frame"),
    *("round", "turn", "period", "stage", "visit", "seq", "sequence", "order", "position", "number", "nr", "no"),
)
"""In the names of what numbers the rows of an episode."""
_UNITS = (
    *("kwh", "mwh", "wh", "eur", "euro", "euros", "usd", "gbp", "chf", "dollar", "dollars", "cent", "cents", "s", "sec"),
    *("second", "seconds", "min", "minute", "minutes", "h", "hour", "hours", "ms", "pct", "percent", "per", "total", "sum"),
)
"""What may follow the word that says what a column is."""
_FLOWS = (
    *("temp", "temperature", "pressure", "flow", "air", "water", "pump", "fan", "valve", "pipe", "line"),
    "side",
)
"""Beside one of these, `return` is what flows back."""
_SAVED = frozenset(("saved", "saving", "avoided", "reduction", "reduced", "prevented"))
"""Beside one of these, more of a cost is better."""
_AROUND = ("is", "was", "units", "after")
"""Beside the name of an outcome."""
_NEXT_WORDS = ("next", "new", "prime", "tp1", "after")


def plain(name: str) -> str:
    """In lower case, the words joined by underscores: `nextObs` is `next_obs`, `s'` `s_prime` and `Coût` `cout`."""
    letters = "".join(letter for letter in unicodedata.normalize("NFD", name) if not unicodedata.combining(letter))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"(?<=[A-Za-z0-9])['\u2032\u2019]", "_prime_", letters))
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def named(role: str, names: Iterable[str]) -> list[str]:
    """Return the names that are synonyms of a role, the likeliest first."""
    known = SYNONYMS[role]
    matches = [name for name in names if plain(name) in known]
    return sorted(matches, key=lambda name: known.index(plain(name)))


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


def following(names: Iterable[str]) -> dict[str, str]:
    """Map columns to those with their value after the step: `temp` to `next_temp`, `temp_next` or `temp'`."""
    known = {plain(name): name for name in names}
    next_names = dict[str, str]()
    for whole, name in known.items():
        words = whole.split("_")
        for number, word in enumerate(words):
            before = "_".join(words[:number] + words[number + 1 :])
            if word in _NEXT_WORDS and before in known:
                next_names.setdefault(known[before], name)
    return next_names


_NUMBERS = re.compile(r"(?<![a-z0-9])\d+(?![a-z0-9])|\d+$")
"""That number things, as in `torque_0` and `joint_1_torque`, and not `7d` in `price_7d_mean`."""


def numbered_alike(one: str, names: Iterable[str]) -> list[str]:
    """The columns that have the name of one but for its numbers, it among them: `torque_0` and `torque_1`; else none."""
    words = _NUMBERS.sub("#", plain(one))
    alike = [name for name in names if _NUMBERS.sub("#", plain(name)) == words] if "#" in words else []
    return alike if len(alike) > 1 else []


def has_word(name: str, words: Iterable[str]) -> bool:
    """Whether one of the words occurs in a name."""
    return first_word(name, words) is not None


def first_word(name: str, words: Iterable[str]) -> int | None:
    """Return the index of the first of the words that occurs in a name."""
    there = {plain(name), *_words(name)}
    return next((index for index, word in enumerate(words) if word in there), None)


def is_minimised(name: str) -> bool:
    """Whether a name says of an outcome that less is better, by its last word that tells: a cost, and no saving of it."""
    words = _without_units(name)
    said = [word for word in words if word in OUTCOME_WORDS]
    return bool(said) and said[-1] in COST_WORDS and _SAVED.isdisjoint(words)


def is_outcome(name: str) -> bool:
    """Whether a column is what came of an action, by its name: `energy_cost_eur` is, and `last_click_age` is no click."""
    return plain(name) in OUTCOME_WORDS or _without_units(name)[-1] in OUTCOME_WORDS


def is_result(name: str) -> bool:
    """Whether a column has the very name of an outcome, as `is_sold` and `revenue_after` have, and `energy_cost` has not."""
    return "_".join(word for word in plain(name).split("_") if word not in _AROUND) in OUTCOME_WORDS


def _without_units(name: str) -> list[str]:
    words = [word for word in _words(name) if word not in _UNITS]
    return words or plain(name).split("_")


def _words(name: str) -> list[str]:
    """The words of a name, without a `return` that is the way back of air or water."""
    words = plain(name).split("_")
    around = [{*words[max(0, number - 1) : number + 2]} for number in range(len(words))]
    return [word for word, near in zip(words, around, strict=True) if word != "return" or near.isdisjoint(_FLOWS)]
