// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack/account"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

const (
	entriesName       = "sluice_conntrack_entries"
	limitName         = "sluice_conntrack_entries_limit"
	insertFailedName  = "sluice_conntrack_insert_failed_total"
	dropName          = "sluice_conntrack_drop_total"
	earlyDropName     = "sluice_conntrack_early_drop_total"
	clashResolvedName = "sluice_conntrack_clash_resolve_total"
)

// tablePart watches the kernel's connection table; nil in userspace mode, which translates nothing.
func (s *server) tablePart() *part.Part {
	if s.backend.Mode.Forwards {
		return nil
	}
	t := account.NewTraffic(account.TrafficConfig{
		Service: s.host.Connections.Service, Exists: func(key service.Key) bool { return s.host.Snapshot(key).Spec != nil },
		Continuous: s.options.Sluice.Traffic.Accounting,
		Changed:    func(p account.Pressure) { s.pressed(&p) }, Failed: s.tableRead,
	})
	s.answers.Traffic = t
	return &part.Part{
		Name: "connection table", When: part.Owned, Run: t.Run,
		Findings: func() []state.Finding {
			p := t.Pressure()
			return pressureFindings(&p)
		},
		Status: func(to *inspect.Status) {
			if p := t.Pressure(); !p.At.IsZero() {
				to.Conntrack = &state.Conntrack{
					Entries: p.Entries, Limit: p.Limit, Dropped: p.Dropped, EarlyDropped: p.EarlyDropped, LastDrop: p.LastDrop.UTC(),
				}
			}
		},
		Metrics: metrics.Sampled{
			Of: []metrics.Definition{
				{Name: entriesName, Help: "Entries in the kernel's connection table."},
				{Name: limitName, Help: "Maximum number of entries in the kernel's connection table; 0 means no limit."},
				{Name: insertFailedName, Kind: metrics.Counter, Help: "Entries that lost a race against another entry for the same packets."},
				{Name: dropName, Kind: metrics.Counter, Help: "Packets dropped because the table was full, or because of such a race."},
				{Name: earlyDropName, Kind: metrics.Counter, Help: "Entries of unanswered connections deleted to make room."},
				{Name: clashResolvedName, Kind: metrics.Counter, Help: "Races between entries that cost no packet."},
			},
			Read: func(send metrics.Send) {
				if p := t.Pressure(); !p.At.IsZero() {
					samplePressure(&p, send)
				}
			},
		},
	}
}

// samplePressure sends the last reading of the connection table. The kernel counts since the namespace was created.
func samplePressure(p *account.Pressure, send metrics.Send) {
	send(entriesName, float64(p.Entries))
	send(limitName, float64(p.Limit))
	send(insertFailedName, float64(p.InsertFailed))
	send(dropName, float64(p.Dropped))
	send(earlyDropName, float64(p.EarlyDropped))
	send(clashResolvedName, float64(p.ClashResolved))
}

// pressureKinds are the kinds of findings, by level.
var pressureKinds = map[account.Level]health.Kind{
	account.Filling: health.ConntrackFilling, account.Dropping: health.ConntrackDrops, account.Full: health.ConntrackFull,
}

// pressureFindings returns a finding if the connection table is under pressure, with the Services and clients that have
// most entries.
func pressureFindings(p *account.Pressure) []state.Finding {
	kind, pressed := pressureKinds[p.Level]
	if !pressed {
		return nil
	}
	f := state.Finding{Kind: kind, Since: p.Since, Problem: usageText(p)}
	if !p.LastDrop.IsZero() {
		f.Problem += fmt.Sprintf("; dropped %d packets or connections at %s", p.Drops, p.LastDrop.UTC().Format(time.TimeOnly+"Z"))
	}
	if p.Holders == nil {
		return []state.Finding{f}
	}
	f.Problem += "; clients with most entries: " + clientsText(p.Holders.Clients)
	for _, key := range holders(p.Holders) {
		f.Services = append(f.Services, state.Affected{Service: key.String(), Reason: entriesText(p.Holders.Services[key].Entries())})
	}
	return []state.Finding{f}
}

// holders returns the Services with the most entries.
func holders(f *traffic.Flows) []service.Key {
	return f.Top(health.ServicesMax, func(s *traffic.ServiceFlows) uint64 { return s.Entries() })
}

func usageText(p *account.Pressure) string {
	return fmt.Sprintf("the connection table has %d of %d entries (%d%%)", p.Entries, p.Limit, p.Percent())
}

func entriesText(n uint64) string { return plural.Of(n, "entry") }

// clientsText names clients, each with the number of entries that it has at least.
func clientsText(clients []traffic.Ranked[netip.Addr]) string {
	var all []string
	for _, c := range clients {
		all = append(all, fmt.Sprintf("%s (%d)", c.Key, c.Sum-c.Error))
	}
	return strings.Join(all, ", ")
}

// pressed logs a change of the pressure on the connection table.
func (s *server) pressed(p *account.Pressure) {
	if p.Level == account.Calm {
		s.log.Info("connection table no longer under pressure", zap.Uint64("entries", p.Entries), zap.Uint64("limit", p.Limit))
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
	s.log.Warn("connection table under pressure", zap.String("finding", pressureKinds[p.Level]),
		zap.Uint64("entries", p.Entries), zap.Uint64("limit", p.Limit), zap.Uint64("dropped", p.Drops),
		zap.Strings("services", services), zap.String("clients", clients))
}

// tableRead reports whether the connection table could be read.
func (s *server) tableRead(err error) {
	const what = "connection table"
	if err == nil {
		s.host.Repeated.Succeeded(what)
		return
	}
	if tell, _ := s.host.Repeated.Failed(what); tell {
		s.log.Warn("cannot read the connection table; retrying", zap.Error(err))
	}
}
