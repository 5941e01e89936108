package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// The kernel cannot redefine a set, and does not delete one that a rule refers to. A set
// that exists with another definition, from another release or another program, is
// exchanged:
//
//   - One transaction deletes the rules that refer to the set and the set itself, adds the
//     set as wanted with the elements that it had (clients of affinity keep their remaining
//     time), and adds the rules again. The batch follows and finds nothing special.
//   - If elements or rules do not fit the new definition, the batch exchanges the set: it
//     brings new ones.
//   - A set that is too large for one transaction is built under another name. Then the
//     rules are changed to that name, and back in the same way.
//
// Invariant: no rule is ever without its set, and no set without those of its elements
// that are wanted. The other sets of the table are not touched.

// exchange is one set on its way to another definition.
type exchange struct {
	name   string
	number int // of the change in the batch
	wanted string
	users  []string
	// elements are the attributes of the elements that the definition allows. left counts
	// the others.
	elements [][]byte
	left     int
	bytes    int
}

// users are the rules of each chain in normal form, and for each set the chains whose rules
// refer to it.
type users struct {
	rules map[string][][]byte
	of    map[string][]string
}

// exchangeSets redefines the sets of a batch that exist with another definition. It returns
// the remaining changes, and whether they must land together.
func (a *attempt) exchangeSets(ctx context.Context, changes []dataplane.Change) ([]dataplane.Change, bool, error) {
	redefined := redefinitions(changes)
	if len(redefined) == 0 {
		return changes, false, nil
	}
	a.exchanged = true
	var there *users
	var all []*exchange
	err := a.reader.steadily(ctx, func() (err error) {
		if there, err = a.reader.users(ctx); err != nil {
			return err
		}
		all = all[:0]
		for _, number := range redefined {
			x, err := a.reader.exchange(ctx, number, &changes[number], there)
			if err != nil {
				return err
			}
			all = append(all, x)
		}
		return nil
	})
	if err != nil {
		return nil, false, &netlink.NotSentError{Err: fmt.Errorf("read sets with another definition: %w", err)}
	}
	changes = slices.Clone(changes)
	var stubborn []*exchange
	for _, x := range all {
		if !fits(changes[x.number].Before.Body, x.wanted) {
			stubborn = append(stubborn, x)
		}
	}
	all = slices.DeleteFunc(all, func(x *exchange) bool { return slices.Contains(stubborn, x) })
	for _, group := range a.groups(all) {
		refused, err := a.exchangeGroup(group, there)
		if err != nil {
			return nil, false, err
		}
		for _, x := range group {
			if slices.Contains(refused, x) {
				stubborn = append(stubborn, x)
				continue
			}
			a.done(ctx, x)
			changes[x.number].Before = changes[x.number].After
		}
	}
	if len(stubborn) == 0 {
		return changes, false, nil
	}
	return a.withExchanges(changes, stubborn, there), true, nil
}

