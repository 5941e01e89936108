// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// world is a network namespace, and a pipeline without goroutines that writes into it.
type world struct {
	testing.TB
	family   service.Family
	node     *netns.Namespace
	renderer *render.Renderer
	writer   *kernel.Writer
	ledger   *ledger.Ledger
	facts    service.NodeFacts
	sequence uint64
}

// in calls f in a network namespace.
func in[T any](node *netns.Namespace, f func() (T, error)) (result T, err error) {
	err = node.Do(func() (err error) {
		result, err = f()
		return err
	})
	return result, err
}

func newWorld(t testing.TB, family service.Family, config kernel.WriterConfig) *world {
	t.Helper()
	return newWorldOn(t, netnstest.New(t, "node"), family, config)
}

// newWorldOn is newWorld in a namespace of the test's own.
func newWorldOn(t testing.TB, node *netns.Namespace, family service.Family, config kernel.WriterConfig) *world {
	t.Helper()
	w := &world{TB: t, family: family, node: node, renderer: render.NewRenderer(family, render.Options{MasqueradeBit: 14})}
	w.facts.Name = "n1"
	w.facts.Detect[service.IPv4].CIDR = netip.MustParsePrefix("10.0.0.0/8")
	w.facts.Detect[service.IPv6].CIDR = netip.MustParsePrefix("fd10::/16")
	w.facts.ServiceCIDRs[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}
	for _, f := range service.Families {
		w.facts.NodePorts[f].All = true
	}
	w.restart(config)
	return w
}

// restart begins anew with a process that knows nothing.
func (w *world) restart(config kernel.WriterConfig) {
	config.Inside = w.node.Do
	w.writer = kernel.NewWriter(w.family, config)
	w.Cleanup(func() {
		if err := w.writer.Close(); err != nil {
			w.Error(err)
		}
	})
	w.ledger = ledger.New(nil, w.renderer.Naming(), nil)
	w.want(service.Node, w.renderer.Node(&w.facts))
}

func (w *world) want(key service.Key, objects []dataplane.Object) {
	w.sequence++
	f := dataplane.NewFragment(key, objects)
	f.Revision = service.Revision{Incarnation: 1, Sequence: w.sequence}
	f.Gone = key != service.Node && len(objects) == 0
	w.ledger.Want(f)
}

func (w *world) serve(view *service.View) {
	w.want(view.Key, w.renderer.Service(context.Background(), view, &w.facts))
}

// commit writes what is wanted.
func (w *world) commit() dataplane.Receipt {
	w.Helper()
	batch := w.ledger.Plan()
	if batch == nil {
		return dataplane.Receipt{}
	}
	receipt := w.writer.Write(w.Context(), batch)
	if receipt.Outcome != dataplane.Landed {
		w.Fatalf("write: %v", receipt)
	}
	w.ledger.Settle(batch, receipt)
	return receipt
}

// audit compares the kernel with what is wanted.
func (w *world) audit() ledger.Drift {
	w.Helper()
	return w.ledger.Observe(w.read())
}

func (w *world) read() []dataplane.Object {
	w.Helper()
	objects, err := w.writer.Read(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return objects
}

// look reads what another process sees.
func (w *world) look() []dataplane.Object {
	w.Helper()
	looker := kernel.NewWriter(w.family, kernel.WriterConfig{Inside: w.node.Do})
	objects, err := looker.Read(w.Context())
	check(w, errors.Join(err, looker.Close()))
	return objects
}

// nft runs nft with some input. ${frontends} stands for the name of that map, and so on.
func (w *world) nft(input string, args ...string) string {
	w.Helper()
	input = os.Expand(input, render.SetName)
	for i := range args {
		args[i] = os.Expand(args[i], render.SetName)
	}
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := netnstest.Run(w.node, cmd); err != nil {
		w.Fatalf("nft %v: %v: %s (Debian package nftables)", args, err, said.String())
	}
	return said.String()
}

// table names our table in nft's syntax.
func (w *world) table() string {
	return map[service.Family]string{service.IPv4: "ip ", service.IPv6: "ip6 "}[w.family] + render.TableName
}

// compare fails unless two lists hold the same objects.
func compare(t testing.TB, got, want []dataplane.Object, names string) {
	t.Helper()
	byID := func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) }
	got, want = slices.SortedFunc(slices.Values(got), byID), slices.SortedFunc(slices.Values(want), byID)
	for len(got) > 0 || len(want) > 0 {
		switch {
		case len(want) == 0 || len(got) > 0 && byID(got[0], want[0]) < 0:
			t.Errorf("%s: %v %q is unexpected", names, got[0].ID.Container, got[0].ID.Name)
			got = got[1:]
		case len(got) == 0 || byID(got[0], want[0]) > 0:
			t.Errorf("%s: %v %q is missing", names, want[0].ID.Container, want[0].ID.Name)
			want = want[1:]
		default:
			if got[0].Body != want[0].Body {
				t.Errorf("%s: %v %q is\n%x, want\n%x", names, got[0].ID.Container, got[0].ID.Name, got[0].Body, want[0].Body)
			}
			got, want = got[1:], want[1:]
		}
	}
}

// plain is the n-th Service, with a ClusterIP and some endpoints. Endpoints with
// another generation are others.
func plain(n, endpoints, generation int) *service.View {
	view := &service.View{Key: service.Key{Namespace: "ns", Name: fmt.Sprintf("svc%d", n)}}
	port := service.PortView{
		Name: "http", Port: 80, HasAny: true,
		ClusterIP: netip.AddrFrom4([4]byte{172, byte(16 + n>>16), byte(n >> 8), byte(n)}),
	}
	for i := range endpoints {
		number := n*64 + i
		addr := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)})
		p := uint16(8080)
		if i == 0 {
			p += uint16(generation)
		}
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, p)})
	}
	view.Ports[service.IPv4] = []service.PortView{port}
	return view
}
