// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/security"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/holder"
)

// configuration loads the configuration. Problems in a file are checks that fail; problems in
// flags alone are an error.
func (p *preflight) configuration() error {
	err := p.options.Load()
	invalid, ok := errors.AsType[*config.InvalidError](err)
	isFlag := func(problem config.Problem) bool { return problem.Flag != "" }
	switch {
	case err == nil:
		p.valid = true
	case !ok || !slices.ContainsFunc(invalid.Problems, func(c config.Problem) bool { return !isFlag(c) }):
		return err
	default:
		for _, problem := range invalid.Problems {
			p.add(configCheck(problem.Position), Fail, "fix this error; the proxy does not start with it", "%s", problem)
		}
		p.options.Config = config.Default() // for the checks of the node
	}
	for _, w := range p.options.Warnings {
		p.add(configCheck(w.Position), Warn, "", "%s", w)
	}
	switch {
	case !p.valid:
	case len(p.options.Files) == 0:
		p.add("configuration", OK, "", "flags and defaults; no --config is given")
	default:
		p.add("configuration", OK, "", "%s is valid", strings.Join(p.options.Files, " and "))
	}
	if !p.valid {
		return nil
	}
	name, err := p.options.NodeName()
	if err != nil {
		return setup.UsageError{Err: err}
	}
	p.add("node", OK, "", "its name in the API is %s", name)
	p.cluster()
	p.certificates()
	return nil
}

// configCheck names the check that a position belongs to. The field of a feature gate in a flag is its bare name.
func configCheck(at config.Position) string {
	if strings.HasPrefix(at.Field, "featureGates.") || at.Flag == "--feature-gates" {
		return "feature gates"
	}
	return "configuration"
}

// cluster checks how the API server would be reached. It does not connect; families may.
func (p *preflight) cluster() {
	api := feed.API(p.options)
	if api.Kubeconfig == "" && api.Master == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		p.add("API server", Info, "", "skipped: no kubeconfig is set and this is not a pod")
		return
	}
	u, err := feed.Cluster(p.options)
	if err != nil {
		p.add("API server", Fail, "correct clientConnection.kubeconfig (--kubeconfig)", "%v", err)
		return
	}
	p.reachable = true
	p.add("API server", OK, "", "%s (Services are not listed; sluice plan lists the Services that would not be served)", u.Client.Host)
}

// certificates checks the files for HTTPS. The proxy starts even if they are invalid.
func (p *preflight) certificates() {
	c := &p.options.Sluice.Security
	if c.CertFile == "" && c.ClientCAFile == "" {
		return
	}
	until, err := security.Check(security.Files{Cert: c.CertFile, Key: c.KeyFile, ClientCA: c.ClientCAFile}, time.Now())
	if err != nil {
		p.add("certificates", Warn, "correct the files, and check that the pod mounts them; until then, HTTPS handshakes fail", "%v", err)
		return
	}
	p.add("certificates", OK, "", "valid until %s", until.UTC().Format(time.RFC3339))
}

// addresses checks which processes hold the addresses on which the proxy listens.
func (p *preflight) addresses() {
	owner := peer.Peek()
	for _, a := range p.options.Listens() {
		at, err := netip.ParseAddrPort(a.Address)
		if err != nil {
			continue // switched off
		}
		who, taken := holder.Of("tcp", at)
		switch {
		case !taken:
			p.add("address", OK, "", "%s %s is free", a.Field, a.Address)
		case owner != nil && !owner.ForeignProcess:
			p.add("address", OK, "", "%s %s is held by %s; the proxy that serves hands it over",
				a.Field, a.Address, who)
		case a.Hard:
			p.add("address", Fail, "stop it, or choose another "+a.Field, "%s %s is held by %s",
				a.Field, a.Address, who)
		default:
			p.add("address", Warn, "nothing if that proxy ends; otherwise stop it, or choose another "+a.Field,
				"%s %s is held by %s", a.Field, a.Address, who)
		}
	}
}
