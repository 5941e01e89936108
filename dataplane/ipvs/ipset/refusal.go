package ipset

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a caller may want to tell apart; use errors.Is.
var (
	// ErrUnanswered: the kernel's answer was lost, and what happened is unknown.
	ErrUnanswered = errors.New("the kernel's answer was lost")
	// ErrNoSet: there is no set of that name.
	ErrNoSet = errors.New("no such set")
	// ErrDifferent: a set of that name exists, and its type, family or maximal
	// number of entries is another one.
	ErrDifferent = errors.New("a different set of that name exists")
	// ErrFull: the set has as many entries as fit.
	ErrFull = errors.New("the set is full")
	// ErrInUse: a rule or a reader refers to the set. With iptables-nft, a rule
	// lets go of its set a moment after it was deleted.
	ErrInUse = errors.New("the set is in use")
	// ErrUnsupported: the kernel does not know sets, or not this type of them.
	ErrUnsupported = errors.New("not supported by this kernel")
)

// Unknown says whether an error leaves open what happened. After all other errors
// of this package, what was asked for has not happened.
func Unknown(err error) bool { return errors.Is(err, ErrUnanswered) }

// RefusedError is the kernel's no.
type RefusedError struct {
	// What was refused, as "add 10.0.0.1,tcp:80 to KUBE-CLUSTER-IP".
	What string
	// Errno is the number that the kernel gave; those from 4096 on are ipset's.
	Errno syscall.Errno
	// Reason is one of the errors above if one fits, otherwise it says what the
	// number means.
	Reason error
}

// Error gives the reason.
func (e *RefusedError) Error() string { return fmt.Sprintf("ipset: %s: %v", e.What, e.Reason) }

// Unwrap gives the reason and the number.
func (e *RefusedError) Unwrap() []error { return []error{e.Reason, e.Errno} }

// Error numbers of ipset (enum ipset_errno); those from typeSpecific on mean
// different things for different types, here those of the hash types.
const (
	errnoProtocol      syscall.Errno = 4097
	errnoFindType      syscall.Errno = 4098
	errnoMaxSets       syscall.Errno = 4099
	errnoBusy          syscall.Errno = 4100
	errnoExistName2    syscall.Errno = 4101
	errnoTypeMismatch  syscall.Errno = 4102
	errnoExist         syscall.Errno = 4103
	errnoInvalidCIDR   syscall.Errno = 4104
	errnoInvalidFamily syscall.Errno = 4106
	errnoReferenced    syscall.Errno = 4108
	errnoIPv4          syscall.Errno = 4109
	errnoIPv6          syscall.Errno = 4110
	errnoHashFull      syscall.Errno = 4352
	errnoHashElement   syscall.Errno = 4353
	errnoBadProtocol   syscall.Errno = 4354
	errnoNoProtocol    syscall.Errno = 4355
)

var reasons = map[syscall.Errno]error{
	unix.ENOENT:        ErrNoSet,
	unix.EEXIST:        ErrDifferent,
	errnoBusy:          ErrInUse,
	errnoReferenced:    ErrInUse,
	errnoHashFull:      ErrFull,
	errnoFindType:      ErrUnsupported,
	errnoProtocol:      errors.New("the kernel does not understand the message"),
	errnoMaxSets:       errors.New("there are as many sets as the kernel can have"),
	errnoExistName2:    errors.New("a set of the new name exists"),
	errnoTypeMismatch:  errors.New("the sets are of different types"),
	errnoExist:         errors.New("the entry is there already, or gone already"),
	errnoInvalidCIDR:   errors.New("the length of the network is not possible"),
	errnoInvalidFamily: errors.New("the family is not possible for the type"),
	errnoIPv4:          errors.New("an IPv4 address is missing"),
	errnoIPv6:          errors.New("an IPv6 address is missing"),
	errnoHashElement:   errors.New("the entry is not possible"),
	errnoBadProtocol:   errors.New("the protocol is not possible"),
	errnoNoProtocol:    errors.New("the protocol is missing"),
}

func refused(what string, errno syscall.Errno) error {
	reason, ok := reasons[errno]
	if !ok {
		reason = errno
	}
	return &RefusedError{What: what, Errno: errno, Reason: reason}
}

// outcome turns the answer to a request into the result of what it asked for.
func outcome(what string, a answer) error {
	switch {
	case a.err != nil && errors.Is(a.err, context.Canceled), a.err != nil && errors.Is(a.err, context.DeadlineExceeded):
		return fmt.Errorf("ipset: %s: not tried: %w", what, a.err)
	case a.err != nil:
		return fmt.Errorf("ipset: %s: %w", what, a.err)
	case a.errno != 0:
		return refused(what, a.errno)
	}
	return nil
}
