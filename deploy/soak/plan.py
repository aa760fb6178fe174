"""Named draws: a seed decides the configuration of every round, and its disturbances.

A draw depends on the seed, the number of the round and its name, never on time. The same seed therefore gives the same
plan, although the moments at which disturbances meet a run differ a little from one soak to the next.
"""

import random
from dataclasses import dataclass

# Kinds of disturbances, and how often each is drawn.
KINDS = {
    "rank-kill": 3,
    "rank-pause": 3,
    "rank-terminate": 2,
    "launcher-kill": 1,
    "launcher-pause": 1,
    "launcher-terminate": 1,
    "launcher-interrupt": 1,
    "server-kill": 3,
    "server-pause": 3,
    "server-drain": 2,
    "servers-away": 1,
    "rolling-restart": 2,
    "line-cut": 3,
    "line-slow": 2,
    "line-trickle": 1,
    "line-reset": 3,
    "line-half-close": 2,
    "network-down": 2,
    "network-slow": 2,
    "disk-full": 3,
    "certificates-rotated": 2,
    "tokens-rotated": 2,
    "foreign-files": 2,
}
SHARDS = (2, 3, 4)
N_SLICES = 4


@dataclass(frozen=True)
class Event:
    """One disturbance: `gap` seconds after the previous one began, for `duration` seconds, at a target in [0, 1)."""

    kind: str
    gap: float
    duration: float
    target: float


@dataclass(frozen=True)
class Plan:
    """A round."""

    number: int
    n_shards: int
    n_ranks: int
    run_seed: int
    model: str
    # True: `kith launch` starts the ranks again. False: the soak starts `kith train` once per rank.
    is_launched: bool
    # True: the run is kept at a file:// URL.
    is_in_bucket: bool
    rank_tls: str
    sampler_timeout: int
    cache: int
    # True: the first disturbance comes while the run starts, otherwise after its first steps.
    is_early: bool
    events: tuple[Event, ...]

    @property
    def configuration(self) -> str:
        """Results depend on this alone."""
        return f"{self.model}, seed {self.run_seed}"


def draw(seed: int, number: int, without: frozenset[str]) -> Plan:
    """The plan of a round; kinds in `without` are not possible on this machine, and are drawn as others."""
    draws = random.Random(f"{seed}/{number}")
    n_shards = SHARDS[number % len(SHARDS)]
    n_ranks = draws.randint(2, 3)
    is_launched = draws.random() < 0.5
    is_in_bucket = draws.random() < 0.35
    model = draws.choice(["supergat-mx", "gcn"])
    run_seed = draws.choice([42, 43])
    rank_tls, sampler_timeout = draws.choice(["auto", "on"]), draws.choice([6, 20])
    cache, is_early = draws.choice([0, 100]), draws.random() < 0.25
    kinds = [kind for kind in KINDS if kind not in without and (is_launched or not kind.startswith("launcher-"))]
    weights = [KINDS[kind] for kind in kinds]
    events = []
    for _ in range(draws.randint(3, 7)):
        kind = draws.choices(kinds, weights)[0]
        # Many short ones, and some that are longer than the time limits of ranks and clients.
        duration = 0.2 + 10 * draws.random() ** 3
        events.append(Event(kind, round(draws.uniform(0.2, 5), 2), round(duration, 2), round(draws.random(), 4)))
    return Plan(
        number,
        n_shards,
        n_ranks,
        run_seed,
        model,
        is_launched,
        is_in_bucket,
        rank_tls,
        sampler_timeout,
        cache,
        is_early,
        tuple(events),
    )
