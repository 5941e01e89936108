// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// deleteBatch is the number of entries that one request deletes.
	deleteBatch = 128
	// attempts is the maximum number of attempts to read a complete list.
	attempts = 6
)

// ErrGone means that an entry no longer exists.
var ErrGone = errors.New("conntrack: the entry no longer exists")

// Kernel is the kernel's connection table of one family. Use it from one goroutine at a time.
type Kernel struct {
	Family service.Family
	// Inside runs a function on a thread in the network namespace of the table; nil means that of the process.
	Inside netlink.Inside
	// filterless sends requests without filters.
	filterless bool
	// deleting is a separate socket, because deletions happen during a listing. It is nil until the first deletion.
	deleting *netlink.Socket
}

// Entry is one entry of the table. It is valid during the call that passes it.
type Entry struct {
	Connection
	Description Description
}

// Description contains the kernel's attributes of an entry, or only those that identify the entry.
type Description []byte

// open opens a socket in a network namespace.
func open(inside netlink.Inside) (socket *netlink.Socket, err error) {
	err = inside.Do(func() error {
		socket, err = netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
		return err
	})
	return socket, err
}

// ask sends one request for a protocol family, and calls each with the messages of the reply.
func ask(ctx context.Context, s *netlink.Socket, kind, flags uint16, family uint8, attrs []byte, each func(attrs []byte) error) error {
	request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_CTNETLINK, kind, flags, family)
	return s.Ask(ctx, netlink.Finish(append(request, attrs...), mark), func(m netlink.Message) error {
		if part, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK); ok {
			return each(part.Attrs)
		}
		return nil
	})
}

// Close closes the socket for deletions.
func (k *Kernel) Close() error {
	if k.deleting == nil {
		return nil
	}
	err := k.deleting.Close()
	k.deleting = nil
	return err
}

// Each calls each with every entry that the filter matches, as it arrives, and reports whether the kernel honoured the
// filter. Old kernels list all entries. An error may follow some entries. Errors that match netlink.ErrInterrupted or
// netlink.ErrUnanswered mean that the list may lack entries; see [Steadily].
func (k *Kernel) Each(ctx context.Context, only Filter, each func(*Entry) error) (honoured bool, err error) {
	if !k.filterless {
		honoured, err := k.list(ctx, only, only.append(nil, k.Family), each)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			return honoured, err
		}
	}
	return k.list(ctx, only, nil, each)
}

// Steadily calls list again while the list is incomplete. Entries that list deletes do not occur again.
func Steadily(ctx context.Context, list func() error) error { return netlink.Dump(ctx, attempts, list) }

// list lists entries over a separate socket. Closing it discards the rest of an unfinished reply.
func (k *Kernel) list(ctx context.Context, only Filter, filter []byte, each func(*Entry) error) (honoured bool, err error) {
	socket, err := open(k.Inside)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	honoured = true
	var e Entry // reused for all entries, which saves memory
	err = ask(ctx, socket, messageGet, unix.NLM_F_DUMP, layouts[k.Family].protocol, filter, func(attrs []byte) error {
		e = Entry{parse(attrs), attrs}
		if !e.To.IsValid() || !e.Answerer.IsValid() {
			return nil
		}
		honoured = honoured && only.Lets(&e)
		return each(&e)
	})
	if err != nil {
		return false, fmt.Errorf("list flows: %w", err)
	}
	return honoured, nil
}

// Delete deletes entries and returns an outcome for each: nil if the entry was deleted, ErrGone if it did not exist,
// and another error if it remains. After an error of the call itself, the outcomes of the other entries are unknown.
func (k *Kernel) Delete(entries []Description) (outcomes []error, err error) {
	if k.deleting == nil {
		if k.deleting, err = open(k.Inside); err != nil {
			return nil, err
		}
	}
	outcomes = make([]error, len(entries))
	for first := 0; first < len(entries); first += deleteBatch {
		part := entries[first:min(first+deleteBatch, len(entries))]
		err := k.deleting.Exchange(k.appendDeletions(nil, part), func(at int, a netlink.Answer) {
			if outcomes[first+at] = a.Err(); a.Errno == unix.ENOENT {
				outcomes[first+at] = ErrGone
			}
		})
		if err != nil {
			return outcomes[:first], fmt.Errorf("delete flows: %w", err)
		}
	}
	return outcomes, nil
}

