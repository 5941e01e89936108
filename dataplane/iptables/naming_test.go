package iptables

import (
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

// TestEveryContainerIsKnown: a container either holds frontends or is one of those
// whose elements come along with a frontend's or are shared on purpose. One that is
// new or renamed fails here until somebody has decided.
func TestEveryContainerIsKnown(t *testing.T) {
	others := []string{natHairpin.Name(), filterFirewall.Name(), filterHealth.Name()}
	known := map[string]bool{}
	for _, c := range Containers() {
		_, ofFrontends := frontendShapes[c.Name()]
		if ofFrontends == slices.Contains(others, c.Name()) {
			t.Errorf("%s: holds frontends: %v, is listed as another: %v", c.Name(), ofFrontends, !ofFrontends)
		}
		if ofFrontends && c.Shape == dispatch.BySource {
			t.Errorf("%s: no frontend is a source", c.Name())
		}
		known[c.Name()] = true
	}
	for name := range frontendShapes {
		if !known[name] {
			t.Errorf("%s holds frontends and is no container", name)
		}
	}
	for _, family := range service.Families {
		seen := map[string]bool{}
		for _, c := range renderCases {
			for _, o := range c.render(family) {
				if o.Kind != dataplane.Element {
					continue
				}
				seen[o.ID.Container] = true
				key, err := dispatch.DecodeKey(o.ID.Name)
				_, ofFrontends := frontendShapes[o.ID.Container]
				f, told := Naming{}.Frontend(o.ID)
				if err != nil || !known[o.ID.Container] || told != (ofFrontends && key.Lane == dispatch.Tree) {
					t.Errorf("%v: %v in %s is told as %v: %v", family, key, o.ID.Container, f, told)
				}
			}
		}
		if len(seen) < len(known) {
			t.Errorf("%v: elements of %d containers are rendered, want all %d", family, len(seen), len(known))
		}
	}
}
