package conformance

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// nftablesHarness is the nftables backend with the real kernel, on a node of network namespaces.
func nftablesHarness(family service.Family) Harness {
	return Harness{
		Family:   family,
		Renderer: nftables.NewRenderer(family, nftables.Options{MasqueradeBit: 14}),
		Open: func(t *testing.T, world Fixture) Node {
			t.Helper()
			network := NewNetwork(t, world)
			return Node{
				NewWriter: func() dataplane.Writer {
					w := nftables.NewWriter(family, nftables.WriterConfig{Inside: network.Node().Do})
					t.Cleanup(func() { check(t, w.Close()) })
					return w
				},
				Probe:   network,
				Meddler: nftablesMeddler{namespace: network.Node(), family: family},
			}
		},
		UnallocatedDropped: true,
	}
}

// nftablesMeddler does its damage with nft.
type nftablesMeddler struct {
	namespace *netns.Namespace
	family    service.Family
}

// table is the backend's table, as nft names it.
func (m nftablesMeddler) table() string {
	if m.family == service.IPv6 {
		return "ip6 " + nftables.TableName
	}
	return "ip " + nftables.TableName
}

// nft runs a command.
func (m nftablesMeddler) nft(words ...string) (string, error) {
	cmd := exec.Command("nft", strings.Join(words, " "))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := m.namespace.Run(cmd)
	return said.String(), err
}

func (m nftablesMeddler) must(t *testing.T, words ...string) string {
	t.Helper()
	said, err := m.nft(words...)
	if err != nil {
		t.Fatalf("nft %v: %v: %s (Debian package nftables)", words, err, said)
	}
	return said
}

// Poison implements [Meddler]: it makes rules refer to a name that does not exist, and an element
// the end of a range without a beginning.
func (m nftablesMeddler) Poison(object dataplane.Object) (dataplane.Object, bool) {
	sound := object.Body
	switch {
	case object.ID.Container == "chain":
		object.Body = strings.ReplaceAll(sound, "-", "_")
	case object.Kind == dataplane.Element:
		object.Body += string(netlink.AppendUint32(nil, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END))
	}
	return object, object.Body != sound
}

// Damage implements [Meddler]: it removes an element, the rules of a chain, or a chain or set that
// nothing refers to.
func (m nftablesMeddler) Damage(t *testing.T, id dataplane.ID) bool {
	t.Helper()
	switch {
	case strings.HasPrefix(id.Container, "@"):
		set, key, err := nftables.Element(m.family, id.Name, id.Container)
		check(t, err)
		m.must(t, "delete element", m.table(), set, "{", key, "}")
		return true
	case id.Container == "chain":
		if strings.Count(m.must(t, "list chain", m.table(), id.Name), "\n") > 3 {
			m.must(t, "flush chain", m.table(), id.Name)
			return true
		}
	}
	_, err := m.nft("delete", id.Container, m.table(), id.Name)
	return id.Container != "table" && err == nil
}

// Wipe implements [Meddler].
func (m nftablesMeddler) Wipe(t *testing.T) {
	t.Helper()
	m.must(t, "flush ruleset")
}

// planted is another program's table, with a chain and a set that are named like ours.
func (m nftablesMeddler) planted() string {
	return strings.Replace(m.table(), nftables.TableName, "foreign", 1)
}

// Plant implements [Meddler].
func (m nftablesMeddler) Plant(t *testing.T) {
	t.Helper()
	m.must(t, "add table", m.planted())
	m.must(t, "add set", m.planted(), "frontends { type inet_service; elements = { 1, 2 }; }")
	m.must(t, "add chain", m.planted(), "services { type filter hook forward priority 5; }")
	m.must(t, "add rule", m.planted(), `services tcp dport @frontends counter accept comment "planted"`)
}

// CheckPlanted implements [Meddler].
func (m nftablesMeddler) CheckPlanted(t *testing.T) {
	t.Helper()
	listed := m.must(t, "list table", m.planted())
	for _, want := range []string{"elements = { 1, 2 }", "type filter hook forward priority", `tcp dport @frontends counter`, `"planted"`} {
		if strings.Count(listed, want) != 1 {
			t.Errorf("%q is gone or doubled:\n%s", want, listed)
		}
	}
}

func TestNftablesOnKernel(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) { Run(t, nftablesHarness(family)) })
	}
}
