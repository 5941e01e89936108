// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// get asks a socket over HTTP from a host, by IP routes alone.
func get(t *testing.T, from *netns.Namespace, at string) (string, error) {
	t.Helper()
	client := &http.Client{Timeout: testenv.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return from.DialContext(ctx, network, addr)
		},
	}}
	answer, err := client.Get("http://" + at + "/")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close() // read to its end
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// datagram asks a socket over UDP from a host.
func datagram(t *testing.T, from *netns.Namespace, at string) string {
	t.Helper()
	conn, err := from.DialContext(t.Context(), "udp", at)
	check(t, err)
	defer conn.Close() // nothing can be lost
	check(t, conn.SetDeadline(time.Now().Add(testenv.Patience)))
	_, err = conn.Write([]byte("?"))
	check(t, err)
	answer := make([]byte, 200)
	n, err := conn.Read(answer)
	check(t, err)
	return string(answer[:n])
}

func socket(at string, protocol service.Protocol) Socket {
	return Socket{netip.MustParseAddrPort(at), protocol}
}

// TestLab_ServersComeAndGo: pods answer over TCP and UDP, at their own address or at the node's, and stop when no
// Service needs them.
func TestLab_ServersComeAndGo(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	l, err := New([]netip.Addr{netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("192.168.0.3"), netip.MustParseAddr("2001:db8::2")}, zap.NewNop())
	check(t, err)
	defer func() { check(t, l.Close()) }()
	outside := l.network.Hosts[client]
	wanted := map[Socket]string{
		socket("10.0.0.1:80", service.TCP): "a/web:http", socket("10.0.0.1:81", service.TCP): "a/web:other",
		socket("10.0.0.1:53", service.UDP): "a/dns", socket("[fd00::1]:80", service.TCP): "a/web:http",
		socket("192.168.0.3:9100", service.TCP): "a/node",  // a pod on the host's network
		socket("127.0.0.1:80", service.TCP):     "a/wrong", // which no pod can have
	}
	l.Want(wanted)
	for at, want := range map[string]string{
		"10.0.0.1:80":      "10.0.0.1:80 of a/web:http answers 192.0.2.10:",
		"10.0.0.1:81":      "10.0.0.1:81 of a/web:other answers 192.0.2.10:",
		"[fd00::1]:80":     "[fd00::1]:80 of a/web:http answers [2001:db8:ffff::10]:",
		"192.168.0.3:9100": "192.168.0.3:9100 of a/node answers 192.0.2.10:",
	} {
		if got, err := get(t, outside, at); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q, %v, want %q", at, got, err, want)
		}
	}
	if got := datagram(t, outside, "10.0.0.1:53"); !strings.HasPrefix(got, "10.0.0.1:53 of a/dns answers 192.0.2.10:") {
		t.Errorf("UDP: got %q", got)
	}
	if len(l.hosts) != 2 || len(l.servers) != 5 {
		t.Errorf("%d pods, %d servers, want 2 and 5", len(l.hosts), len(l.servers))
	}

	// One port, and then one address, is not wanted any more; another is renamed.
	delete(wanted, socket("10.0.0.1:81", service.TCP))
	wanted[socket("10.0.0.1:80", service.TCP)] = "b/web"
	delete(wanted, socket("[fd00::1]:80", service.TCP))
	l.Want(wanted)
	if got, err := get(t, outside, "10.0.0.1:80"); err != nil || !strings.Contains(got, " of b/web ") {
		t.Errorf("renamed: %q, %v", got, err)
	}
	for _, at := range []string{"10.0.0.1:81", "[fd00::1]:80"} {
		if got, err := get(t, outside, at); err == nil {
			t.Errorf("%s still answers %q", at, got)
		}
	}
	l.Want(nil)
	if len(l.hosts) != 0 || len(l.servers) != 0 || len(l.network.Hosts) != 2 {
		t.Errorf("left: %v, %v, %v", l.hosts, l.servers, l.network.Hosts)
	}
	l.Want(wanted) // an address may come back
	if _, err := get(t, outside, "10.0.0.1:80"); err != nil {
		t.Error(err)
	}
}

// TestLab_RenameKeepsConnections: a renamed server keeps its connections, as does a pod of two Services when one of
// them drops it.
func TestLab_RenameKeepsConnections(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	l, err := New(nil, zap.NewNop())
	check(t, err)
	defer func() { check(t, l.Close()) }()
	at := socket("10.0.0.1:80", service.TCP)
	var conn net.Conn
	for _, name := range []string{"a/web", "b/web"} {
		l.Want(map[Socket]string{at: name})
		if conn == nil {
			conn, err = l.network.Hosts[client].DialContext(t.Context(), "tcp", at.At.String())
			check(t, err)
			defer conn.Close() // the test ends
		}
		check(t, conn.SetDeadline(time.Now().Add(testenv.Patience)))
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: pod\r\n\r\n")
		check(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(answer.Body)
		check(t, err)
		check(t, answer.Body.Close())
		if !strings.Contains(string(text), " of "+name+" ") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestLab_Follow: the lab has the pods of the manifests, and reports the address to query.
func TestLab_Follow(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	dir := t.TempDir()
	check(t, os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "..", "examples", "demo"))))
	l, err := New(nil, zap.NewNop())
	check(t, err)
	defer func() { check(t, l.Close()) }()
	states := make(chan State, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.Follow(ctx, dir, "demo", func(s State) { states <- s }); close(ended) }()
	await := func(want State) {
		t.Helper()
		for {
			select {
			case got := <-states:
				if got == want {
					return
				}
			case <-time.After(testenv.Patience):
				t.Fatalf("the lab never became %+v", want)
			}
		}
	}
	await(State{Pods: 6, Servers: 12, Target: netip.MustParseAddrPort("172.30.0.41:80")})
	check(t, os.Remove(filepath.Join(dir, "echo.yaml")))
	await(State{Pods: 6, Servers: 6})
	check(t, os.Remove(filepath.Join(dir, "dns.yaml")))
	await(State{})
	cancel()
	<-ended
}

// TestLab_OneAfterAnother: a lab leaves no interface behind, so the next one can have the same names at once.
func TestLab_OneAfterAnother(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	for range 2 {
		l, err := New(nil, zap.NewNop())
		check(t, err)
		l.Want(map[Socket]string{socket("10.0.0.1:80", service.TCP): "a/web"})
		if got, err := get(t, l.network.Hosts[client], "10.0.0.1:80"); err != nil || !strings.Contains(got, " of a/web ") {
			t.Errorf("got %q, %v", got, err)
		}
		check(t, l.CloseNow())
		links, err := net.Interfaces()
		check(t, err)
		if len(links) != 1 {
			t.Errorf("left: %v", links)
		}
	}
}
