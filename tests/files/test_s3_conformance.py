"""What a client of the S3 endpoint is answered is what the server behind it answers: status, headers, body and error, for each operation, and again
when the answer comes from the cache.

Each scenario runs directly on one bucket of a server and through the endpoint on another one. Servers: the one of this repository's tests, and versitygw.
"""

import base64
import hashlib
import io
import os
import urllib.error
import urllib.request

import botocore.client
import botocore.exceptions
import pytest
from servers import ID, KEY, OWN, SECRET, Endpoint, Server, client

# Of one answer or of the connection, not of the object.
VOLATILE = {"date", "x-amz-request-id", "x-amz-id-2", "connection", "transfer-encoding", "keep-alive", "vary", "content-length"}
SECOND = {"last-modified"}


@pytest.fixture(scope="module", params=["own", "versitygw"])
def servers(request, tmp_path_factory):
    if request.param == "versitygw" and not os.environ.get("VERSITYGW"):
        pytest.skip("versitygw cannot be built here: scripts/versitygw.sh says why")
    place = tmp_path_factory.mktemp(request.param)
    server = Server(request.param, place / "buckets")
    direct = server.client()
    direct.create_bucket(Bucket="direct")
    direct.create_bucket(Bucket="through")
    endpoint = Endpoint(place, server.url, "through", "--freshness", "ttl=60s")
    yield server, endpoint
    endpoint.stop()
    server.stop()


# In what the servers themselves are not as S3, so that the endpoint cannot be as they are.
NOT_AS_S3 = {
    "own": {
        "conditions_that_fail": "it ignores the conditions of reads",
        "ranges_that_are_longer": "it fails with 500 for a suffix that is longer than the object",
    },
}


def plain(value):
    """Without what differs from one request to another."""
    if isinstance(value, dict):
        gone = {"ResponseMetadata", "UploadId", "RequestId", "HostId", "ContinuationToken", "NextContinuationToken"}
        return {name: plain(one) for name, one in value.items() if name not in gone}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str):
        return value.replace("through", "direct")
    if isinstance(value, (int, float, bool, bytes)) or value is None:
        return value
    return type(value).__name__


class Asker:
    """Calls operations on a bucket and notes what came back."""

    def __init__(self, s3, bucket, is_endpoint):
        self.s3, self.bucket, self.is_endpoint, self.seen = s3, bucket, is_endpoint, []

    def call(self, operation, parameters):
        try:
            return getattr(self.s3, operation)(**parameters)
        except botocore.exceptions.ConnectionClosedError:
            # The server closes a connection when it answers before it has read the body, and does not say so. The endpoint says so.
            if self.is_endpoint:
                raise
            return getattr(self.s3, operation)(**parameters)

    def __call__(self, operation, **parameters):
        if operation != "list_buckets":
            parameters.setdefault("Bucket", self.bucket)
        try:
            answer = self.call(operation, parameters)
        except botocore.exceptions.ClientError as error:
            metadata = error.response["ResponseMetadata"]
            told = {name: plain(one) for name, one in error.response["Error"].items() if name not in ("RequestId", "HostId", "Resource", "UploadId")}
            self.seen.append((operation, "error", metadata["HTTPStatusCode"], told))
            return None
        metadata = answer["ResponseMetadata"]
        headers = {name: plain(value) for name, value in metadata["HTTPHeaders"].items() if name not in VOLATILE}
        headers = {name: "there" if name in SECOND else value for name, value in headers.items()}
        if operation == "head_object" and "ChecksumMode" not in parameters:
            # S3 gives them to those that ask. The server of the tests gives them to all.
            headers = {name: value for name, value in headers.items() if not name.startswith("x-amz-checksum-")}
            answer = {name: value for name, value in answer.items() if not name.startswith("Checksum")}
        body = answer.pop("Body").read() if "Body" in answer else b""
        self.seen.append((operation, metadata["HTTPStatusCode"], headers, plain(answer), hashlib.sha256(body).hexdigest(), len(body)))
        return answer

    def twice(self, operation, **parameters):
        """From the store, and then from the cache, if that may be."""
        self(operation, **parameters)
        return self(operation, **parameters)

    def put(self, key, body=b"content", **parameters):
        return self("put_object", Key=key, Body=body, **parameters)


