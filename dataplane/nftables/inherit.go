package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// formerClients begin the names of sets that remember the clients of one endpoint: those of our
// releases before the map of clients, and kube-proxy's. In the rest, ofEndpoint stands between the
// service port and the endpoint.
var formerClients = [...]string{"clients-", "affinity-"}

const ofEndpoint = "__"

// inheritance is the memory of a list of endpoints, which begins in a batch.
type inheritance struct {
	to    set
	owner service.Key
	// clients are the elements to add, by client. left are their remaining times.
	clients map[string]dataplane.Change
	left    map[string]time.Duration
}

// inherit adds to a batch what the kernel remembers in sets that go, for the lists of endpoints
// whose memory begins in the batch. What packets add after this reading is lost: such a client
// chooses once more.
func (a *attempt) inherit(ctx context.Context, changes []dataplane.Change) []dataplane.Change {
	begin, going := beginAndEnd(changes)
	if len(begin) == 0 || len(going) == 0 {
		return changes
	}
	targets := targetsIn(changes)
	var failed error
	for i := range changes {
		list, isLive := strings.CutPrefix(changes[i].ID.Container, elementsOf+prefixLiveSet)
		heir := begin[list]
		if !isLive || heir == nil || changes[i].After == nil {
			continue
		}
		_, base, _ := strings.Cut(list, "-")
		id := changes[i].ID.Name
		former := endpointBaseOf(base, targets[dataplane.ID{Container: elementsOf + prefixTargetsMap + base, Name: id}])
		for _, prefix := range formerClients {
			if name := prefix + former; going[name] {
				failed = errors.Join(failed, a.reader.inherit(ctx, name, id, heir))
			}
		}
	}
	changes = slices.Clone(changes)
	count := 0
	for _, list := range slices.Sorted(maps.Keys(begin)) {
		for _, client := range slices.Sorted(maps.Keys(begin[list].clients)) {
			changes = append(changes, begin[list].clients[client])
			count++
		}
	}
	if count == 0 && failed == nil {
		return changes
	}
	a.inherited = fmt.Sprintf("kept the endpoints of %d clients with affinity, of %d former sets", count, len(going))
	if failed != nil {
		a.inherited += fmt.Sprintf("; others choose once more: %v", failed)
	}
	return changes
}

// beginAndEnd returns the lists of endpoints whose memory begins in a batch, by their chains, and
// the former sets that go.
func beginAndEnd(changes []dataplane.Change) (begin map[string]*inheritance, going map[string]bool) {
	for i := range changes {
		c := &changes[i]
		if c.ID.Container != containerSet {
			continue
		}
		if list, ours := strings.CutPrefix(c.ID.Name, prefixClientsMap); ours && c.Before == nil && c.After != nil {
			if begin == nil {
				begin = make(map[string]*inheritance)
			}
			begin[list] = &inheritance{
				clientsMap(list), c.Owner, make(map[string]dataplane.Change), make(map[string]time.Duration),
			}
		}
		isFormer := func(prefix string) bool { return strings.HasPrefix(c.ID.Name, prefix) }
		if c.After == nil && strings.Contains(c.ID.Name, ofEndpoint) && slices.ContainsFunc(formerClients[:], isFormer) {
			if going == nil {
				going = make(map[string]bool)
			}
			going[c.ID.Name] = true
		}
	}
	return begin, going
}

// targetsIn returns the addresses and ports of the endpoints with affinity that a batch brings.
func targetsIn(changes []dataplane.Change) map[dataplane.ID]netip.AddrPort {
	targets := make(map[dataplane.ID]netip.AddrPort)
	for i := range changes {
		if c := &changes[i]; c.After != nil && strings.HasPrefix(c.ID.Container, elementsOf+prefixTargetsMap) {
			targets[c.ID] = targetOf(c.After)
		}
	}
	return targets
}

// targetOf returns the address and port in an element of targets-….
func targetOf(o *dataplane.Object) netip.AddrPort {
	data := netlink.Find(netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data, unix.NFTA_DATA_VALUE).Data
	addr, ok := netip.AddrFromSlice(data[:max(0, len(data)-registerBytes)])
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(data[len(data)-registerBytes:]))
}

// inherit reads a former set. A client in several of them stays with the endpoint that it used
// last.
func (r *reader) inherit(ctx context.Context, former, endpoint string, heir *inheritance) error {
	keyBytes := keyBytes(r.d, heir.to.key)
	err := r.elements(ctx, true, inTable(unix.NFTA_SET_ELEM_LIST_SET, former), func(element []byte) {
		client := string(netlink.Find(netlink.Find(element, unix.NFTA_SET_ELEM_KEY).Data, unix.NFTA_DATA_VALUE).Data)
		left := expiration(element)
		if len(client) != keyBytes || left <= heir.left[client] {
			return
		}
		heir.left[client] = left
		id := dataplane.ID{Container: containerOf(heir.to.name), Name: client}
		body := netlink.AppendUint64(appendData(nil, []byte(endpoint)), unix.NFTA_SET_ELEM_TIMEOUT, uint64(left/time.Millisecond))
		heir.clients[client] = dataplane.Change{
			ID: id, Owner: heir.owner, After: &dataplane.Object{ID: id, Kind: dataplane.Element, Body: string(body)},
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// expiration returns for how much longer the kernel holds an element, or 0 if for ever.
func expiration(element []byte) time.Duration {
	ms := netlink.Find(element, unix.NFTA_SET_ELEM_EXPIRATION).Data
	if len(ms) != 8 {
		return 0
	}
	return time.Duration(binary.BigEndian.Uint64(ms)) * time.Millisecond
}
