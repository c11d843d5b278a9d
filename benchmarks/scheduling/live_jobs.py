"""The jobs of the live benchmark: a mixture that is the same at every run, and what each must leave behind. Pure.

Each member of each attempt writes one line into a file of its job, so that what ran twice is seen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

#: of the mixture; the rest are single jobs of a fraction
GANGS, ARRAYS, ARRAY_SIZE, LIMITED, FOLLOWERS, RETRIED = 24, 6, 5, 10, 24, 2
CODES = (0, 0, 0, 1, 3, 77)
MARK = 'echo "$VGPU_JOB_ATTEMPT ${VGPU_MEMBER:-0}" >> ran-$VGPU_JOB_ID; '


@dataclass(frozen=True)
class Submission:
    """A submission: a job or an array."""

    user: int  # index
    script: str
    milli: int
    state: str  # as it must end
    exit_code: int | None  # None: whatever its end by a signal gives
    members: int = 1
    array: int = 0
    priority: int = 0
    limit_s: float = 0.0
    retries: int = 0
    after: tuple[int, ...] = field(default=())  # places of earlier requests, whose jobs must all complete
    after_any: bool = False

    @property
    def jobs(self) -> int:
        return max(1, self.array)

    @property
    def attempts(self) -> int:
        """How often it starts if it is not preempted."""
        return 2 if self.retries else 1


def make_submissions(count: int, seed: int = 6) -> list[Submission]:
    """So many jobs in a fixed order."""
    chance = random.Random(seed)
    made = [_gang(chance) for _ in range(GANGS)] + [_array(chance) for _ in range(ARRAYS)]
    made += [_limited_job(chance) for _ in range(LIMITED)] + [_retried_job(chance) for _ in range(RETRIED)]
    while sum(submission.jobs for submission in made) < count - FOLLOWERS:
        made.append(_single(chance))
    chance.shuffle(made)
    for number in range(FOLLOWERS):
        made.append(_follower(chance, made, number % 4 == 3))
    return made


def _working_script(chance: random.Random, code: int) -> str:
    return f"{MARK}sleep {chance.uniform(0.05, 0.8):.2f}; exit {code}"


def _state(code: int) -> str:
    return "failed" if code else "completed"


def _single(chance: random.Random) -> Submission:
    code = chance.choice(CODES)
    milli, priority = chance.choice((100, 250, 300, 500, 700, 1000, 1500)), chance.randrange(3)
    return Submission(chance.randrange(2), _working_script(chance, code), milli, _state(code), code, priority=priority)


def _gang(chance: random.Random) -> Submission:
    code = chance.choice(CODES)
    members = chance.choice((2, 2, 3))
    # all members run the same, and the gang ends with the first that fails: it waits for the others to begin
    begun = f"{MARK}while [ $(grep -c ^$VGPU_JOB_ATTEMPT ran-$VGPU_JOB_ID) -lt {members} ]; do sleep 0.01; done; "
    script = f"{begun}sleep {chance.uniform(0.05, 0.5):.2f}; exit {code}"
    return Submission(chance.randrange(2), script, chance.choice((200, 400, 500)), _state(code), code, members)


def _array(chance: random.Random) -> Submission:
    return Submission(
        chance.randrange(2), _working_script(chance, 0), chance.choice((100, 400)), "completed", 0, array=ARRAY_SIZE
    )


def _limited_job(chance: random.Random) -> Submission:
    return Submission(
        chance.randrange(2), f"{MARK}exec sleep 100", 300, "timed_out", None, limit_s=chance.uniform(0.5, 0.9)
    )


def _retried_job(chance: random.Random) -> Submission:
    script = f"{MARK}test $VGPU_JOB_ATTEMPT -ge 2 || exit 5"
    return Submission(chance.randrange(2), script, 200, "completed", 0, retries=1)


def _follower(chance: random.Random, earlier_jobs: list[Submission], any_end: bool) -> Submission:
    """One that waits for jobs that complete, or for any that end."""
    user = chance.randrange(2)
    before = [
        p
        for p, submission in enumerate(earlier_jobs)
        if submission.user == user and (any_end or submission.state == "completed")
    ]
    after = tuple(sorted(chance.sample(before, 2)))
    return Submission(user, _working_script(chance, 0), 300, "completed", 0, after=after, after_any=any_end)