def put_and_get(ask):
    ask.put("plain", b"hello")
    ask.twice("get_object", Key="plain")
    ask.twice("head_object", Key="plain")


def empty_object(ask):
    ask.put("empty", b"")
    ask.twice("get_object", Key="empty")
    ask.twice("head_object", Key="empty")
    ask.twice("get_object", Key="empty", Range="bytes=0-0")


def an_object_of_many_blocks(ask):
    ask.put("large", bytes(range(256)) * (80 << 10))
    ask.twice("get_object", Key="large")
    for part in ("bytes=8388600-8388620", "bytes=-100", "bytes=20000000-", "bytes=0-131071", "bytes=0-131072", "bytes=5-16777216"):
        ask.twice("get_object", Key="large", Range=part)


def headers_of_the_object(ask):
    ask.put("headers", b"x" * 100, ContentType="text/csv; charset=utf-8", CacheControl="max-age=60", ContentDisposition='attachment; filename="a.csv"',
            ContentEncoding="gzip", ContentLanguage="de", Metadata={"one": "1", "two": "a  b", "three": "x/y=z"})
    ask.twice("head_object", Key="headers")
    ask.twice("get_object", Key="headers")
    ask.twice("get_object", Key="headers", Range="bytes=10-19")


def no_content_type(ask):
    ask.put("bare")
    ask.twice("head_object", Key="bare")


def ranges(ask):
    ask.put("ranges", bytes(range(256)))
    for part in ("bytes=0-0", "bytes=0-9", "bytes=250-", "bytes=250-1000", "bytes=-6", "bytes=255-255", "bytes=1-255"):
        ask.twice("get_object", Key="ranges", Range=part)


def ranges_that_are_longer(ask):
    ask.put("longer", bytes(range(256)))
    for part in ("bytes=-1000", "bytes=-256", "bytes=0-", "bytes=0-255", "bytes=0-1000"):
        ask.twice("get_object", Key="longer", Range=part)


def ranges_that_are_not_there(ask):
    ask.put("outside", bytes(range(256)))
    for part in ("bytes=256-", "bytes=1000-2000"):
        ask.twice("get_object", Key="outside", Range=part)


def a_range_of_a_head(ask):
    ask.put("head-range", bytes(range(256)))
    ask.twice("head_object", Key="head-range", Range="bytes=0-9")


def missing_keys(ask):
    for key in ("missing", "missing/deep/er", "no such ä"):
        ask.twice("get_object", Key=key)
        ask.twice("head_object", Key=key)
    ask("get_object", Key="missing", Range="bytes=0-1")


def conditions_that_hold(ask):
    etag = ask.put("conditions")["ETag"]
    ask.twice("get_object", Key="conditions", IfMatch=etag)
    ask.twice("get_object", Key="conditions", IfNoneMatch='"0123456789abcdef0123456789abcdef"')
    ask.twice("get_object", Key="conditions", IfModifiedSince="Sun, 06 Nov 1994 08:49:37 GMT")
    ask.twice("head_object", Key="conditions", IfMatch=etag)


def conditions_that_fail(ask):
    etag = ask.put("failing")["ETag"]
    ask.twice("get_object", Key="failing", IfNoneMatch=etag)
    ask.twice("head_object", Key="failing", IfNoneMatch=etag)
    ask.twice("get_object", Key="failing", IfMatch='"0123456789abcdef0123456789abcdef"')
    ask.twice("head_object", Key="failing", IfMatch='"0123456789abcdef0123456789abcdef"')
    ask.twice("get_object", Key="failing", IfUnmodifiedSince="Sun, 06 Nov 1994 08:49:37 GMT")


