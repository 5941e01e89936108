package e2e

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

// What the other tests rely on: cluster IPs in both families, and a server that keeps everything
// when it is stopped or killed.
func TestAPIServerKeepsItsState(t *testing.T) {
	c := harness.NewCluster(t)
	created := c.CreateService("kept", corev1.ServiceTypeNodePort)
	var is6 []bool
	for _, text := range created.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		is6 = append(is6, addr.Is6())
	}
	if !slices.Equal(is6, []bool{false, true}) {
		t.Fatalf("cluster IPs %v, want one IPv4 and one IPv6", created.Spec.ClusterIPs)
	}
	c.SetEndpoints("kept", c.A, c.B)

	for _, end := range []struct {
		how string
		end func() error
	}{{"stop", c.Server.Stop}, {"kill", c.Server.Kill}} {
		begin := time.Now()
		if err := end.end(); err != nil {
			t.Fatal(err)
		}
		ended := time.Since(begin)
		if _, err := c.Client.CoreV1().Services("default").Get(t.Context(), "kept", metav1.GetOptions{}); err == nil {
			t.Fatalf("after %s the server still answers", end.how)
		}
		if err := c.Server.Start(); err != nil {
			t.Fatalf("after %s: %v", end.how, err)
		}
		t.Logf("%s took %v, start after it %v", end.how, ended, c.Server.Took())
		got, err := c.Client.CoreV1().Services("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("after %s: %v", end.how, err)
		}
		if got.UID != created.UID || !slices.Equal(got.Spec.ClusterIPs, created.Spec.ClusterIPs) {
			t.Errorf("after %s: service %s %v, want %s %v", end.how, got.UID, got.Spec.ClusterIPs, created.UID, created.Spec.ClusterIPs)
		}
	}
}
