package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// pressureKinds are the kinds of findings, by level.
var pressureKinds = map[conntrack.Level]health.Kind{
	conntrack.Filling: health.ConntrackFilling, conntrack.Dropping: health.ConntrackDrops, conntrack.Full: health.ConntrackFull,
}

// pressureFindings returns a finding if the connection table is pressed, with the Services and clients that hold most
// of it.
func pressureFindings(p *conntrack.Pressure) []health.Finding {
	kind, pressed := pressureKinds[p.Level]
	if !pressed {
		return nil
	}
	f := health.Finding{Kind: kind, Since: p.Since, Problem: usageText(p)}
	if !p.LastDrop.IsZero() {
		f.Problem += fmt.Sprintf("; dropped %d packets or connections at %s", p.Drops, p.LastDrop.UTC().Format(time.TimeOnly+"Z"))
	}
	if p.Holders == nil {
		return []health.Finding{f}
	}
	f.Problem += "; clients with most entries: " + clientsText(p.Holders.Clients)
	for _, key := range holders(p.Holders) {
		f.Services = append(f.Services, health.Affected{Service: key.String(), Reason: entriesText(p.Holders.Services[key].Entries())})
	}
	return []health.Finding{f}
}

// holders are the Services with most entries.
func holders(f *traffic.Flows) []service.Key {
	return f.Top(health.ServicesMax, func(s *traffic.ServiceFlows) uint64 { return s.Entries() })
}

func usageText(p *conntrack.Pressure) string {
	return fmt.Sprintf("the connection table has %d of %d entries (%d%%)", p.Entries, p.Limit, p.Percent())
}

func entriesText(n uint64) string { return plural.Of(n, "entry") }

// clientsText names clients with the number of their entries, as far as that is certain.
func clientsText(clients []traffic.Ranked[netip.Addr]) string {
	var all []string
	for _, c := range clients {
		all = append(all, fmt.Sprintf("%s (%d)", c.Key, c.Sum-c.Error))
	}
	return strings.Join(all, ", ")
}

// pressed logs a change of the pressure on the connection table.
func (r *reports) pressed(p *conntrack.Pressure) {
	if p.Level == conntrack.Calm {
		r.log.Info("connection table no longer under pressure", zap.Uint64("entries", p.Entries), zap.Uint64("limit", p.Limit))
		return
	}
	var services []string
	clients := ""
	if p.Holders != nil {
		clients = clientsText(p.Holders.Clients)
		for _, key := range holders(p.Holders) {
			services = append(services, fmt.Sprintf("%s (%d)", key, p.Holders.Services[key].Entries()))
		}
	}
	r.log.Warn("connection table under pressure", zap.String("finding", pressureKinds[p.Level]),
		zap.Uint64("entries", p.Entries), zap.Uint64("limit", p.Limit), zap.Uint64("dropped", p.Drops),
		zap.Strings("services", services), zap.String("clients", clients))
}

// tableRead reports whether the connection table could be read.
func (r *reports) tableRead(err error) {
	const what = "connection table"
	if err == nil {
		r.repeated.Succeeded(what)
		return
	}
	if tell, _ := r.repeated.Failed(what); tell {
		r.log.Warn("cannot read the connection table; retrying", zap.Error(err))
	}
}
