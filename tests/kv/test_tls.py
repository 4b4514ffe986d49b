"""TLS: redis-py and redis-cli against `terrace kv`, with certificates that openssl makes."""

import shutil
import socket
import ssl
import subprocess

import pytest
import redis
from test_redis_py import TERRACE


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, and certificates of it for the server and for a client."""
    directory = tmp_path_factory.mktemp("tls")

    def run(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)

    run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority", "-days", "2")
    (directory / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("server", "client"):
        run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "names")
    return directory


class Server:
    def __init__(self, certificates, lines, name="server"):
        self.port = free_port()
        path = certificates / f"{name}-{self.port}.conf"
        of = {"cert": f"{certificates}/server.crt", "key": f"{certificates}/server.key", "ca-cert": f"{certificates}/ca.crt"}
        files = "".join(f"tls-{kind}-file {file}\n" for kind, file in of.items())
        path.write_text(f"bind 127.0.0.1\nport 0\ntls-port {self.port}\n{files}{lines}\n")
        self.process = subprocess.Popen([TERRACE, "kv", str(path)], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "ready to accept connections on" in line:
                assert line.split(" on ")[1].startswith(f"127.0.0.1:{self.port};")
                return
        raise RuntimeError("the server did not start")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def connect(server, certificates, with_certificate=True, **options):
    if with_certificate:
        options |= {"ssl_certfile": f"{certificates}/client.crt", "ssl_keyfile": f"{certificates}/client.key"}
    return redis.Redis(port=server.port, ssl=True, ssl_ca_certs=f"{certificates}/ca.crt", socket_timeout=20, retry=None, **options)


def is_refused(client):
    try:
        client.ping()
    except (redis.ConnectionError, ConnectionError, ssl.SSLError):
        return True
    return False


def test_a_client_needs_a_certificate_unless_the_settings_say_otherwise(certificates):
    for setting, is_needed in (("", True), ("tls-auth-clients yes", True), ("tls-auth-clients optional", False), ("tls-auth-clients no", False)):
        with Server(certificates, setting) as server:
            assert connect(server, certificates).ping()
            assert is_refused(connect(server, certificates, with_certificate=False)) == is_needed


def test_large_values_and_long_pipelines_pass_through_tls(certificates):
    with Server(certificates, "io-threads 3\nio-threads-min 3") as server:
        clients = [connect(server, certificates) for _ in range(4)]
        value = bytes(range(256)) * 60_000
        for number, client in enumerate(clients):
            client.set(f"large{number}", value)
            with client.pipeline(transaction=False) as pipeline:
                for n in range(5000):
                    pipeline.set(f"{number}:{n}", n)
                    pipeline.get(f"{number}:{n}")
                assert pipeline.execute()[1::2] == [str(n).encode() for n in range(5000)]
        for number, client in enumerate(clients):
            assert client.get(f"large{number}") == value
        listener = clients[0].pubsub()
        listener.subscribe("news")
        assert listener.get_message(timeout=20)["type"] == "subscribe"
        clients[1].publish("news", value)
        assert listener.get_message(timeout=20)["data"] == value


def test_a_client_that_does_not_speak_tls_or_an_old_version_is_refused(certificates):
    with Server(certificates, "tls-protocols TLSv1.3") as server:
        assert is_refused(redis.Redis(port=server.port, socket_timeout=5, retry=None))
        old = ssl.create_default_context(cafile=f"{certificates}/ca.crt")
        old.load_cert_chain(f"{certificates}/client.crt", f"{certificates}/client.key")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(("127.0.0.1", server.port)) as plain, pytest.raises(ssl.SSLError):
            old.wrap_socket(plain, server_hostname="localhost")
        assert connect(server, certificates).ping()
        # Others go on.
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.sendall(b"\x16\x03\x01")
            assert connect(server, certificates).ping()


@pytest.mark.skipif(not shutil.which("redis-cli"), reason="redis-cli is not installed")
def test_redis_cli_speaks_tls(certificates):
    with Server(certificates, "requirepass secret") as server:
        line = ["redis-cli", "-p", str(server.port), "--tls", "--cacert", f"{certificates}/ca.crt", "--cert", f"{certificates}/client.crt"]
        line += ["--key", f"{certificates}/client.key", "-a", "secret", "--no-auth-warning"]
        assert subprocess.run([*line, "SET", "a", "1"], capture_output=True, text=True, timeout=20).stdout == "OK\n"
        commands = "".join("INCR a\n" for _ in range(100))
        out = subprocess.run(line, input=commands, capture_output=True, text=True, timeout=60).stdout
        assert out.split()[-1] == "101"


def test_settings_that_cannot_work_are_named_at_the_start(certificates):
    for lines, why in (
        ("", "tls-cert-file"),
        (f"tls-cert-file {certificates}/none", "none"),
        (f"tls-cert-file {certificates}/server.crt\ntls-key-file {certificates}/server.crt", "tls-key-file"),
        (f"tls-cert-file {certificates}/server.crt\ntls-key-file {certificates}/server.key", "tls-ca-cert-file"),
        (f"tls-cert-file {certificates}/server.crt\ntls-key-file {certificates}/client.key\ntls-auth-clients no", "tls-cert-file and tls-key-file"),
        (f"tls-cert-file {certificates}/server.crt\ntls-key-file {certificates}/server.key\ntls-protocols SSLv3", "SSLv3"),
    ):
        path = certificates / "bad.conf"
        path.write_text(f"bind 127.0.0.1\nport 0\ntls-port {free_port()}\n{lines}\n")
        done = subprocess.run([TERRACE, "kv", str(path)], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and why in done.stderr, done.stderr
