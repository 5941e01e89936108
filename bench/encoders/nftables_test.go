package encoders

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	google "github.com/google/nftables"
	"github.com/google/nftables/expr"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// tables is our table in a namespace, with both encoders connected to it.
type tables struct {
	*testing.B
	renderer *nftrender.Renderer
	facts    service.NodeFacts
	writer   *nftkernel.Writer
	google   *google.Conn
	// written are the objects that elements refer to.
	written map[dataplane.ID]bool
}

func newTables(b *testing.B) *tables {
	b.Helper()
	node := netnstest.New(b, "node")
	t := &tables{
		B:        b,
		renderer: nftrender.NewRenderer(service.IPv4, nftrender.Options{MasqueradeBit: 14}),
		writer:   nftkernel.NewWriter(service.IPv4, nftkernel.WriterConfig{Inside: node.Do}),
		written:  map[dataplane.ID]bool{},
	}
	b.Cleanup(func() { check(b, t.writer.Close()) })
	check(b, node.Do(func() (err error) {
		t.google, err = google.New(google.AsLasting(), google.WithSockOptions(func(c *mdlayher.Conn) error {
			if err := c.SetWriteBuffer(64 << 20); err != nil {
				return err
			}
			return c.SetReadBuffer(16 << 20)
		}))
		return err
	}))
	b.Cleanup(func() { check(b, t.google.CloseLasting()) })
	t.facts.Name = "n1"
	t.facts.Detect[service.IPv4].CIDR = netip.MustParsePrefix("10.0.0.0/8")
	t.facts.ServiceCIDRs[service.IPv4] = []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}
	t.write(added(t.renderer.Node(&t.facts)))
	return t
}

func check(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// service renders the n-th Service.
func (t *tables) service(n, endpoints int) []dataplane.Object {
	view := &service.View{Key: service.Key{Namespace: "ns", Name: fmt.Sprintf("svc%d", n)}}
	port := service.PortView{
		Name: "http", Port: 80, HasAny: true,
		ClusterIP: netip.AddrFrom4([4]byte{172, byte(16 + n>>16), byte(n >> 8), byte(n)}),
	}
	for i := range endpoints {
		number := n*64 + i
		addr := netip.AddrFrom4([4]byte{10, byte(number >> 16), byte(number >> 8), byte(number)})
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080)})
	}
	view.Ports[service.IPv4] = []service.PortView{port}
	return t.renderer.Service(context.Background(), view, &t.facts)
}

// elements renders Services and returns their elements of maps and sets. It writes what
// these refer to: the chains that Services with the same number of endpoints share.
func (t *tables) elements(first, services, endpoints int) []dataplane.Object {
	var elements, others []dataplane.Object
	for n := range services {
		for _, o := range t.service(first+n, endpoints) {
			switch {
			case o.Kind == dataplane.Element:
				elements = append(elements, o)
			case !t.written[o.ID]:
				t.written[o.ID] = true
				others = append(others, o)
			}
		}
	}
	t.write(added(others))
	return elements
}

func added(objects []dataplane.Object) []dataplane.Change {
	changes := make([]dataplane.Change, len(objects))
	for i := range objects {
		changes[i] = dataplane.Change{ID: objects[i].ID, After: &objects[i]}
	}
	return changes
}

func removed(objects []dataplane.Object) []dataplane.Change {
	changes := make([]dataplane.Change, len(objects))
	for i := range objects {
		changes[i] = dataplane.Change{ID: objects[i].ID, Before: &objects[i]}
	}
	return changes
}

func (t *tables) write(changes []dataplane.Change) {
	t.Helper()
	if receipt := t.writer.Write(t.Context(), &dataplane.Batch{Changes: changes}); receipt.Outcome != dataplane.Landed {
		t.Fatalf("write: %v", receipt)
	}
}

// group is the elements of one set in the library's form.
type group struct {
	set      *google.Set
	elements []google.SetElement
}

// messageElements bounds the elements of one message. The library puts all that it is
// given into one attribute, whose length has 16 bits.
const messageElements = 400

