package nft

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// refusal is the no to one message.
type refusal struct {
	errno syscall.Errno
	// words say more than the error number.
	words string
	// offset is that of the refused attribute in the message, 0 if the message
	// is refused as a whole.
	offset int
}

// Error gives the error number, and the words if there are some.
func (r *refusal) Error() string {
	if r.words == "" {
		return r.errno.Error()
	}
	return fmt.Sprintf("%v (%s)", r.errno, r.words)
}

// refusef refuses a message.
func refusef(errno syscall.Errno, format string, args ...any) error {
	return &refusal{errno: errno, words: fmt.Sprintf(format, args...)}
}

// unknownf refuses what is not understood here, whatever the real kernel would
// make of it.
func unknownf(format string, args ...any) error {
	return refusef(unix.EINVAL, "not modelled: "+format, args...)
}
