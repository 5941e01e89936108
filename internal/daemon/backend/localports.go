package backend

import (
	"fmt"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane/localport"
)

// localPorts builds the domains that let node ports answer on localhost, for the families that are
// served.
func localPorts(served []proxy.Domain, log *zap.Logger) []proxy.Domain {
	var domains []proxy.Domain
	for _, d := range served {
		if err := localport.Probe(d.Family, nil); err != nil {
			log.Info("node ports do not answer on localhost", zap.Stringer("family", d.Family), zap.Error(err))
			continue
		}
		report := func(f localport.Failure) {
			log.Warn("node port on localhost", zap.String("listener", f.Listener), zap.Error(f.Err))
		}
		domains = append(domains, proxy.Domain{
			Name: fmt.Sprintf("localport/%s", d.Family), Family: d.Family, Auxiliary: true,
			Renderer: localport.NewRenderer(d.Family),
			Writer:   localport.NewWriter(d.Family, localport.Config{Report: report}),
		})
	}
	return domains
}
