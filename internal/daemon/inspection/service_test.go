package inspection

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

const domain4 = "nftables/IPv4"

func key(name string) service.Key { return service.Key{Namespace: "ns", Name: name} }

// fake is a proxy with some Services, one of which the kernel rejects. Its ledger knows the others.
type fake struct {
	names    []string
	standing aggregator.Standing
	err      error
}

func (f *fake) Keys() (all []service.Key) {
	for _, name := range f.names {
		all = append(all, key(name))
	}
	return all
}

func (f *fake) Snapshot(of service.Key) service.Snapshot {
	spec := &service.Spec{Key: of, Ports: []service.Port{{Port: 80}}}
	spec.ClusterIPs[service.IPv4] = netip.MustParseAddr("10.0.0.1")
	return service.Snapshot{Spec: spec}
}

func (f *fake) Status() []aggregator.Status {
	return []aggregator.Status{{Domain: domain4, Quarantined: []aggregator.QuarantinedKey{{Key: key("rejected"), Reason: "Invalid argument"}}}}
}

func (f *fake) Standing(context.Context, string, int) (aggregator.Standing, error) {
	return f.standing, f.err
}

func (f *fake) Account(_ context.Context, _ string, of service.Key, _ int) (ledger.Account, error) {
	return ledger.Account{Known: true, Pending: of == key("pending")}, f.err
}

func (f *fake) Services() int             { return len(f.names) }
func (f *fake) Synced() time.Time         { return time.Now() }
func (f *fake) Node() *service.NodeObject { return nil }
func (f *fake) Facts() *service.NodeFacts { return &service.NodeFacts{} }

// TestAListAndADetailAgree about the state of each Service: the gravest of the actor, the ledger and
// the quarantine. A ledger that does not answer changes nothing.
func TestAListAndADetailAgree(t *testing.T) {
	counted, err := metrics.New(metrics.Config{Mode: "nftables", Domains: []metrics.DomainInfo{{Name: domain4}}})
	check(t, err)
	f := &fake{names: []string{"fine", "new", "parked", "pending", "rejected"}}
	f.standing.Waiting = []service.Key{key("pending"), key("rejected")}
	counted.Attach(f.Status, nil)
	for _, name := range f.names {
		counted.Supervisor(supervisor.Event[service.Key]{Child: key(name), What: supervisor.Started{}})
		if name != "new" {
			counted.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: key(name)}})
		}
	}
	counted.Supervisor(supervisor.Event[service.Key]{Child: key("parked"), What: supervisor.Failed{Err: errors.New("x")}})
	counted.Supervisor(supervisor.Event[service.Key]{Child: key("parked"), What: supervisor.Parked{Until: time.Now()}})
	i := &Inspection{Proxy: f, Metrics: counted, Backend: &setup.Backend{Domains: []proxy.Domain{{Name: domain4}}}}
	for ledger, want := range map[error]string{
		nil:                   "[in force waiting parked waiting quarantined]",
		errors.New("no turn"): "[in force waiting parked in force quarantined]",
	} {
		f.err = ledger
		var list, details []string
		i.Services(t.Context(), func(service.Key) bool { return true }, func(s *inspect.Service) bool {
			list = append(list, string(s.State))
			details = append(details, string(i.Service(t.Context(), service.Key{Namespace: s.Namespace, Name: s.Name}).State))
			return true
		})
		if got := fmt.Sprint(list); got != want {
			t.Errorf("ledger %v: the list says %s, want %s", ledger, got, want)
		}
		if got := fmt.Sprint(details); ledger == nil && got != want {
			t.Errorf("the details say %s, want %s", got, want)
		}
	}
}
