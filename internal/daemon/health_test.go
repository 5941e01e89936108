// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/security"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
	"github.com/sluice-proxy/sluice/test/sourcetest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestManifestFindings_Rejected: rejected manifests are a finding until they are corrected.
func TestManifestFindings_Rejected(t *testing.T) {
	dir := t.TempDir()
	write := func(name, port string) {
		t.Helper()
		text := "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {clusterIP: 10.96.0.1, ports: [{port: " + port + "}]}\n"
		check(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
	}
	write("a", "0")
	write("b", "http")
	from := manifest.New(dir, source.NewCache(sourcetest.NewRecorder(), source.Options{}), "n1", zap.NewNop())
	go func() { _ = from.Run(t.Context()) }()
	await := func(want int) {
		t.Helper()
		testenv.Eventually(t, "the files are read", func() bool { return len(from.Problems()) == want })
	}
	await(2)
	found := manifestFindings(from.Problems())
	if len(found) != 1 || found[0].Kind != health.ManifestRejected || found[0].Unhealthy ||
		!strings.HasPrefix(found[0].Problem, "rejected: 2 files with 2 problems; the first: ") || !strings.Contains(found[0].Problem, "a.yaml:4: Service default/a: spec.ports[0].port") {
		t.Errorf("found %+v", found)
	}
	time.Sleep(10 * time.Millisecond) // the stamps of the files differ
	write("a", "80")
	check(t, os.Remove(filepath.Join(dir, "b.yaml")))
	await(0)
	if found := manifestFindings(from.Problems()); found != nil {
		t.Errorf("found %+v", found)
	}
}

// TestProtection_HealthDetails: at the metrics address, other hosts see details of health only if callers are checked.
func TestProtection_HealthDetails(t *testing.T) {
	for _, c := range []struct {
		from    string
		checked bool
		want    bool
	}{{"192.0.2.9:4000", false, false}, {"192.0.2.9:4000", true, true}, {"127.0.0.1:4000", false, true}} {
		p := protection{}
		if c.checked {
			p.reviews = &security.Reviews{}
		}
		r := httptest.NewRequest("GET", "https://127.0.0.1:10249/node/healthz?verbose", nil)
		r.RemoteAddr = c.from
		if got := p.details(r); got != c.want {
			t.Errorf("%+v: details %v", c, got)
		}
	}
}
