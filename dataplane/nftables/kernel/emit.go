// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// emitter writes the messages of one transaction. Consecutive elements of one set share
// messages.
type emitter struct {
	t *wire.Transaction
	// table is the name of the table.
	table string
	// kind, container and list describe the open message of elements. container is empty
	// if none is open.
	kind      uint16
	container string
	list      int
	// sets is the number of the last new set; the kernel requires numbers.
	sets uint32
	// echo reports whether the kernel should return the elements that a message deletes.
	echo func(kind uint16, set string) bool
}

// elementsMax limits a message of elements. An attribute can have at most 64 KiB.
const elementsMax = 48 << 10

func newEmitter(d *rules.Header, table string) *emitter {
	return &emitter{
		t: wire.NewTransaction(d.Protocol), table: table,
		echo: func(uint16, string) bool { return false },
	}
}

// note notes the change, by its number, to which the following messages belong.
func (e *emitter) note(number int) {
	e.finish()
	e.t.Note(number)
}

// begin begins a message about the table's content.
func (e *emitter) begin(kind, flags uint16) {
	e.finish()
	e.t.Begin(kind, flags)
	e.t.Text(tableAttr, e.table)
}

// finish closes an open message of elements.
func (e *emitter) finish() {
	if e.container != "" {
		e.t.Unnest(e.list)
		e.container = ""
	}
}

// commit carries out the transaction. It returns the first rejection.
func (e *emitter) commit(socket Socket) error {
	e.finish()
	rejections, err := socket.Commit(e.t)
	if err == nil && len(rejections) > 0 {
		err = rejections[0]
	}
	return err
}

func (e *emitter) addTable(body string) {
	e.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE)
	e.t.Raw(body)
	e.t.Add(func(b []byte) []byte { return rules.AppendComment(b, tableUserData, render.TableComment) })
}

// tableUserData is NFTA_TABLE_USERDATA (Linux 5.10).
const tableUserData = 6

func (e *emitter) deleteTable() { e.begin(unix.NFT_MSG_DELTABLE, 0) }

func (e *emitter) addSet(name, body string) {
	e.sets++
	e.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	e.t.Text(unix.NFTA_SET_NAME, name)
	e.t.Uint32(unix.NFTA_SET_ID, e.sets)
	e.t.Raw(body)
}

func (e *emitter) deleteSet(name string) {
	e.begin(unix.NFT_MSG_DELSET, 0)
	e.t.Text(unix.NFTA_SET_NAME, name)
}

// addChain adds the chain without its rules.
func (e *emitter) addChain(name, body string) {
	base, _ := rules.Parts([]byte(body))
	e.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE)
	e.t.Text(unix.NFTA_CHAIN_NAME, name)
	e.t.Raw(string(base))
}

func (e *emitter) deleteChain(name string) {
	e.begin(unix.NFT_MSG_DELCHAIN, 0)
	e.t.Text(unix.NFTA_CHAIN_NAME, name)
}

// flushChain removes all rules.
func (e *emitter) flushChain(name string) {
	e.begin(unix.NFT_MSG_DELRULE, 0)
	e.t.Text(unix.NFTA_RULE_CHAIN, name)
}

func (e *emitter) addRules(name, body string) {
	_, list := rules.Parts([]byte(body))
	for _, r := range list {
		e.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		e.t.Text(unix.NFTA_RULE_CHAIN, name)
		e.t.Raw(string(r))
	}
}

// addWhole adds a chain with its rules.
func (e *emitter) addWhole(c rules.Chain) {
	body := string(c.Encode())
	e.addChain(c.Name, body)
	e.addRules(c.Name, body)
}

// element adds or deletes one element (NFT_MSG_NEWSETELEM or NFT_MSG_DELSETELEM).
func (e *emitter) element(kind uint16, id dataplane.ID, body string, note int) {
	e.elements(kind, id.Container, note)
	mark := e.t.Nest(unix.NFTA_LIST_ELEM)
	e.t.Add(func(b []byte) []byte { return render.AppendElementKey(b, id) })
	e.t.Raw(body)
	e.t.Unnest(mark)
}

// elements opens a message that adds or deletes elements of a set, unless one is open.
func (e *emitter) elements(kind uint16, container string, note int) {
	if e.container != container || e.kind != kind || e.t.MessageBytes() > elementsMax {
		set, _ := render.SetOf(container)
		flags := uint16(0)
		if kind == unix.NFT_MSG_NEWSETELEM {
			flags = unix.NLM_F_CREATE
		}
		if e.echo(kind, set) {
			flags |= unix.NLM_F_ECHO
		}
		e.begin(kind, flags)
		e.t.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
		e.list = e.t.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		e.kind, e.container = kind, container
	}
	e.t.Note(note)
}

// transaction encodes one part. The result is valid until the next call, which reuses its memory, because
// the first write has many parts.
func (p *plan) transaction(part []operation, c *counting) *wire.Transaction {
	size := 0
	for _, o := range part {
		size += cost(&p.changes[o.number])
	}
	e := newEmitter(p.d, render.TableName)
	e.echo = c.echo
	if p.encoded != nil {
		e.t = p.encoded
		e.t.Reset()
	}
	p.encoded = e.t
	e.t.Grow(size, len(part))
	for _, o := range part {
		c := &p.changes[o.number]
		if o.step != stepNewElement && o.step != stepNewVerdict && o.step != stepDeleteElement {
			e.note(o.number)
		}
		switch o.step {
		case stepTable:
			e.addTable(c.After.Body)
		case stepNewSharedSet, stepNewSet:
			e.addSet(c.ID.Name, c.After.Body)
		case stepNewChain:
			e.addChain(c.ID.Name, c.After.Body)
		case stepFlushChain:
			e.flushChain(c.ID.Name)
		case stepDeleteElement:
			e.element(unix.NFT_MSG_DELSETELEM, c.ID, "", o.number)
		case stepNewElement, stepNewVerdict:
			e.element(unix.NFT_MSG_NEWSETELEM, c.ID, c.After.Body, o.number)
		case stepRules:
			e.addRules(c.ID.Name, c.After.Body)
		case stepDeleteChain, stepDeleteBaseChain:
			e.deleteChain(c.ID.Name)
		case stepDeleteSet:
			e.deleteSet(c.ID.Name)
		case stepDeleteTable:
			e.deleteTable()
		}
	}
	e.finish()
	return e.t
}
