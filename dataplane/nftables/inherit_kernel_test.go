package nftables_test

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// hashed is a name as former releases and kube-proxy give it to what belongs to a service port.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:8] + "-" + text
}

// TestMemoryIsInherited: clients in the sets of a former release or of kube-proxy, one set per
// endpoint, keep their endpoint for their remaining time.
func TestMemoryIsInherited(t *testing.T) {
	const port = "ns/svc5/tcp/http"
	for name, former := range map[string]string{
		"a former release": "set %s { type ipv4_addr; size 262144; flags dynamic,timeout; elements = { %s } }\n",
		"kube-proxy":       "set %s { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 3h; elements = { %s } }\n",
	} {
		for _, bytesMax := range []int{0, 2 << 10} {
			t.Run(fmt.Sprintf("%s, transactions of %d bytes", name, bytesMax), func(t *testing.T) {
				prefix := map[string]string{"a former release": "clients-", "kube-proxy": "affinity-"}[name]
				w := newWorld(t, service.IPv4, nftables.WriterConfig{TransactionBytes: bytesMax})
				table := ""
				for i, elements := range []string{
					// 192.0.2.3 is in two sets, and was at the other endpoint more recently.
					"192.0.2.1 timeout 3h expires 100m, 192.0.2.3 timeout 3h expires 1m",
					"192.0.2.2 timeout 3h expires 100m, 192.0.2.3 timeout 3h expires 100m",
					"192.0.2.4 timeout 3h expires 100m", // of an endpoint that has gone
				} {
					endpoint := hashed(fmt.Sprintf("%s__10.0.1.%d/8080", port, []int{64, 65, 99}[i]))
					table += fmt.Sprintf(former, prefix+endpoint, elements)
					table += fmt.Sprintf("chain endpoint-%s { update @%s { ip saddr timeout 3h }\n"+
						"meta l4proto tcp dnat to 10.0.1.%d:8080\n}\n", endpoint, prefix+endpoint, []int{64, 65, 99}[i])
				}
				w.nft("table "+w.table()+" {\n"+table+"}\n", "-f", "-")
				w.audit()
				for n := range 40 {
					w.serve(plain(n, 4, 0))
				}
				w.serve(stickyView(5, 3))
				receipt := w.commit()
				if several := receipt.Written.Calls > 1; several != (bytesMax > 0) {
					t.Errorf("%d transactions", receipt.Written.Calls)
				}
				if len(receipt.Notes) != 1 || !strings.Contains(receipt.Notes[0], "3 clients with affinity") {
					t.Errorf("noted: %q", receipt.Notes)
				}
				listed := w.nft("", "list", "map", w.table(), "clients-service-"+hashed(port))
				for client, endpoint := range map[string]string{"192.0.2.1": "10.0.1.64", "192.0.2.2": "10.0.1.65", "192.0.2.3": "10.0.1.65"} {
					left := regexp.MustCompile(client + ` timeout \S+ expires (1h(39m|40m)\S*) : ` + endpoint + `\b`)
					if !left.MatchString(listed) {
						t.Errorf("%s is not at %s: %s", client, endpoint, listed)
					}
				}
				if strings.Contains(listed, "192.0.2.4") {
					t.Errorf("a client of an endpoint that has gone: %s", listed)
				}
				if drift := w.audit(); drift.Any() {
					t.Errorf("in the end: %+v", drift)
				}
			})
		}
	}
}

// TestNothingToInherit: Services with affinity that come and go have nothing to do with each other.
func TestNothingToInherit(t *testing.T) {
	w := newWorld(t, service.IPv4, nftables.WriterConfig{})
	w.serve(stickyView(5, 3))
	w.commit()
	w.want(stickyView(5, 3).Key, nil)
	w.serve(stickyView(6, 3))
	if receipt := w.commit(); len(receipt.Notes) > 0 {
		t.Errorf("noted: %q", receipt.Notes)
	}
}
