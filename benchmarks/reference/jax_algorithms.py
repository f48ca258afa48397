"""The field's algorithms as compiled loops of JAX, written from the papers.

Used by `jax_side`, `jax_speed` and `jax_gpu`, which run by themselves in an environment with jax and optax. One call of `train`
is one compiled scan of updates: batches are drawn, losses, gradients, Adam and target networks computed without Python in
between. Actions have the bounds -1 and 1; where they are listed they are `choices`.
"""

import math
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import optax

GAMMA, RATE = 0.99, 0.005


def normal(key, shape):
    """Without a key, zeros."""
    return jnp.zeros(shape) if key is None else jax.random.normal(key, shape)


def split(key, number):
    return [None] * number if key is None else jax.random.split(key, number)


def layers(key, sizes, copies=None):
    """Weights (inputs, outputs) and biases; of several critics, a list of such lists."""
    if copies is not None:
        return [layers(subkey, sizes) for subkey in jax.random.split(key, copies)]
    keys, pairs = jax.random.split(key, len(sizes) - 1), pairwise(sizes)
    return [
        {"w": jax.random.uniform(k, pair, minval=-1, maxval=1) / math.sqrt(pair[0]), "b": jnp.zeros(pair[1])}
        for k, pair in zip(keys, pairs, strict=True)
    ]


