package hostile

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// BenchmarkKernelSizes writes each large Service to the real kernel (nftables), reads it back
// and replaces one endpoint. With affinity, ten thousand clients are remembered by then.
func BenchmarkKernelSizes(b *testing.B) {
	for _, l := range sizes {
		b.Run(l.name, func(b *testing.B) {
			node := netnstest.New(b, "node")
			renderer := nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14})
			book := ledger.New(nil, renderer.Naming(), nil)
			var parts int
			writer := nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Inside: node.Do, Progress: func(int, int) { parts++ }})
			defer writer.Close() //nolint:errcheck // the namespace goes too
			write := func(view *service.View) time.Duration {
				book.Want(dataplane.NewFragment(view.Key, renderer.Service(context.Background(), view, nodeFacts())))
				batch := book.Plan()
				began := time.Now()
				receipt := writer.Write(b.Context(), batch)
				if receipt.Outcome != dataplane.Landed {
					b.Fatal(receipt)
				}
				book.Settle(batch, receipt)
				return time.Since(began)
			}
			book.Want(dataplane.NewFragment(service.Node, renderer.Node(nodeFacts())))
			before, after := l.view(1), l.view(2)
			first := write(before)
			if l.affinity {
				remember(b, node, 10_000)
			}
			change := write(after)
			began := time.Now()
			objects, err := writer.Read(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if drift := book.Observe(objects); book.Plan() != nil {
				b.Errorf("an audit finds %+v", drift)
			}
			b.ReportMetric(float64(first.Milliseconds()), "first-ms")
			b.ReportMetric(float64(parts), "parts")
			b.ReportMetric(float64(change.Microseconds())/1000, "change-ms")
			b.ReportMetric(float64(time.Since(began).Milliseconds()), "audit-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// remember puts clients into the map of the Service, as packets do.
func remember(b *testing.B, node *netns.Namespace, clients int) {
	b.Helper()
	out, err := node.Output(exec.Command("nft", "list", "maps", "ip"))
	if err != nil {
		b.Fatal(err)
	}
	name := ""
	for line := range strings.Lines(string(out)) {
		if _, after, found := strings.Cut(line, "map clients-"); found && name == "" {
			name = "clients-" + strings.Fields(after)[0]
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "add element ip kube-proxy %s {\n", name)
	for i := range clients {
		fmt.Fprintf(&text, "172.16.%d.%d timeout 3h : 10.128.%d.%d,\n", i>>8, i&255, i>>8, i&255)
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text.String() + "}\n")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := node.Run(cmd); err != nil {
		b.Fatalf("%v: %s", err, said.String())
	}
}

// TestLongestNamesLoad: the real tools take the rules of the longest names that are admitted.
func TestLongestNamesLoad(t *testing.T) {
	long := func(letter string) string { return strings.Repeat(letter, 63) }
	cache, warnings := cluster(names{long("n"), long("w"), long("p"), "", strings.Repeat("z", 253)})
	if len(cache.Keys()) != 1 {
		t.Fatal(warnings)
	}
	_, nft, err := forNFT(cache)
	if err != nil {
		t.Fatal(err)
	}
	_, ipt, err := forIPTables(cache)
	if err != nil {
		t.Fatal(err)
	}
	for program, text := range map[string]string{"nft -f -": nft, "iptables-nft-restore": ipt, "iptables-legacy-restore": ipt} {
		words := strings.Fields(program)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin = strings.NewReader(text)
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "lock"))
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := netnstest.New(t, "node").Run(cmd); err != nil {
			t.Errorf("%s: %v: %s", program, err, said.String())
		}
	}
}

// BenchmarkManifest50MB reads one file of 50 MB.
func BenchmarkManifest50MB(b *testing.B) {
	var text bytes.Buffer
	services := 0
	for ; text.Len() < 50<<20; services++ {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Service\nmetadata: {name: s%d}\nspec:\n  clusterIP: 10.%d.%d.%d\n  ports: [{port: 80}]\n",
			services, 96+services>>16, services>>8&255, services&255)
		fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s%d-1, labels: {kubernetes.io/service-name: s%d}}\naddressType: IPv4\nports: [{port: 8080, name: \"\"}]\nendpoints:\n", services, services)
		for i := range 20 {
			fmt.Fprintf(&text, "- addresses: [\"10.%d.%d.%d\"]\n  nodeName: node-%d\n", 128+i, services>>8&255, services&255, i)
		}
	}
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), text.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	text.Reset()
	runtime.GC()
	var peak uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak = max(peak, now.HeapInuse)
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	began := time.Now()
	cache, err := manifest.Load(dir, "n1", source.Options{})
	took := time.Since(began)
	close(stop)
	<-done
	if err != nil || len(cache.Keys()) != services {
		b.Fatal(err)
	}
	b.ReportMetric(float64(services), "services")
	b.ReportMetric(took.Seconds(), "load-s")
	b.ReportMetric(float64(peak>>20), "peak-MiB")
	b.ReportMetric(0, "ns/op")
}
