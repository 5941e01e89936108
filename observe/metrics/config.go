package metrics

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// The kernel backends, as --proxy-mode names them. Which of kube-proxy's metrics
// exist depends on the mode.
const (
	modeIPTables = "iptables"
	modeNFTables = "nftables"
	modeIPVS     = "ipvs"
)

// Config is what a Metrics is made of.
type Config struct {
	// Mode is "iptables", "nftables" or "ipvs".
	Mode string
	// Domains are those of the proxy; events of others are ignored.
	Domains []Domain
	// Features are the known feature gates, for kubernetes_feature_enabled.
	Features []Feature
	// ShowHidden shows what has been hidden since the previous minor release
	// of Kubernetes (showHiddenMetricsForVersion). It counts for the process:
	// once set it stays.
	ShowHidden bool
	// NativeHistograms is the feature gate of that name: kube-proxy's
	// histograms have the native form, too. Sluice's own always have it. It
	// counts for the process.
	NativeHistograms bool
	// Findings gives what health finds, the same kinds each time. It is called
	// at each scrape, several at once, and must not block. Nil finds nothing.
	Findings func() []Finding
	// Traffic gives what the kernel has counted by frontend, those at node ports
	// once for each address of the node. It is called for each answer about Services,
	// several at once. Nil where the kernel does not count.
	Traffic func(ctx context.Context) (map[dataplane.Frontend]Traffic, error)
	// ServicesMax is how many Services have metrics of their own at /metrics,
	// those with the longest time from receipt to kernel first; 0 for none.
	ServicesMax int
}

// Domain is one domain of the proxy.
type Domain struct {
	// Name is the domain's, as events carry it.
	Name   string
	Family service.Family
	// Auxiliary domains hold something beside the kernel's rules. They have no
	// part in kube-proxy's metrics.
	Auxiliary bool
}

// Feature is one feature gate of Kubernetes.
type Feature struct {
	Name string
	// Stage is "alpha", "beta", "GA" or "deprecated", in any case.
	Stage   string
	Enabled bool
}

func (c Config) validate() error {
	if !slices.Contains([]string{modeIPTables, modeNFTables, modeIPVS}, c.Mode) {
		return fmt.Errorf("metrics: mode %q: want iptables, nftables or ipvs", c.Mode)
	}
	if c.ServicesMax < 0 {
		return fmt.Errorf("metrics: %d Services with metrics of their own: want 0 or more", c.ServicesMax)
	}
	names := map[string]bool{}
	for _, d := range c.Domains {
		if d.Name == "" || names[d.Name] {
			return fmt.Errorf("metrics: domain %q: want a name that no other domain has", d.Name)
		}
		names[d.Name] = true
	}
	return nil
}