def run(network, x):
    for layer in network[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ network[-1]["w"] + network[-1]["b"]


def values(critics, observations, actions):
    """Return the values by all critics, (critics, B)."""
    x = jnp.concatenate([observations, actions], axis=1)
    return jnp.stack([run(critic, x)[:, 0] for critic in critics])


def moved(target, learned):
    return jax.tree.map(lambda t, p: t + RATE * (p - t), target, learned)


def log_prob(mean, log_std, actions):
    """Return the log probability of a diagonal Gaussian."""
    z = (actions - mean) * jnp.exp(-log_std)
    return (-0.5 * z**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(axis=1)


def squashed(outputs, key):
    """An action drawn from tanh of a Gaussian, and its log-probability."""
    mean, log_std = jnp.split(outputs, 2, axis=1)
    log_std = log_std.clip(-8.0, 2.0)
    drawn = mean + jnp.exp(log_std) * normal(key, mean.shape)
    slope = 2 * (math.log(2) - drawn - jax.nn.softplus(-2 * drawn))
    return jnp.tanh(drawn), log_prob(mean, log_std, drawn) - slope.sum(axis=1)


class Algorithm:
    """The networks of an algorithm, and the loss of a batch: `learned` has gradients, `target` follows.

    Arguments:
        observation, actions: numbers in one of each; of a list, how many actions there are.
        settings: those of the suite (`benchmarks.reference.suite`); what is left out is as in the papers.
        updates: of the whole training, in which a rate falls.
    """

    policy_interval = 1

    def __init__(self, observation, actions, settings, updates=None):
        self.observation, self.actions, self.settings, self.updates = observation, actions, settings, updates

    def sizes(self, inputs, outputs):
        return (inputs, *self.settings["hidden"], outputs)

    def optimizer(self, name):
        """Return the optimizer of the network of this name."""
        rates = self.settings["rates"]
        rate = rates.get("policy" if name == "policy" else "critics", next(iter(rates.values())))
        return optax.adam(self.schedule(rate) if name == "policy" else rate)

    def schedule(self, rate):
        """The rate of the policy."""
        return rate

    def greedy(self, learned, observations):
        """The policy without a draw: (B, observation) → (B, actions), or (B,) of a list."""
        return jnp.tanh(run(learned["policy"], observations))


class BC(Algorithm):
    """Squared error of tanh of the mean."""

    def learned(self, key):
        return {"policy": layers(key, self.sizes(self.observation, self.actions))}

    def target(self, learned):
        return {}

    def loss(self, learned, target, batch, key, policy_learns):
        return jnp.square(jnp.tanh(run(learned["policy"], batch["obs"])) - batch["actions"]).mean()


class DiscreteBC(BC):
    """Cross-entropy."""

    def loss(self, learned, target, batch, key, policy_learns):
        return optax.softmax_cross_entropy_with_integer_labels(run(learned["policy"], batch["obs"]), batch["choices"]).mean()

    def greedy(self, learned, observations):
        return run(learned["policy"], observations).argmax(axis=1)


class IQL(Algorithm):
    """Kostrikov et al. 2021; the rate of the policy falls as a cosine."""

    def schedule(self, rate):
        return rate if self.updates is None else optax.cosine_decay_schedule(rate, self.updates)

    def greedy(self, learned, observations):
        return jnp.tanh(run(learned["policy"]["layers"], observations))

    def learned(self, key):
        policy, value, critics = jax.random.split(key, 3)
        return {
            "policy": {
                "layers": layers(policy, self.sizes(self.observation, self.actions)),
                "log_std": jnp.zeros(self.actions),
            },
            "value": layers(value, self.sizes(self.observation, 1)),
            "critics": layers(critics, self.sizes(self.observation + self.actions, 1), 2),
        }

    def target(self, learned):
        return {"critics": learned["critics"]}

    def loss(self, learned, target, batch, key, policy_learns):
        q = values(target["critics"], batch["obs"], batch["actions"]).min(axis=0)
        value = run(learned["value"], batch["obs"])[:, 0]
        advantage = q - value
        value_loss = jnp.where(advantage < 0, 0.3, 0.7) * jnp.square(advantage)
        following = jax.lax.stop_gradient(run(learned["value"], batch["new_obs"])[:, 0])
        goal = batch["rewards"] + GAMMA * batch["open"] * following
        critic_loss = jnp.square(values(learned["critics"], batch["obs"], batch["actions"]) - goal).sum(axis=0)
        weight = jnp.minimum(jnp.exp(3.0 * jax.lax.stop_gradient(advantage)), 100.0)
        mean = jnp.tanh(run(learned["policy"]["layers"], batch["obs"]))
        log_std = learned["policy"]["log_std"].clip(-8.0, 2.0)
        policy_loss = -weight * log_prob(mean, log_std, batch["actions"])
        return (value_loss + critic_loss + policy_loss).mean()


class TD3(Algorithm):
    """Fujimoto et al. 2018; the policy learns in every second update."""

    policy_interval = 2

    def critics(self, key):
        return layers(key, self.sizes(self.observation + self.actions, 1), 2)

    def value(self, critics, observations, actions):
        return values(critics, observations, actions)

    def learned(self, key):
        policy, critics = jax.random.split(key)
        return {"policy": layers(policy, self.sizes(self.observation, self.actions)), "critics": self.critics(critics)}

    def target(self, learned):
        return learned

    def loss(self, learned, target, batch, key, policy_learns):
        noise = jnp.clip(0.2 * normal(key, batch["actions"].shape), -0.5, 0.5)
        new_actions = jnp.clip(jnp.tanh(run(target["policy"], batch["new_obs"])) + noise, -1, 1)
        following = self.following(self.value(target["critics"], batch["new_obs"], new_actions).min(axis=0), new_actions, batch)
        goal = batch["rewards"] + GAMMA * batch["open"] * following
        loss = jnp.square(self.value(learned["critics"], batch["obs"], batch["actions"]) - goal).sum(axis=0).mean()
        if policy_learns:
            actions = jnp.tanh(run(learned["policy"], batch["obs"]))
            loss += self.policy_loss(jax.lax.stop_gradient(learned["critics"]), actions, batch)
        return loss

    def following(self, value, new_actions, batch):
        return value


class TD3BC(TD3):
    """Fujimoto & Gu 2021."""

    def policy_loss(self, critics, actions, batch):
        q = run(critics[0], jnp.concatenate([batch["obs"], actions], axis=1))[:, 0]
        weight = self.settings["alpha"] / jnp.abs(jax.lax.stop_gradient(q)).mean()
        return jnp.square(actions - batch["actions"]).mean() - (weight * q).mean()


class ReBRAC(TD3):
    """Tarasov et al. 2023: layer norm in the critics, distances to the recorded actions in both losses."""

    def critics(self, key):
        def with_norms(critic):
            norms = [{"scale": jnp.ones(size), "shift": jnp.zeros(size)} for size in self.settings["hidden"]]
            return [layer | norm for layer, norm in zip(critic, [*norms, {}], strict=True)]

        return [with_norms(critic) for critic in super().critics(key)]

    def value(self, critics, observations, actions):
        x = jnp.concatenate([observations, actions], axis=1)
        return jnp.stack([self.one(critic, x) for critic in critics])

    def one(self, critic, x):
        for layer in critic[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
            mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
            x = (x - mean) * jax.lax.rsqrt(variance + 1e-5) * layer["scale"] + layer["shift"]
        return (x @ critic[-1]["w"] + critic[-1]["b"])[:, 0]

    def following(self, value, new_actions, batch):
        distance = jnp.square(new_actions - batch["new_actions"]).sum(axis=1)
        return value - self.settings["critic_penalty"] * distance * batch["has_new_actions"]

    def policy_loss(self, critics, actions, batch):
        q = self.value(critics, batch["obs"], actions).min(axis=0)
        q = q / jnp.abs(jax.lax.stop_gradient(q)).mean()
        return (self.settings["policy_penalty"] * jnp.square(actions - batch["actions"]).sum(axis=1) - q).mean()


class CQL(Algorithm):
    """Kumar et al. 2020, on soft actor-critic: 10 actions of each of three kinds, weighted by their densities."""

    def learned(self, key):
        policy, critics = jax.random.split(key)
        return {
            "policy": layers(policy, self.sizes(self.observation, 2 * self.actions)),
            "critics": layers(critics, self.sizes(self.observation + self.actions, 1), 2),
            "log_temperature": jnp.zeros(()),
        }

    def target(self, learned):
        return {"critics": learned["critics"]}

    def loss(self, learned, target, batch, key, policy_learns):
        obs, keys, fixed = batch["obs"], split(key, 4), jax.lax.stop_gradient
        outputs, new_outputs = run(learned["policy"], obs), fixed(run(learned["policy"], batch["new_obs"]))
        new_actions, _ = squashed(new_outputs, keys[0])
        goal = batch["rewards"] + GAMMA * batch["open"] * values(target["critics"], batch["new_obs"], new_actions).min(axis=0)
        q = values(learned["critics"], obs, batch["actions"])
        loss = jnp.square(q - goal).sum(axis=0).mean()
        actions, log_probs = squashed(outputs, keys[1])
        temperature = jnp.exp(learned["log_temperature"])
        loss += (fixed(temperature) * log_probs - values(fixed(learned["critics"]), obs, actions).min(axis=0)).mean()
        loss -= (learned["log_temperature"] * (fixed(log_probs) - self.actions)).mean()
        uniform = jnp.zeros((10 * len(obs), self.actions))
        if key is not None:
            uniform = jax.random.uniform(keys[2], uniform.shape, minval=-1, maxval=1)
        both = jnp.concatenate([jnp.tile(fixed(outputs), (10, 1)), jnp.tile(new_outputs, (10, 1))])
        drawn, densities = squashed(both, keys[3])
        densities = jnp.concatenate([jnp.full(len(uniform), -self.actions * math.log(2)), densities])
        sampled = values(learned["critics"], jnp.tile(obs, (30, 1)), jnp.concatenate([uniform, drawn])) - densities
        integral = jax.nn.logsumexp(sampled.reshape(2, 30, -1), axis=1) - math.log(30)
        return loss + self.settings["alpha"] * (integral - q).sum(axis=0).mean()

    def greedy(self, learned, observations):
        return jnp.tanh(jnp.split(run(learned["policy"], observations), 2, axis=1)[0])


class DiscreteCQL(Algorithm):
    """Double Q-learning with Huber's loss and the penalty log Σ exp Q - Q; the target is a copy, renewed now and then."""

    def learned(self, key):
        return {"policy": layers(key, self.sizes(self.observation, self.actions))}

    def target(self, learned):
        return learned

    def loss(self, learned, target, batch, key, policy_learns):
        all_q = run(learned["policy"], batch["obs"])
        q = jnp.take_along_axis(all_q, batch["choices"][:, None], axis=1)[:, 0]
        best = jax.lax.stop_gradient(run(learned["policy"], batch["new_obs"])).argmax(axis=1)
        following = jnp.take_along_axis(run(target["policy"], batch["new_obs"]), best[:, None], axis=1)[:, 0]
        error = q - (batch["rewards"] + GAMMA * batch["open"] * following)
        huber = jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5)
        return (huber + self.settings["alpha"] * (jax.nn.logsumexp(all_q, axis=1) - q)).mean()

    def greedy(self, learned, observations):
        return run(learned["policy"], observations).argmax(axis=1)


def beginning(algorithm, seed):
    """The state of a training: networks, targets, moments of Adam, and a key."""
    learned = algorithm.learned(jax.random.key(seed))
    target = jax.tree.map(jnp.copy, algorithm.target(learned))
    moments = {name: algorithm.optimizer(name).init(network) for name, network in learned.items()}
    return learned, target, moments, jax.random.key(seed + 1)


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=4)
def train(algorithm, batch_size, updates, steps, state):
    """Return (state, (updates / policy_interval,) losses) after so many updates with batches of the steps.

    Arguments:
        steps: (N, …) by name.
    """

    def update(learned, target, moments, batch, key, policy_learns):
        # An update of the critics alone leaves the policy's weights and Adam's moments of it as they are.
        grown = learned if policy_learns else {name: p for name, p in learned.items() if name != "policy"}

        def loss_of(grown):
            return algorithm.loss(learned | grown, target, batch, key, policy_learns)

        loss, gradients = jax.value_and_grad(loss_of)(grown)
        changes, moments = {}, dict(moments)
        for name in grown:
            changes[name], moments[name] = algorithm.optimizer(name).update(gradients[name], moments[name])
        learned = learned | optax.apply_updates(grown, changes)
        if policy_learns and not isinstance(algorithm, DiscreteCQL):
            target = moved(target, {name: learned[name] for name in target})
        return learned, target, moments, loss

    def body(state, _):
        learned, target, moments, key = state
        losses = []
        for number in range(algorithm.policy_interval):
            key, drawing, noise = jax.random.split(key, 3)
            rows = jax.random.randint(drawing, (batch_size,), 0, len(steps["obs"]))
            batch = {name: column[rows] for name, column in steps.items()}
            learns = number == algorithm.policy_interval - 1
            learned, target, moments, loss = update(learned, target, moments, batch, noise, learns)
            losses.append(loss)
        return (learned, target, moments, key), jnp.stack(losses).mean()

    return jax.lax.scan(body, state, None, length=updates // algorithm.policy_interval)


ALGORITHMS = {"bc": BC, "iql": IQL, "td3_bc": TD3BC, "rebrac": ReBRAC, "cql": CQL, "dcql": DiscreteCQL}
