package reduce

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func FuzzService(f *testing.F) {
	addSeeds(f, newService(), newService(loadBalancer))
	f.Fuzz(func(t *testing.T, data []byte) {
		object := newService()
		if !read(data, object, &object.Spec, &object.Status.LoadBalancer) {
			return
		}
		spec, warnings := Service(object)
		again, warningsAgain := Service(object)
		if !spec.Equal(again) || !slices.Equal(warnings, warningsAgain) {
			t.Fatalf("equal objects, different results: %+v %v, %+v %v", spec, warnings, again, warningsAgain)
		}
		checkComplete(t, warnings)
		if spec == nil {
			return
		}
		checkSpec(t, spec)
		facts := &service.NodeFacts{Name: "n1"}
		x, y := service.Resolve(spec.Key, spec, nil, facts), service.Resolve(spec.Key, again, nil, facts)
		if !x.Equal(&y) {
			t.Errorf("equal specs, different views: %+v, %+v", x, y)
		}
	})
}

// checkSpec states what everyone behind relies on, whatever the object was.
func checkSpec(t *testing.T, spec *service.Spec) {
	t.Helper()
	if spec.Key.Namespace == "" || spec.Key.Name == "" {
		t.Errorf("key %q", spec.Key)
	}
	for _, family := range service.Families {
		if ip := spec.ClusterIPs[family]; ip.IsValid() {
			checkAddr(t, family, ip)
		}
		checkUnique(t, spec.ExternalIPs[family])
		checkUnique(t, spec.LoadBalancerVIPs[family])
		checkUnique(t, spec.SourceRanges[family])
		for _, ip := range slices.Concat(spec.ExternalIPs[family], spec.LoadBalancerVIPs[family]) {
			checkAddr(t, family, ip)
		}
		for _, prefix := range spec.SourceRanges[family] {
			checkAddr(t, family, prefix.Addr())
			if prefix != prefix.Masked() || prefix.Bits() == 0 {
				t.Errorf("source range %s", prefix)
			}
		}
	}
	var identities []string
	for _, port := range spec.Ports {
		identities = append(identities, port.Protocol.String()+" "+port.Name)
		if port.Port == 0 {
			t.Errorf("port %+v", port)
		}
	}
	checkUnique(t, identities)
	if spec.AffinitySeconds < 0 || spec.AffinitySeconds > affinityMaxSeconds {
		t.Errorf("affinity of %d s", spec.AffinitySeconds)
	}
	if spec.HealthCheckNodePort != 0 && !spec.ExternalLocal {
		t.Errorf("health-check port %d without policy Local", spec.HealthCheckNodePort)
	}
}

// checkAddr requires a canonical address of a family: the kernel must see one
// spelling only.
func checkAddr(t *testing.T, family service.Family, addr netip.Addr) {
	t.Helper()
	if addr != addr.Unmap() || addr.Zone() != "" || service.FamilyOf(addr) != family || !addr.IsValid() {
		t.Errorf("%s is no canonical %s address", addr, family)
	}
}

func checkUnique[T comparable](t *testing.T, list []T) {
	t.Helper()
	for i := range list {
		if slices.Contains(list[:i], list[i]) {
			t.Errorf("%v occurs twice in %v", list[i], list)
		}
	}
}

// checkComplete requires warnings that a reader can act on.
func checkComplete(t *testing.T, warnings []service.Warning) {
	t.Helper()
	for _, w := range warnings {
		if w.Object == "" || w.Field == "" || w.Problem == "" {
			t.Errorf("incomplete warning %+v", w)
		}
	}
}
