"""Celery and RQ on `terrace kv`: a thousand jobs each, every one of them run exactly once and its result read back."""

import os
import pathlib
import subprocess
import sys

import pytest
import redis
from test_redis_py import start

HERE = pathlib.Path(__file__).resolve().parent
JOBS = 1000


@pytest.fixture(scope="module")
def port():
    process, port, _ = start()
    yield port
    process.kill()
    process.wait()


def test_celery_runs_a_thousand_jobs(port, monkeypatch):
    monkeypatch.setenv("KV_PORT", str(port))
    monkeypatch.syspath_prepend(str(HERE))
    import celery
    import kv_jobs

    command = [sys.executable, "-m", "celery", "-A", "kv_jobs", "worker", "--pool=threads", "-c", "4", "-l", "WARNING"]
    worker = subprocess.Popen(command, cwd=HERE, env={**os.environ, "KV_PORT": str(port)})
    try:
        results = celery.group(kv_jobs.square.s(number) for number in range(JOBS)).apply_async()
        assert results.get(timeout=100) == [number * number for number in range(JOBS)]
        # A chord runs its last job when its group is done; retries go through the schedule of unacknowledged jobs.
        total = celery.chord(kv_jobs.square.s(number) for number in range(20))(kv_jobs.total.s())
        assert total.get(timeout=60) == sum(number * number for number in range(20))
        assert kv_jobs.succeeds_at_last.delay(5).get(timeout=60) == 5
    finally:
        worker.terminate()
        worker.wait()
    broker = redis.Redis(port=port, db=0)
    assert broker.llen("celery") == 0 and broker.hlen("unacked") == 0


def test_rq_runs_a_thousand_jobs(port, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import kv_jobs
    import rq

    connection = redis.Redis(port=port, db=2)
    queue = rq.Queue("cubes", connection=connection)
    jobs = queue.enqueue_many([rq.Queue.prepare_data(kv_jobs.cube, args=(number,)) for number in range(JOBS)])
    failing = queue.enqueue(kv_jobs.cube, "no number")
    assert rq.SimpleWorker([queue], connection=connection).work(burst=True, logging_level="ERROR")
    assert [job.return_value() for job in jobs] == [number**3 for number in range(JOBS)]
    assert failing.get_status(refresh=True) == rq.job.JobStatus.FAILED
    assert len(queue) == 0 and rq.registry.FailedJobRegistry(queue=queue).get_job_count() == 1
