"""The jobs that test_job_queues.py sends through Celery and RQ. `KV_PORT` names the server."""

import os

import celery

URL = f"redis://127.0.0.1:{os.environ.get('KV_PORT', '6380')}"
app = celery.Celery("kv_jobs", broker=URL + "/0", backend=URL + "/1")
app.conf.worker_hijack_root_logger = False


@app.task
def square(number):
    return number * number


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def succeeds_at_last(self, number):
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return number


def cube(number):
    return number**3
