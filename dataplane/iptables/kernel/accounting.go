// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

var accounts = [...]string{render.AccountInvalid, render.AccountLocalhost}

// Requests and attributes of nfnetlink_acct (include/uapi/linux/netfilter/nfnetlink_acct.h).
const (
	accountNew    = 0
	accountGet    = 1
	accountDelete = 3

	accountName    = 1
	accountPackets = 2
)

// ensureAccounts creates the missing accounting objects.
func ensureAccounts() error {
	return eachAccount(accountNew, unix.NLM_F_CREATE, "create", unix.EBUSY) // it exists
}

// RemoveAccounts removes the accounting objects. An object stays if a rule still counts in it: a rule
// of another variant or family, or of another program.
func RemoveAccounts() error {
	return eachAccount(accountDelete, 0, "remove", unix.ENOENT, unix.EBUSY, unix.EINVAL, unix.EOPNOTSUPP)
}

// eachAccount makes a request for each object. The errors in fine count as success.
func eachAccount(kind, flags uint16, verb string, fine ...error) error {
	socket, err := openAccounting()
	if err != nil {
		return err
	}
	defer socket.Close() // nothing is lost
	var failed []error
	for _, name := range accounts {
		err := socket.Ask(context.Background(), accountRequest(kind, flags, name), nothing)
		if err != nil && !slices.ContainsFunc(fine, func(success error) bool { return errors.Is(err, success) }) {
			failed = append(failed, fmt.Errorf("%s the nfacct object %s: %w", verb, name, err))
		}
	}
	return errors.Join(failed...)
}

func nothing(netlink.Message) error { return nil }

// ReadAccounts returns the packets that each object has counted, without missing objects. It returns
// an error if the kernel does not support accounting, or does not answer.
func ReadAccounts() (map[string]uint64, error) {
	socket, err := openAccounting()
	if err != nil {
		return nil, err
	}
	defer socket.Close() // nothing is lost
	packets := make(map[string]uint64, len(accounts))
	for _, name := range accounts {
		err := socket.Ask(context.Background(), accountRequest(accountGet, 0, name), func(m netlink.Message) error {
			if answer, ok := m.Netfilter(unix.NFNL_SUBSYS_ACCT); ok {
				packets[name] = netlink.Find(answer.Attrs, accountPackets).Uint64()
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("read the nfacct object %s: %w", name, err)
		}
	}
	return packets, nil
}

func openAccounting() (*netlink.Socket, error) {
	return netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
}

func accountRequest(kind, flags uint16, name string) []byte {
	b, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_ACCT, kind, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags, unix.AF_UNSPEC)
	b = netlink.AppendText(b, accountName, name)
	return netlink.Finish(b, mark)
}

// Accounting returns nil if rules can count in accounting objects here: the kernel has them
// (module nfnetlink_acct), and the kernel and the programs know the match (xt_nfacct). Otherwise
// it returns a *NoAccountingError that names what is missing. Any other error means that it could
// not find out. It changes nothing.
func (e *Exec) Accounting(ctx context.Context) error {
	if _, err := ReadAccounts(); err != nil {
		return &NoAccountingError{What: "the kernel does not support accounting objects (module nfnetlink_acct)", Err: err}
	}
	input := "*filter\n:KUBE-PROXY-CANARY - [0:0]\n-A KUBE-PROXY-CANARY " + render.AccountMatch(render.AccountInvalid) + "\nCOMMIT\n"
	_, err := e.run(ctx, []byte(input), e.programs.restore, "--test", "--noflush", "-w", strconv.Itoa(e.waitSeconds))
	toolErr, ok := errors.AsType[*ToolError](err)
	if ok && (toolErr.Outcome == dataplane.Rejected || toolErr.Outcome == dataplane.Unsupported) {
		return &NoAccountingError{What: "the kernel (module xt_nfacct) or iptables (libxt_nfacct.so) does not provide the match", Err: err}
	}
	return err
}

// NoAccountingError describes why rules cannot count in accounting objects.
type NoAccountingError struct {
	What string
	Err  error
}

// Error returns the reason.
func (e *NoAccountingError) Error() string { return fmt.Sprintf("%s: %v", e.What, e.Err) }

// Unwrap returns the reason.
func (e *NoAccountingError) Unwrap() error { return e.Err }
