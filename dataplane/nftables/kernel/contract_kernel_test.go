// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// TestWriterContract runs the cases of [writertest] on the real kernel.
func TestWriterContract(t *testing.T) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			writertest.Run(t, writertest.Harness{
				Family:   family,
				Renderer: render.NewRenderer(family, render.Options{MasqueradeBit: 14}),
				Open:     openNode,
			})
		})
	}
}

// openNode makes a node of network namespaces.
func openNode(t *testing.T, world writertest.Fixture) writertest.Node {
	t.Helper()
	network := writertest.NewNetwork(t, world)
	return writertest.Node{
		NewWriter: func() dataplane.Writer {
			w := kernel.NewWriter(world.Family, kernel.WriterConfig{Inside: network.Node().Do})
			t.Cleanup(func() { check(t, w.Close()) })
			return w.Contract()
		},
		Network: network,
		Meddler: meddler{namespace: network.Node(), family: world.Family},
	}
}

// meddler does its damage with nft.
type meddler struct {
	namespace *netns.Namespace
	family    service.Family
}

// table is the backend's table, as nft names it.
func (m meddler) table() string {
	if m.family == service.IPv6 {
		return "ip6 " + render.TableName
	}
	return "ip " + render.TableName
}

// nft runs a command.
func (m meddler) nft(words ...string) (string, error) {
	cmd := exec.Command("nft", strings.Join(words, " "))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	err := netnstest.Run(m.namespace, cmd)
	return said.String(), err
}

func (m meddler) must(t *testing.T, words ...string) string {
	t.Helper()
	said, err := m.nft(words...)
	if err != nil {
		t.Fatalf("nft %v: %v: %s (Debian package nftables)", words, err, said)
	}
	return said
}

// inName is a hyphen of a name, and no byte of a number.
var inName = regexp.MustCompile("([a-z])-([a-z])")

// Poison implements [writertest.Meddler]: it makes rules refer to a name that does not exist, and an element
// the end of a range without a beginning.
func (m meddler) Poison(object dataplane.Object) (dataplane.Object, bool) {
	sound := object.Body
	switch {
	case object.ID.Container == "chain":
		object.Body = inName.ReplaceAllString(sound, "${1}_${2}")
	case object.Kind == dataplane.Element:
		object.Body += string(netlink.AppendUint32(nil, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END))
	}
	return object, object.Body != sound
}

// Damage implements [writertest.Meddler]: it removes an element, the rules of a chain, or a chain or set that
// nothing refers to.
func (m meddler) Damage(t *testing.T, id dataplane.ID) bool {
	t.Helper()
	switch {
	case strings.HasPrefix(id.Container, "@"):
		key, err := render.ElementText(m.family, &dataplane.Object{ID: id})
		check(t, err)
		m.must(t, "delete element", m.table(), id.Container[1:], "{", key, "}")
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

// Wipe implements [writertest.Meddler].
func (m meddler) Wipe(t *testing.T) {
	t.Helper()
	m.must(t, "flush ruleset")
}

// planted is another program's table, with a chain and a set that are named like ours.
func (m meddler) planted() string {
	return strings.Replace(m.table(), render.TableName, "foreign", 1)
}

// Plant implements [writertest.Meddler].
func (m meddler) Plant(t *testing.T) {
	t.Helper()
	m.must(t, "add table", m.planted())
	m.must(t, "add set", m.planted(), "frontends { type inet_service; elements = { 1, 2 }; }")
	m.must(t, "add chain", m.planted(), "services { type filter hook forward priority 5; }")
	m.must(t, "add rule", m.planted(), `services tcp dport @frontends counter accept comment "planted"`)
}

// CheckPlanted implements [writertest.Meddler].
func (m meddler) CheckPlanted(t *testing.T) {
	t.Helper()
	listed := m.must(t, "list table", m.planted())
	for _, want := range []string{"elements = { 1, 2 }", "type filter hook forward priority", `tcp dport @frontends counter`, `"planted"`} {
		if strings.Count(listed, want) != 1 {
			t.Errorf("%q is gone or doubled:\n%s", want, listed)
		}
	}
}
