"""The queue of a sweep: which job is trained when, and which is tried again after its process has died."""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from bayesticket.sweeps.backends import Backend
from bayesticket.sweeps.display import Display
from bayesticket.sweeps.worker import Job, Outcome

POLL_EVERY = 0.5
"""Seconds between two looks at the progress of the runs."""
RETRY_BUSY_AFTER = 2.0
"""Seconds until a run that another process is training is tried again."""


class JobQueue:
    """Submits jobs to a backend until every job has an outcome."""

    def __init__(self, jobs: Sequence[Job], backend: Backend, display: Display, alive_file: Path):
        self.jobs, self.backend, self.display, self.alive_file = jobs, backend, display, alive_file
        self.waiting = deque(jobs)
        self.submitted: set[str] = set()
        self.postponed: dict[str, tuple[Job, float]] = {}
        """Jobs that another process is training, and when to try them again."""
        self.outcomes: dict[str, Outcome] = {}
        self.deaths: dict[str, tuple[int, int]] = {}
        """For each job whose process has died: how often in a row without progress, and its furthest epoch."""
        self.has_announced_waiting = False

    def run(self) -> dict[str, Outcome]:
        """Trains all jobs; returns their outcomes. If an error or Ctrl-C interrupts it, all runs are stopped first."""
        try:
            while len(self.outcomes) < len(self.jobs):
                self._step()
        except BaseException:
            self.alive_file.unlink(missing_ok=True)
            self.display.refresh()
            self.backend.stop()
            raise
        self.backend.shut_down()
        return {job.name: self.outcomes[job.name] for job in self.jobs}

    def _step(self) -> None:
        """Submits what can be submitted, waits for what ends, and updates the display."""
        for name, (job, due) in list(self.postponed.items()):
            if time.monotonic() >= due:
                del self.postponed[name]
                self.waiting.append(job)
        while self.waiting and self.backend.has_capacity():
            job = self.waiting.popleft()
            self.submitted.add(job.name)
            self.backend.submit(job)
        if not self.submitted:
            time.sleep(POLL_EVERY)
        for job, outcome in self.backend.wait(POLL_EVERY):
            self.submitted.discard(job.name)
            self._handle(job, outcome)
        self.display.update(self.outcomes)

    def _handle(self, job: Job, outcome: Outcome) -> None:
        """Keeps a final outcome; puts the job back in the queue after any other."""
        for note in outcome.notes:
            self.display.announce(f"{job.name}: {note}")
        if outcome.kind == "busy":
            self._postpone(job)
        elif outcome.kind == "stopped" and not self.alive_file.exists():  # something else has removed the alive file
            self.alive_file.touch()
            self.waiting.appendleft(job)
        elif outcome.kind == "stopped":
            error = (
                f"it stopped since its process does not find {self.alive_file}; every process has to see the store "
                "under the same path"
            )
            self._retry(job, Outcome("died", error))
        elif outcome.kind == "died":
            self._retry(job, outcome)
        else:
            self.outcomes[job.name] = outcome

    def _postpone(self, job: Job) -> None:
        self.postponed[job.name] = (job, time.monotonic() + RETRY_BUSY_AFTER)
        if not self.has_announced_waiting and not self.waiting and not self.submitted:
            self.has_announced_waiting = True
            n_runs = len(self.jobs) - len(self.outcomes)
            runs = "a run" if n_runs == 1 else f"{n_runs} runs"
            self.display.announce(f"waiting for {runs} that another process trains")

    def _retry(self, job: Job, death: Outcome) -> None:
        """Puts a job back in the queue, unless it has died too often without progress."""
        self.display.refresh()
        progress = self.display.latest.get(job.name)
        reached = -1 if progress is None else progress.epoch
        deaths, furthest = self.deaths.get(job.name, (0, -1))
        deaths = 1 if reached > furthest else deaths + 1
        self.deaths[job.name] = deaths, max(reached, furthest)
        if deaths >= self.backend.max_deaths:
            error = f"{death.error}, {deaths} times in a row without any progress"
            self.outcomes[job.name] = Outcome("failed", error, death.traceback)
            return
        self.display.announce(f"{job.name}: {death.error}; it resumes from its last checkpoint")
        self.waiting.appendleft(job)
