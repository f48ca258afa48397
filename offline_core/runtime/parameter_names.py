"""Names of parameters: where a model has one, and which one is meant by a name that it does not have."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

MOST_NAMES, MOST_LEVELS = 3, 4
"""Names that a hint gives, and groups within groups that are looked through."""
SYNONYMS: Mapping[str, str] = {
    "activation": "activation_fn activation_function fcnet_activation head_fcnet_activation nonlinearity",
    "alpha": "conservative_weight cql_alpha cql_weight min_q_weight bc_weight",
    "actions": "evaluation_actions",
    "batch_size": "batch bs train_batch_size train_batch_size_per_learner minibatch_size mini_batch_size sgd_minibatch_size",
    "burn_in_steps": "burn_in",
    "capacity_steps": "buffer_size replay_buffer_size replay_size capacity",
    "clip_range": "clip_param clip_coef clip_epsilon epsilon_clip",
    "context_steps": "context_size context_length seq_len sequence_length",
    "dropout": "dropout_rate",
    "entropy_coefficient": "ent_coef entropy_coef entropy_coeff entropy_weight",
    "environment": "env env_id env_name environment_id gym_id task",
    "episodes": "n_episodes num_episodes n_eval_episodes eval_episodes num_eval_episodes evaluation_duration "
    "evaluation_episodes",
    "frames": "frame_stack framestack n_stack num_frames stack",
    "gae_lambda": "lambda lambda_ lam gae",
    "gamma": "discount discount_factor discount_rate",
    "gpus_per_learner": "device gpu gpus num_gpus n_gpus num_gpus_per_learner cuda use_gpu",
    "held_out_fraction": "test_size test_fraction val_size val_fraction validation_fraction validation_split",
    "hidden_sizes": "hidden_dim hidden_dims hidden_layers hidden_layer_sizes hidden_size hidden_units hiddens fcnet_hiddens "
    "head_fcnet_hiddens net_arch",
    "interval_iterations": "eval_freq eval_interval eval_every evaluation_freq",
    "learners": "num_learners n_learners num_workers",
    "learning_rate": "lr step_size alpha_lr",
    "learning_starts_steps": "learning_starts",
    "max_epochs": "epochs n_epochs num_epochs nb_epochs num_train_epochs",
    "max_gradient_norm": "grad_clip gradient_clip gradient_clipping clip_grad clip_grad_norm max_grad_norm",
    "max_updates": "updates n_updates num_updates steps n_steps num_steps max_steps train_steps n_train_steps gradient_steps "
    "n_gradient_steps iterations n_iterations num_iterations total_timesteps timesteps",
    "n_step": "n_steps nstep",
    "networks": "actor_lr critic_lr policy_lr qf_lr value_lr actor_learning_rate critic_learning_rate policy_learning_rate",
    "normalize_observations": "normalize_obs normalize_states normalize observation_scaler observation_filter",
    "num_epochs": "epochs n_epochs num_sgd_iter",
    "num_envs": "n_envs num_envs_per_env_runner num_envs_per_worker",
    "num_recorders": "num_env_runners num_workers n_jobs workers",
    "number": "n_critics num_critics num_qs n_qs",
    "policy_interval_updates": "policy_delay policy_freq policy_frequency actor_update_interval",
    "recurrent": "lstm use_lstm rnn gru use_gru",
    "recurrent_units": "lstm_cell_size rnn_units rnn_hidden_size",
    "rewards": "reward_scale reward_scaler reward_shift",
    "schedule": "lr_schedule lr_scheduler scheduler",
    "rollouts_per_iteration": "evaluation_interval eval_freq eval_interval",
    "seed": "random_seed random_state rng",
    "target_network_interval_updates": "target_update_interval target_update_freq target_update_period "
    "target_network_update_freq",
    "threads": "torch_threads num_threads n_threads",
    "target_noise": "policy_noise target_policy_noise target_smoothing_sigma",
    "target_noise_limit": "noise_clip target_noise_clip target_smoothing_clip",
    "target_rate": "tau polyak soft_tau",
    "temperature": "temp",
    "total_steps": "total_timesteps timesteps env_steps total_env_steps max_env_steps n_steps num_steps steps max_steps",
    "updates_per_iteration": "n_steps_per_epoch updates_per_epoch steps_per_epoch",
    "warmup_updates": "warmup warmup_steps lr_warmup num_warmup_steps",
    "where": "filter query condition",
}
"""What people who know other libraries (d3rlpy, Stable-Baselines3, RLlib, CORL) call our parameters."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean marwil?)" where one of the known names is like `name`, and nothing where none is."""
    meant = closest(name, known)
    return f" (did you mean {meant[0]}?)" if meant else ""


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are most like `name`, the likest first; case, blanks and underscores do not count."""
    plain = {_plain(choice): choice for choice in known}
    return [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=MOST_NAMES, cutoff=cutoff)]


def meant_parameters(name: str, models: Mapping[str, type[BaseModel]], unused: Collection[str] = ()) -> list[str]:
    """Return the paths of the parameters that people may mean by `name`, which no model has there.

    Arguments:
        name: with the names of groups before it, if it was given with them: "optimizer.lr".
        models: by the name of their group; the empty one stands for none.
        unused: groups that nothing reads, by their paths; named only where the parameter is nowhere else.
    """
    group, _, last = name.rpartition(".")
    paths = [path for group, model in models.items() for path in paths_of(model, f"{group}." if group else "")]
    used = [path for path in paths if not any(path == group_path or path.startswith(f"{group_path}.") for group_path in unused)]
    ours = {
        _plain(last),
        *(_plain(parameter) for parameter, theirs in SYNONYMS.items() if _plain(last) in map(_plain, theirs.split())),
    }
    for some in (used, paths):
        if matches := [path for path in some if _plain(path.rpartition(".")[2]) in ours]:
            if same_group := [path for path in matches if path.rpartition(".")[0] == group]:
                return same_group[:MOST_NAMES]
            depth = min(path.count(".") for path in matches)
            return [path for path in matches if path.count(".") == depth][:MOST_NAMES]
    inside = {path.rpartition(".")[2]: path for path in paths if path.rpartition(".")[0] == group}
    if matches := closest(last, inside)[:1]:
        return [inside[matches[0]]]
    anywhere = {path.rpartition(".")[2]: path for path in reversed(used)}
    return [anywhere[match] for match in closest(last, anywhere, cutoff=0.8)[:1]]


def choices_of(annotation: Any) -> list[Any]:
    """Return the types that a value may have, but for None."""
    if get_origin(annotation) is Annotated:
        return choices_of(get_args(annotation)[0])
    if get_origin(annotation) not in (Union, UnionType):
        return [annotation]
    return [kind for member in get_args(annotation) if member is not type(None) for kind in choices_of(member)]


def is_model(kind: Any) -> bool:
    """Whether a type is a group of parameters."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def paths_of(model: type[BaseModel], prefix: str) -> dict[str, FieldInfo]:
    """Return all parameters and groups by their paths, those of the fewest groups first."""
    by_path: dict[str, FieldInfo] = {}
    level: list[tuple[str, type[BaseModel]]] = [(prefix, model)]
    for _ in range(MOST_LEVELS):
        fields = [(f"{path}{name}", field) for path, group in level for name, field in group.model_fields.items()]
        for path, field in fields:
            by_path.setdefault(path, field)
        level = [(f"{path}.", kind) for path, field in fields for kind in choices_of(field.annotation) if is_model(kind)]
    return by_path


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()
