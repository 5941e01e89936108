// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether the proxy would start on a node. It calls the functions of a start up to the first
// change.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Result is the outcome of one check of a preflight.
type Result string

// OK is a check that passed, and INFO a fact, such as what a mode that does not serve would lack. After a WARN the proxy
// starts, but may not do what its user wants. A FAIL keeps it from starting.
const (
	OK   Result = "OK"
	Info Result = "INFO"
	Warn Result = "WARN"
	Fail Result = "FAIL"
)

// Check is one line of a preflight.
type Check struct {
	Name    string `json:"check"`
	Result  Result `json:"result"`
	Message string `json:"message"`
	// Remedy is what to do; empty if nothing has to be done.
	Remedy string `json:"remedy,omitempty"`
}

// Report describes whether the proxy would start on this node, and what it would find.
type Report struct {
	Version string `json:"version"`
	Result  Result `json:"result"`
	// Mode is the one that would serve; empty if none would. Reason is why.
	Mode   config.Mode `json:"mode"`
	Reason string      `json:"reason"`
	Checks []Check     `json:"checks"`
}

// Print prints the checks for people.
func (r *Report) Print(to *terminal.Page) {
	t, count := terminal.NewTable(to, "RESULT", "CHECK", "FOUND"), map[Result]int{}
	for _, c := range r.Checks {
		count[c.Result]++
		if t.Row(string(c.Result), c.Name, c.Message); c.Remedy != "" {
			t.Row(" ", " ", "-> "+c.Remedy)
		}
	}
	t.End()
	verdict := fmt.Sprintf("The proxy would start in %s mode.", r.Mode)
	if r.Result == Fail {
		verdict = "The proxy would not start."
	}
	to.Say("\n%s Failed: %d, warnings: %d.\n", verdict, count[Fail], count[Warn])
}

// preflightMax bounds a preflight. Listing 50,000 rules of iptables takes seconds.
const preflightMax = time.Minute

// Run does what a start does until it would change the node, by the same functions,
// and looks around. It changes nothing. Only invalid flags are an error.
func Run(ctx context.Context, o *setup.Options) (*Report, error) {
	ctx, cancel := context.WithTimeout(ctx, preflightMax)
	defer cancel()
	p := &preflight{options: o, backend: &setup.Backend{}, report: Report{Version: o.Version, Result: OK}}
	if err := p.configuration(); err != nil {
		return nil, err
	}
	before := loadedModules()
	p.capabilities()
	p.privileged = setup.NeedPrivilege("") == nil
	// As at a start: conntrack, then the mode, one process at a time.
	end := peer.Turn(ctx, setup.TurnMax)
	p.node(ctx)
	p.features(ctx)
	end()
	p.bridges()
	p.surroundings(ctx)
	p.others()
	p.leftovers(ctx)
	p.mounts()
	p.addresses()
	p.modules(before)
	return &p.report, nil
}

// preflight collects the checks.
type preflight struct {
	options *setup.Options
	report  Report
	// valid is set if the configuration is valid. Otherwise it is the default.
	valid bool
	// privileged is set if this process may query the kernel.
	privileged bool
	// reachable is set if the configuration names an API server.
	reachable bool
	backend   *setup.Backend
}

func (p *preflight) add(name string, result Result, do, format string, arguments ...any) {
	found := fmt.Sprintf(format, arguments...)
	if result != Info && (p.report.Result == OK || result == Fail) {
		p.report.Result = result
	}
	p.report.Checks = append(p.report.Checks, Check{name, result, found, do})
}

