// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestKernelSampler_FirstPackets: the sampler sees the first packets to the frontends once, in both families, including
// those that later rules drop, and no later packets of an unanswered flow. Its table is removed with it.
func TestKernelSampler_FirstPackets(t *testing.T) {
	node := netnstest.New(t, "node")
	dropped := "table inet other { chain c { type filter hook output priority 0; tcp dport { 81, 30080 } drop\n}\n}"
	load := exec.Command("nft", "-f", "-")
	load.Stdin = strings.NewReader(dropped)
	if printed, err := netnstest.Output(node, load); err != nil {
		t.Fatalf("nft: %v: %s", err, printed)
	}
	var s *Sampler
	if err := node.Do(func() (err error) { s, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, err := netnstest.Output(node, exec.Command("nft", "list", "tables")); err != nil || strings.Contains(string(left), tablePrefix) {
			t.Errorf("tables afterwards: %s %v", left, err)
		}
	}()
	hosts := service.PerFamily[string]{"127.0.0.1", "::1"}
	for family, host := range hosts {
		addr := netip.MustParseAddr(host)
		add := []service.Frontend{
			{Addr: addr, Port: 80, Protocol: service.TCP}, {Addr: addr, Port: 81, Protocol: service.TCP},
			{Addr: addr, Port: 83, Protocol: service.TCP}, {Port: 30080, Protocol: service.TCP}, {Addr: addr, Port: 53, Protocol: service.UDP},
		}
		if err := s.Set(service.Family(family), add, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.Set(service.Family(family), nil, add[2:3]); err != nil {
			t.Fatal(err)
		}
	}
	came := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- s.Run(ctx, func(p Packet) { came <- p.To.String() }, func() { t.Error("packets were lost") })
	}()
	err := node.Do(func() error {
		for _, host := range hosts {
			for _, port := range []string{"80", "81", "82", "83", "30080"} {
				dialer := net.Dialer{Timeout: 50 * time.Millisecond}
				if c, err := dialer.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
					_ = c.Close()
				}
			}
			c, err := net.Dial("udp", net.JoinHostPort(host, "53"))
			if err != nil {
				return err
			}
			for range 3 { // those behind the first one fail if it was refused already
				_, _ = c.Write([]byte("question"))
			}
			_ = c.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"127.0.0.1:30080", "127.0.0.1:53", "127.0.0.1:80", "127.0.0.1:81", "[::1]:30080", "[::1]:53", "[::1]:80", "[::1]:81"}
	testenv.Eventually(t, "all packets are sampled", func() bool { return len(came) >= len(want) })
	time.Sleep(100 * time.Millisecond) // for more of them
	cancel()
	<-done
	close(came)
	var got []string
	for to := range came {
		got = append(got, to)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("sampled packets to %v, want %v", got, want)
	}
}

func TestParse(t *testing.T) {
	v4 := append([]byte{0x46, 0, 0, 60, 0, 0, 0, 0, 64, unix.IPPROTO_TCP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1}, 0, 80, 1, 187)
	if p, ok := parse(v4); !ok || p.From.String() != "10.0.0.1:80" || p.To.String() != "10.0.0.2:443" {
		t.Errorf("with an option: %v %v", p, ok)
	}
	fragment := slices.Clone(v4)
	fragment[7] = 1
	icmp := slices.Clone(v4)
	icmp[9] = unix.IPPROTO_ICMP
	for name, b := range map[string][]byte{"a fragment": fragment, "ICMP": icmp, "too short": v4[:26], "nothing": nil, "IPv6": {0x60}} {
		if p, ok := parse(b); ok {
			t.Errorf("%s: %v", name, p)
		}
	}
}
