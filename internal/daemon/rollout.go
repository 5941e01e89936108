package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/waves"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/source/kube"
)

// rollout decides when a server applies a changed configuration file.
type rollout struct {
	// lease is nil if every change is applied immediately.
	lease *waves.Lease
	// trial is set if this server was made for a change that other nodes wait for.
	trial *trial

	mu sync.Mutex
	// pending is the change that waits; its Hash is empty if none does.
	pending pendingChange
}

// pendingChange is a change of the configuration file that is not applied yet.
type pendingChange struct {
	hash, why string
	since     time.Time
	// held says that it waits for a person.
	held bool
}

// trial is the application of a configuration that this node reports on.
type trial struct {
	hash string
	// canary reports success, too.
	canary bool
	// previous is what this node goes back to. The other nodes wait by the Lease and the settling time in it, which the
	// new configuration may change.
	previous *config.Config
	// found are the findings under the previous configuration, and served the Services that existed then.
	found, served map[string]bool
}

// newRollout makes the rollout of a server. Connections close when the context ends.
func (s *server) newRollout(ctx context.Context) (*rollout, error) {
	r := &rollout{}
	if s.options.Sluice.Reload != config.ReloadWaves || s.feed.Client == nil {
		return r, nil
	}
	var err error
	r.lease, err = s.newLease(ctx, s.options.Sluice.Waves.Lease)
	return r, err
}

// newLease returns a Lease with a name of the form NAMESPACE/NAME.
func (s *server) newLease(ctx context.Context, at string) (*waves.Lease, error) {
	client, closeAll := kube.OwnConnections(s.feed.Client)
	context.AfterFunc(ctx, closeAll)
	return waves.NewLease(client, at)
}

// follow applies changes of the configuration file when it is this node's turn, until there is a successor. Only one
// goroutine calls it; the context of the process is for the successor.
func (s *server) follow(ctx, process context.Context, updates <-chan config.Update) {
	if s.rollout.trial != nil {
		s.try(ctx, process)
	}
	var pending *config.Update
	var machine *waves.Machine
	for ctx.Err() == nil && s.successor == nil {
		again := time.Hour // without a pending change, only the file matters
		if pending != nil {
			again = s.pause()
			if s.step(ctx, process, pending, machine) {
				pending = nil
				continue
			}
		}
		select {
		case <-ctx.Done():
		case u := <-updates:
			if pending, machine = s.arrived(process, u); pending == nil {
				s.setPending("", "", false)
			}
		case <-time.After(again):
		}
	}
}

// arrived takes a new content of the file. It returns the change if that has to wait.
func (s *server) arrived(process context.Context, u config.Update) (*config.Update, *waves.Machine) {
	immediately := s.options.Sluice.Reload != config.ReloadOff && s.rollout.lease == nil
	if immediately || u.Err != nil || len(u.Changes) == 0 {
		_ = s.update(process, u) // it has logged the error
		return nil, nil
	}
	w := &s.options.Sluice.Waves
	return &u, &waves.Machine{
		Node: s.node.Name, Running: s.options.Hash(), Pending: u.Config.Hash(),
		Limit: 4*w.Settle.Duration + time.Minute, Window: w.Window.Duration,
	}
}

// step goes on with a pending change. It reports whether that is done with, applied or rejected.
func (s *server) step(ctx, process context.Context, u *config.Update, m *waves.Machine) bool {
	if s.rollout.lease == nil {
		s.setPending(m.Pending, "reload is off: a restart of the proxy applies the file", true)
		return false
	}
	state, err := s.rollout.lease.Read(ctx)
	if err != nil {
		s.setPending(m.Pending, err.Error(), true)
		return false
	}
	d := m.Next(time.Now(), &state)
	canary := d.Step == waves.Take || state.Canary == s.node.Name
	if d.Step == waves.Take {
		if taken, err := s.rollout.lease.Take(ctx, &state, m.Pending, s.node.Name); err != nil {
			s.setPending(m.Pending, err.Error(), true)
			return false
		} else if !taken {
			d.Step, d.Reason = waves.Wait, "another node tries it first"
		}
	}
	if d.Step == waves.Wait {
		s.setPending(m.Pending, d.Reason, d.Held)
		return false
	}
	s.apply(ctx, process, u, &state, canary && state.Approved != m.Pending)
	s.setPending("", "", false)
	return true
}

// apply makes the successor, which tries the configuration unless a person has approved it.
func (s *server) apply(ctx, process context.Context, u *config.Update, state *waves.State, canary bool) {
	hash, found, served := u.Config.Hash(), s.found(), map[string]bool{}
	for _, key := range s.proxy.Keys() {
		served[key.String()] = true
	}
	err := s.update(process, *u)
	switch {
	case s.successor != nil && state.Approved != hash:
		s.successor.rollout.trial = &trial{hash: hash, canary: canary, previous: s.options.Config, found: found, served: served}
	case err != nil && state.Approved != hash:
		s.report(ctx, s.rollout.lease, hash, waves.Bad, s.node.Name+": "+err.Error())
	}
}

// try observes this node for the settling time under a configuration that others wait for, and reports the result.
// After a bad one, it goes back to the previous configuration.
func (s *server) try(ctx, process context.Context) {
	t := s.rollout.trial
	wait(ctx, t.previous.Sluice.Waves.Settle.Duration)
	if ctx.Err() != nil || s.feed.Client == nil { // without an API server, nothing can be reported
		return
	}
	lease, err := s.newLease(ctx, t.previous.Sluice.Waves.Lease)
	if err != nil {
		s.log.Warn("cannot report the result of a configuration; the other nodes hold it", zap.String("hash", t.hash), zap.Error(err))
		return
	}
	problem := s.problem(t)
	if problem == "" {
		if t.canary {
			s.report(ctx, lease, t.hash, waves.Good, "")
		}
		return
	}
	s.log.Error("configuration causes a problem; going back to the previous one", zap.String("hash", t.hash), zap.String("problem", problem))
	s.report(ctx, lease, t.hash, waves.Bad, s.node.Name+": "+problem)
	if ctx.Err() == nil {
		_ = s.update(process, config.Update{Config: t.previous, Changes: config.Compare(s.options.Config, t.previous)})
	}
}

