// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// paths is the origin of objects whose bodies have the form "owner text →container/name →container/name".
type paths struct{}

func (paths) Owner(o *dataplane.Object) (service.Key, bool) {
	name, _, _ := strings.Cut(o.Body, " ")
	return key(name), o.Kind == dataplane.Element && name != ""
}

func (paths) Refs(o *dataplane.Object) (refs []dataplane.ID) {
	for _, ref := range strings.Split(o.Body, " →")[1:] {
		container, name, _ := strings.Cut(ref, "/")
		refs = append(refs, dataplane.ID{Container: container, Name: name})
	}
	return refs
}

// node is a kernel that checks references, the process that writes to it, and what the API says.
type node struct {
	random *rand.Rand
	l      *Ledger
	kernel map[dataplane.ID]dataplane.Object
	// release is in the bodies of chains that Services share: another release renders others under the same names.
	release int
	// deleted Services are to go, and bad ones are rejected.
	deleted, bad map[string]bool
	revision     uint64
}

const servicesOfNode = 5

func nameOf(i int) string { return fmt.Sprint("s", i) }

// render returns what a Service wants: a frontend, which leads to a chain that Services share, and that to another one. A
// bad Service has a chain that the kernel rejects.
func (n *node) render(i int) []dataplane.Object {
	link := func(o dataplane.Object) dataplane.Object {
		o.Links = dataplane.LinkTo(paths{}.Refs(&o)...)
		return o
	}
	// What two Services call the same is the same. Another release has another pool under the name of a class.
	number := n.random.IntN(2)
	class, pool := fmt.Sprint("class-", number), fmt.Sprint("a-pool-", n.release, "-", number)
	objects := []dataplane.Object{
		link(served(i, fmt.Sprint(nameOf(i), " ", n.random.IntN(2), " →nat/", class))),
		link(chain(class, fmt.Sprint(" ", n.release, " →nat/", pool))), chain(pool, " rules"), hairpin(),
	}
	if n.bad[nameOf(i)] {
		objects = append(objects, chain("of "+nameOf(i), " bad"))
	}
	return objects
}

// serves reports whether a Service's frontend leads to the end. A chain that another program emptied leads nowhere.
func (n *node) serves(i int) bool {
	at, there := n.kernel[served(i, "").ID]
	for there && strings.Contains(at.Body, "→") {
		at, there = n.kernel[paths{}.Refs(&at)[0]]
	}
	return there && at.Body == " rules"
}

// write commits a batch as a whole. It returns an error if the batch leaves a reference to nothing.
func (n *node) write(b *dataplane.Batch) (dataplane.Receipt, error) {
	next := maps.Clone(n.kernel)
	bad := false
	for _, c := range b.Changes {
		delete(next, c.ID)
		if c.After != nil {
			o := *c.After
			o.Links = nil
			next[c.ID], bad = o, bad || strings.Contains(o.Body, "bad")
		}
	}
	for _, o := range next {
		for _, ref := range (paths{}).Refs(&o) {
			if _, there := next[ref]; !there {
				return dataplane.Receipt{}, fmt.Errorf("%q leads to %v, which is missing, after %q", o.Body, ref, changes(b))
			}
		}
	}
	if bad {
		return rejectedButFor(b, func(dataplane.ID) bool { return false }), nil
	}
	n.kernel = next
	return landed(), nil
}

func (n *node) submit(i int) {
	n.revision++
	f := fragment(nameOf(i), n.revision, n.render(i)...)
	if n.deleted[nameOf(i)] {
		f = fragment(nameOf(i), n.revision)
		f.Gone = true
	}
	n.l.Want(f)
}

