"""Experience: `Episode`, `EpisodeBatch`, columns, spaces, and the codecs of the two storage formats. Neither Ray nor Torch."""

from offline_core.data.episodes.batch import EpisodeBatch
from offline_core.data.episodes.episode import Episode
from offline_core.data.episodes.episode_codec import decode, encode
from offline_core.data.episodes.spaces import space_from_json, space_to_json
from offline_core.data.episodes.table_codec import episodes_to_table, table_to_episodes

__all__ = [
    "Episode",
    "EpisodeBatch",
    "decode",
    "encode",
    "episodes_to_table",
    "space_from_json",
    "space_to_json",
    "table_to_episodes",
]
