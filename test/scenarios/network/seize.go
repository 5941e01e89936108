package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// seized is a process that owns the proxy's tables in nf_tables.
type seized struct {
	owner *exec.Cmd
	input io.Closer
}

// seizure takes kube-proxy's tables away and makes them again as the property of
// whoever says it.
const seizure = `
delete table ip kube-proxy
delete table ip6 kube-proxy
add table ip kube-proxy { flags owner; }
add table ip6 kube-proxy { flags owner; }
`

// Seize starts a process that owns the proxy's tables in nf_tables, so that the
// kernel refuses whatever the proxy writes there, until what it returns is closed.
// The rules are gone, and the kernel removes the tables in the end.
func (w *World) Seize(ctx context.Context) (io.Closer, error) {
	owner := exec.Command("nft", "-i")
	input, err := owner.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := w.Node().Do(owner.Start); err != nil {
		return nil, errors.Join(err, input.Close())
	}
	s := &seized{owner, input}
	// One line is one transaction, and the proxy cannot come between.
	if _, err := io.WriteString(input, strings.ReplaceAll(strings.TrimSpace(seizure), "\n", "; ")+"\n"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	const wait, pause = 5 * time.Second, 20 * time.Millisecond
	for deadline := time.Now().Add(wait); ; time.Sleep(pause) {
		listing, err := w.Run(ctx, "nft", "list", "ruleset")
		if err == nil && strings.Count(listing, "flags owner") == 2 {
			return s, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("nobody owns the tables, but there is\n%s", listing), err, s.Close())
		}
	}
}

// Close ends the owner.
func (s *seized) Close() error {
	err := s.input.Close() // at which nft ends
	return errors.Join(err, s.owner.Wait())
}
