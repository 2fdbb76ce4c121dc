"""Tables of cases: CSV, Parquet and Arrow in, what `jtgpu batch` writes out; jobs."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jtgpu.cases import answer_file
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App, tables
from jtgpu.serve.tables import JobFolder, sweep
from tests.serve.client import Client

csv = pytest.importorskip("pyarrow.csv")
ipc = pytest.importorskip("pyarrow.ipc")
parquet = pytest.importorskip("pyarrow.parquet")

CASES = b"id,xray,smoke\n1,yes,no\n2,no,\n3,,yes\n"


def post(client: Client, query: str, body: bytes, kind: str = "text/csv", part: str = "table") -> Any:
    return client.request("POST", f"/v1/networks/asia/{part}{query}", content=body, headers={"content-type": kind})


@pytest.fixture
def expected(asia: JunctionTree, tmp_path: Path) -> bytes:
    (tmp_path / "cases.csv").write_bytes(CASES)
    answer_file(
        asia, tmp_path / "cases.csv", tmp_path / "out.csv", targets=["lung", "bronc"], keep=["id"], log_evidence=True
    )
    return (tmp_path / "out.csv").read_bytes()


def test_csv(client: Client, expected: bytes) -> None:
    found = post(client, "?targets=lung&targets=bronc&keep=id&log_evidence=1", CASES)
    assert found.status_code == 200
    assert found.content == expected
    report = json.loads(found.headers["x-jtgpu-report"])
    assert report["cases"] == 3
    assert report["evidence"] == ["xray", "smoke"]
    assert post(client, "?targets=lung,bronc&keep=id&log_evidence=1", CASES).content == expected


def test_files_have_one_media_type_in_the_description(client: Client, expected: bytes) -> None:
    """N26: generators of clients left out `table` and `columns`, which had three."""
    paths = client.get("/openapi.json").json()["paths"]
    for part in ("table", "columns"):
        content = paths[f"/v1/networks/{{network}}/{part}"]["post"]["requestBody"]["content"]
        assert [*content] == ["application/octet-stream"]
    query = "?targets=lung,bronc&keep=id&log_evidence=1"
    assert post(client, query, CASES, "application/octet-stream").content == expected
    assert post(client, "", CASES, "application/octet-stream", "columns").status_code == 200
    table = csv.read_csv(io.BytesIO(CASES), convert_options=csv.ConvertOptions(strings_can_be_null=True))
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answered = post(client, query, sink.getvalue(), "application/octet-stream")
    assert (answered.status_code, answered.text.count("\n")) == (200, expected.count(b"\n"))


def test_parquet_and_arrow(client: Client, expected: bytes) -> None:
    table = csv.read_csv(io.BytesIO(CASES), convert_options=csv.ConvertOptions(strings_can_be_null=True))
    wanted = csv.read_csv(io.BytesIO(expected))
    bodies: dict[str, io.BytesIO] = {}
    bodies["application/vnd.apache.parquet"] = io.BytesIO()
    parquet.write_table(table, bodies["application/vnd.apache.parquet"])
    for kind, make in (("stream", ipc.new_stream), ("file", ipc.new_file)):
        sink = bodies[f"application/vnd.apache.arrow.{kind}"] = io.BytesIO()
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    bodies["application/octet-stream"] = bodies["application/vnd.apache.parquet"]
    for kind, sink in bodies.items():
        found = post(client, "?targets=lung,bronc&keep=id&log_evidence=1&format=parquet", sink.getvalue(), kind)
        assert found.status_code == 200, (kind, found.text)
        assert found.headers["content-type"] == "application/vnd.apache.parquet"
        answers = parquet.read_table(io.BytesIO(found.content))
        assert answers.column_names == wanted.column_names
        assert answers["lung=yes"].to_pylist() == pytest.approx(wanted["lung=yes"].to_pylist(), abs=1e-15)


@pytest.mark.parametrize(
    ("query", "body", "kind"),
    [
        ("", b"id,xray\n1,maybe\n", "unknown-state"), ("", b"id,name\n1,2\n", "unknown-variable"), ("", b"", None),
        ("?targets=nobody", CASES, "unknown-variable"), ("?format=exe", CASES, "invalid-argument"),
        ("?on_error=x", CASES, "invalid-argument"), ("?nonsense=1", CASES, "invalid-argument"),
        ("?keep=nothing", CASES, "unknown-variable"), ("?mpe=7", CASES, "invalid-argument"),
        ("", b"tub,either\nyes,no\n", "impossible-evidence"), ("", b"\x00\xff\x00", None),
        ("", b"PAR1garbage", None), ("", b"ARROW1garbage", None),
    ],
)  # fmt: skip
def test_tables_that_are_wrong(client: Client, query: str, body: bytes, kind: str | None) -> None:
    found = post(client, query, body)
    assert found.status_code == 422, found.text
    problem = found.json()
    if kind:
        assert problem["type"] == f"/errors/{kind}"
    assert "/tmp" not in problem["detail"]
    assert "jtgpu-serve-" not in problem["detail"]


def test_flagged_rows(client: Client) -> None:
    found = post(client, "?targets=lung&on_error=flag", b"xray\nyes\nmaybe\n")
    assert found.status_code == 200
    assert json.loads(found.headers["x-jtgpu-report"])["flagged"] == 1


def test_columns(client: Client) -> None:
    body = b"id;xray;smok\n" + b"1;yes;no\n" * 30 + b"2;n"
    found = post(client, "", body, part="columns").json()
    assert [c["variable"] for c in found["columns"]] == [None, 6, None]
    assert found["columns"][2]["closest"] == ["smoke"]
    assert found["delimiter"] == ";"
    assert found["rows"] == [["1", "yes", "no"]] * 20
    assert post(client, "", b"", part="columns").status_code == 422
    quoted = post(client, "?header=xray,smoke,z&delimiter=tab", b'"yes\tno"\tno\tb\n', part="columns").json()
    assert [c["name"] for c in quoted["columns"]] == ["xray", "smoke", "z"]
    assert quoted["rows"] == [["yes\tno", "no", "b"]]


def test_files_are_read_by_their_options(client: Client) -> None:
    """A file without a header, of another encoding, with ordinary quotes."""
    found = post(client, "?targets=lung&header=xray,note&encoding=latin-1&quote=none&keep=note", b'yes,"\xe9\n')
    assert found.status_code == 200, found.text
    assert found.text.splitlines()[1].startswith('"""é",')
    assert post(client, "?targets=lung&encoding=utf-16", b"xray\nyes\n").status_code == 422


