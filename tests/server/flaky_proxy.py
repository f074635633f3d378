"""A server before a server that answers the first attempts itself, with the statuses it is told."""

import http.server
import threading
import urllib.error
import urllib.request


class FlakyProxy:
    """`with FlakyProxy(url, [429, 503]) as proxy`: the third attempt gets through."""

    def __init__(self, upstream, statuses, headers=None):
        self.upstream = upstream
        self.statuses = list(statuses)
        self.headers = {"Retry-After": "0"} if headers is None else headers
        self.attempts = []  # (headers, body) of each request

    def __enter__(self):
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # noqa: N802
                body = self.rfile.read(int(self.headers["Content-Length"]))
                proxy.attempts.append((dict(self.headers), body))
                if proxy.statuses:
                    status, headers = proxy.statuses.pop(0), proxy.headers
                    text = b'{"error": "later"}'
                else:
                    status, text, headers = proxy.forward(self.path, self.headers, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def forward(self, path, headers, body):
        names = ("Authorization", "Content-Type", "Content-Encoding")
        kept = {name: headers[name] for name in names if name in headers}
        request = urllib.request.Request(self.upstream + path, body, kept)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, reply.read(), {"x-typesafe-request-id":
                                                    reply.headers["x-typesafe-request-id"]}
        except urllib.error.HTTPError as error:
            return error.code, error.read(), {}
