// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	library "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// SetType is the kernel's name for a type of sets, which defines the parts of their entries.
type SetType string

// The types whose entries this package can read and write.
const (
	HashIP        SetType = "hash:ip"          // 10.0.0.1
	HashIPPort    SetType = "hash:ip,port"     // 10.0.0.1,tcp:80
	HashIPPortIP  SetType = "hash:ip,port,ip"  // 10.0.0.1,tcp:80,10.0.0.2
	HashIPPortNet SetType = "hash:ip,port,net" // 10.0.0.1,tcp:80,203.0.113.0/25
	BitmapPort    SetType = "bitmap:port"      // 30080
)

// Known reports whether this package can read and write entries of the type.
func (t SetType) Known() bool {
	switch t {
	case HashIP, HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort:
		return true
	}
	return false
}

// Family is the family of the addresses in a set, as NFPROTO_….
type Family uint8

// The families. A bitmap of ports has none.
const (
	NoFamily Family = unix.NFPROTO_UNSPEC
	Inet     Family = unix.NFPROTO_IPV4
	Inet6    Family = unix.NFPROTO_IPV6
)

// String returns the name that ipset(8) uses, or "" for NoFamily.
func (f Family) String() string {
	switch f {
	case Inet:
		return "inet"
	case Inet6:
		return "inet6"
	}
	return ""
}

// SetSpec defines a set.
type SetSpec struct {
	// Name is at most 31 bytes long.
	Name   string
	Type   SetType
	Family Family
	// MaxElem is how many entries fit; 0 is the kernel's default, 65536. Unused capacity costs
	// nothing. It is only for hash types; a bitmap has room for every port.
	MaxElem uint32
}

// String returns type and family, as in "hash:ip,port inet" or "bitmap:port".
func (s SetSpec) String() string {
	if s.Family == NoFamily {
		return string(s.Type)
	}
	return string(s.Type) + " " + s.Family.String()
}

// Set is a set as read from the kernel.
type Set struct {
	SetSpec
	// FirstPort and LastPort are the range of a bitmap of ports.
	FirstPort, LastPort uint16
	// Count is the number of entries.
	Count uint32
	// Entries are the entries of a set of a known type, in no order. Entries that this package
	// cannot represent are missing, although Count has them.
	Entries []Entry
}

// Capacity returns how many entries fit into the set, or 0 if that is not known.
func (s Set) Capacity() uint32 {
	if s.Type == BitmapPort {
		return uint32(s.LastPort) - uint32(s.FirstPort) + 1
	}
	return s.MaxElem
}

// Errors that callers distinguish with errors.Is.
var (
	// ErrNoSet means that there is no set of that name.
	ErrNoSet = errors.New("no such set")
	// ErrDifferent means that a set of that name exists with another type, family or
	// maximal number of entries.
	ErrDifferent = errors.New("a different set of that name exists")
	// ErrFull means that the set is at its capacity.
	ErrFull = errors.New("the set is full")
	// ErrInUse means that a rule or a reader refers to the set. With iptables-nft, a
	// rule releases its set a moment after it was deleted.
	ErrInUse = errors.New("the set is in use")
	// ErrUnsupported means that the kernel does not support sets, or not this type.
	ErrUnsupported = errors.New("not supported by this kernel")
)

// SetRejection is the kernel's answer to a request about a set that it did not carry out.
type SetRejection struct {
	// What is the rejected request, such as "add 10.0.0.1,tcp:80 to KUBE-CLUSTER-IP-0a1b2c".
	What string
	// Errno is the kernel's number. Those from 4096 on are ipset's own.
	Errno syscall.Errno
	// Reason is one of the errors above if one matches. Otherwise it describes the number.
	Reason error
}

// Error returns the rejected request and the reason.
func (e *SetRejection) Error() string { return fmt.Sprintf("ipset: %s: %v", e.What, e.Reason) }

// Unwrap returns the reason and the number.
func (e *SetRejection) Unwrap() []error { return []error{e.Reason, e.Errno} }