// reportsMax is how often a result is sent, if the API server cannot be reached. Without a result, the other nodes hold
// the change.
const reportsMax = 5

// report writes the result for all nodes.
func (s *server) report(ctx context.Context, lease *waves.Lease, hash, result, reason string) {
	for n := 1; ctx.Err() == nil; n++ {
		err := lease.Report(ctx, hash, result, reason)
		if err == nil {
			s.log.Info("reported the result of a configuration to the other nodes", zap.String("hash", hash), zap.String("result", result))
			return
		}
		if n == reportsMax {
			s.log.Warn("cannot report the result of a configuration; the other nodes hold it", zap.String("hash", hash), zap.Error(err))
			return
		}
		wait(ctx, s.pause())
	}
}

// pause returns the pause between two requests: 10 to 20 s, or less if nodes settle faster.
func (s *server) pause() time.Duration {
	most := min(20*time.Second, max(time.Second, s.options.Sluice.Waves.Settle.Duration*2/3))
	return most/2 + rand.N(most/2) //nolint:gosec // not a secret
}

// own are the kinds of findings that a configuration can cause. The others are about the cluster, the API server or
// other processes.
var own = map[health.Kind]bool{
	health.FirstWriteHeld: true, health.NodeAtFault: true, health.WriteFailing: true, health.BatchStuck: true,
	health.AddressTaken: true, health.AuditFailing: true, health.Dataplane: true, health.NotOffloaded: true,
	health.TooLarge: true, health.Parked: true, health.Stuck: true, health.StopHangs: true,
}

// found returns which problems there are now.
func (s *server) found() map[string]bool {
	all := map[string]bool{}
	for _, text := range s.reports.conflicts.failing() {
		all[text] = true
	}
	for _, f := range s.reports.monitor.Report().Findings {
		for _, key := range keysOf(&f) {
			all[key] = true
		}
	}
	return all
}

// keysOf names a finding. One about Services has a key for each of them, and one for those that it does not name.
func keysOf(f *health.Finding) (all []string) {
	key := string(f.Kind) + " " + f.About
	for _, a := range f.Services {
		all = append(all, key+" "+a.Service)
	}
	if len(f.Services) == 0 || f.More > 0 {
		all = append(all, key)
	}
	return all
}

// causes reports whether a finding is new under this configuration. A Service that did not exist before does not count:
// otherwise, a tenant could hold every change with a new Service.
func (t *trial) causes(f *health.Finding) bool {
	keys := keysOf(f)
	for i, a := range f.Services {
		if t.served[a.Service] && !t.found[keys[i]] {
			return true
		}
	}
	return len(keys) > len(f.Services) && !t.found[keys[len(keys)-1]]
}

// problem returns what is wrong with this node and was not under the previous configuration. It is empty if there is
// no such problem.
func (s *server) problem(t *trial) string {
	if ready := s.ready(); !ready.Ready() {
		return ready.Text(true)
	}
	for _, text := range s.reports.conflicts.failing() {
		if !t.found[text] {
			return text
		}
	}
	for _, f := range s.reports.monitor.Report().Findings {
		if (f.Unhealthy || own[f.Kind]) && t.causes(&f) {
			return string(f.Kind) + ": " + f.Problem
		}
	}
	return ""
}

// setPending notes which change waits, and why. It tells people if the change is held.
func (s *server) setPending(hash, why string, held bool) {
	r := s.rollout
	r.mu.Lock()
	was := r.pending
	now := pendingChange{hash: hash, why: why, since: was.since, held: held}
	if was.hash != hash {
		now.since = time.Now()
	}
	r.pending = now
	r.mu.Unlock()
	if held && (was.hash != hash || was.why != why || !was.held) {
		problem := s.pendingProblem(&now)
		s.log.Warn("changed configuration is not applied", zap.String("hash", hash), zap.String("reason", problem))
		s.reports.recorder.ConfigurationHeld(problem)
	}
}

// pendingProblem says why a change is held, and how to go on.
func (s *server) pendingProblem(p *pendingChange) string {
	text := fmt.Sprintf("the configuration file has changed (hash %s) and is not applied: %s", p.hash, p.why)
	if s.rollout.lease != nil {
		text += "; change the ConfigMap again, or approve it: " + s.rollout.lease.Approval(p.hash)
	}
	return text
}

// pendingFindings returns a finding if a change is held.
func (s *server) pendingFindings() []health.Finding {
	s.rollout.mu.Lock()
	p := s.rollout.pending
	s.rollout.mu.Unlock()
	if !p.held {
		return nil
	}
	return []health.Finding{{Kind: health.ConfigurationPending, Since: p.since, Problem: s.pendingProblem(&p)}}
}

// pendingState returns which state a pending change is in; empty without one.
func (s *server) pendingState() metrics.Pending {
	s.rollout.mu.Lock()
	defer s.rollout.mu.Unlock()
	switch p := &s.rollout.pending; {
	case p.hash == "":
		return metrics.PendingNone
	case p.held:
		return metrics.PendingHeld
	default:
		return metrics.PendingWaiting
	}
}
