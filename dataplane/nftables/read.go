package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// reader gives the kernel's own account of the table.
type reader struct {
	d      *dialect
	socket Socket
	// listen starts to listen to what others change; see steadily.
	listen func() (*netlink.TableListener, error)
	// equal is the writer's.
	equal map[string]sameSet
}

// all gives every object in the table: the table, all chains and sets, and the
// elements of sets that have our names. (Those of other sets go with their set.)
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

// table gives the table, nil when there is none.
func (r *reader) table(ctx context.Context) (*dataplane.Object, error) {
	var found *dataplane.Object
	err := r.ask(ctx, unix.NFT_MSG_GETTABLE, false, attrs(textAttr{1, TableName}), func(b []byte) {
		flags := netlink.Find(b, unix.NFTA_TABLE_FLAGS).Uint32()
		found = &dataplane.Object{
			ID: tableID, Kind: dataplane.Owned,
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
		if netlink.Find(b, unix.NFTA_CHAIN_TABLE).Text() == TableName {
			name := netlink.Find(b, unix.NFTA_CHAIN_NAME).Text()
			names = append(names, name)
			bodies[name] = chainHead(b)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	err = r.ask(ctx, unix.NFT_MSG_GETRULE, true, attrs(textAttr{unix.NFTA_RULE_TABLE, TableName}), func(b []byte) {
		name := netlink.Find(b, unix.NFTA_RULE_CHAIN).Text()
		bodies[name] = netlink.AppendBytes(bodies[name], bodyRule, normalRule(b))
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	for _, name := range names {
		objects = append(objects, ownedObject(chainID(name), bodies[name]))
	}
	return objects, nil
}

// chainHead begins a chain's body.
func chainHead(b []byte) []byte {
	if base := normalChain(b); base != nil {
		return netlink.AppendBytes(nil, bodyChain, base)
	}
	return nil
}

func ownedObject(id dataplane.ID, body []byte) dataplane.Object {
	return dataplane.Object{ID: id, Kind: dataplane.Owned, Body: string(body)}
}

// sets adds all sets, and the elements that we account for.
func (r *reader) sets(ctx context.Context, objects []dataplane.Object) ([]dataplane.Object, error) {
	var names []string
	err := r.ask(ctx, unix.NFT_MSG_GETSET, true, attrs(textAttr{unix.NFTA_SET_TABLE, TableName}), func(b []byte) {
		const anonymous = unix.NFT_SET_ANONYMOUS
		if netlink.Find(b, unix.NFTA_SET_FLAGS).Uint32()&anonymous != 0 {
			return // a part of some rule, and goes with it
		}
		name := netlink.Find(b, unix.NFTA_SET_NAME).Text()
		names = append(names, name)
		objects = append(objects, r.setObject(name, b))
	})
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	for _, name := range names {
		if !hasOurElements(name) {
			continue
		}
		objects, err = r.elements(ctx, name, objects)
		if errors.Is(err, unix.ENOENT) {
			err = netlink.ErrInterrupted // it was there a moment ago
		}
		if err != nil {
			return nil, fmt.Errorf("list the elements of %s: %w", name, err)
		}
	}
	return objects, nil
}

// setObject gives a set that the kernel has described.
func (r *reader) setObject(name string, attrs []byte) dataplane.Object {
	o := dataplane.Object{ID: setID(name), Kind: dataplane.Owned, Body: normalSet(r.d, attrs)}
	if same, ok := r.equal[name]; ok && same.read == o.Body {
		o.Body = same.wanted
	}
	return o
}

// hasOurElements reports whether a set's elements are objects of ours.
func hasOurElements(set string) bool {
	_, shared := containers[set]
	return shared || strings.HasPrefix(set, prefixPicksMap)
}

func (r *reader) elements(ctx context.Context, set string, objects []dataplane.Object) ([]dataplane.Object, error) {
	container := containerOf(set)
	request := attrs(textAttr{unix.NFTA_SET_ELEM_LIST_TABLE, TableName}, textAttr{unix.NFTA_SET_ELEM_LIST_SET, set})
	err := r.ask(ctx, unix.NFT_MSG_GETSETELEM, true, request, func(b []byte) {
		for element := range netlink.Attrs(netlink.Find(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data) {
			objects = append(objects, parseElement(container, element.Data))
		}
	})
	return objects, err
}

func containerOf(set string) string {
	if container, shared := containers[set]; shared {
		return container
	}
	return elementsOf + set
}

// one gives one object, nil when it is not there.
func (r *reader) one(ctx context.Context, id dataplane.ID) (*dataplane.Object, error) {
	var found *dataplane.Object
	var err error
	switch id.Container {
	case containerTable:
		return r.table(ctx)
	case containerChain:
		found, err = r.chain(ctx, id)
	case containerSet:
		request := attrs(textAttr{unix.NFTA_SET_TABLE, TableName}, textAttr{unix.NFTA_SET_NAME, id.Name})
		err = r.ask(ctx, unix.NFT_MSG_GETSET, false, request, func(b []byte) {
			o := r.setObject(id.Name, b)
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
	var body []byte
	err := r.ask(ctx, unix.NFT_MSG_GETCHAIN, false,
		attrs(textAttr{unix.NFTA_CHAIN_TABLE, TableName}, textAttr{unix.NFTA_CHAIN_NAME, id.Name}),
		func(b []byte) { body = chainHead(b) })
	if err != nil {
		return nil, err
	}
	err = r.ask(ctx, unix.NFT_MSG_GETRULE, true,
		attrs(textAttr{unix.NFTA_RULE_TABLE, TableName}, textAttr{unix.NFTA_RULE_CHAIN, id.Name}),
		func(b []byte) { body = netlink.AppendBytes(body, bodyRule, normalRule(b)) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, err
	}
	o := ownedObject(id, body)
	return &o, nil
}

func (r *reader) element(ctx context.Context, id dataplane.ID) (*dataplane.Object, error) {
	set, ok := setOf(id.Container)
	if !ok {
		return nil, fmt.Errorf("no such container: %s", id.Container)
	}
	request := attrs(textAttr{unix.NFTA_SET_ELEM_LIST_TABLE, TableName}, textAttr{unix.NFTA_SET_ELEM_LIST_SET, set})
	request, list := netlink.Nest(request, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	request, element := netlink.Nest(request, unix.NFTA_LIST_ELEM)
	request = netlink.End(netlink.End(keyOf(request, id), element), list)
	var found *dataplane.Object
	err := r.ask(ctx, unix.NFT_MSG_GETSETELEM, false, request, func(b []byte) {
		for element := range netlink.Attrs(netlink.Find(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data) {
			// A range is found by any value inside it.
			if o := parseElement(id.Container, element.Data); o.ID == id {
				found = &o
			}
		}
	})
	return found, err
}

// textAttr is one attribute of a request.
type textAttr struct {
	kind uint16
	text string
}

func attrs(list ...textAttr) []byte {
	var b []byte
	for _, a := range list {
		b = netlink.AppendText(b, a.kind, a.text)
	}
	return b
}

// ask leaves it to each what to make of the answer's messages.
func (r *reader) ask(ctx context.Context, kind uint16, all bool, request []byte, each func(attrs []byte)) error {
	err := r.socket.Ask(ctx, kind, r.d.protocol, all, request, func(m netlink.Netfilter) {
		if m.Family == r.d.protocol {
			each(m.Attrs)
		}
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}