def a_put_on_condition(ask):
    ask.put("once", b"first", IfNoneMatch="*")
    ask.put("once", b"second", IfNoneMatch="*")
    ask.twice("get_object", Key="once")


def unicode_keys(ask):
    keys = ["ä/ö ü", "日本語/ファイル", "a+b&c=d", "100%", "sp  ace", "quote'\"", "tilde~!*()", "semi;colon:at@", "🜲"]
    for key in keys:
        ask.put(key, key.encode())
        ask.twice("get_object", Key=key)
        ask.twice("head_object", Key=key)


def keys_that_are_no_paths(ask):
    ask.put("folder/", b"")
    ask.twice("get_object", Key="folder/")
    ask("delete_object", Key="folder/")
    ask.twice("head_object", Key="folder/")


def a_replaced_object(ask):
    ask.put("replaced", b"before", ContentType="text/plain")
    ask.twice("get_object", Key="replaced")
    ask.put("replaced", b"after, and longer", ContentType="text/html")
    ask.twice("get_object", Key="replaced")
    ask.twice("head_object", Key="replaced")


def the_same_bytes_with_other_headers(ask):
    ask.put("relabelled", b"same", Metadata={"label": "old"})
    ask.twice("head_object", Key="relabelled")
    ask.put("relabelled", b"same", Metadata={"label": "new"})
    ask.twice("head_object", Key="relabelled")
    ask.twice("get_object", Key="relabelled")


def a_deleted_object(ask):
    ask.put("deleted")
    ask.twice("get_object", Key="deleted")
    ask("delete_object", Key="deleted")
    ask.twice("get_object", Key="deleted")
    ask.twice("head_object", Key="deleted")
    ask.put("deleted", b"again")
    ask.twice("get_object", Key="deleted")


def delete_of_a_missing_key(ask):
    ask("delete_object", Key="never-was")


