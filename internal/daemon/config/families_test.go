package config

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func TestCheckFamilies(t *testing.T) {
	const unlimited = "nodePortAddresses: empty: node ports answer on all addresses of this node; consider primary"
	for name, c := range map[string]struct {
		words   []string
		primary service.Family
		dual    bool
		// said are the warnings, and fatal the error.
		said  []string
		fatal string
	}{
		"defaults":               {nil, service.IPv4, true, []string{unlimited}, ""},
		"primary":                {[]string{"--nodeport-addresses=primary"}, service.IPv4, true, nil, ""},
		"both limited":           {[]string{"--nodeport-addresses=10.0.0.0/8,fd00::/8", "--cluster-cidr=10.0.0.0/8,fd00::/8"}, service.IPv6, true, nil, ""},
		"second not limited":     {[]string{"--nodeport-addresses=10.0.0.0/8", "--cluster-cidr=10.0.0.0/8,fd00::/8"}, service.IPv4, true, []string{"nodePortAddresses: has no range of IPv6: node ports answer on all addresses of that family"}, ""},
		"second not there":       {[]string{"--nodeport-addresses=10.0.0.0/8", "--cluster-cidr=10.0.0.0/8"}, service.IPv4, true, nil, ""},
		"first not limited":      {[]string{"--nodeport-addresses=fd00::/8"}, service.IPv4, true, []string{"nodePortAddresses: has no range of IPv4: node ports answer on all addresses of that family"}, ""},
		"cluster CIDR, dual":     {[]string{"--nodeport-addresses=primary", "--cluster-cidr=fd00::/8"}, service.IPv4, true, []string{`clusterCIDR: "fd00::/8": the node's first family is IPv4, and this is of the other`}, ""},
		"cluster CIDR, single":   {[]string{"--nodeport-addresses=primary", "--cluster-cidr=fd00::/8"}, service.IPv4, false, nil, `clusterCIDR: "fd00::/8": the node serves IPv4 only, and this is of the other`},
		"cluster CIDR, not used": {[]string{"--nodeport-addresses=primary", "--cluster-cidr=fd00::/8", "--detect-local-mode=NodeCIDR"}, service.IPv4, false, []string{`clusterCIDR: "fd00::/8": the node serves IPv4 only, and this is of the other`}, ""},
		"servers": {[]string{"--nodeport-addresses=primary", "--healthz-bind-address=[fd00::1]:1", "--metrics-bind-address=[::1]:2", "--ipvs-exclude-cidrs=fd00::/8"}, service.IPv4, false, []string{
			"ipvs.excludeCIDRs: the node serves IPv4 only, and all of these are of the other",
			"healthzBindAddress: [fd00::1]:1: the node serves IPv4 only, and this is of the other",
			"metricsBindAddress: [::1]:2: the node serves IPv4 only, and this is of the other"}, ""},
		"servers, unspecified": {[]string{"--nodeport-addresses=primary", "--healthz-bind-address=[::]:1", "--metrics-bind-address=[::]:2"}, service.IPv4, false, nil, ""},
		"servers, dual":        {[]string{"--nodeport-addresses=primary", "--metrics-bind-address=[::1]:2"}, service.IPv4, true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			loaded, _ := load(t, c.words...)
			warnings, err := loaded.CheckFamilies(c.primary, c.dual)
			var said []string
			for _, w := range warnings {
				said = append(said, w.String())
			}
			if strings.Join(said, "\n") != strings.Join(c.said, "\n") {
				t.Errorf("warnings\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(c.said, "\n"))
			}
			if (err == nil) != (c.fatal == "") || (err != nil && err.Error() != c.fatal) {
				t.Errorf("error %v, want %q", err, c.fatal)
			}
		})
	}
}
