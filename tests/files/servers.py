"""Servers for these tests: S3 servers over a directory, and the daemon with its S3 endpoint in front of them.

`TERRACE` names the command's binary, `S3_SERVER` the S3 server of this repository's tests, `VERSITYGW` versitygw's.
"""

import json
import os
import socket
import subprocess
import time

import boto3
import botocore.config

KEY, SECRET = "TESTKEY", "test-secret-that-must-not-show"
# Those that clients of the endpoint sign with.
ID, OWN = "ENDPOINTKEY", "another-secret-that-must-not-show"
ENVIRONMENT = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def client(url, key=KEY, secret=SECRET, **options):
    config = botocore.config.Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, read_timeout=60, max_pool_connections=50, **options)
    return boto3.client("s3", endpoint_url=url, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1", config=config)


def wait_for(port, process):
    while True:
        assert process.poll() is None, "the server has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.01)


class Server:
    """An S3 server over a directory, whose folders are its buckets."""

    def __init__(self, kind, directory, port=None):
        self.kind, self.directory, self.port = kind, directory, port or free_port()
        directory.mkdir(exist_ok=True)
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        if self.kind == "versitygw":
            metadata = self.directory.parent / "metadata"
            metadata.mkdir(exist_ok=True)
            command = [os.environ["VERSITYGW"], "--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{self.port}", "posix", "--sidecar", metadata, self.directory]
        else:
            command = [os.environ["S3_SERVER"], self.directory, str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        wait_for(self.port, self.process)

    def client(self, **options):
        return client(self.url, **options)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Endpoint:
    """The daemon over a bucket of a server, with the endpoint."""

    def __init__(self, place, url, bucket, *options, keys=True, listen=None):
        self.bucket = bucket
        self.socket = str(place / "socket")
        self.keys = place / "keys"
        self.keys.write_text(f"# for these tests\n{ID} {OWN}\n")
        self.keys.chmod(0o600)
        command = [os.environ["TERRACE"], "files", "--store", f"s3://{bucket}", "--store-endpoint", url, "--memory", "128M", "--socket", self.socket,
                   "--requests", "16", "--s3-listen", listen or "127.0.0.1:0", *options]
        if keys:
            command += ["--s3-keys", str(self.keys)]
        self.said = []
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        for line in self.process.stderr:
            self.said.append(line)
            if "serving" in line:
                self.url = line.rsplit(" and ", 1)[1].strip()
                return
        raise RuntimeError("".join(self.said))

    def client(self, **options):
        return client(self.url, **{"key": ID, "secret": OWN, **options})

    def status(self):
        command = [os.environ["TERRACE"], "files", "status", "--socket", self.socket]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def figure(self, name):
        return self.status()["s3"][f"s3_{name}"]

    def evict(self, prefix=""):
        subprocess.run([os.environ["TERRACE"], "files", "evict", "--socket", self.socket, prefix], check=True, capture_output=True)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(30)
        assert code == 0, code
