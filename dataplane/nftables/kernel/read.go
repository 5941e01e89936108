// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// reader reads the table from the kernel.
type reader struct {
	d      *rules.Header
	socket Socket
	// listen starts listening to changes by other programs; see steadily. It is nil for the
	// tests' kernel in memory, which announces nothing.
	listen func() (*netlink.TableListener, error)
	// flagged, if not nil, is set when the kernel reports that a list was interrupted, which is an
	// error otherwise.
	flagged *bool
}

// all returns every object in the table: the table, all chains and sets, and the elements of
// Sluice's sets. (The elements of other sets are deleted with their set.)
func (r *reader) all(ctx context.Context) ([]dataplane.Object, error) {
	var objects []dataplane.Object
	err := r.steadily(ctx, func() (err error) {
		objects, err = r.once(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}

func (r *reader) once(ctx context.Context) ([]dataplane.Object, error) {
	table, err := r.table(ctx)
	if err != nil || table == nil {
		return nil, err
	}
	objects := []dataplane.Object{*table}
	for _, read := range []func(context.Context, []dataplane.Object) ([]dataplane.Object, error){r.chains, r.sets} {
		if objects, err = read(ctx, objects); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// table returns the table, or nil if there is none.
func (r *reader) table(ctx context.Context) (*dataplane.Object, error) {
	var found *dataplane.Object
	err := r.ask(ctx, unix.NFT_MSG_GETTABLE, false, inTable(0, ""), func(b []byte) {
		flags := netlink.Find(b, unix.NFTA_TABLE_FLAGS).Uint32()
		found = &dataplane.Object{
			ID: dataplane.ID{Container: render.ContainerTable, Name: render.TableName}, Kind: dataplane.Owned,
			Body: string(netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, flags)),
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return found, err
}

// chains adds all chains with their rules.
func (r *reader) chains(ctx context.Context, objects []dataplane.Object) ([]dataplane.Object, error) {
	bodies := make(map[string][]byte)
	var names []string
	err := r.ask(ctx, unix.NFT_MSG_GETCHAIN, true, nil, func(b []byte) {
		if netlink.Find(b, unix.NFTA_CHAIN_TABLE).Text() == render.TableName {
			name := netlink.Find(b, unix.NFTA_CHAIN_NAME).Text()
			names = append(names, name)
			bodies[name] = rules.FoundChain(b)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	err = r.rules(ctx, inTable(0, ""), func(name string, attrs []byte) {
		bodies[name] = rules.AddFound(bodies[name], attrs)
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	for _, name := range names {
		objects = append(objects, foundChain(name, bodies[name]))
	}
	return objects, nil
}

// rules calls each with the chain and the attributes of each rule that matches a request.
func (r *reader) rules(ctx context.Context, request []byte, each func(chain string, attrs []byte)) error {
	return r.ask(ctx, unix.NFT_MSG_GETRULE, true, request, func(b []byte) {
		each(netlink.Find(b, unix.NFTA_RULE_CHAIN).Text(), b)
	})
}

func foundChain(name string, body []byte) dataplane.Object {
	return dataplane.Object{ID: dataplane.ID{Container: render.ContainerChain, Name: name}, Kind: dataplane.Owned, Body: string(body)}
}

// sets adds all sets, and the elements of Sluice's sets.
func (r *reader) sets(ctx context.Context, objects []dataplane.Object) ([]dataplane.Object, error) {
	var names []string
	err := r.ask(ctx, unix.NFT_MSG_GETSET, true, inTable(0, ""), func(b []byte) {
		const anonymous = unix.NFT_SET_ANONYMOUS
		if netlink.Find(b, unix.NFTA_SET_FLAGS).Uint32()&anonymous != 0 {
			return // it belongs to a rule, and is deleted with it
		}
		name := netlink.Find(b, unix.NFTA_SET_NAME).Text()
		names = append(names, name)
		objects = append(objects, render.FoundSet(r.d.Family, name))
	})
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	var found render.Parser
	for _, name := range names {
		if !render.HasElements(name) {
			continue
		}
		container, before := render.ContainerOf(name), len(objects)
		err := r.elementLists(ctx, true, inTable(unix.NFTA_SET_ELEM_LIST_SET, name), func(list []byte) {
			objects = found.Append(objects, container, list)
		})
		if err != nil {
			return nil, fmt.Errorf("list the elements of %s: %w", name, goneMeanwhile(err))
		}
		if repeats(objects[before:], func(o dataplane.Object) string { return o.ID.Name }) {
			return nil, fmt.Errorf("list the elements of %s: %w", name, netlink.ErrInterrupted)
		}
	}
	return objects, nil
}

// elements calls each with the attributes of each element that matches a request.
func (r *reader) elements(ctx context.Context, all bool, request []byte, each func(attrs []byte)) error {
	return r.elementLists(ctx, all, request, func(list []byte) {
		for element := range netlink.Attrs(list) {
			each(element.Data)
		}
	})
}

// elementLists calls each with the elements of each message of the reply.
func (r *reader) elementLists(ctx context.Context, all bool, request []byte, each func(list []byte)) error {
	return r.ask(ctx, unix.NFT_MSG_GETSETELEM, all, request, func(b []byte) {
		each(netlink.Find(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data)
	})
}

// repeats reports whether a list of elements has one twice. This happens while the kernel makes room for more elements,
// which changes their order. Other elements may then be missing from the list.
func repeats[E any, K comparable](list []E, key func(E) K) bool {
	seen := make(map[K]struct{}, len(list))
	for _, e := range list {
		seen[key(e)] = struct{}{}
	}
	return len(seen) < len(list)
}

// goneMeanwhile turns ENOENT, for a set that the same reading found before, into ErrInterrupted.
func goneMeanwhile(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return netlink.ErrInterrupted
	}
	return err
}

// one returns one object, or nil if it does not exist.
func (r *reader) one(ctx context.Context, id dataplane.ID) (*dataplane.Object, error) {
	var found *dataplane.Object
	var err error
	switch id.Container {
	case render.ContainerTable:
		return r.table(ctx)
	case render.ContainerChain:
		found, err = r.chain(ctx, id)
	case render.ContainerSet:
		err = r.ask(ctx, unix.NFT_MSG_GETSET, false, inTable(unix.NFTA_SET_NAME, id.Name), func([]byte) {
			o := render.FoundSet(r.d.Family, id.Name)
			found = &o
		})
	default:
		found, err = r.element(ctx, id)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return found, err
}

func (r *reader) chain(ctx context.Context, id dataplane.ID) (*dataplane.Object, error) {
	body, err := r.chainOf(ctx, render.TableName, id.Name)
	if err != nil {
		return nil, err
	}
	o := foundChain(id.Name, body)
	return &o, nil
}

// chainOf returns the body of a chain of any table.
func (r *reader) chainOf(ctx context.Context, table, name string) (body []byte, err error) {
	err = r.ask(ctx, unix.NFT_MSG_GETCHAIN, false, within(table, unix.NFTA_CHAIN_NAME, name), func(b []byte) {
		body = rules.FoundChain(b)
	})
	if err != nil {
		return nil, err
	}
	err = r.rules(ctx, within(table, unix.NFTA_RULE_CHAIN, name), func(_ string, attrs []byte) {
		body = rules.AddFound(body, attrs)
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	return body, nil
}

func (r *reader) element(ctx context.Context, id dataplane.ID) (*dataplane.Object, error) {
	set, ok := render.SetOf(id.Container)
	if !ok {
		return nil, fmt.Errorf("no such container: %s", id.Container)
	}
	request, list := netlink.Nest(inTable(unix.NFTA_SET_ELEM_LIST_SET, set), unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	request, element := netlink.Nest(request, unix.NFTA_LIST_ELEM)
	request = netlink.End(netlink.End(render.AppendElementKey(request, id), element), list)
	var found *dataplane.Object
	err := r.elements(ctx, false, request, func(element []byte) {
		// The kernel finds a range by any value inside it.
		if o := render.ParseElement(id.Container, element); o.ID == id {
			found = &o
		}
	})
	return found, err
}

// tableAttr is the attribute with the table's name, the first one in every message about
// the content of a table.
const tableAttr = 1

// inTable begins a request about Sluice's table or, if kind is not 0, about the object in it that
// an attribute of this kind names.
func inTable(kind uint16, name string) []byte { return within(render.TableName, kind, name) }

// within is inTable for any table.
func within(table string, kind uint16, name string) []byte {
	b := netlink.AppendText(nil, tableAttr, table)
	if kind != 0 {
		b = netlink.AppendText(b, kind, name)
	}
	return b
}

// ask calls each with the attributes of each message of the reply.
func (r *reader) ask(ctx context.Context, kind uint16, all bool, request []byte, each func(attrs []byte)) error {
	err := r.socket.Ask(ctx, kind, r.d.Protocol, all, request, func(m netlink.Netfilter) {
		if m.Family == r.d.Protocol {
			each(m.Attrs)
		}
	})
	if errors.Is(err, netlink.ErrInterrupted) && r.flagged != nil {
		*r.flagged, err = true, nil
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// Reading the table takes many requests, and a set with many elements takes many datagrams. Each
// shows the state at its moment. The kernel reports if a list of chains or rules was interrupted
// (NLM_F_DUMP_INTR), but not for a list of elements; see also repeats.
//
// Invariant: the result is the table as it was at one moment, or an error that matches
// netlink.ErrInterrupted.

// readAttempts limits the attempts at a reading if changes by other programs interrupt it.
const readAttempts = 5

// steadily repeats a reading until nothing changed during it. Usually the generation proves that.
// But it counts the transactions on all tables of the namespace, including those of the other
// family, and of programs that may write all the time. From the second attempt on, announcements
// therefore show whether Sluice's table was changed.
func (r *reader) steadily(ctx context.Context, read func() error) error {
	for attempt := 1; ; attempt++ {
		look := r.sameGeneration
		if attempt > 1 && r.listen != nil {
			look = r.unannounced
		}
		err := look(ctx, read)
		if !errors.Is(err, netlink.ErrInterrupted) || attempt == readAttempts {
			return err
		}
		// The kernel may be making room for elements: 2, 8, 32, 128 ms.
		if !sleep.For(ctx, time.Millisecond<<(2*attempt-1)) {
			return err
		}
	}
}

// sameGeneration reads, and fails if any table changed during the reading.
func (r *reader) sameGeneration(ctx context.Context, read func() error) error {
	before, err := r.generation(ctx)
	if err != nil {
		return err
	}
	if err := read(); err != nil {
		return err
	}
	after, err := r.generation(ctx)
	if err == nil && after != before {
		err = netlink.ErrInterrupted
	}
	return err
}

// unannounced reads, and fails if the kernel announced a change of Sluice's table during the reading,
// or so many changes that announcements were lost. Any transaction makes the kernel report a list as
// interrupted. Since the list has the chains of all tables of the family, only a transaction in that
// family can have changed it.
func (r *reader) unannounced(ctx context.Context, read func() error) error {
	listener, err := r.listen()
	if err != nil {
		return r.sameGeneration(ctx, read) // stricter than needed
	}
	flagged, touched := false, false
	r.flagged = &flagged
	err = read()
	r.flagged = nil
	if err == nil {
		err = r.passCommits()
	}
	if err == nil {
		err = listener.Pending(func(m netlink.Netfilter) {
			touched = touched || concerns(r.d, m) || flagged && m.Family == r.d.Protocol
		}, func() { touched = true })
	}
	if err == nil && touched {
		err = netlink.ErrInterrupted
	}
	return errors.Join(err, listener.Close())
}

// concerns reports whether an announcement is about Sluice's table.
func concerns(d *rules.Header, m netlink.Netfilter) bool { return isAbout(d, m, render.TableName) }

// isAbout is concerns for any table.
func isAbout(d *rules.Header, m netlink.Netfilter, table string) bool {
	return m.Family == d.Protocol && netlink.Find(m.Attrs, tableAttr).Text() == table
}

// passCommits waits until the kernel has announced the transactions in progress. It sends a
// transaction that deletes a missing table: the kernel holds a lock from the beginning of a
// transaction until its announcement, and takes the same lock for this one.
func (r *reader) passCommits() error {
	if _, err := deleteTable(r.socket, r.d, noTable); err != nil {
		return fmt.Errorf("wait for other transactions: %w", err)
	}
	return nil
}

// noTable is the name of a table that does not exist.
const noTable = "sluice-no-table"

// generation returns the number of transactions that changed tables of the network namespace,
// of any family and by any program.
func (r *reader) generation(ctx context.Context) (uint32, error) {
	var count uint32
	err := r.socket.Ask(ctx, unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, false, nil, func(m netlink.Netfilter) {
		count = netlink.Find(m.Attrs, unix.NFTA_GEN_ID).Uint32()
	})
	if err != nil {
		return 0, fmt.Errorf("read the generation of the tables: %w", err)
	}
	return count, nil
}
