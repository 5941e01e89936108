// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// answer is what a node answered.
type answer[T any] struct {
	*client.Target
	got *T
}

// ask queries all proxies, --parallel at a time, each for at most --node-timeout. The answers, and the nodes without an
// answer, are in the order of the proxies.
func ask[T any](ctx context.Context, f *flags, all []client.Target, question func(*inspect.Client, context.Context) (*T, error)) (answered []answer[T], missing []silent) {
	told, answers, errs := f.progress(len(all)), make([]*T, len(all)), slices.Repeat([]error{client.ErrNoAnswer}, len(all))
	client.Each(ctx, f.parallel, len(all), func(ctx context.Context, i int) (again bool, pause time.Duration) {
		answers[i], errs[i] = askOne(ctx, f.nodeTimeout, &all[i], question)
		told.one()
		return false, 0
	})
	told.end()
	missing = []silent{}
	for i := range all {
		if errs[i] != nil {
			missing = append(missing, silent{all[i].Node, errs[i].Error()})
		} else {
			answered = append(answered, answer[T]{&all[i], answers[i]})
		}
	}
	return answered, missing
}

func askOne[T any](ctx context.Context, most time.Duration, t *client.Target, question func(*inspect.Client, context.Context) (*T, error)) (*T, error) {
	if t.Err != nil {
		return nil, t.Err
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	got, err := question(t.Client, limited)
	if err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v", most)
	}
	return got, err
}

// progress shows on a terminal how many nodes have answered.
type progress struct {
	*tally
	to *os.File // nil without a terminal

	mu    sync.Mutex
	shown time.Time
}

// tally counts answers, for the line on the terminal and for the page.
type tally struct{ done, all atomic.Int64 }

// progressPause is the pause between two lines, and before the first one.
const progressPause = 200 * time.Millisecond

func (f *flags) progress(all int) *progress {
	p := &progress{tally: cmp.Or(f.tally, &tally{}), to: terminal.File(f.Notes), shown: time.Now()}
	p.done.Store(0)
	p.all.Store(int64(all))
	return p
}

// one counts an answer. A terminal that blocks delays only this command.
func (p *progress) one() {
	done := p.done.Add(1)
	if p.to == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.shown) >= progressPause {
		p.shown = time.Now()
		fmt.Fprintf(p.to, "\r%d of %s answered", done, plural.Of(int(p.all.Load()), "node"))
	}
}

// end clears the line.
func (p *progress) end() {
	if p.to != nil {
		fmt.Fprint(p.to, "\r\033[K")
	}
}

// silent is a node that did not answer.
type silent struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// reach says which nodes answered. It is a part of each report.
type reach struct {
	Total int `json:"total"`
	// Silent are the nodes that did not answer.
	Silent []silent `json:"unanswered"`
	Note   string   `json:"note,omitempty"`
}

// askAll asks all nodes.
func askAll[T any](ctx context.Context, c *cluster, question func(*inspect.Client, context.Context) (*T, error)) ([]answer[T], reach, error) {
	all, note, err := c.proxies(ctx)
	if err != nil {
		return nil, reach{}, err
	}
	answered, missing := ask(ctx, c.flags, all, question)
	return answered, reach{len(all), missing, note}, nil
}

// silentShown is how many nodes without an answer a table names.
const silentShown = 20

// printSilent prints which nodes did not answer.
func (r *reach) printSilent(to *terminal.Page) {
	if r.Note != "" {
		terminal.NewTable(to).Row(r.Note).End()
	}
	if len(r.Silent) == 0 {
		return
	}
	to.Say("\n%d of %s did not answer:\n", len(r.Silent), plural.Of(r.Total, "node"))
	t := terminal.NewTable(to)
	for _, m := range r.Silent[:min(len(r.Silent), silentShown)] {
		t.Row("  "+m.Node, m.Reason)
	}
	t.End()
	if more := len(r.Silent) - silentShown; more > 0 {
		to.Say("  and %d more (see -o json)\n", more)
	}
}

// verdict returns an error if some nodes did not answer.
func (r *reach) verdict() error {
	if len(r.Silent) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s did not answer", len(r.Silent), plural.Of(r.Total, "node"))
}
