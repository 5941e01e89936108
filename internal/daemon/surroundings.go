// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/needs"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// surroundingsEvery is the pause between two looks, and surroundingsShare the minimum ratio of a pause to a look.
	surroundingsEvery, surroundingsShare = 10 * time.Second, 50
	// surroundingsTime bounds a look.
	surroundingsTime = 5 * time.Second
)

// surroundings checks what Services need from this node in addition to rules, and restores the kernel parameters that
// this mode needs. It runs concurrently with changes, and never waits for one.
type surroundings struct {
	options *setup.Options
	backend *setup.Backend
	seen    *part.View
	sysctls sysctl.Files
	log     *zap.Logger
	// every is the pause between two looks.
	every time.Duration
	// repeated keeps failures that repeat from filling the log.
	repeated observe.Incidents
	// since is when each problem was first seen. Only run uses it.
	since  map[string]time.Time
	latest atomic.Pointer[look]
}

const chainsName = "sluice_foreign_base_chains"

// surroundingsPart checks what Services need from the node.
func (s *server) surroundingsPart() *part.Part {
	around := &surroundings{options: &s.options.Options, backend: s.backend, seen: s.host.View, sysctls: s.sysctls, log: s.log,
		every: cmp.Or(s.options.LookInterval, surroundingsEvery)}
	return &part.Part{
		Name: "surroundings", When: part.Owned, Findings: around.findings, Status: around.status,
		Run: func(ctx context.Context) error {
			around.run(ctx, s.proxy.FirstSync())
			return nil
		},
		Metrics: metrics.Sampled{Read: around.sample, Of: []metrics.Definition{{Name: chainsName, Labels: []string{"hook"},
			Help: "nftables base chains of other programs that Service traffic passes, by hook. They are no problem by themselves."}}},
	}
}

// look is the result of one look at the node.
type look struct {
	findings []state.Finding
	chains   []needs.Chain
}

// run looks again and again until the context ends. It restores nothing before the first rules are applied, because
// restoring is safe only with them.
func (s *surroundings) run(ctx context.Context, applied <-chan struct{}) {
	for {
		began, restore := time.Now(), false
		select {
		case <-applied:
			restore = true
		default:
		}
		s.look(ctx, restore)
		if !sleep.For(ctx, max(s.every, surroundingsShare*time.Since(began))) {
			return
		}
	}
}

func (s *surroundings) look(ctx context.Context, restore bool) {
	ctx, cancel := context.WithTimeout(ctx, surroundingsTime)
	defer cancel()
	n, err := needs.Read(ctx, s.wants())
	const what = "surroundings"
	if err == nil {
		s.repeated.Succeeded(what)
	} else if tell, _ := s.repeated.Failed(what); tell && ctx.Err() == nil {
		s.log.Warn("cannot read what other processes set on this node; retrying", zap.Error(err))
	}
	now := &look{chains: n.Chains}
	for _, p := range n.Problems {
		now.findings = append(now.findings, state.Finding{Kind: health.NodeSettings, About: p.About, Problem: p.Text + "; " + p.Do})
	}
	if restore {
		now.findings = append(now.findings, s.restore()...)
	}
	since := map[string]time.Time{}
	for i := range now.findings {
		f := &now.findings[i]
		if since[f.About] = s.since[f.About]; since[f.About].IsZero() {
			since[f.About] = time.Now()
		}
		f.Since = since[f.About]
	}
	s.since = since
	s.latest.Store(now)
}

// restore restores the kernel parameters that this mode needs and another process changed.
func (s *surroundings) restore() (all []state.Finding) {
	restored, failed := s.options.KeepSysctls(s.backend.Mode, s.sysctls)
	for _, c := range restored {
		s.log.Warn("kernel setting changed by another process; restored it", zap.String("name", c.Name), zap.String("from", c.From), zap.String("to", c.To))
	}
	for _, err := range failed {
		all = append(all, state.Finding{Kind: health.NodeSettings, About: fmt.Sprintf("mode %s", s.backend.Mode.Name), Problem: err.Error()})
	}
	return all
}

// wants returns what to look for: in userspace mode, only what is informational, because that mode forwards connections
// itself. Services need a family if the Node has an address of it; without a Node, IPv4 counts.
func (s *surroundings) wants() needs.Wants {
	w := needs.Wants{Read: s.sysctls.Read, Pods: s.options.HasPods(s.backend.Mode), Legacy: s.backend.Variant != iptkernel.Legacy}
	if s.backend.Mode.Forwards {
		return w
	}
	var addresses []netip.Addr
	if node := s.seen.NodeObject(); node != nil {
		addresses = node.Addresses
	}
	for _, family := range s.seen.Families() {
		w.Families[family] = len(addresses) == 0 && family == service.IPv4 ||
			slices.ContainsFunc(addresses, func(a netip.Addr) bool { return service.FamilyOf(a) == family })
	}
	return w
}

// findings returns those of the latest look.
func (s *surroundings) findings() []state.Finding {
	if now := s.latest.Load(); now != nil {
		return now.findings
	}
	return nil
}

// sample counts the chains of other programs by hook.
func (s *surroundings) sample(send metrics.Send) {
	now := s.latest.Load()
	if now == nil {
		return
	}
	counts := map[string]int{}
	for _, c := range now.chains {
		if c.Hook != "" {
			counts[c.Hook]++
		}
	}
	for hook, n := range counts {
		send(chainsName, float64(n), hook)
	}
}

// status lists the chains of other programs.
func (s *surroundings) status(to *inspect.Status) {
	if now := s.latest.Load(); now != nil {
		for _, c := range now.chains {
			to.OtherChains = append(to.OtherChains, state.OtherChain{Table: c.Table, Name: c.Name, Hook: c.Hook, Priority: c.Priority, Text: c.Text()})
		}
	}
}