def many_deletes(ask):
    keys = [f"many/{i:03}" for i in range(30)] + ["many/ä & <b>"]
    for key in keys:
        ask.put(key)
        ask.twice("get_object", Key=key)
    ask.twice("list_objects_v2", Prefix="many/")
    ask("delete_objects", Delete={"Objects": [{"Key": key} for key in keys[5:]]})
    for key in keys[::7]:
        ask("head_object", Key=key)
    ask.twice("list_objects_v2", Prefix="many/")
    ask("delete_objects", Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
    ask.twice("list_objects_v2", Prefix="many/")


def copies(ask):
    ask.put("from", b"copied", ContentType="text/plain", Metadata={"kept": "yes"})
    ask("copy_object", Key="to", CopySource={"Bucket": ask.bucket, "Key": "from"})
    ask.twice("get_object", Key="to")
    ask.put("from", b"changed")
    ask("copy_object", Key="to", CopySource={"Bucket": ask.bucket, "Key": "from"})
    ask.twice("get_object", Key="to")


def a_copy_of_a_missing_key(ask):
    ask("copy_object", Key="copy-of-nothing", CopySource={"Bucket": ask.bucket, "Key": "nothing"})
    ask.twice("head_object", Key="copy-of-nothing")


def a_copy_with_odd_names(ask):
    ask.put("von ä+b", b"odd")
    ask("copy_object", Key="nach ö&c", CopySource={"Bucket": ask.bucket, "Key": "von ä+b"})
    ask.twice("get_object", Key="nach ö&c")


def an_upload_in_parts(ask):
    upload = ask("create_multipart_upload", Key="parts", ContentType="application/x-parts", Metadata={"in": "parts"})["UploadId"]
    ask.twice("head_object", Key="parts")
    parts = []
    for number, body in enumerate((b"a" * (5 << 20), b"b" * (6 << 20), b"c" * 100), 1):
        etag = ask("upload_part", Key="parts", UploadId=upload, PartNumber=number, Body=body)["ETag"]
        parts.append({"ETag": etag, "PartNumber": number})
    ask("complete_multipart_upload", Key="parts", UploadId=upload, MultipartUpload={"Parts": parts})
    ask.twice("head_object", Key="parts")
    ask.twice("get_object", Key="parts", Range="bytes=5242870-5242890")
    ask.twice("get_object", Key="parts")
    ask.twice("list_objects_v2", Prefix="parts")


def parts_that_are_listed(ask):
    upload = ask("create_multipart_upload", Key="listed-parts")["UploadId"]
    ask("upload_part", Key="listed-parts", UploadId=upload, PartNumber=2, Body=b"x" * 1000)
    ask("list_parts", Key="listed-parts", UploadId=upload)
    ask("abort_multipart_upload", Key="listed-parts", UploadId=upload)
    ask("list_parts", Key="listed-parts", UploadId=upload)


def an_aborted_upload(ask):
    ask.put("aborted", b"as it was")
    ask.twice("get_object", Key="aborted")
    upload = ask("create_multipart_upload", Key="aborted")["UploadId"]
    ask("upload_part", Key="aborted", UploadId=upload, PartNumber=1, Body=b"x" * (5 << 20))
    ask("abort_multipart_upload", Key="aborted", UploadId=upload)
    ask.twice("get_object", Key="aborted")


def an_upload_that_is_unknown(ask):
    unknown = "0af1e5a0-0000-4000-8000-000000000000"
    ask("upload_part", Key="unknown-upload", UploadId=unknown, PartNumber=1, Body=b"x")
    ask("complete_multipart_upload", Key="unknown-upload", UploadId=unknown, MultipartUpload={"Parts": [{"ETag": '"x"', "PartNumber": 1}]})


def a_part_that_is_a_copy(ask):
    ask.put("source-of-part", bytes(range(256)) * (24 << 10))
    upload = ask("create_multipart_upload", Key="part-copy")["UploadId"]
    source = {"Bucket": ask.bucket, "Key": "source-of-part"}
    made = ask("upload_part_copy", Key="part-copy", UploadId=upload, PartNumber=1, CopySource=source)
    if made:
        ask("complete_multipart_upload", Key="part-copy", UploadId=upload, MultipartUpload={"Parts": [{"ETag": made["CopyPartResult"]["ETag"], "PartNumber": 1}]})
        ask.twice("get_object", Key="part-copy")


TREE = ["tree/a", "tree/b/1", "tree/b/2", "tree/c/d/e", "tree/f", "tree/ä", "tree/g h"]


def a_listing(ask):
    for key in TREE:
        ask.put(key, key.encode())
    ask.twice("list_objects_v2", Prefix="tree/")
    ask.twice("list_objects", Prefix="tree/")
    ask.twice("list_objects_v2", Prefix="tree/b")
    ask.twice("list_objects_v2", Prefix="tree/none")


def a_listing_with_a_delimiter(ask):
    for key in TREE:
        ask.put(key, key.encode())
    ask.twice("list_objects_v2", Prefix="tree/", Delimiter="/")
    ask.twice("list_objects_v2", Prefix="tree/c/", Delimiter="/")
    ask.twice("list_objects", Prefix="tree/", Delimiter="/")


def a_listing_that_starts_after_a_key(ask):
    for key in TREE:
        ask.put(key, key.encode())
    ask.twice("list_objects_v2", Prefix="tree/", StartAfter="tree/b/1")
    ask.twice("list_objects_v2", Prefix="tree/", StartAfter="tree/z")
    ask.twice("list_objects", Prefix="tree/", Marker="tree/b/2")


def a_listing_in_pages(ask):
    for i in range(25):
        ask.put(f"pages/{i:02}")
    for _ in range(2):
        token = {}
        for _ in range(10):
            page = ask("list_objects_v2", Prefix="pages/", MaxKeys=7, **token)
            if not page.get("IsTruncated"):
                break
            token = {"ContinuationToken": page["NextContinuationToken"]}
    ask.twice("list_objects_v2", Prefix="pages/", MaxKeys=0)


def a_listing_sees_what_was_written(ask):
    ask.put("seen/1")
    ask.twice("list_objects_v2", Prefix="seen/")
    ask.put("seen/2")
    ask.twice("list_objects_v2", Prefix="seen/")
    ask.put("seen/1", b"longer than it was")
    ask.twice("list_objects_v2", Prefix="seen/")
    ask("copy_object", Key="seen/3", CopySource={"Bucket": ask.bucket, "Key": "seen/1"})
    ask.twice("list_objects_v2", Prefix="seen/")
    ask("delete_object", Key="seen/2")
    ask.twice("list_objects_v2", Prefix="seen/")


def a_listing_with_owners(ask):
    ask.put("owned/1")
    ask.twice("list_objects_v2", Prefix="owned/", FetchOwner=True)


def the_bucket_itself(ask):
    ask.twice("head_bucket")
    ask("get_bucket_location")


def tags(ask):
    ask.put("tagged")
    ask("put_object_tagging", Key="tagged", Tagging={"TagSet": [{"Key": "colour", "Value": "green"}]})
    ask("get_object_tagging", Key="tagged")
    ask.twice("head_object", Key="tagged")


def other_headers_by_the_query(ask):
    ask.put("override")
    ask.twice("get_object", Key="override", ResponseContentType="text/x-other", ResponseCacheControl="no-cache")
    ask.twice("get_object", Key="override")


def checksums(ask):
    body = b"checked" * 100
    ask.put("crc32", body, ChecksumAlgorithm="CRC32")
    ask.put("sha256", body, ChecksumSHA256=base64.b64encode(hashlib.sha256(body).digest()).decode())
    for key in ("crc32", "sha256"):
        ask.twice("get_object", Key=key, ChecksumMode="ENABLED")
        ask.twice("head_object", Key=key, ChecksumMode="ENABLED")
        ask.twice("head_object", Key=key)
    ask.put("wrong-sha256", body, ChecksumSHA256=base64.b64encode(hashlib.sha256(b"other").digest()).decode())
    ask.twice("head_object", Key="wrong-sha256")


def a_wrong_digest(ask):
    ask.put("digest", b"abc", ContentMD5=base64.b64encode(hashlib.md5(b"abc").digest()).decode())
    ask.twice("get_object", Key="digest")


def a_stream(ask):
    ask("put_object", Key="stream", Body=io.BytesIO(b"streamed" * 50_000))
    ask.twice("get_object", Key="stream")


SCENARIOS = [
    put_and_get, empty_object, an_object_of_many_blocks, headers_of_the_object, no_content_type, ranges, ranges_that_are_longer, ranges_that_are_not_there, a_range_of_a_head,
    missing_keys, conditions_that_hold, conditions_that_fail, a_put_on_condition, unicode_keys, keys_that_are_no_paths, a_replaced_object,
    the_same_bytes_with_other_headers, a_deleted_object, delete_of_a_missing_key, many_deletes, copies, a_copy_of_a_missing_key, a_copy_with_odd_names,
    an_upload_in_parts, parts_that_are_listed, an_aborted_upload, an_upload_that_is_unknown, a_part_that_is_a_copy, a_listing, a_listing_with_a_delimiter,
    a_listing_that_starts_after_a_key, a_listing_in_pages, a_listing_sees_what_was_written, a_listing_with_owners, the_bucket_itself, tags,
    other_headers_by_the_query, checksums, a_wrong_digest, a_stream,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_endpoint_answers_as_the_server_behind_it(servers, scenario):
    server, endpoint = servers
    if scenario.__name__ in NOT_AS_S3.get(server.kind, {}):
        pytest.skip(NOT_AS_S3[server.kind][scenario.__name__])
    direct, through = Asker(server.client(), "direct", False), Asker(endpoint.client(), "through", True)
    scenario(direct)
    scenario(through)
    assert len(direct.seen) == len(through.seen)
    for at, (expected, found) in enumerate(zip(direct.seen, through.seen, strict=True)):
        assert found == expected, f"answer {at} of {len(direct.seen)}"


def refusal(s3, bucket):
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.list_objects_v2(Bucket=bucket)
    return caught.value.response["ResponseMetadata"]["HTTPStatusCode"], caught.value.response["Error"]["Code"]


def test_a_bad_signature_an_unknown_key_and_none_are_refused_as_by_the_server(servers):
    server, endpoint = servers
    assert refusal(endpoint.client(secret="not-the-secret-of-it"), "through") == refusal(server.client(secret="not-the-secret-of-it"), "direct") == (403, "SignatureDoesNotMatch")
    assert refusal(endpoint.client(key=KEY, secret=SECRET), "through") == (403, "InvalidAccessKeyId"), "the store's keys are not the endpoint's"
    nobody = endpoint.client(signature_version=botocore.UNSIGNED)
    assert refusal(nobody, "through") == (403, "AccessDenied")
    before = endpoint.figure("refused")
    refusal(nobody, "through")
    assert endpoint.figure("refused") == before + 1


def test_presigned_urls_work_and_cannot_be_changed(servers):
    _, endpoint = servers
    s3 = endpoint.client()
    put = s3.generate_presigned_url("put_object", Params={"Bucket": "through", "Key": "presigned ä"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(put, b"by its URL", method="PUT", headers={"Content-Type": ""}))
    get = s3.generate_presigned_url("get_object", Params={"Bucket": "through", "Key": "presigned ä"}, ExpiresIn=60)
    assert urllib.request.urlopen(get).read() == b"by its URL"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(get.replace("presigned", "another"))
    assert caught.value.code == 403


def test_other_buckets_are_neither_shown_nor_read_nor_copied_from(servers):
    server, endpoint = servers
    server.client().put_object(Bucket="direct", Key="secret", Body=b"secret")
    s3 = endpoint.client()
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["through"]
    for ask in (lambda: s3.get_object(Bucket="direct", Key="secret"), lambda: s3.create_bucket(Bucket="new"), lambda: s3.delete_bucket(Bucket="through"),
                lambda: s3.copy_object(Bucket="through", Key="stolen", CopySource={"Bucket": "direct", "Key": "secret"})):
        with pytest.raises(botocore.exceptions.ClientError):
            ask()
    with pytest.raises(botocore.exceptions.ClientError):
        s3.head_object(Bucket="through", Key="stolen")
    assert refusal(s3, "not-there") == refusal(s3, "direct") == (404, "NoSuchBucket")


def test_the_second_answer_comes_from_the_cache(servers):
    _, endpoint = servers
    s3 = endpoint.client()
    s3.put_object(Bucket="through", Key="counted/1", Body=b"counted", Metadata={"a": "b"})

    def read():
        s3.get_object(Bucket="through", Key="counted/1")["Body"].read()
        s3.head_object(Bucket="through", Key="counted/1")
        s3.get_object(Bucket="through", Key="counted/1", Range="bytes=1-3")["Body"].read()
        s3.list_objects_v2(Bucket="through", Prefix="counted/")

    read()
    before = endpoint.status()
    read()
    after = endpoint.status()
    assert after["store_requests"] == before["store_requests"]
    assert {name: after["s3"][f"s3_{name}"] - before["s3"][f"s3_{name}"] for name in ("heads", "passed", "cached", "cached_listings")} == {
        "heads": 0, "passed": 0, "cached": 3, "cached_listings": 1}


def test_secrets_are_in_no_status_error_or_log(servers):
    _, endpoint = servers
    refusal(client(endpoint.url, ID, "wrong-secret-of-mine"), "through")
    shown = str(endpoint.status()) + "".join(endpoint.said)
    assert OWN not in shown and SECRET not in shown
