package wire

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Refusal is the kernel's answer to a message of a transaction that it did not carry
// out.
type Refusal struct {
	Errno syscall.Errno
	// Kind is the type of the refused message, NFT_MSG_…; 0 for the transaction as a
	// whole.
	Kind uint16
	// Words are the kernel's explanation, if it gave one.
	Words string
	// About is what the refused part stands for; see Transaction.Note.
	About []int
}

// Error returns the kernel's reason.
func (r *Refusal) Error() string {
	reason := netlink.Refusal{Errno: r.Errno, Text: r.Words}
	return fmt.Sprintf("%s: %v", kindName(r.Kind), &reason)
}

// Unwrap returns the error number.
func (r *Refusal) Unwrap() error { return r.Errno }

func kindName(kind uint16) string {
	names := map[uint16]string{
		unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "delete table",
		unix.NFT_MSG_NEWCHAIN: "add chain", unix.NFT_MSG_DELCHAIN: "delete chain",
		unix.NFT_MSG_NEWRULE: "add rule", unix.NFT_MSG_DELRULE: "delete rules",
		unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set",
		unix.NFT_MSG_NEWSETELEM: "add element", unix.NFT_MSG_DELSETELEM: "delete element",
	}
	if name, ok := names[kind]; ok {
		return name
	}
	return "transaction"
}
