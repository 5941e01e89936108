package ipvs

import (
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestEveryObjectThatIsRenderedIsKnown: each entry is in a set of kinds, and goes with
// a virtual server exactly where kinds says so; a set that is forgotten there would
// be divided among the Services that want its entries one by one.
func TestEveryObjectThatIsRenderedIsKnown(t *testing.T) {
	for _, family := range service.Families {
		seen := map[string]bool{}
		for _, c := range renderCases {
			for _, o := range c.render(family) {
				set, entry := EntrySet(o.ID)
				lead, led := Naming{}.Lead(o.ID)
				f, told := Naming{}.Frontend(o.ID)
				switch {
				case entry:
					seen[set] = true
					goes, known := goesWith[o.ID.Container]
					if !known || led != (goes == withServer) || led && !(Naming{}).Leads(lead) || told {
						t.Errorf("%v: entry %q of %s goes with %q: %v", family, o.ID.Name, set, lead.Name, led)
					}
					begins := strings.Count(o.ID.Name, ":") > 0 && strings.Contains(o.ID.Name, ",")
					if begins && !led && set != setName(family, setLoopBack) {
						t.Errorf("%v: entry %q of %s names a virtual server and goes with none", family, o.ID.Name, set)
					}
				case o.ID.Container == ContainerServer:
					if !told || ServerID(f) != o.ID || led || !(Naming{}).Leads(o.ID) {
						t.Errorf("%v: the frontend of %q is %v, %v", family, o.ID.Name, f, told)
					}
				case told || led || (Naming{}).Leads(o.ID):
					t.Errorf("%v: %q is for %v and goes with %q", family, o.ID, f, lead)
				}
			}
		}
		if len(seen) < len(kinds)-1 { // none has a UDP node port with local endpoints only
			t.Errorf("%v: entries of %d sets only: this proves little", family, len(seen))
		}
	}
}

func TestNamesThatAreNoEntriesFollowNobody(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: entriesPrefix + setClusterIP, Name: ""}, {Container: entriesPrefix + setClusterIP, Name: "10.0.0.1"},
		{Container: entriesPrefix + setClusterIP, Name: "10.0.0.1,80"}, {Container: entriesPrefix + setClusterIP, Name: "10.0.0.1,tcp:x"},
		{Container: entriesPrefix + setClusterIP, Name: "x,tcp:80"}, {Container: entriesPrefix + "ANOTHER", Name: "10.0.0.1,tcp:80"},
		{Container: ContainerSet, Name: "10.0.0.1,tcp:80"},
	} {
		if lead, follows := (Naming{}).Lead(id); follows {
			t.Errorf("%q goes with %q", id, lead)
		}
	}
}