// redefinitions returns the changes that redefine an existing set.
func redefinitions(changes []dataplane.Change) []int {
	var numbers []int
	for i := range changes {
		c := &changes[i]
		if c.ID.Container == containerSet && c.Before != nil && c.After != nil && !dataplane.Same(c.Before, c.After) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// groups returns the exchanges of each transaction.
func (a *attempt) groups(all []*exchange) [][]*exchange {
	var groups [][]*exchange
	size, limit := 0, a.bytesMax()
	for _, x := range all {
		if size += x.bytes; len(groups) == 0 || size > limit {
			groups, size = append(groups, nil), x.bytes
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], x)
	}
	return groups
}

// exchangeGroup exchanges sets in one transaction and returns those that the kernel refuses.
// It tries again without these.
func (a *attempt) exchangeGroup(group []*exchange, there *users) (refused []*exchange, err error) {
	if len(group) == 1 && group[0].bytes > a.socket.Room()/2 {
		return a.exchangeBeside(group[0], there)
	}
	left := slices.Clone(group)
	for len(left) > 0 {
		no, err := a.send(func(e *emitter) { exchangeNow(e, left, there) })
		if err != nil {
			return nil, err
		}
		if len(no) == 0 {
			return refused, nil
		}
		blamed := left
		for _, r := range no {
			if len(r.About) > 0 {
				blamed = blamedFor(r, left)
				break
			}
		}
		for _, x := range blamed {
			if no[0].Kind == unix.NFT_MSG_NEWSETELEM {
				x.left, x.elements = x.left+len(x.elements), nil // these do not fit
			}
		}
		refused = append(refused, blamed...)
		left = slices.DeleteFunc(slices.Clone(left), func(x *exchange) bool { return slices.Contains(blamed, x) })
	}
	return refused, nil
}

// blamedFor returns the sets that a refusal is about, or all if it is about a chain that
// several refer to.
func blamedFor(r *wire.Refusal, left []*exchange) []*exchange {
	var blamed []*exchange
	for _, x := range left {
		if slices.Contains(r.About, x.number) {
			blamed = append(blamed, x)
		}
	}
	if len(blamed) == 0 {
		return left
	}
	return blamed
}

// aboutRules is the note of what belongs to no single set.
const aboutRules = -1

// exchangeNow writes the exchange of some sets.
func exchangeNow(e *emitter, sets []*exchange, there *users) {
	chains := usersOf(sets)
	flushAll(e, chains)
	for _, x := range sets {
		e.note(x.number)
		e.deleteSet(x.name)
		e.addSet(x.name, x.wanted)
	}
	for _, x := range sets {
		for _, element := range x.elements {
			e.carry(containerOf(x.name), element, x.number)
		}
	}
	for _, chain := range chains {
		e.note(aboutRules)
		e.addRules(chain, ruleBody(there.rules[chain]))
	}
}

func flushAll(e *emitter, chains []string) {
	for _, chain := range chains {
		e.note(aboutRules)
		e.flushChain(chain)
	}
}

// usersOf returns the chains that refer to any of the sets.
func usersOf(sets []*exchange) []string {
	seen := map[string]bool{}
	for _, x := range sets {
		for _, chain := range x.users {
			seen[chain] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// done compares an exchanged set with the wanted one. A definition that the kernel returns
// in another form would be exchanged at each audit, so it is reported once and left.
func (a *attempt) done(ctx context.Context, x *exchange) {
	a.exchanges.add(x)
	now, err := a.reader.one(ctx, setID(x.name))
	if err == nil && now != nil && now.Body != x.wanted {
		a.w.equal[x.name] = sameSet{read: now.Body, wanted: x.wanted}
		a.exchanges.odd = append(a.exchanges.odd, x.name)
	}
}

// exchanges summarizes the sets that a write exchanged.
type exchanges struct {
	sets, kept, left int
	first            string
	// odd are the sets that the kernel returns in another form than they were written.
	odd []string
}

func (e *exchanges) add(x *exchange) {
	if e.sets++; e.sets == 1 {
		e.first = x.name
	}
	e.kept, e.left = e.kept+len(x.elements), e.left+x.left
}

// notes returns one line for all exchanged sets and one for the odd ones.
func (e *exchanges) notes(family service.Family) []string {
	var notes []string
	if e.sets > 0 {
		notes = append(notes, fmt.Sprintf("replaced %d sets of the %s table that had another definition, for example %s: "+
			"%d of their elements kept, %d dropped", e.sets, family, e.first, e.kept, e.left))
	}
	if len(e.odd) > 0 {
		notes = append(notes, fmt.Sprintf("the kernel returns %d sets of the %s table in another form than they were written, "+
			"for example %s: left as they are", len(e.odd), family, e.odd[0]))
	}
	return notes
}

// sameSet is a definition that the kernel returns in another form than ours.
type sameSet struct{ read, wanted string }

// send commits a transaction.
func (a *attempt) send(build func(*emitter)) ([]*wire.Refusal, error) {
	e := newEmitter(a.w.d)
	build(e)
	e.finish()
	a.receipt.Written = a.receipt.Written.Add(dataplane.Written{Lines: e.t.Messages(), Bytes: e.t.Bytes(), Calls: 1})
	refusals, err := a.w.config.Starts.commit(a.socket, e.t)
	if errors.Is(err, unix.EMSGSIZE) {
		return []*wire.Refusal{{Errno: unix.EMSGSIZE}}, nil
	}
	return refusals, err
}

// bytesMax bounds a transaction that can be divided.
func (a *attempt) bytesMax() int { return min(a.w.config.TransactionBytes, a.socket.Room()/2) }