// Numbers of ipset. Those from nl.IPSET_ERR_TYPE_SPECIFIC on mean different things for
// different types, here those of the hash types.
const (
	errnoHashFull    = syscall.Errno(nl.IPSET_ERR_TYPE_SPECIFIC)
	errnoHashElement = syscall.Errno(nl.IPSET_ERR_TYPE_SPECIFIC + 1)
	errnoBadProtocol = syscall.Errno(nl.IPSET_ERR_TYPE_SPECIFIC + 2)
	errnoNoProtocol  = syscall.Errno(nl.IPSET_ERR_TYPE_SPECIFIC + 3)
)

var reasons = map[syscall.Errno]error{
	unix.ENOENT:                                ErrNoSet,
	unix.EEXIST:                                ErrDifferent,
	syscall.Errno(nl.IPSET_ERR_BUSY):           ErrInUse,
	syscall.Errno(nl.IPSET_ERR_REFERENCED):     ErrInUse,
	errnoHashFull:                              ErrFull,
	syscall.Errno(nl.IPSET_ERR_FIND_TYPE):      ErrUnsupported,
	syscall.Errno(nl.IPSET_ERR_PROTOCOL):       errors.New("the kernel does not understand the message"),
	syscall.Errno(nl.IPSET_ERR_MAX_SETS):       errors.New("the kernel cannot create more sets"),
	syscall.Errno(nl.IPSET_ERR_TYPE_MISMATCH):  errors.New("the sets are of different types"),
	syscall.Errno(nl.IPSET_ERR_EXIST):          errors.New("the entry exists already, or is already removed"),
	syscall.Errno(nl.IPSET_ERR_INVALID_CIDR):   errors.New("the length of the network is not possible"),
	syscall.Errno(nl.IPSET_ERR_INVALID_FAMILY): errors.New("the family is not possible for the type"),
	syscall.Errno(nl.IPSET_ERR_IPADDR_IPV4):    errors.New("an IPv4 address is missing"),
	syscall.Errno(nl.IPSET_ERR_IPADDR_IPV6):    errors.New("an IPv6 address is missing"),
	errnoHashElement:                           errors.New("the entry is not possible"),
	errnoBadProtocol:                           errors.New("the protocol is not possible"),
	errnoNoProtocol:                            errors.New("the protocol is missing"),
}

// setResult turns an error of a library or of the transport into the result of a request.
func setResult(what string, err error) error {
	if private, ok := errors.AsType[nl.IPSetError](err); ok {
		err = syscall.Errno(private)
	}
	_, kept := errors.AsType[*NotSentError](err)
	switch {
	case err == nil:
		return nil
	case kept:
		return fmt.Errorf("ipset: %s: %w", what, err)
	}
	if err = answerOf(err); Unknown(err) {
		return fmt.Errorf("ipset: %s: %w", what, err)
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	reason, ok := reasons[errno]
	if !ok {
		reason = errno
	}
	return &SetRejection{What: what, Errno: errno, Reason: reason}
}

// Sets is a connection to the sets of the network namespace of the thread that opened it.
// Only one goroutine at a time may use it.
type Sets struct {
	handle *library.Handle
	socket *netlink.Socket
}

// setProtocol is the version of the protocol that this package uses. It does not need the
// additions of later versions.
const setProtocol = nl.IPSET_PROTOCOL

// OpenSets opens a connection in the network namespace of the calling thread. The kernel
// may load a module for it. The error matches ErrUnsupported if the kernel has no sets.
func OpenSets() (*Sets, error) {
	quietLibraries()
	handle, err := library.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("ipset: open a netlink socket: %w", err)
	}
	if err := supported(handle.IpsetProtocol()); err != nil {
		handle.Close()
		return nil, err
	}
	const bufferBytes = 1 << 20 // 208 KiB, the default for unprivileged processes, is enough, too
	socket, err := netlink.Open(netlink.Config{
		Protocol: unix.NETLINK_NETFILTER, SendBytes: bufferBytes, ReceiveBytes: bufferBytes,
	})
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("ipset: %w", err)
	}
	return &Sets{handle, socket}, nil
}