// groups translates objects for the library.
func groups(objects []dataplane.Object) []group {
	table := &google.Table{Name: nftrender.TableName, Family: google.TableFamilyIPv4}
	open := map[string]int{}
	var all []group
	for _, o := range objects {
		name, _ := strings.CutPrefix(o.ID.Container, "@")
		at, ok := open[name]
		if !ok || len(all[at].elements) == messageElements {
			at = len(all)
			open[name] = at
			all = append(all, group{set: &google.Set{Table: table, Name: name}})
		}
		all[at].elements = append(all[at].elements, element(o))
	}
	return all
}

func element(o dataplane.Object) google.SetElement {
	e := google.SetElement{Key: []byte(o.ID.Name)}
	data := netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data
	e.Val = netlink.Find(data, unix.NFTA_DATA_VALUE).Data
	if verdict := netlink.Find(data, unix.NFTA_DATA_VERDICT).Data; verdict != nil {
		e.VerdictData = &expr.Verdict{
			Kind:  expr.VerdictKind(int32(netlink.Find(verdict, unix.NFTA_VERDICT_CODE).Uint32())),
			Chain: netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN).Text(),
		}
	}
	if userData := netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_USERDATA).Data; len(userData) > 3 {
		e.Comment = string(userData[2 : len(userData)-1])
	}
	return e
}

func (t *tables) libraryAdd(all []group) {
	t.Helper()
	for _, g := range all {
		check(t, t.google.SetAddElements(g.set, g.elements))
	}
	check(t, t.google.Flush())
}

func (t *tables) libraryRemove(all []group) {
	t.Helper()
	for i := len(all) - 1; i >= 0; i-- {
		check(t, t.google.SetDeleteElements(all[i].set, all[i].elements))
	}
	check(t, t.google.Flush())
}

// compare adds and removes elements by either encoder. Ours is the whole Writer, with
// the ordering, the notes for blame and the receipt.
func (t *tables) compare(objects []dataplane.Object) {
	add, remove, translated := added(objects), removed(objects), groups(objects)
	t.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.write(add)
			t.write(remove)
		}
	})
	t.Run("google", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.libraryAdd(translated)
			t.libraryRemove(translated)
		}
	})
}

// The state beside which single changes are measured.
const (
	services  = 1000
	endpoints = 10
)

// BenchmarkNftablesEndpoint adds and removes one element of a map of endpoints.
func BenchmarkNftablesEndpoint(b *testing.B) {
	t := newTables(b)
	t.write(added(t.elements(0, services, endpoints)))
	objects := t.elements(services, 1, 1)
	for i, o := range objects {
		if strings.Contains(o.ID.Container, "endpoints") {
			t.compare(objects[i : i+1])
			return
		}
	}
	b.Fatalf("no endpoint among %v", objects)
}

// BenchmarkNftablesService adds and removes a Service.
func BenchmarkNftablesService(b *testing.B) {
	t := newTables(b)
	t.write(added(t.elements(0, services, endpoints)))
	t.compare(t.elements(services, 1, endpoints))
}

// BenchmarkNftablesLoad adds and removes all Services at once.
func BenchmarkNftablesLoad(b *testing.B) {
	t := newTables(b)
	t.compare(t.elements(0, services, endpoints))
}

// BenchmarkNftablesRead reads the table back: sets, elements, chains and rules.
func BenchmarkNftablesRead(b *testing.B) {
	t := newTables(b)
	t.write(added(t.elements(0, services, endpoints)))
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			objects, err := t.writer.Read(b.Context())
			check(b, err)
			if len(objects) < services*endpoints {
				b.Fatalf("%d objects", len(objects))
			}
		}
	})
	b.Run("google", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n := t.libraryRead(); n < services*endpoints {
				b.Fatalf("%d objects", n)
			}
		}
	})
}

func (t *tables) libraryRead() (count int) {
	t.Helper()
	table := &google.Table{Name: nftrender.TableName, Family: google.TableFamilyIPv4}
	sets, err := t.google.GetSets(table)
	check(t, err)
	for _, s := range sets {
		elements, err := t.google.GetSetElements(s)
		check(t, err)
		count += 1 + len(elements)
	}
	chains, err := t.google.ListChainsOfTableFamily(google.TableFamilyIPv4)
	check(t, err)
	for _, c := range chains {
		rules, err := t.google.GetRules(table, c)
		check(t, err)
		count += 1 + len(rules)
	}
	return count
}