// appendDeletions adds one message for each entry. The kernel reports the entries that it could not delete, and
// acknowledges the last message.
func (k *Kernel) appendDeletions(request []byte, entries []Description) []byte {
	for i, e := range entries {
		flags, mark := uint16(0), 0
		if i == len(entries)-1 {
			flags = unix.NLM_F_ACK
		}
		request, mark = netlink.BeginNetfilter(request, unix.NFNL_SUBSYS_CTNETLINK, messageDelete, flags, layouts[k.Family].protocol)
		request = netlink.Finish(e.appendIdentity(request), mark)
	}
	return request
}

// appendIdentity adds the attributes with which the kernel deletes exactly this entry: the tuple and the zone, by which
// it finds the entry, and the number, which a later entry with the same tuple does not have.
func (d Description) appendIdentity(b []byte) []byte {
	for attr := range netlink.Attrs(d) {
		switch attr.Type {
		case attrOriginal:
			b = netlink.AppendBytes(b, attrOriginal|nested, attr.Data)
		case attrZone, attrID:
			b = netlink.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	return b
}

// Answers identifies, without a number, any entry that begins with an answer to the client of this entry. If this entry
// itself began with an answer (reversed), Answers identifies any entry with the same tuple. It returns nil if the
// kernel did not describe the tuple.
func (d Description) Answers(reversed bool) Description {
	tuple := uint16(attrReply)
	if reversed {
		tuple = attrOriginal
	}
	data := netlink.Find(d, tuple).Data
	if len(data) == 0 {
		return nil
	}
	identity := netlink.AppendBytes(nil, attrOriginal|nested, data)
	if zone := netlink.Find(d, attrZone).Data; len(zone) > 0 {
		identity = netlink.AppendBytes(identity, attrZone, zone)
	}
	return identity
}

// Delete deletes entries of a family. A missing entry is no error.
func Delete(_ context.Context, family service.Family, entries []Description) error {
	k := &Kernel{Family: family}
	outcomes, err := k.Delete(entries)
	for _, outcome := range outcomes {
		if outcome != nil && !errors.Is(outcome, ErrGone) && err == nil {
			err = outcome
		}
	}
	return errors.Join(err, k.Close())
}

// DeleteUDP deletes the UDP flows for which stale returns true, and returns their number.
func DeleteUDP(ctx context.Context, family service.Family, stale func(*Connection) bool, inside netlink.Inside) (deleted int, err error) {
	k := &Kernel{Family: family, Inside: inside}
	defer func() { err = errors.Join(err, k.Close()) }()
	err = Steadily(ctx, func() error {
		var found []Description
		_, failed := k.Each(ctx, Filter{Destination: Destination{Protocol: unix.IPPROTO_UDP}}, func(e *Entry) error {
			if e.Protocol == unix.IPPROTO_UDP && stale(&e.Connection) {
				found = append(found, e.Description.appendIdentity(nil))
			}
			return nil
		})
		outcomes, err := k.Delete(found)
		for _, outcome := range outcomes {
			if outcome == nil {
				deleted++
			}
		}
		if err == nil {
			err = failed
		}
		return err
	})
	return deleted, err
}

// Connections lists the connections of a client to a destination. Port 0 of the client means all of its ports. It
// returns at most the given number of connections, and the number of further ones. On kernels before Linux 5.8, it
// reads the whole table.
func Connections(ctx context.Context, protocol service.Protocol, from, to netip.AddrPort, most int) (list []Connection, more int, err error) {
	k, d := Kernel{Family: service.FamilyOf(to.Addr())}, Destination{to.Addr(), to.Port(), protocol.Number()}
	_, err = k.Each(ctx, FilterFor(d), func(e *Entry) error {
		switch {
		case e.Destination() != d || e.From.Addr() != from.Addr() || from.Port() != 0 && e.From.Port() != from.Port():
		case len(list) < most:
			list = append(list, e.Connection)
		default:
			more++
		}
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list connections: %w", err)
	}
	return list, more, nil
}

// Translated calls each with all translated connections of a family.
func Translated(ctx context.Context, family service.Family, each func(Connection)) error {
	k := Kernel{Family: family}
	_, err := k.Each(ctx, Filter{}, func(e *Entry) error {
		if e.Translated() {
			each(e.Connection)
		}
		return nil
	})
	return err
}

// Load loads the kernel's connection tracking if it is a module, by a request for statistics. Soon after boot, a node
// may lack the module and thus its sysctls.
func Load(ctx context.Context) error { return load(ctx, unix.NETLINK_NETFILTER) }

func load(ctx context.Context, protocol int) error {
	socket, err := netlink.Open(netlink.Config{Protocol: protocol})
	if err != nil {
		return err
	}
	err = ask(ctx, socket, messageStatistics, unix.NLM_F_DUMP, unix.AF_UNSPEC, nil, func([]byte) error { return nil })
	return errors.Join(err, socket.Close())
}
