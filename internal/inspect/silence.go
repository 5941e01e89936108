// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
)

// RequestTimeout is the default of Client.Patience.
const RequestTimeout = 5 * time.Second

// Silent is the error about a proxy that accepts a connection and does not answer: it is stopped, hung, or busy.
type Silent struct {
	// Socket is where it listens.
	Socket string
	// PID is the listening process; 0 if it is not known or not visible here.
	PID int
	// State is the state of the process, as in /proc/PID/status; empty if it is not known.
	State string
	// Waited says how long the client waited, as a phrase.
	Waited string
}

// Error describes the process, what remains, and what to do.
func (s *Silent) Error() string {
	who := "at " + s.Socket
	if s.PID != 0 {
		who = strings.TrimSuffix(fmt.Sprintf("(PID %d, state %s", s.PID, s.State), ", state ") + ")"
	}
	do := "sluice dump saves what needs no proxy; --request-timeout waits longer"
	if s.stopped() {
		do = fmt.Sprintf("to continue the process: kill -CONT %d", s.PID)
	}
	return fmt.Sprintf("the proxy %s accepts connections but did not answer %s; the rules remain applied; %s", who, s.Waited, do)
}

func (s *Silent) stopped() bool { return strings.HasPrefix(s.State, "T") }

// errSilence is the cause with which a query is canceled that gets no answer in time.
var errSilence = errors.New("no answer in time")

// silent returns the error about a proxy that does not answer, or nil if a query failed for another reason. Ctx is the
// context of the query, and patience how long it waited.
func (c *Client) silent(ctx context.Context, err error, patience time.Duration) error {
	waited := "within " + patience.String()
	switch cause := context.Cause(ctx); {
	case c.socket == "" || c.base.Host != localHost:
		return nil
	case tooManyWait(err):
		waited = "the connections that wait already"
	case cause == nil:
		return nil
	case errors.Is(cause, errSilence):
	case errors.Is(cause, context.DeadlineExceeded):
		waited = "in time"
	default:
		waited = "before the command was interrupted"
	}
	pid := int(c.peer.Load())
	return &Silent{Socket: c.socket, PID: pid, State: processState(pid), Waited: waited}
}

// processState returns the state of a process, such as "T (stopped)", or nothing.
func processState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	_, state, _ := strings.Cut(string(text), "\nState:")
	state, _, _ = strings.Cut(state, "\n")
	return strings.TrimSpace(state)
}

// pauses returns how long the client waits for the beginning of an answer, and for each further part. 0 means no bound.
func (c *Client) pauses(path string, query url.Values) (first, further time.Duration) {
	if c.Patience <= 0 {
		return 0, 0
	}
	switch {
	case path == PathFlows: // nothing may happen for hours
		return c.Patience, 0
	case path == PathDump: // it begins immediately, and its parts are the output of tools
		return c.Patience, max(c.Patience, dumpTime)
	case query.Has("wait"): // a GoneQuery
		wait, _ := time.ParseDuration(query.Get("wait")) // the client's own text
		return c.Patience + wait, c.Patience
	default:
		return c.Patience, c.Patience
	}
}

// patientBody is the body of an answer whose pauses are bounded.
type patientBody struct {
	io.ReadCloser
	client  *Client
	ctx     context.Context
	end     context.CancelCauseFunc
	timer   *time.Timer
	further time.Duration
}

// Read reads the next part. The time between two calls does not count: the reader may be slow.
func (b *patientBody) Read(p []byte) (int, error) {
	if b.further > 0 {
		b.timer.Reset(b.further)
		defer b.timer.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if silent := b.client.silent(b.ctx, err, b.further); silent != nil {
			err = silent
		}
	}
	return n, err
}

// Close ends the query.
func (b *patientBody) Close() error {
	err := b.ReadCloser.Close()
	b.timer.Stop()
	b.end(nil)
	return err
}