@pytest.fixture
def small(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a server for which every table is large."""
    monkeypatch.setattr(tables, "AT_ONCE", 10)
    app = App({"asia": asia})
    yield Client(app)
    app.close()


def wait_for(client: Client, url: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while True:
        state: dict[str, Any] = client.get(url).json()
        if state["state"] not in ("waiting", "running") or time.monotonic() > deadline:
            return state
        time.sleep(0.02)


def test_a_job(small: Client, expected: bytes) -> None:
    response = post(small, "?targets=lung,bronc&keep=id&log_evidence=1", CASES)
    assert response.status_code == 202
    url = response.json()["url"]
    state = wait_for(small, url)
    assert state["state"] == "done"
    assert state["done"] == 3
    assert state["report"]["targets"] == ["lung", "bronc"]
    assert small.get(state["url"]).content == expected
    events = small.get(f"{url}/events")
    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.text.startswith("event: done\ndata: {")
    assert small.request("DELETE", url).status_code == 204
    assert small.get(url).status_code == 404


def test_a_job_that_fails(small: Client) -> None:
    url = post(small, "", b"id,xray\n1,yes\n2,maybe\n").json()["url"]
    state = wait_for(small, url)
    assert state["state"] == "failed"
    assert state["error"]["type"] == "/errors/unknown-state"
    assert "jtgpu-serve-" not in state["error"]["detail"]
    assert small.get(f"{url}/file").status_code == 404


def test_a_job_that_is_cancelled(small: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(tree: Any, cases: Any, output: Any, progress: Any, **options: Any) -> None:
        while True:
            time.sleep(0.25)
            progress(1, 1, 1)

    monkeypatch.setattr(tables, "answer_file", endless)
    url = post(small, "", CASES).json()["url"]
    assert small.request("DELETE", url).status_code == 204
    assert wait_for(small, url)["state"] == "cancelled"


def test_uploads_can_be_refused(asia: JunctionTree) -> None:
    app = App({"asia": asia}, read_only=True)
    assert post(Client(app), "", CASES).json()["type"] == "/errors/read-only"
    app.close()


def test_no_file_stays(asia: JunctionTree) -> None:
    app = App({"asia": asia})
    client = Client(app)
    post(client, "", CASES)
    post(client, "", b"id,xray\n1,maybe\n")
    folder = app._tables._jobs.path
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o077 == 0
    app.close()
    assert not folder.exists()


def test_folders_of_dead_servers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead, other = tmp_path / "jtgpu-serve-999999999-x", tmp_path / "jtgpu-serve-else"
    opened = tmp_path / "jtgpu-open-999999999-x"
    for folder in (dead, other, opened):
        folder.mkdir()
    alive = JobFolder().path  # it sweeps first
    assert not dead.exists()
    assert not opened.exists()
    sweep()
    assert other.exists()
    assert alive.exists()
