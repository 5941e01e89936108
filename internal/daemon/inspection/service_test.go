// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

const domain4 = "nftables/IPv4"

func key(name string) service.Key { return service.Key{Namespace: "ns", Name: name} }

// fake is a proxy with some Services. The kernel rejects the one with the name "rejected", and the newest
// rules of those whose names end with "pending" are not applied.
type fake struct {
	*source.Cache
	pending []service.Key
	err     error
}

// newFake returns a fake with these Services, and an inspection of it. Each Service gets an IPv4 ClusterIP and
// port 80. The actor of the Service "parked" is parked, and nothing of the Service "new" was applied.
func newFake(t *testing.T, specs ...*service.Spec) (*fake, *Inspection) {
	f := &fake{Cache: source.NewCache(sourcetest.NewRecorder(), source.Options{})}
	b := book.New(book.Config{Domains: []book.Domain{{Name: domain4}}, Status: f.Status})
	for n, spec := range specs {
		spec.ClusterIPs[service.IPv4] = netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)})
		spec.Ports = append(spec.Ports, service.Port{Port: 80})
		f.SetSpec(spec)
		b.Supervisor(supervisor.Event[service.Key]{Child: spec.Key, What: supervisor.Started{}})
		if spec.Key.Name != "new" {
			b.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: spec.Key}})
		}
	}
	b.Supervisor(supervisor.Event[service.Key]{Child: key("parked"), What: supervisor.Failed{Err: errors.New("x")}})
	b.Supervisor(supervisor.Event[service.Key]{Child: key("parked"), What: supervisor.Parked{Until: time.Now()}})
	return f, &Inspection{Proxy: f, Book: b, Backend: &setup.Backend{Domains: []proxy.Domain{{Name: domain4, Family: service.IPv4}}}}
}

// wants returns a Service with external IPs.
func wants(name string, addrs ...string) *service.Spec {
	spec := &service.Spec{Key: key(name)}
	for _, text := range addrs {
		addr := netip.MustParseAddr(text)
		spec.ExternalIPs[service.FamilyOf(addr)] = append(spec.ExternalIPs[service.FamilyOf(addr)], addr)
	}
	return spec
}

func (f *fake) Status() []aggregator.Status {
	return []aggregator.Status{{Domain: domain4, Quarantined: []aggregator.QuarantinedKey{{Key: key("rejected"), Reason: "Invalid argument"}}}}
}

func (f *fake) Pending(context.Context, string) ([]service.Key, error) { return f.pending, f.err }

func (f *fake) Account(_ context.Context, _ string, of service.Key, _ int) (ledger.Account, error) {
	return ledger.Account{Known: true, Pending: strings.HasSuffix(of.Name, "pending")}, f.err
}

func (f *fake) Services() int             { return len(f.Keys()) }
func (f *fake) Synced() time.Time         { return time.Now() }
func (f *fake) Node() *service.NodeObject { return nil }
func (f *fake) Facts() *service.NodeFacts { return &service.NodeFacts{} }

// TestService_ListAndDetailAgree: a list and a detail show the same state of each Service: the gravest of the actor,
// the ledger, the admission and the quarantine. If the ledger does not answer, no Service counts as applied.
func TestService_ListAndDetailAgree(t *testing.T) {
	const taken, taken6 = "192.0.2.1", "2001:db8::1"
	f, i := newFake(t, wants("fine"), wants("new"), wants("owner", taken, taken6), wants("parked", taken), wants("pending"),
		wants("rejected", taken), wants("shadowed", taken), wants("shadowed6", taken6), wants("shadowed-pending", taken))
	for _, name := range []string{"owner", "shadowed6"} {
		spec := *f.Snapshot(key(name)).Spec
		spec.ClusterIPs[service.IPv6] = netip.MustParseAddr(map[string]string{"owner": "fd00::1", "shadowed6": "fd00::2"}[name])
		f.SetSpec(&spec)
	}
	f.pending = []service.Key{key("pending"), key("rejected"), key("shadowed-pending")}
	for ledger, want := range map[error]string{
		nil:                   "[applied pending applied held (actor failing) pending held (rejected) shadowed shadowed shadowed]",
		errors.New("no turn"): "[pending pending pending held (actor failing) pending held (rejected) shadowed shadowed shadowed]",
	} {
		f.err = ledger
		var list, details []string
		i.Services(t.Context(), func(service.Key) bool { return true }, func(s *inspect.Service) bool {
			list = append(list, string(s.State))
			details = append(details, string(i.Service(t.Context(), service.Key{Namespace: s.Namespace, Name: s.Name}).State))
			return true
		})
		counts, domains := i.Counts(t.Context())
		if got := fmt.Sprintf("%d %d %d %d", counts.Applied, counts.Pending, counts.Shadowed, counts.Held); got != map[bool]string{true: "2 2 3 2", false: "0 4 3 2"}[ledger == nil] {
			t.Errorf("ledger %v: counts %s", ledger, got)
		}
		// shadowed6 is applied in the domain of IPv4
		if got := fmt.Sprintf("%d %d %d %d", domains[0].Applied, domains[0].Pending, domains[0].Shadowed, domains[0].Held); got != map[bool]string{true: "3 2 2 2", false: "0 5 2 2"}[ledger == nil] {
			t.Errorf("ledger %v: counts in the domain %s", ledger, got)
		}
		if got := fmt.Sprint(list); got != want {
			t.Errorf("ledger %v: the list says %s, want %s", ledger, got, want)
		}
		if got := fmt.Sprint(details); got != want {
			t.Errorf("the details say %s, want %s", got, want)
		}
	}
}

