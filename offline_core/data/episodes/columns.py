"""The canonical column names: RLlib's, so that both write the same tables."""

EPS_ID = "eps_id"
T = "t"
AGENT_ID = "agent_id"
MODULE_ID = "module_id"
OBS = "obs"
ACTIONS = "actions"
REWARDS = "rewards"
NEW_OBS = "new_obs"
TERMINATEDS = "terminateds"
TRUNCATEDS = "truncateds"
INFOS = "infos"

ACTION_LOGP = "action_logp"
ACTION_DIST_INPUTS = "action_dist_inputs"
WEIGHTS_SEQ_NO = "weights_seq_no"

TIME = "time"
"""When the step was recorded, if its source tells: nanoseconds since 1970 (int64), or numbers in a unit of its own."""
LEAST_NANOSECONDS = 10**17
"""A time from here on, which is 1973, is one of nanoseconds since 1970, and told as a date."""

# An import makes `terminateds`, `truncateds` and `action_logp` of these, if they are mapped; no dataset holds them.
DONES = "dones"
"""The episode ended, by itself or not: what RLlib had before gymnasium told terminations and truncations apart."""
IS_FIRST = "is_first"
"""The row begins an episode."""
IS_LAST = "is_last"
"""The row is no step: it holds the observation after the last one, as in RLDS, and says with that how the episode ended."""

ACTION_PROB = "action_prob"
"""How probable the action was that was taken, or its density: what logs of clicks and offers call the propensity."""

# RLlib does not know these two. What belongs to the episode and not to a step is in its first row, null elsewhere.
RESET_INFOS = "reset_infos"
CUSTOM_DATA = "custom_data"

STEP_COLUMNS = (
    EPS_ID,
    AGENT_ID,
    MODULE_ID,
    T,
    OBS,
    ACTIONS,
    REWARDS,
    NEW_OBS,
    TERMINATEDS,
    TRUNCATEDS,
    INFOS,
    RESET_INFOS,
    CUSTOM_DATA,
)
"""What a step table may hold by itself; every other column of one is an extra model output."""

STATISTICS = (OBS, ACTIONS, REWARDS)
"""Columns with statistics, besides the extras."""

STEP_CORE = (EPS_ID, T, REWARDS, TERMINATEDS, TRUNCATEDS, OBS, NEW_OBS, ACTIONS)
"""The columns that make up an episode."""

ITEM = "item"
"""The one column RLlib reads from episode files: msgpack bytes, one episode a row."""

LENGTH = "length"
RETURN = "return"
T_STARTED = "t_started"
TERMINATED = "terminated"
TRUNCATED = "truncated"

SUCCESS = "success"
POLICY_ID = "policy_id"
CONTENT = "content"

EPISODE_SUMMARY = (EPS_ID, T_STARTED, LENGTH, RETURN, TERMINATED, TRUNCATED)
"""Metadata of every episode: stored next to `item`, quickly summed up from a step table."""

EPISODE_METADATA = (*EPISODE_SUMMARY, SUCCESS, POLICY_ID, CONTENT)
"""Plain columns next to `item`, so that episodes are selected without decoding their bytes."""

ROW_GROUP = "_row_group"
"""(R,) int32, the number of the row group in its dataset: of rows that were read, and of no file."""