// node tries what a start sets and chooses: the kernel's settings, then the mode.
func (p *preflight) node(ctx context.Context) {
	var changes []sysctl.Change
	files := sysctl.Files{Plan: func(c sysctl.Change) { changes = append(changes, c) }}
	said := &heard{}
	log := zap.New(said)
	conntrackErr := p.options.PrepareConntrack(files, zap.NewNop())
	modeErr := errors.New("not tried without CAP_NET_ADMIN")
	if p.privileged {
		if p.backend, modeErr = setup.NewBackend(ctx, p.options, files, &backend.Forwarders{}, nil, log); modeErr == nil {
			modeErr = p.backend.Close()
			p.options.PrepareAccounting(p.backend.Mode, files, log)
		}
	}
	p.mode(modeErr, said.warnings)
	for _, c := range changes {
		p.setting(c)
	}
	switch {
	case conntrackErr != nil:
		found, do := advised(conntrackErr)
		p.add("kernel setting", Fail, do, "%s", found)
	case len(changes) == 0:
		p.add("kernel setting", OK, "", "none would change")
	}
}

// setting reports a change of a kernel setting.
func (p *preflight) setting(c sysctl.Change) {
	switch {
	case c.Problem == "":
		p.add("kernel setting", Info, "", "%s would change from %s to %s", c.Name, c.From, c.To)
	case c.Optional:
		p.add("kernel setting", Warn, c.Advice, "cannot set %s to %s: %s", c.Name, c.To, c.Problem)
	default:
		p.add("kernel setting", Fail, c.Advice, "cannot set %s to %s: %s", c.Name, c.To, c.Problem)
	}
}

// mode reports the mode that would serve, why, and what the start would warn of.
func (p *preflight) mode(err error, warnings []string) {
	asked, result := p.options.KubeProxy.Mode, OK
	for _, w := range warnings {
		if p.backend.Choice != nil && strings.HasPrefix(w, p.backend.Choice.Reason) {
			p.backend.Choice.Reason, result = w, Warn
			continue
		}
		p.add("mode", Warn, "", "%s", w)
	}
	switch {
	case err != nil:
		found, do := advised(err)
		p.add("mode", Fail, do, "%s: %s", cannotServe(asked), found)
		return
	case !p.valid:
		p.add("mode", OK, "", "%s without a configuration; your configuration decides once its errors are corrected",
			p.backend.Mode.Name)
		return
	case p.backend.Choice == nil:
		p.report.Reason = fmt.Sprintf("mode is set to %s", asked)
	default:
		p.report.Reason = p.backend.Choice.Reason
	}
	p.report.Mode = p.backend.Mode.Name
	p.add("mode", result, "", "%s", p.report.Reason)
}

// advised separates an error from what to do about it.
func advised(err error) (found, do string) {
	if e, ok := errors.AsType[*backend.AdvisedError](err); ok {
		return setup.OneLine(e.Err), e.Do
	}
	if e, ok := errors.AsType[*sysctl.Error](err); ok {
		return setup.OneLine(errors.New(strings.TrimSuffix(err.Error(), "; "+e.Do))), e.Do
	}
	return setup.OneLine(err), ""
}

func cannotServe(asked config.Mode) string {
	if asked == config.ModeBest {
		return "neither nftables nor iptables can serve"
	}
	return string(asked) + " cannot serve"
}

// heard keeps the warnings of a log, each in one line. It implements zapcore.Core.
type heard struct{ warnings []string }

// Enabled reports whether a level is kept.
func (h *heard) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With returns the same core: nothing that a preflight calls adds fields to its log.
func (h *heard) With([]zapcore.Field) zapcore.Core { return h }

// Check adds this core to those that write an entry.
func (h *heard) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if h.Enabled(entry.Level) {
		return checked.AddCore(entry, h)
	}
	return checked
}

// Write keeps an entry.
func (h *heard) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	var parts []string
	for _, f := range fields {
		f.AddTo(values)
		parts = append(parts, fmt.Sprintf("%s: %v", f.Key, values.Fields[f.Key]))
	}
	text := entry.Message
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	h.warnings = append(h.warnings, text)
	return nil
}

// Sync does nothing.
func (h *heard) Sync() error { return nil }