// start replaces the process. Some Services submit late.
func (n *node) start() {
	n.release = n.random.IntN(2)
	n.l = New(nil, names{}, func(f service.Frontend) (service.Key, bool) {
		name := nameOf(int(f.Addr.As4()[3]))
		return key(name), !n.deleted[name]
	})
	var late []service.Key
	for i := range servicesOfNode {
		switch {
		case n.deleted[nameOf(i)]:
		case n.random.IntN(3) == 0:
			late = append(late, key(nameOf(i)))
		default:
			n.submit(i)
		}
	}
	n.observe()
	n.l.Adopt(late, paths{})
}

func (n *node) observe() {
	read := slices.SortedFunc(maps.Values(n.kernel), func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	n.l.Observe(read)
}

// damage empties a chain, or deletes everything, as another program does.
func (n *node) damage() {
	var chains []dataplane.ID
	for id := range n.kernel {
		if id.Container == "nat" {
			chains = append(chains, id)
		}
	}
	if len(chains) == 0 || n.random.IntN(3) == 0 {
		n.kernel = map[dataplane.ID]dataplane.Object{}
		return
	}
	slices.SortFunc(chains, dataplane.ID.Compare)
	id := chains[n.random.IntN(len(chains))]
	n.kernel[id] = dataplane.Object{ID: id}
}

// step does one thing. It reports whether that was a start, after which nothing else happens before the first write.
func (n *node) step() (started bool) {
	i := n.random.IntN(servicesOfNode)
	switch n.random.IntN(12) {
	case 0:
		if n.random.IntN(2) == 0 {
			n.damage()
		}
		n.start()
		return true
	case 1:
		n.damage()
		n.observe()
	case 2:
		n.l.Release(key(nameOf(i)))
	case 3, 4:
		n.deleted[nameOf(i)] = !n.deleted[nameOf(i)]
		n.submit(i)
	case 5, 6:
		n.bad[nameOf(i)] = !n.bad[nameOf(i)]
		n.submit(i)
	default:
		n.submit(i)
	}
	return false
}

// settle writes until nothing differs. It holds who is rejected.
func (n *node) settle() error {
	for range 4 * servicesOfNode {
		b := n.l.Plan()
		if b == nil {
			return nil
		}
		var before [servicesOfNode]bool
		for i := range before {
			before[i] = n.serves(i)
		}
		receipt, err := n.write(b)
		if err != nil {
			return err
		}
		for i, served := range before {
			if served && !n.serves(i) && !n.deleted[nameOf(i)] {
				return fmt.Errorf("%s is no longer served after %q", nameOf(i), changes(b))
			}
		}
		n.l.Settle(b, receipt)
		for _, c := range b.Changes {
			if c.After != nil && strings.Contains(c.After.Body, "bad") {
				n.l.Hold(c.Owner)
			}
		}
	}
	return fmt.Errorf("still planned: %q", changes(n.l.Plan()))
}

// TestHold_KeptServicesStayServedQuick plays restarts, also of another release, with Services that are rejected, late or
// deleted, while another program empties chains or deletes everything. No write ends what served, and none leads to a
// missing object. Once all Services are deleted, nothing is left.
func TestHold_KeptServicesStayServedQuick(t *testing.T) {
	seeds := uint64(300)
	if testenv.All() {
		seeds = 3000
	}
	for seed := range seeds {
		n := &node{random: rand.New(rand.NewPCG(seed, 3)), kernel: map[dataplane.ID]dataplane.Object{},
			deleted: map[string]bool{}, bad: map[string]bool{}}
		n.start()
		for step := range 40 {
			for range 1 + n.random.IntN(3) {
				if n.step() {
					break
				}
			}
			if err := n.settle(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		for i := range servicesOfNode {
			n.deleted[nameOf(i)] = true
			n.submit(i)
			n.l.Release(key(nameOf(i)))
		}
		if err := n.settle(); err != nil || len(n.kernel) > 0 || n.l.Stats() != (Stats{}) {
			t.Fatalf("seed %d: %v; left: %v, %+v", seed, err, n.kernel, n.l.Stats())
		}
	}
}
