// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// crowd is how many idle connections one client of a health port opens.
const crowd = 2000

// TestKernelServer_IdleClientsDoNotStopProbes: while a client leaves 2,000 connections to the health port idle, a probe
// of the kubelet and one of a load balancer are answered within a second.
func TestKernelServer_IdleClientsDoNotStopProbes(t *testing.T) {
	roomForBothEnds(t)
	for name, sent := range map[string]string{
		"after one answer each": "GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n",
		"before a request":      "",
		"within a request":      "GET /livez HTTP/1.1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			const client, host = "192.0.2.66", "192.0.2.10"
			node := netnstest.New(t, "node")
			for _, text := range []string{client, host} {
				if err := node.AddAddress("lo", netip.PrefixFrom(netip.MustParseAddr(text), 32)); err != nil {
					t.Fatal(err)
				}
			}
			c := on("0.0.0.0:10256")
			c.Listen, c.ForProbes = inside(node, c.Address), true
			c.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Answer(w, 200, Text, []byte("ok")) })
			s := newServer(c)
			started(t, s)
			addressOf(t, s)
			began := time.Now()
			for range crowd {
				conn, err := netnstest.DialFrom(t.Context(), node, "tcp", netip.MustParseAddrPort(client+":0"), host+":10256")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				ask(t, conn, sent)
			}
			t.Logf("%d connections opened in %v", crowd, time.Since(began))
			for _, from := range []string{"127.0.0.1", host} {
				took, err := probe(t, node, from)
				if err != nil || took > time.Second {
					t.Errorf("probe from %s: %v after %v", from, err, took)
				}
				t.Logf("probe from %s answered in %v", from, took)
			}
		})
	}
}

// roomForBothEnds makes sure that this process may have both ends of a crowd's connections, and the
// server all of them.
func roomForBothEnds(t *testing.T) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if most := connectionsMax(); most < crowd || limit.Cur < 3*crowd {
		t.Fatalf("the server has %d places of %d descriptors, want %d (ulimit -n 16000)", most, limit.Cur, crowd)
	}
}

// ask sends a text, and reads the answer of a whole request.
func ask(t *testing.T, conn net.Conn, sent string) {
	t.Helper()
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	if len(sent) < 4 || sent[len(sent)-4:] != "\r\n\r\n" {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(testenv.Patience))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
}

// probe asks once from an address, with the kubelet's patience.
func probe(t *testing.T, node *netns.Namespace, from string) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	conn, err := netnstest.DialFrom(t.Context(), node, "tcp", netip.MustParseAddrPort(from+":0"), from+":10256")
	if err != nil {
		return time.Since(began), err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: n1\r\n\r\n"); err != nil {
		return time.Since(began), err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", answer.Status)
	}
	return time.Since(began), err
}