// supported returns nil if the kernel supports setProtocol.
func supported(newest, oldest uint8, err error) error {
	switch {
	// These are nfnetlink's answers if a subsystem is neither loaded nor can be loaded.
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("ipset: sets are %w (%w); is the module ip_set there?", ErrUnsupported, err)
	case err != nil:
		return fmt.Errorf("ipset: agree on a protocol: %w", err)
	case newest < setProtocol || oldest > setProtocol:
		return fmt.Errorf("ipset: the kernel speaks versions %d to %d of the protocol: %d is %w",
			oldest, newest, setProtocol, ErrUnsupported)
	}
	return nil
}

// Close closes the connection.
func (s *Sets) Close() error {
	s.handle.Close()
	return s.socket.Close()
}

// Create creates sets. If a set with the same properties exists, Create succeeds, and the set keeps its
// entries. If a different set has the name, the error is ErrDifferent.
func (s *Sets) Create(ctx context.Context, specs []SetSpec) []error {
	results := make([]error, len(specs))
	for i, spec := range specs {
		results[i] = s.create(ctx, spec)
	}
	return results
}

func (s *Sets) create(ctx context.Context, spec SetSpec) error {
	what := "create " + spec.Name + " (" + spec.String() + ")"
	if err := unsent(ctx); err != nil {
		return setResult(what, err)
	}
	options := library.IpsetCreateOptions{Family: uint8(spec.Family), MaxElements: spec.MaxElem}
	if spec.Type == BitmapPort {
		options.PortTo, options.MaxElements = 1<<16-1, 0
	}
	err := setResult(what, s.handle.IpsetCreate(spec.Name, string(spec.Type), options))
	if !errors.Is(err, ErrDifferent) {
		return err
	}
	options.Replace = true // accepts the set that exists if it is the same
	if err := s.handle.IpsetCreate(spec.Name, string(spec.Type), options); err != nil {
		return setResult(what, err)
	}
	// The kernel considers two sets the same if they differ only in the family of their
	// addresses (ip_set_create; seen with Linux 6.18).
	found, err := s.handle.IpsetList(spec.Name)
	if err == nil && Family(found.Family) != spec.Family {
		err = unix.EEXIST
	}
	return setResult(what, err)
}

// Destroy removes sets with their entries. Removing a missing set succeeds. If a rule refers to a
// set, the error is ErrInUse.
func (s *Sets) Destroy(ctx context.Context, names []string) []error {
	results := make([]error, len(names))
	for i, name := range names {
		err := unsent(ctx)
		if err == nil {
			err = s.handle.IpsetDestroy(name)
		}
		if results[i] = setResult("destroy "+name, err); errors.Is(results[i], ErrNoSet) {
			results[i] = nil
		}
	}
	return results
}

// List returns the sets whose names are wanted, all if wanted is nil, with their entries. Entries
// that are added or removed during the call may be missing or not. All others are listed once.
func (s *Sets) List(ctx context.Context, wanted func(name string) bool) ([]Set, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	parts, err := s.handle.IpsetListAll()
	if err != nil {
		return nil, setResult("list sets", err)
	}
	var sets []Set
	for i := range parts {
		if wanted == nil || wanted(parts[i].SetName) {
			sets = together(sets, &parts[i])
		}
	}
	return sets, nil
}

// together adds a part of the kernel's list to sets. A large set is split over several parts, of
// which the first has the header.
func together(sets []Set, part *library.IPSetResult) []Set {
	if last := len(sets) - 1; last < 0 || sets[last].Name != part.SetName {
		sets = append(sets, Set{
			SetSpec: SetSpec{
				Name: part.SetName, Type: SetType(part.TypeName), Family: Family(part.Family), MaxElem: part.MaxElements,
			},
			FirstPort: part.PortFrom, LastPort: part.PortTo, Count: part.NumEntries,
		})
	}
	set := &sets[len(sets)-1]
	for i := range part.Entries {
		if e, ok := entryOf(set.Type, &part.Entries[i]); ok {
			set.Entries = append(set.Entries, e)
		}
	}
	return sets
}
