"""A hub on this machine: the few requests that the real client sends to create, fill and read a model repository."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants


class Hub:
    """Repositories in memory.

    Attributes:
        commits: by (repository, revision) the files of a commit, by name; revisions are branches and commits.
        asked: (method, path) of every request.
        private: repositories that nobody may read.
    """

    def __init__(self):
        self.commits, self.asked, self.private = {}, [], set()

    def create(self, body):
        name = f"{body['organization']}/{body['name']}" if body.get("organization") else body["name"]
        self.commits.setdefault((name, "main"), ("0" * 40, {}))
        return 200, {"url": f"{self.url}/{name}", "name": name, "id": name}

    def branch(self, repo, name):
        self.commits.setdefault((repo, name), self.commits[repo, "main"])
        return 201, {}

    def commit(self, repo, revision, lines):
        files = dict(self.commits[repo, revision][1])
        for line in lines:
            if line["key"] == "file":
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        oid = hashlib.sha1(json.dumps(sorted(files)).encode() + b"".join(files.values())).hexdigest()
        self.commits[repo, revision] = self.commits[repo, oid] = (oid, files)
        return 200, {"commitUrl": f"{self.url}/{repo}/commit/{oid}", "commitOid": oid}

    def info(self, repo, revision):
        oid, files = self.commits[repo, revision]
        return 200, {"id": repo, "sha": oid, "private": False, "siblings": [{"rfilename": name} for name in files]}

    def tree(self, repo, revision):
        files = self.commits[repo, revision][1]
        rows = [
            {"type": "file", "path": n, "size": len(b), "oid": hashlib.sha1(b).hexdigest()} for n, b in files.items()
        ]
        return 200, rows


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def answer(self, status, value=None, headers=None, data=None):
        data = json.dumps(value).encode() if data is None else data
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_GET(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.asked.append((self.command, path))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            repo, (what, revision) = "/".join(parts[2:4]), parts[4:6] or ["revision", "main"]
        elif len(parts) < 5:
            return self.answer(404, {"error": f"this hub knows no {path}"})
        else:
            repo, what, revision = "/".join(parts[:2]), parts[2], parts[3]
        if repo in hub.private:
            return self.answer(401, {"error": "no"}, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Not found"})
        if (repo, "main") not in hub.commits:
            return self.answer(404, {"error": "no"}, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Not found"})
        if (repo, revision) not in hub.commits:
            return self.answer(404, {"error": "no"}, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "No such"})
        if what in ("revision", "tree"):
            return self.answer(*(hub.info if what == "revision" else hub.tree)(repo, revision))
        oid, files = hub.commits[repo, revision]
        data = files["/".join(parts[4:])]
        etag = hashlib.sha1(data).hexdigest()
        return self.answer(200, headers={"ETag": f'"{etag}"', "X-Repo-Commit": oid}, data=data)

    do_HEAD = do_GET

    def do_POST(self):
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.asked.append((self.command, path))
        body, parts = self.body(), path.strip("/").split("/")
        if path == "/api/repos/create":
            return self.answer(*hub.create(json.loads(body)))
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        repo, what, revision = "/".join(parts[2:4]), parts[4], parts[5]
        if what == "preupload":
            files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            return self.answer(200, {"files": files})
        if what == "branch":
            return self.answer(*hub.branch(repo, revision))
        return self.answer(*hub.commit(repo, revision, [json.loads(line) for line in body.splitlines()]))


@contextmanager
def running_hub(monkeypatch, cache):
    """A hub that the client of this process talks to, with a cache of its own; yields the `Hub`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.hub = hub = Hub()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(  # made of $HF_ENDPOINT when the client is imported
        huggingface_hub.constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
