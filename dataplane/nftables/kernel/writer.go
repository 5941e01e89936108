// SPDX-License-Identifier: Apache-2.0

// Package kernel writes the objects of package render over netlink, one transaction per batch, reads
// them back, and watches for changes by other programs.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Writer writes batches into one family's table, each in one transaction of netlink
// messages, a very large one in several.
//
// The messages of a change depend on that change alone. A write looks up objects in the kernel
// only if their state is unsure or the batch was rejected. Use Write, Read and ReadAhead from
// one goroutine at a time. Watch may run at the same time.
type Writer struct {
	d      *rules.Header
	config WriterConfig
	// opening guards socket. The first call that needs the socket opens it; only Write, Read and
	// ReadAhead send with it.
	opening sync.Mutex
	socket  Socket
	// ahead is the result of ReadAhead, until the next Read.
	ahead *ahead
	// start ends with the first Write.
	start *start
	// turns divides the changes of large Services.
	turns turns
}

// Socket is what a Writer needs of its connection to nf_tables. *wire.Socket is the real one
// and documents the methods.
type Socket interface {
	Commit(*wire.Transaction) ([]*wire.Rejection, error)
	Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(netlink.Netfilter)) error
	Port() uint32
	Room() int
	Close() error
}

// WriterConfig tunes a Writer; the zero value is the default.
type WriterConfig struct {
	// TransactionBytes limits a transaction; one Service may exceed it. Default 4 MiB. Half of
	// the socket's send buffer is a limit, too (net.core.wmem_max in an unprivileged user
	// namespace).
	TransactionBytes int
	// Starts is shared by the writers of one process. Default: a separate one.
	Starts *Starts
	// Tally has the counts of deleted elements, also of those that an earlier writer of the family deleted.
	// Default: a new one.
	Tally *Tally
	// TurnObjects is how many objects of one Service are written before others get a turn. Default 10,000.
	TurnObjects int
	// Progress is called after each transaction of a batch that needs several, with the
	// numbers of landed changes and of all changes.
	Progress func(landed, all int)
	// Inside is the network namespace to work in.
	Inside netlink.Inside
	// Open opens the socket, on a thread in that namespace. Default: wire.Open. Tests of
	// failures replace it.
	Open func() (Socket, error)
}

const transactionBytesDefault = 4 << 20

// Contract returns the functions that the core calls.
func (w *Writer) Contract() dataplane.Writer {
	return dataplane.Writer{Write: w.Write, Read: w.Read, ReadAhead: w.ReadAhead, Cut: w.turns.choose, Origin: render.Origin{},
		Watch: w.Watch, Traffic: w.Traffic, Close: w.Close}
}

// NewWriter returns a writer for one family.
func NewWriter(family service.Family, config WriterConfig) *Writer {
	if config.TransactionBytes <= 0 {
		config.TransactionBytes = transactionBytesDefault
	}
	if config.TurnObjects <= 0 {
		config.TurnObjects = turnMax
	}
	if config.Progress == nil {
		config.Progress = func(int, int) {}
	}
	if config.Starts == nil {
		config.Starts = NewStarts()
	}
	if config.Tally == nil {
		config.Tally = NewTally()
	}
	if config.Open == nil {
		config.Open = func() (Socket, error) { return wire.Open() }
	}
	return &Writer{d: &rules.Headers[family], config: config, start: config.Starts.add(), turns: turns{most: config.TurnObjects}}
}

// Close closes the socket. The rules stay. The next call opens a new socket.
func (w *Writer) Close() error {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.socket == nil {
		return nil
	}
	err := w.socket.Close()
	w.socket = nil
	return err
}

// open returns the socket.
func (w *Writer) open() (Socket, error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.socket != nil {
		return w.socket, nil
	}
	err := w.config.Inside.Do(func() error {
		socket, err := w.config.Open()
		if err == nil {
			w.socket = socket
		}
		return err
	})
	return w.socket, err
}

// reader returns a reader that uses a socket.
func (w *Writer) reader(socket Socket) *reader {
	r := &reader{d: w.d, socket: socket}
	if real, ok := socket.(interface {
		Listen() (*netlink.TableListener, error)
	}); ok {
		r.listen = func() (listener *netlink.TableListener, err error) {
			err = w.config.Inside.Do(func() error {
				listener, err = real.Listen()
				return err
			})
			return listener, err
		}
	}
	return r
}

