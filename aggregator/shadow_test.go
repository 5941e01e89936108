package aggregator

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// addresses is the naming of the objects of want.
type addresses struct{}

func (addresses) Frontend(id dataplane.ID) (dataplane.Frontend, bool) {
	addr, err := netip.ParseAddr(id.Name)
	return dataplane.Frontend{Addr: addr, Port: 80}, id.Container == "port 80" && err == nil
}

func (addresses) Lead(dataplane.ID) (lead dataplane.ID, ok bool)    { return lead, false }
func (addresses) Leads(dataplane.ID) bool                           { return false }
func (addresses) LedLead(dataplane.ID) (lead dataplane.ID, ok bool) { return lead, false }

// want submits a Service of an age (minutes) that wants TCP port 80 of addresses.
func (h *fixture) want(name string, age int, sequence uint64, body string, addrs ...string) {
	var objects []dataplane.Object
	for _, text := range addrs {
		objects = append(objects, dataplane.Object{
			ID:   dataplane.ID{Container: "port 80", Name: text},
			Kind: dataplane.Element, Body: name + body,
		})
	}
	f := dataplane.NewFragment(service.Key{Namespace: "ns", Name: name}, epoch.Add(time.Duration(age)*time.Minute), objects)
	f.Revision = service.Revision{Incarnation: 1, Sequence: sequence}
	f.Gone = len(objects) == 0
	h.Submit(f)
}

// shadows spells what has been told of shadows, and forgets it.
func (h *fixture) shadows() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var told []string
	for _, e := range h.events {
		switch e := e.(type) {
		case Shadowed:
			told = append(told, fmt.Sprintf("%s: %v lost %v to %v", e.Domain, e.Key, e.Frontends, e.By))
		case Unshadowed:
			told = append(told, fmt.Sprintf("%s: %v did not lose %v to %v", e.Domain, e.Key, e.Frontends, e.By))
		}
	}
	h.events = nil
	return strings.Join(told, "; ")
}

func TestShadowsAreToldOnceForEachPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{}, Config{Naming: addresses{}})
		step := func(what, want string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			is(t, what, h.shadows(), want)
		}
		h.want("old", 1, 1, "", "192.0.2.1", "192.0.2.2")
		step("alone", "")
		h.want("young", 2, 1, "", "192.0.2.1", "192.0.2.2", "192.0.2.3")
		step("a younger one", "model: ns/young lost 192.0.2.1:80/tcp, 192.0.2.2:80/tcp to ns/old")
		h.want("young", 2, 2, "again", "192.0.2.1", "192.0.2.2", "192.0.2.3")
		step("its next batch", "")
		h.want("old", 1, 2, "", "192.0.2.2")
		step("an address is given up", "model: ns/young did not lose 192.0.2.1:80/tcp to ns/old")
		h.want("old", 1, 3, "")
		step("deleted", "model: ns/young did not lose 192.0.2.2:80/tcp to ns/old")
	})
}

// TestASearchTellsNoShadows: the older Service is taken out and put back while
// somebody else is found culprits, and the younger one has gained nothing by it.
func TestASearchTellsNoShadows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ready(t, &model{}, Config{Naming: addresses{}})
		h.want("young", 2, 1, "", "192.0.2.1")
		h.want("old", 1, 1, "", "192.0.2.1")
		time.Sleep(time.Second)
		is(t, "at first", h.shadows(), "model: ns/young lost 192.0.2.1:80/tcp to ns/old")
		h.want("old", 1, 2, "changed", "192.0.2.1", "192.0.2.4")
		h.want("young", 2, 2, "changed", "192.0.2.1", "192.0.2.5")
		h.submit("bad", 1, 1, "poison")
		time.Sleep(10 * time.Second)
		is(t, "verdicts", h.verdictsFor("bad")[0], "quarantined 1.1")
		is(t, "after the search", h.shadows(), "")

		// A server in quarantine from its first breath serves nobody.
		h.want("poisoned", 0, 1, " poison", "192.0.2.1")
		time.Sleep(10 * time.Second)
		is(t, "verdicts", h.verdictsFor("poisoned")[0], "quarantined 1.1")
		is(t, "with a poisoned one", h.shadows(), "")
	})
}
