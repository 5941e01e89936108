package localport_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// TestKernelCannotTranslateLoopbackAddresses is the reason for this package, and
// fails when it no longer holds: what a rule sends from 127.0.0.1 or ::1 to
// another host is not answered, unless route_localnet lets 127.0.0.1.
func TestKernelCannotTranslateLoopbackAddresses(t *testing.T) {
	t.Run("IPv4", func(t *testing.T) {
		c := newCluster(t, service.IPv4)
		c.translate()
		// The kernel refuses to send; TCP hides that, and tries again.
		c.expectUnanswered("udp", unix.EINVAL)
		c.expectUnanswered("tcp", os.ErrDeadlineExceeded)
		check(t, c.node.Sysctl(routeLocalnet, "1"))
		c.expectAnswer("udp", nodePort, "endpoint")
		c.expectAnswer("tcp", nodePort, "endpoint")
	})
	t.Run("IPv6", func(t *testing.T) {
		c := newCluster(t, service.IPv6)
		c.translate()
		// The question gets there, and the answer is lost on the way in: no
		// route leads from an interface to ::1.
		before := c.inNoRoutes()
		c.expectUnanswered("udp", os.ErrDeadlineExceeded)
		c.expectUnanswered("tcp", os.ErrDeadlineExceeded)
		if lost := c.inNoRoutes() - before; lost < 2 {
			t.Errorf("%d answers were lost for want of a route, want 2 at least", lost)
		}
	})
}

// translate loads the rules that a proxy would use.
func (c *cluster) translate() {
	c.Helper()
	ip := map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[c.family]
	rules := fmt.Sprintf(`table %[1]s claim {
		chain output { type nat hook output priority -100; %[1]s daddr %[2]s meta l4proto { tcp, udp } th dport %[3]d dnat to %[4]s; }
		chain postrouting { type nat hook postrouting priority 100; ct status dnat masquerade; }
	}`, ip, c.listen(nodePort).Addr(), nodePort, c.endpoint)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := c.node.Run(cmd); err != nil {
		c.Fatalf("nft: %v: %s (Debian package nftables)", err, said.String())
	}
}

// expectUnanswered asks for a while, and fails unless that ends as it should.
func (c *cluster) expectUnanswered(network string, want error) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 300*time.Millisecond)
	defer cancel()
	answer, err := c.node.Ask(ctx, network, c.listen(nodePort))
	// A connection that is not made ends with the context's error or the socket's.
	if !errors.Is(err, want) && (!errors.Is(want, os.ErrDeadlineExceeded) || !errors.Is(err, context.DeadlineExceeded)) {
		c.Errorf("%s: %+v, %v; want %v", network, answer, err, want)
	}
}

// inNoRoutes is the number of packets that came in and led nowhere.
func (c *cluster) inNoRoutes() (count int) {
	c.Helper()
	check(c, c.node.Do(func() error {
		counts, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(counts), "Ip6InNoRoutes")
		_, err = fmt.Sscan(rest, &count)
		return err
	}))
	return count
}
