package reduce

import (
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServiceCIDR(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	ranges, warnings := ServiceCIDR(&networkingv1.ServiceCIDR{
		// One that is being deleted still counts.
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", DeletionTimestamp: &now},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"fd00:10:96::1/112", "bad", "10.96.0.0/16", "10.96.0.1/16"}},
	})
	if want := prefixes("fd00:10:96::/112", "10.96.0.0/16"); !slices.Equal(ranges, want) {
		t.Errorf("got %v, want %v", ranges, want)
	}
	checkWarnings(t, warnings, "ServiceCIDR kubernetes", "spec.cidrs[1]")
}

func TestEmptyServiceCIDR(t *testing.T) {
	ranges, warnings := ServiceCIDR(&networkingv1.ServiceCIDR{})
	if len(ranges) != 0 || len(warnings) != 0 {
		t.Errorf("got %v, %v", ranges, warnings)
	}
}
