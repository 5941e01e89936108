//go:build ipvs

package genl

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/moby/ipvs"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// world is a network namespace with a socket of ours and, as a judge of what is in
// its kernel, somebody else's.
type world struct {
	testing.TB
	*Socket
	judge *ipvs.Handle
	node  *netns.Namespace
}

func newWorld(t testing.TB) *world {
	t.Helper()
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, node: node}
	err = node.Do(func() (err error) {
		if w.Socket, err = Open(); err != nil {
			return err
		}
		w.judge, err = ipvs.New("")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.judge.Close()
		if err := errors.Join(w.Socket.Close(), node.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// do expects all requests to be carried out.
func (w *world) do(requests ...Request) {
	w.Helper()
	for i, err := range w.Do(w.Context(), requests) {
		if err != nil {
			w.Fatalf("request %d of %d: %v", i, len(requests), err)
		}
	}
}

// refused expects one request to be refused, and gives the refusal.
func (w *world) refused(request Request) error {
	w.Helper()
	err := w.Do(w.Context(), []Request{request})[0]
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		w.Fatalf("%s: %v is no refusal", request, err)
	}
	return err
}

// judged gives, in the words of the judge, all that the kernel holds: a line for
// each virtual server, and for each real server behind it. It has the flags as the
// kernel has them, its own mark (2) included.
func (w *world) judged() []string {
	w.Helper()
	servers, err := w.judge.GetServices()
	if err != nil {
		w.Fatal(err)
	}
	var lines []string
	for _, s := range servers {
		line := fmt.Sprintf("%d %s %s flags %#x timeout %d mask %08x", s.Protocol,
			net.JoinHostPort(s.Address.String(), fmt.Sprint(s.Port)), s.SchedName, s.Flags, s.Timeout, s.Netmask)
		lines = append(lines, line)
		destinations, err := w.judge.GetDestinations(s)
		if err != nil {
			w.Fatal(err)
		}
		for _, d := range destinations {
			lines = append(lines, fmt.Sprintf("%s > %s weight %d forwarding %d", line,
				net.JoinHostPort(d.Address.String(), fmt.Sprint(d.Port)), d.Weight, d.ConnectionFlags))
		}
	}
	slices.Sort(lines)
	return lines
}

// expect compares what the kernel holds with lines as judged gives them.
func (w *world) expect(lines ...string) {
	w.Helper()
	if got := w.judged(); !slices.Equal(got, lines) {
		w.Errorf("the kernel holds\n%q\nexpected\n%q", got, lines)
	}
}

// many gives so many frontends of a family.
func many(family service.Family, count int) []dataplane.Frontend {
	addr := netip.MustParseAddr("10.96.0.0")
	if family == service.IPv6 {
		addr = netip.MustParseAddr("fd96::")
	}
	frontends := make([]dataplane.Frontend, count)
	for i := range frontends {
		addr = addr.Next()
		frontends[i] = dataplane.Frontend{Addr: addr, Port: 80}
	}
	return frontends
}