// Write makes one attempt. A transaction cannot be interrupted; the context can only prevent
// the next one.
func (w *Writer) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	defer w.start.end()
	if ctx.Err() != nil {
		return dataplane.Receipt{Outcome: dataplane.Unknown, Certain: dataplane.Untouched(batch.Changes), Err: context.Cause(ctx)}
	}
	socket, err := w.open()
	if err != nil {
		return dataplane.Receipt{Outcome: dataplane.Busy, Certain: dataplane.Untouched(batch.Changes), Err: err}
	}
	a := &attempt{w: w, socket: socket, reader: w.reader(socket)}
	changes, err := a.makeSure(ctx, batch.Changes)
	if err != nil {
		a.account(ctx, batch.Changes, err)
		return a.receipt
	}
	if err = a.carryOut(ctx, changes); err != nil {
		a.account(ctx, changes, err)
	}
	return a.receipt
}

// attempt is one Write.
type attempt struct {
	w       *Writer
	socket  Socket
	reader  *reader
	receipt dataplane.Receipt
	// plan is nil until the batch is planned. landed counts the parts that landed.
	plan   *plan
	landed int
	// generation is that of the kernel's tables before the first of several transactions.
	generation uint32
}

// lookUpMax is the number of unsure objects up to which each is looked up by itself. For
// more, the table is read.
const lookUpMax = 2000

// makeSure looks up the objects of unsure state, so that the changes start from what exists.
func (a *attempt) makeSure(ctx context.Context, changes []dataplane.Change) ([]dataplane.Change, error) {
	var unsure []dataplane.ID
	for i := range changes {
		if changes[i].Unsure {
			unsure = append(unsure, changes[i].ID)
		}
	}
	if len(unsure) == 0 {
		return changes, nil
	}
	there, err := a.lookUp(ctx, unsure)
	if err != nil {
		return nil, &netlink.NotSentError{Err: fmt.Errorf("look up objects: %w", err)}
	}
	sure := slices.Clone(changes)
	for i := range sure {
		if sure[i].Unsure {
			sure[i].Before = there[sure[i].ID]
		}
	}
	return sure, nil
}

// lookUp returns the current state of objects. Those that do not exist are missing from the
// result or nil in it.
func (a *attempt) lookUp(ctx context.Context, ids []dataplane.ID) (map[dataplane.ID]*dataplane.Object, error) {
	there := make(map[dataplane.ID]*dataplane.Object, len(ids))
	if len(ids) > lookUpMax {
		objects, err := a.reader.all(ctx)
		for i := range objects {
			there[objects[i].ID] = &objects[i]
		}
		return there, err
	}
	err := a.reader.steadily(ctx, func() error {
		for _, id := range ids {
			object, err := a.reader.one(ctx, id)
			if err != nil {
				return err
			}
			there[id] = object
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return there, nil
}

// carryOut plans and commits.
func (a *attempt) carryOut(ctx context.Context, changes []dataplane.Change) error {
	p := newPlan(a.w.d, changes, min(a.w.config.TransactionBytes, a.socket.Room()/2))
	a.plan = p
	if len(p.parts) > 1 {
		var err error
		if a.generation, err = a.reader.generation(ctx); err != nil {
			return &netlink.NotSentError{Err: err}
		}
	}
	complete := 0
	for i, part := range p.parts {
		if i > 0 && ctx.Err() != nil {
			return &unfinishedError{context.Cause(ctx)}
		}
		if err := a.commit(p, part); err != nil {
			return err
		}
		a.landed++
		if complete += p.completes[i]; len(p.parts) > 1 {
			a.w.config.Progress(complete, len(changes))
		}
	}
	a.receipt.Written.Objects = len(changes)
	return nil
}

// commit writes one transaction.
func (a *attempt) commit(p *plan, part []operation) error {
	c := p.counting(a.w.config.Tally, part, a.socket)
	t := p.transaction(part, c)
	a.receipt.Written = a.receipt.Written.Add(dataplane.Written{
		Lines: len(part), Bytes: t.Bytes(), Calls: 1,
	})
	c.begin(t)
	rejections, err := a.w.config.Starts.commit(a.socket, t)
	if errors.Is(err, unix.EMSGSIZE) {
		rejections, err = []*wire.Rejection{tooLarge(p, part)}, nil
	}
	c.end(rejections, err)
	if err != nil {
		return err
	}
	if len(rejections) > 0 {
		return &rejectedError{rejections: rejections, family: p.d.Family, changes: p.changes}
	}
	return nil
}

// tooLarge rejects a transaction that does not fit into the socket's buffer, and never will.
// The plan fills at most half of the buffer before it adds the last Service, so that Service
// is too large: the one with the most bytes.
func tooLarge(p *plan, part []operation) *wire.Rejection {
	bytes := make(map[service.Key]int)
	var largest service.Key
	for _, o := range part {
		c := &p.changes[o.number]
		bytes[c.Owner] += cost(c)
		if bytes[c.Owner] > bytes[largest] {
			largest = c.Owner
		}
	}
	r := &wire.Rejection{Errno: unix.EMSGSIZE}
	for _, o := range part {
		if p.changes[o.number].Owner == largest {
			r.About = append(r.About, o.number)
		}
	}
	return r
}
