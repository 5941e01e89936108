// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/security"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/source/kube"
)

// protection protects the HTTP endpoints that other hosts reach. The zero value does nothing.
type protection struct {
	// on keeps details of health from other hosts.
	on bool
	// certificates is nil if the metrics address needs none.
	certificates *security.Certificates
	// reviews is nil if everyone gets answers.
	reviews *security.Reviews
	// inspection protects the inspection address; nil if that is not protected.
	inspection *protection
}

// protect makes the protection that the configuration asks for. Connections close when the context ends.
func (s *server) protect(ctx context.Context) (p protection, err error) {
	c, address := &s.options.Sluice.Security, s.options.KubeProxy.MetricsBindAddress
	p.on = c.On()
	if !observed(s.options, s.feed) {
		return p, nil
	}
	if at := s.options.Sluice.Inspection.BindAddress; c.Inspection && at != "" {
		p.inspection = &protection{certificates: s.certificates(at, security.Files{Cert: c.CertFile, Key: c.KeyFile})}
		if p.inspection.reviews, err = s.newReviews(ctx, "inspection: true needs an API server; without one, set false", metrics.AddressInspection,
			security.Address{Header: inspect.TokenHeader, Audience: inspect.TokenAudience}); err != nil {
			return p, err
		}
	}
	if !p.on || web.OnLoopback(address) {
		return p, nil
	}
	if c.Authorization == config.AuthorizationDelegated {
		if p.reviews, err = s.newReviews(ctx, "authorization: delegated needs an API server; without one, set none", metrics.AddressMetrics,
			security.Address{Header: "Authorization", Audience: inspect.TokenAudience, APIServer: true}); err != nil {
			return p, err
		}
	}
	p.certificates = s.certificates(address, security.Files{Cert: c.CertFile, Key: c.KeyFile, ClientCA: c.ClientCAFile, RequireClient: p.reviews == nil})
	return p, nil
}

// newReviews makes reviews of the callers of an address, whose name is that in metrics.
func (s *server) newReviews(ctx context.Context, without, name string, at security.Address) (*security.Reviews, error) {
	if s.feed.Client == nil {
		return nil, setup.UsageError{Err: errors.New("SluiceConfiguration.security." + without)}
	}
	client, closeAll := kube.OwnConnections(s.feed.Client)
	context.AfterFunc(ctx, closeAll)
	at.Refused = func(status int) { s.answers.Metrics.Refused(name, status) }
	at.Failed = func(err error) {
		if tell, _ := s.host.Repeated.Failed("reviews " + name); tell {
			s.log.Warn("cannot check callers; refusing them", zap.String("address", name), zap.Error(err))
		}
	}
	return security.NewReviews(client, at)
}

// certificates makes the certificates of an address.
func (s *server) certificates(address string, files security.Files) *security.Certificates {
	host, _, _ := net.SplitHostPort(address) // the configuration is checked
	files.Name, files.Address = s.host.Node.Name, net.ParseIP(host)
	return security.NewCertificates(files, s.log.With(zap.String("address", address)))
}

// run follows the files of certificates until the context ends.
func (p *protection) run(ctx context.Context) {
	var following sync.WaitGroup
	for _, one := range []*protection{p, p.inspection} {
		if one != nil && one.certificates != nil {
			following.Go(func() { one.certificates.Run(ctx) })
		}
	}
	following.Wait()
}

// questions guards answers to other hosts.
func (p *protection) questions(answers http.Handler) http.Handler {
	if p == nil {
		return answers
	}
	return p.reviews.Guard(answers)
}

// tls returns how the server encrypts; nil if it does not.
func (p *protection) tls() *tls.Config {
	if p == nil || p.certificates == nil {
		return nil
	}
	return p.certificates.Config()
}

// pages adds the health of the node to pages, and guards them.
func (p *protection) pages(pages http.Handler, monitor *health.Monitor) http.Handler {
	if p.certificates == nil {
		return pages
	}
	site := http.NewServeMux()
	node := health.Handler(monitor, p.details, func(string, int) {}) // metrics count probes of the health server only
	site.Handle(security.NodeHealth+"/", http.StripPrefix(security.NodeHealth, node))
	site.Handle("/", pages)
	if p.reviews == nil {
		return site
	}
	return p.reviews.Guard(site)
}

// details reports whether a request may get details of health: Guard has reviewed it, or it comes from this host.
func (p *protection) details(r *http.Request) bool { return p.reviews != nil || web.OnHost(r) }

// health keeps details from other hosts, which get them from the guarded pages.
func (p *protection) health(handler http.Handler) http.Handler {
	if !p.on {
		return handler
	}
	return security.WithoutDetails(handler)
}