// TestService_ShadowedNamesOwner: a shadowed Service lists its frontends, each with the Service that owns it.
func TestService_ShadowedNamesOwner(t *testing.T) {
	port := func(spec *service.Spec) *service.Spec {
		spec.Ports = []service.Port{{Port: 443, NodePort: 30443}}
		return spec
	}
	f, i := newFake(t, port(wants("owner", "192.0.2.1")), port(wants("shadowed", "192.0.2.1", "192.0.2.2")))
	shown := func() (text string) {
		for _, frontend := range i.Service(t.Context(), key("shadowed")).Frontends {
			text += fmt.Sprintf("%s %s:%d %s\n", frontend.Kind, frontend.Address, frontend.Port, frontend.ServedBy)
		}
		return text
	}
	const want = `ClusterIP 10.0.0.2:443 
ExternalIP 192.0.2.1:443 ns/owner
ExternalIP 192.0.2.2:443 
NodePort :30443 ns/owner
ClusterIP 10.0.0.2:80 
ExternalIP 192.0.2.1:80 ns/owner
ExternalIP 192.0.2.2:80 
`
	if got := shown(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	f.RemoveSpec(key("owner"))
	if got, want := shown(), strings.ReplaceAll(want, "ns/owner", ""); got != want {
		t.Errorf("without the owner: got\n%swant\n%s", got, want)
	}
	if state := i.Service(t.Context(), key("shadowed")).State; state != "applied" {
		t.Errorf("without the owner, it is %s", state)
	}
}

// TestDomain_CountsMatchList: each Service, also one without a quarantine, is in exactly one number of each domain. The
// rules of a removed Service count until they are deleted.
func TestDomain_CountsMatchList(t *testing.T) {
	f, i := newFake(t, wants("fine"), wants("parked"), wants("pending"), wants("too-large"))
	i.Book.Actors(actors.TooLarge{Key: key("too-large"), Excess: service.Excess{Objects: 6, Max: 5, LeftOut: 1}})
	f.pending = []service.Key{key("pending"), key("parked"), key("removed"), service.Node}
	counts, domains := i.Counts(t.Context())
	d := i.domain(0, &f.Status()[0], &domains[0])
	if counts.Held != 1 || counts.Applied != 2 || d.Applied != 2 || d.Pending != 2 || d.Held != 2 || d.Shadowed != 0 { // "rejected" is removed as well
		t.Errorf("all: %v; the domain: %+v", &counts, d)
	}
}

// TestStatus_StandbyNotHealthy: a node that is on standby, or not eligible, is not healthy, although its rules are
// applied.
func TestStatus_StandbyNotHealthy(t *testing.T) {
	f, i := newFake(t, wants("fine"))
	i.Options, i.Feed = &setup.Options{Config: &config.Config{}}, &feed.Feed{}
	eligible, waits := true, ""
	i.Monitor = health.NewMonitor(health.Config{
		Domains: func() []health.DomainStatus {
			open := f.Status()[0]
			open.Open = true
			return []health.DomainStatus{{Status: open, Family: service.IPv4}}
		},
		Node:    func() *service.NodeObject { return map[bool]*service.NodeObject{true: {}}[eligible] },
		Standby: func() health.Standby { return health.Standby{For: waits} },
	})
	look := func(want bool) {
		t.Helper()
		if s := i.Status(); s.Healthy != want || (s.Health == "unhealthy") == want {
			t.Errorf("healthy %t, %s; want %t", s.Healthy, s.Health, want)
		}
	}
	look(true)
	eligible = false
	look(false)
	eligible, waits = true, "PID 7"
	look(false)
}
