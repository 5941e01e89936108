// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// stack is one family's part of the node's kernel, with what goes wrong there and what
// other programs have put there.
type stack struct {
	family    service.Family
	kernel    *nftmodel.Kernel
	faults    *requestFaults
	guard     *guard
	announced bool
	// foreign is the content of other programs' tables.
	foreign map[nftmodel.Name]string
	// remains is set if some Service may have been held back since the process started.
	remains bool
	// left is what other programs had damaged when a process ended without a check.
	left map[nftmodel.Name]string

	mu       sync.Mutex
	watchers []func(dataplane.ForeignProcess)
}

func newStack(family service.Family, kernel *nftmodel.Kernel, s settings) *stack {
	faults := &requestFaults{}
	return &stack{
		family: family, kernel: kernel, faults: faults, announced: s.announced,
		guard: newGuard(family, kernel, faults, s.blame), foreign: map[nftmodel.Name]string{}, left: map[nftmodel.Name]string{},
	}
}

// watch announces what other programs change, until the context ends.
func (s *stack) watch(ctx context.Context, changed func(dataplane.ForeignProcess)) error {
	s.mu.Lock()
	s.watchers = append(s.watchers, func(by dataplane.ForeignProcess) {
		if ctx.Err() == nil {
			changed(by)
		}
	})
	s.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

// tamper does what another program does to the kernel. An error means that the
// simulation itself is wrong.
func (s *stack) tamper(e event) error {
	err := s.guard.tamper(func() error { return s.change(e) })
	if s.announced {
		s.mu.Lock()
		watchers := s.watchers
		s.mu.Unlock()
		for _, changed := range watchers {
			changed(dataplane.ForeignProcess{PID: 4711, Command: "nft"})
		}
	}
	return err
}

func (s *stack) change(e event) error {
	d := newRandom(e.variant, int(s.family))
	switch e.do {
	case deleteTable:
		if len(s.ours(isTable)) > 0 {
			return s.commit(nftrender.TableName, message{kind: unix.NFT_MSG_DELTABLE})
		}
	case deleteChain:
		if chain, ok := pick(d, s.ours(isChain)); ok {
			return s.deleteChain(chain)
		}
	case deleteElement:
		if element, ok := pick(d, s.ours(isElement)); ok {
			return s.commit(nftrender.TableName, elementMessage(unix.NFT_MSG_DELSETELEM, element, keyOnly(element)))
		}
	case addForeignChain:
		return s.addForeignChain(d)
	case addForeignSet:
		return s.addForeignSet(d)
	case alterRules:
		return s.alterRules(d)
	case addStray:
		return s.addStray(d)
	}
	return nil
}

// Kinds of items.
func isTable(i nftmodel.Item) bool   { return i.Chain == "" && i.Set == "" }
func isChain(i nftmodel.Item) bool   { return i.Chain != "" }
func isSet(i nftmodel.Item) bool     { return i.Set != "" && i.Key == "" }
func isElement(i nftmodel.Item) bool { return i.Key != "" }

// ours lists the proxy's items of a kind.
func (s *stack) ours(kind func(nftmodel.Item) bool) []nftmodel.Item {
	return slices.DeleteFunc(s.kernel.Items(s.family), func(i nftmodel.Item) bool {
		return i.Table != nftrender.TableName || !kind(i)
	})
}

func pick(d random, items []nftmodel.Item) (nftmodel.Item, bool) {
	if len(items) == 0 {
		return nftmodel.Item{}, false
	}
	return items[d.IntN(len(items))], true
}

// message is one netlink message of another program, about a table.
type message struct {
	kind, flags uint16
	// attrs follow the table's name.
	attrs []byte
}

// transaction makes a transaction of messages about a table.
func (s *stack) transaction(table string, messages ...message) *wire.Transaction {
	protocol := uint8(unix.NFPROTO_IPV4)
	if s.family == service.IPv6 {
		protocol = unix.NFPROTO_IPV6
	}
	t := wire.NewTransaction(protocol)
	for _, m := range messages {
		const tableAttr = 1
		t.Begin(m.kind, m.flags)
		t.Text(tableAttr, table)
		t.Raw(string(m.attrs))
	}
	return t
}

// commit commits messages about a table.
func (s *stack) commit(table string, messages ...message) error {
	socket, err := s.kernel.Open()
	if err != nil {
		return err
	}
	rejections, err := socket.Commit(s.transaction(table, messages...))
	for _, r := range rejections {
		err = errors.Join(err, r)
	}
	if err != nil {
		return fmt.Errorf("the simulation's own change: %w", err)
	}
	return nil
}

// deleteChain deletes the rules of a chain, and the chain if nothing leads there.
func (s *stack) deleteChain(chain nftmodel.Item) error {
	rules := message{kind: unix.NFT_MSG_DELRULE, attrs: netlink.AppendText(nil, unix.NFTA_RULE_CHAIN, chain.Chain)}
	if err := s.commit(nftrender.TableName, rules); err != nil {
		return err
	}
	err := s.commit(nftrender.TableName, message{
		kind: unix.NFT_MSG_DELCHAIN, attrs: netlink.AppendText(nil, unix.NFTA_CHAIN_NAME, chain.Chain),
	})
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// elementMessage is a message about one element of an item's set.
func elementMessage(kind uint16, of nftmodel.Item, element []byte) message {
	b := netlink.AppendText(nil, unix.NFTA_SET_ELEM_LIST_SET, of.Set)
	b, list := netlink.Nest(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	b = netlink.End(netlink.AppendBytes(b, unix.NFTA_LIST_ELEM, element), list)
	if kind == unix.NFT_MSG_NEWSETELEM {
		return message{kind, unix.NLM_F_CREATE, b}
	}
	return message{kind, 0, b}
}

// keyOnly returns the attribute with an element's key.
func keyOnly(element nftmodel.Item) []byte {
	key := netlink.Find([]byte(element.Body), unix.NFTA_SET_ELEM_KEY).Data
	return netlink.AppendBytes(nil, unix.NFTA_SET_ELEM_KEY, key)
}

// chainMessages make a base chain with rules that change nothing.
func chainMessages(name string, hook uint32, priority int32, rules int) []message {
	b := netlink.AppendText(nil, unix.NFTA_CHAIN_NAME, name)
	b, nest := netlink.Nest(b, unix.NFTA_CHAIN_HOOK)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, hook)
	b = netlink.End(netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, uint32(priority)), nest)
	messages := []message{{unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, b}}
	for range rules {
		messages = append(messages, ruleMessage(name, unix.NLM_F_APPEND))
	}
	return messages
}

// ruleMessage adds a rule that only counts, in the form in which the proxy writes what it has
// read.
func ruleMessage(chain string, flags uint16) message {
	b := netlink.AppendText(nil, unix.NFTA_RULE_CHAIN, chain)
	b, list := netlink.Nest(b, unix.NFTA_RULE_EXPRESSIONS)
	b, element := netlink.Nest(b, unix.NFTA_LIST_ELEM)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, "counter")
	b = netlink.AppendBytes(b, unix.NFTA_EXPR_DATA, nil)
	return message{unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE | flags, netlink.End(netlink.End(b, element), list)}
}

