package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/sluice-proxy/sluice/internal/client"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/plural"
)

// answer is what a node answered, or why it did not.
type answer[T any] struct {
	node, pod string
	got       *T
	err       error
}

// ask asks all proxies, --parallel at a time, each for at most --node-timeout. The answers are in the order of the proxies.
func ask[T any](ctx context.Context, f *flags, all []proxy, question func(context.Context, *inspect.Client) (*T, error)) []answer[T] {
	answers, told := make([]answer[T], len(all)), f.progress(len(all))
	for i := range all {
		answers[i] = answer[T]{node: all[i].node, pod: all[i].pod, err: client.ErrNoAnswer}
	}
	client.Each(ctx, f.parallel, len(all), func(ctx context.Context, i int) (again bool, pause time.Duration) {
		answers[i] = askOne(ctx, f.nodeTimeout, &all[i], question)
		told.one()
		return false, 0
	})
	told.end()
	return answers
}

func askOne[T any](ctx context.Context, most time.Duration, p *proxy, question func(context.Context, *inspect.Client) (*T, error)) answer[T] {
	made := answer[T]{node: p.node, pod: p.pod, err: p.err}
	if p.err != nil {
		return made
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	made.got, made.err = question(limited, p.client)
	if made.err != nil && errors.Is(limited.Err(), context.DeadlineExceeded) && ctx.Err() == nil {
		made.err = fmt.Errorf("no answer within %v", most)
	}
	return made
}

// progress shows on a terminal how many nodes have answered.
type progress struct {
	to    io.Writer // nil without a terminal
	all   int
	tally *tally // nil without a page

	mu    sync.Mutex
	done  int
	shown time.Time
}

// tally counts answers, for a page.
type tally struct{ done, all atomic.Int64 }

// progressPause is the pause between two lines, and before the first one.
const progressPause = 200 * time.Millisecond

func (f *flags) progress(all int) *progress {
	p := &progress{all: all, shown: time.Now(), tally: f.tally}
	if p.tally != nil {
		p.tally.done.Store(0)
		p.tally.all.Store(int64(all))
	}
	if file, ok := f.errors.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.to = file
	}
	return p
}

// one counts an answer. A terminal that does not take a short line holds up the command only.
func (p *progress) one() {
	if p.tally != nil {
		p.tally.done.Add(1)
	}
	if p.to == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done++; time.Since(p.shown) >= progressPause {
		p.shown = time.Now()
		fmt.Fprintf(p.to, "\r%d of %s answered", p.done, plural.Of(p.all, "node"))
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

// split returns the answers, and the nodes that did not answer.
func split[T any](all []answer[T]) (answered []answer[T], missing []silent) {
	missing = []silent{}
	for _, a := range all {
		if a.err != nil {
			missing = append(missing, silent{a.node, a.err.Error()})
		} else {
			answered = append(answered, a)
		}
	}
	return answered, missing
}

// silentShown is how many nodes without an answer a table names.
const silentShown = 20

// printSilent prints which nodes did not answer.
func printSilent(to io.Writer, missing []silent, all int, note string) error {
	if note != "" {
		_ = inspect.Table(to, nil, [][]string{{note}}) // the next part returns the error
	}
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(to, "\n%d of %s did not answer:\n", len(missing), plural.Of(all, "node"))
	var rows [][]string
	for _, m := range missing[:min(len(missing), silentShown)] {
		rows = append(rows, []string{"  " + m.Node, m.Reason})
	}
	err := inspect.Table(to, nil, rows)
	if more := len(missing) - silentShown; more > 0 {
		fmt.Fprintf(to, "  and %d more (see -o json)\n", more)
	}
	return err
}

// incomplete returns the error of a command that some nodes did not answer.
func incomplete(missing []silent, all int) error {
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %s did not answer", len(missing), plural.Of(all, "node"))
}
