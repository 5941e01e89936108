package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/security"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/source/kube"
)

// protection is what protects endpoints that other hosts reach. The zero value does nothing.
type protection struct {
	// on keeps details of health from other hosts.
	on bool
	// certificates is nil if the metrics address needs none.
	certificates *security.Certificates
	// reviews is nil if everyone gets answers.
	reviews *security.Reviews
}

// protect makes the protection that the configuration asks for. Connections close when the context ends.
func (s *server) protect(ctx context.Context) (p protection, err error) {
	c, address := &s.options.Sluice.Security, s.options.KubeProxy.MetricsBindAddress
	p.on = c.On()
	if !p.on || !observed(s.options, s.feed) || onLoopback(address) {
		return p, nil
	}
	if c.Authorization == config.AuthorizationDelegated {
		if s.feed.Client == nil {
			return p, setup.UsageError{Err: errors.New("SluiceConfiguration.security.authorization: delegated needs an API server; without one, set none")}
		}
		client, closeAll := kube.OwnConnections(s.feed.Client)
		context.AfterFunc(ctx, closeAll)
		if p.reviews, err = security.NewReviews(client, s.reviewFailed); err != nil {
			return p, err
		}
	}
	host, _, _ := net.SplitHostPort(address) // the configuration is checked
	p.certificates = security.NewCertificates(security.Files{
		Cert: c.CertFile, Key: c.KeyFile, ClientCA: c.ClientCAFile, RequireClient: p.reviews == nil,
		Name: s.node.Name, Address: net.ParseIP(host),
	}, s.log)
	return p, nil
}

// onLoopback reports whether only processes of this host reach an address with a port.
func onLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// reviewFailed reports that the API server did not say who a caller is.
func (s *server) reviewFailed(err error) {
	if tell, _ := s.reports.repeated.Failed("reviews"); tell {
		s.log.Warn("cannot check callers of the metrics address; refusing them", zap.Error(err))
	}
}

// run follows the files of certificates until the context ends.
func (p *protection) run(ctx context.Context) {
	if p.certificates != nil {
		p.certificates.Run(ctx)
	}
}

// tls returns how the server encrypts; nil if it does not.
func (p *protection) tls() *tls.Config {
	if p.certificates == nil {
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
	node := health.Handler(monitor, func(string, int) {}) // metrics count probes of the health server only
	site.Handle(security.NodeHealth+"/", http.StripPrefix(security.NodeHealth, node))
	site.Handle("/", pages)
	if p.reviews == nil {
		return site
	}
	return p.reviews.Guard(site)
}

// health keeps details from other hosts, which get them from the guarded pages.
func (p *protection) health(handler http.Handler) http.Handler {
	if !p.on {
		return handler
	}
	return security.WithoutDetails(handler)
}
