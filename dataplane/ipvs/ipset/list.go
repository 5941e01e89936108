package ipset

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// flagHeaderOnly is IPSET_FLAG_LIST_HEADER.
const flagHeaderOnly = 1 << 2

// List gives the sets whose names are wanted (all if wanted is nil) with their
// entries, as one dump. Entries that change meanwhile may be told or not; the
// others are all told, once.
func (s *Socket) List(ctx context.Context, wanted func(name string) bool) ([]Set, error) {
	return s.list(ctx, "list sets", nameMessage(cmdList, unix.NLM_F_DUMP, s.protocol), wanted)
}

// Headers is List without entries.
func (s *Socket) Headers(ctx context.Context, wanted func(name string) bool) ([]Set, error) {
	b := message(cmdList, unix.NLM_F_DUMP, s.protocol)
	b = wire.AppendUint32(b, attrFlags|network, flagHeaderOnly)
	return s.list(ctx, "list the headers of sets", seal(b), wanted)
}

// Get gives one set with its entries; the error matches ErrNoSet when it is not
// there.
func (s *Socket) Get(ctx context.Context, name string) (Set, error) {
	sets, err := s.list(ctx, "list "+name, nameMessage(cmdList, unix.NLM_F_DUMP, s.protocol, name), nil)
	if err == nil && len(sets) == 0 {
		err = refused("list "+name, unix.ENOENT) // it went meanwhile
	}
	if err != nil {
		return Set{}, err
	}
	return sets[0], nil
}

func (s *Socket) list(ctx context.Context, what string, request []byte, wanted func(string) bool) ([]Set, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ipset: %s: %w", what, err)
	}
	r := reader{wanted: wanted}
	err := s.ask(request, func(attrs []byte) {
		if ctx.Err() == nil {
			r.read(attrs)
		}
	})
	var errno syscall.Errno
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ipset: %s: %w", what, ctx.Err())
	case errors.As(err, &errno):
		return nil, refused(what, errno)
	case err != nil:
		return nil, fmt.Errorf("ipset: %s: %w", what, err)
	}
	return r.sets, nil
}

// reader puts sets together from the messages of a dump. A large set comes as
// several messages, of which the first has the header.
type reader struct {
	wanted func(name string) bool
	sets   []Set
}

func (r *reader) read(attrs []byte) {
	name := wire.Find(attrs, attrSetName).Text()
	if r.wanted != nil && !r.wanted(name) {
		return
	}
	if last := len(r.sets) - 1; last < 0 || r.sets[last].Name != name {
		r.sets = append(r.sets, Set{Spec: Spec{Name: name}})
	}
	set := &r.sets[len(r.sets)-1]
	for a := range wire.Attrs(attrs) {
		switch a.Type {
		case attrTypeName:
			set.Type = Type(a.Text())
		case attrRevision:
			set.Revision = byteOf(a)
		case attrFamily:
			set.Family = Family(byteOf(a))
		case attrData:
			set.readHeader(a.Data)
		case attrADT:
			set.readEntries(a.Data)
		}
	}
}

func (s *Set) readHeader(attrs []byte) {
	for a := range wire.Attrs(attrs) {
		switch a.Type {
		case dataHashSize:
			s.HashSize = a.Uint32()
		case dataMaxElem:
			s.MaxElem = a.Uint32()
		case dataPort:
			s.FirstPort = portOf(a)
		case dataPortTo:
			s.LastPort = portOf(a)
		case dataElements:
			s.Count = a.Uint32()
		case dataReferences:
			s.References = a.Uint32()
		case dataMemory:
			s.MemoryBytes = a.Uint32()
		}
	}
}

func (s *Set) readEntries(attrs []byte) {
	if !s.Type.Known() {
		return
	}
	for a := range wire.Attrs(attrs) {
		if e, ok := readEntry(s.Type, a.Data); ok && a.Type == attrData {
			s.Entries = append(s.Entries, e)
		}
	}
}
