"""Measure a rolling replacement of endpoints that exit at SIGTERM.

    make build && sudo unshare --net python3 hack/measure_gone.py HOOK [COUNT [PARALLEL]]

HOOK is "wait" for sluice wait, or how many seconds to sleep. Everything runs in one network namespace: the proxy, which
reads manifests, the endpoints, and four clients that connect for each request. Removing an endpoint from its slice takes
0.5 s after the deletion of the pod, and 10 s for every 20th one, as with a late node.
"""
import os, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HOOK = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 100
PARALLEL = int(sys.argv[3]) if len(sys.argv) > 3 else 10
SLUICE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bin", "sluice")
WORK = tempfile.mkdtemp()
MANIFEST = """apiVersion: v1
kind: Service
metadata: {namespace: demo, name: web}
spec: {clusterIP: 172.30.0.41, ports: [{name: http, protocol: TCP, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: demo, name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, protocol: TCP, port: 8080}]
endpoints:
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def address(n):
    return "10.244.%d.%d" % (n // 200, 1 + n % 200)


class Endpoint:
    def __init__(self, n):
        self.socket = socket.create_server((address(n), 8080), backlog=128)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            with client:
                client.recv(4096)
                client.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    def exit(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Cluster:
    def __init__(self):
        self.lock = threading.Lock()
        self.ready = set(range(COUNT))
        self.endpoints = {n: Endpoint(n) for n in self.ready}
        self.left = list(range(COUNT))
        self.hooks = []
        self.write()

    def write(self):
        with open(WORK + "/new", "w") as f:
            f.write(MANIFEST + "".join("- {addresses: [%s]}\n" % address(n) for n in sorted(self.ready)))
        os.rename(WORK + "/new", WORK + "/manifests/web.yaml")

    def replace(self, n):
        self.endpoints[COUNT + n] = Endpoint(COUNT + n)
        changed = threading.Event()

        def change():
            with self.lock:
                self.ready ^= {n, COUNT + n}
                self.write()
            changed.set()

        threading.Timer(10 if n % 20 == 7 else 0.5, change).start()
        began = time.time()
        if HOOK == "wait":
            subprocess.run([SLUICE, "wait", "--gone", address(n) + ":8080", "--proxies", "http://192.168.0.2:10256"],
                           check=True, stdout=subprocess.DEVNULL)
        else:
            time.sleep(float(HOOK))
        self.hooks.append(time.time() - began)
        self.endpoints[n].exit()
        changed.wait()

    def roll(self):
        while True:
            with self.lock:
                if not self.left:
                    return
                n = self.left.pop()
            self.replace(n)


class Clients:
    def __init__(self):
        self.made, self.failed, self.done = [], [], False
        self.threads = [threading.Thread(target=self.run) for _ in range(4)]

    def run(self):
        while not self.done:
            (self.made if request() else self.failed).append(1)
            time.sleep(0.002)


def request():
    try:
        with socket.create_connection(("172.30.0.41", 80), timeout=3) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return s.recv(100).startswith(b"HTTP/1.0 200")
    except OSError:
        return False


def joined(threads):
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def main():
    os.mkdir(WORK + "/manifests")
    ip("link", "set", "lo", "up")
    ip("addr", "add", "192.168.0.2/32", "dev", "lo")
    ip("route", "add", "172.30.0.0/16", "dev", "lo", "src", "192.168.0.2")
    for n in range(2 * COUNT):
        ip("addr", "add", address(n) + "/32", "dev", "lo")
    cluster, clients = Cluster(), Clients()
    proxy = subprocess.Popen([SLUICE, "run", "--manifests", WORK + "/manifests", "--hostname-override", "demo",
                              "--sluice-state-dir", WORK + "/state", "--healthz-bind-address", "0.0.0.0:10256"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not request() and proxy.poll() is None:
        time.sleep(0.1)
    for t in clients.threads:
        t.start()
    began = time.time()
    joined([threading.Thread(target=cluster.roll) for _ in range(PARALLEL)])
    took = time.time() - began
    clients.done = True
    for t in clients.threads:
        t.join()
    proxy.send_signal(signal.SIGTERM)
    proxy.wait(20)
    shutil.rmtree(WORK)
    print("hook %s: %d endpoints, %d at a time: %.0f s, %d requests, %d failed; the hook took %.1f s on average, at most %.1f s" % (
        HOOK, COUNT, PARALLEL, took, len(clients.made) + len(clients.failed), len(clients.failed),
        sum(cluster.hooks) / len(cluster.hooks), max(cluster.hooks)))


main()