const foreignTable = "foreign"

// commitForeign changes the table of another program, and records what is in it.
func (s *stack) commitForeign(messages ...message) error {
	make := message{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, nil}
	err := s.commit(foreignTable, append([]message{make}, messages...)...)
	clear(s.foreign)
	for _, item := range s.kernel.Items(s.family) {
		if item.Table == foreignTable {
			s.foreign[item.Name] = item.Body
		}
	}
	return err
}

// addForeignChain adds a base chain to another program's table, or rules to one that is
// there.
func (s *stack) addForeignChain(d random) error {
	hook := uint32(d.IntN(unix.NF_INET_POST_ROUTING + 1))
	name := fmt.Sprintf("hook-%d", hook)
	return s.commitForeign(chainMessages(name, hook, int32(hook)-2, 1+d.IntN(2))...)
}

// addForeignSet adds a set of two elements to another program's table. It has the name of
// one of ours.
func (s *stack) addForeignSet(d random) error {
	item := nftmodel.Item{Name: nftmodel.Name{Set: []string{nftrender.SetName("frontends"), hairpins, "other"}[d.IntN(3)]}}
	messages := []message{setMessage(item.Set)}
	for range 2 {
		key := netlink.AppendBytes(nil, unix.NFTA_SET_ELEM_KEY,
			netlink.AppendBytes(nil, unix.NFTA_DATA_VALUE, []byte{byte(d.IntN(256)), byte(d.IntN(256))}))
		messages = append(messages, elementMessage(unix.NFT_MSG_NEWSETELEM, item, key))
	}
	return s.commitForeign(messages...)
}

// setMessage adds a set of ports.
func setMessage(name string) message {
	const inetService = 13 // nft's number of that type
	b := netlink.AppendText(nil, unix.NFTA_SET_NAME, name)
	b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_TYPE, inetService)
	b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_LEN, 2)
	return message{unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, netlink.AppendUint32(b, unix.NFTA_SET_ID, 1)}
}

// alterRules puts a rule at the start of a chain, or gives an element what another one of
// its set has.
func (s *stack) alterRules(d random) error {
	if d.percent(50) {
		chain, ok := pick(d, s.ours(isChain))
		if !ok {
			return nil
		}
		return s.commit(nftrender.TableName, ruleMessage(chain.Chain, 0))
	}
	elements := s.ours(isElement)
	element, ok := pick(d, elements)
	if !ok || netlink.Find([]byte(element.Body), unix.NFTA_SET_ELEM_DATA).Data == nil {
		return nil
	}
	other, _ := pick(d, slices.DeleteFunc(elements, func(i nftmodel.Item) bool { return i.Set != element.Set }))
	data := netlink.Find([]byte(other.Body), unix.NFTA_SET_ELEM_DATA).Data
	return s.commit(nftrender.TableName,
		elementMessage(unix.NFT_MSG_DELSETELEM, element, keyOnly(element)),
		elementMessage(unix.NFT_MSG_NEWSETELEM, element, netlink.AppendBytes(keyOnly(element), unix.NFTA_SET_ELEM_DATA, data)))
}

// addStray adds to the proxy's table what the proxy does not want.
func (s *stack) addStray(d random) error {
	if len(s.ours(isTable)) == 0 {
		return nil
	}
	name := fmt.Sprintf("stray-%d", d.IntN(1000))
	switch d.IntN(3) {
	case 0:
		return s.commit(nftrender.TableName, message{
			unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, netlink.AppendText(nil, unix.NFTA_CHAIN_NAME, "endpoint-"+name),
		})
	case 1:
		return s.commit(nftrender.TableName, setMessage(name))
	default:
		return s.commit(nftrender.TableName, chainMessages(name, unix.NF_INET_FORWARD, 7, 1)...)
	}
}

// disturb lets another program change its table without leaving anything behind.
func (s *stack) disturb() error {
	return s.commit("passing", message{unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, nil}, message{kind: unix.NFT_MSG_DELTABLE})
}
