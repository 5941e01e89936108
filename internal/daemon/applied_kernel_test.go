// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// claims are all answers of a proxy to the question whether it serves.
type claims struct {
	// listed has the states in the list of Services, detailed those in their details, by name.
	listed, detailed map[string]state.State
	// applied and pending are counts of the domain of IPv4.
	applied, pending int
	healthy          bool
	healthz, readyz  int
	livez            int
	findings         []string
}

const testedHealth = "127.0.0.1:10256"

// ask collects the claims.
func ask(t *testing.T, client *inspect.Client) (c claims) {
	t.Helper()
	c.listed, c.detailed = map[string]state.State{}, map[string]state.State{}
	list, err := client.Services(t.Context(), "")
	check(t, err)
	for i := range list.Items {
		s := &list.Items[i]
		c.listed[s.Name] = s.State
		detail, err := client.Brief(t.Context(), s.Namespace, s.Name)
		check(t, err)
		c.detailed[s.Name] = detail.State
	}
	status, err := client.Status(t.Context())
	check(t, err)
	c.healthy = status.Healthy
	for _, d := range status.Domains {
		if d.Family == service.IPv4.String() && !d.Auxiliary {
			c.applied, c.pending = d.Applied, d.Pending
		}
	}
	for _, f := range status.Findings {
		c.findings = append(c.findings, f.Kind)
	}
	for path, code := range map[string]*int{"healthz": &c.healthz, "readyz": &c.readyz, "livez": &c.livez} {
		*code = answered(t, path)
	}
	return c
}

func answered(t *testing.T, path string) int {
	t.Helper()
	response, err := http.Get("http://" + testedHealth + "/" + path)
	check(t, err)
	check(t, response.Body.Close())
	return response.StatusCode
}

// serves reports whether all claims are that the node serves.
func (c *claims) serves() bool {
	for _, states := range []map[string]state.State{c.listed, c.detailed} {
		for _, s := range states {
			if s != state.Applied {
				return false
			}
		}
	}
	return len(c.listed) > 0 && c.pending == 0 && c.healthy && c.readyz == http.StatusOK
}

// isDown reports whether all claims are that no Service of IPv4 is served; IPv6 is not damaged.
func (c *claims) isDown() bool {
	for name, s := range c.listed {
		if s != state.Pending || c.detailed[name] != state.Pending {
			return false
		}
	}
	return len(c.listed) > 0 && c.applied == 0 && c.pending > 0 && !c.healthy && slices.Contains(c.findings, "rules-missing") &&
		c.healthz == http.StatusServiceUnavailable && c.readyz == http.StatusServiceUnavailable && c.livez == http.StatusOK
}

// serveHealth serves the demo's Services, and /healthz.
func serveHealth(t *testing.T, mode string) (*inspect.Client, func()) {
	t.Helper()
	const metrics = "127.0.0.1:10249"
	client, stop := serveChanged(t, "../../examples/demo", func(o *Options) {
		o.WithoutCluster, o.KubeProxy.HealthzBindAddress, o.KubeProxy.MetricsBindAddress = true, testedHealth, metrics
	}, "--proxy-mode", mode)
	for _, address := range []string{testedHealth, metrics} {
		testenv.Eventually(t, address+" listens", func() bool {
			conn, err := net.Dial("tcp", address)
			return err == nil && conn.Close() == nil
		})
	}
	return client, stop
}

// awaitClaims waits until the claims are as wanted.
func awaitClaims(t *testing.T, client *inspect.Client, what string, want func(*claims) bool) {
	t.Helper()
	var c claims
	for began := time.Now(); time.Since(began) < testenv.Patience; time.Sleep(20 * time.Millisecond) {
		if c = ask(t, client); want(&c) {
			return
		}
	}
	t.Fatalf("%s: %+v", what, c)
}

// TestStatus_LostRulesNotApplied: while another process owns the table and a family has no rules, each answer of the
// proxy says so. In iptables mode, the table is that of nftables, too.
func TestStatus_LostRulesNotApplied(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	for mode, table := range map[string]string{"nftables": "kube-proxy", "iptables": "nat"} {
		client, stop := serveHealth(t, mode)
		awaitClaims(t, client, mode+": before", (*claims).serves)
		taker := exec.Command("nft", "-i")
		in, err := taker.StdinPipe()
		check(t, err)
		check(t, taker.Start())
		_, err = fmt.Fprintf(in, "delete table ip %[1]s; add table ip %[1]s { flags owner; }\n", table)
		check(t, err)
		awaitClaims(t, client, mode+": while another process owns the table", (*claims).isDown)
		check(t, in.Close())
		check(t, taker.Wait())
		awaitClaims(t, client, mode+": after the other process ended", (*claims).serves)
		stop()
	}
}

// TestRepair_EmptyTableWithoutPause: rules that another process flushes repeatedly return each time without the pause
// between repairs of the same objects, in both modes.
func TestRepair_EmptyTableWithoutPause(t *testing.T) {
	if netnstest.Rerun(t) {
		return
	}
	addAddress(t)
	for mode, flush := range map[string]string{
		"nftables": "nft delete table ip kube-proxy", "iptables": "iptables -t nat -S KUBE-SERVICES | grep -q -- -d && iptables -t nat -F",
	} {
		client, stop := serveHealth(t, mode)
		began := time.Now()
		for range 8 {
			awaitClaims(t, client, mode+": between two flushes", (*claims).serves)
			// The claims may be those of the moment before the proxy hears of the previous flush.
			testenv.Eventually(t, "there is something to flush", func() bool { return exec.Command("sh", "-c", flush).Run() == nil })
		}
		awaitClaims(t, client, mode+": after the flushes", (*claims).serves)
		if took := time.Since(began); took > 45*time.Second {
			t.Errorf("%s: the flushes and repairs took %v; the pauses between repairs add up to 61 s", mode, took)
		}
		stop()
	}
}
