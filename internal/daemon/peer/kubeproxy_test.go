// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestKernelKubeProxies: kube-proxies are found by their name, in this network namespace only.
func TestKernelKubeProxies(t *testing.T) {
	n := netnstest.New(t, "proxies")
	start(t, nil, "idle", "kube-proxy", "--elsewhere")
	start(t, n, "idle", "another", "kube-proxy")
	proxy := start(t, n, "idle", "/usr/local/bin/kube-proxy", "--here")
	var found []holder.Process
	if err := n.Do(func() error { found = KubeProxies(); return nil }); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("[pid %d (/usr/local/bin/kube-proxy --here)]", proxy.Process.Pid)
	if fmt.Sprint(found) != want {
		t.Errorf("%v, want %s", found, want)
	}
}
