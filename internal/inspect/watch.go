// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// watchEvery is the pause between two queries of Watch by default.
const watchEvery = time.Second

// Watch prints an answer, and again what changes, until the context ends. Rows is set if the answer is a list whose
// table has a row for each item; then each item is watched. Unless Every is set, Watch prints only what changed in the
// table, durations aside; for JSON and YAML, in the wide table. A query that fails ends the watch.
func (o *Output) Watch(ctx context.Context, to io.Writer, rows bool, ask func(context.Context) (Answer, error)) error {
	var before map[string]string
	for {
		answer, err := ask(ctx)
		if err != nil {
			if ctx.Err() != nil && before != nil {
				return nil
			}
			return err
		}
		if before, err = o.printChanges(to, rows, before, answer); err != nil {
			return err
		}
		if !sleep.For(ctx, cmp.Or(o.Every, watchEvery)) {
			return nil
		}
	}
}

// durations matches ages and other durations, and spaces, because the number of spaces depends on them.
var durations = regexp.MustCompile(`(\d[\d.]* ?(ns|µs|ms|s|m|h|d))+\b| +`)

// shown returns the text of each row of a table without durations, or, unless rows is set, all of the text as one.
func (o *Output) shown(rows bool, answer Answer) (texts []string) {
	p := newPage(&Output{Format: "wide"})
	if o.Table() {
		p = newPage(&Output{Format: o.Format})
	}
	if rows {
		p.seen = func(_ []string, lines [][]string) {
			for _, line := range lines {
				texts = append(texts, strings.Join(line, "\t"))
			}
		}
	}
	if answer.Print(&p.Page); !rows {
		texts = []string{p.String()}
	}
	for i := range texts {
		texts[i] = durations.ReplaceAllString(texts[i], "")
	}
	return texts
}

// printChanges prints what differs from before, the previous answer, which is nil at first. It returns the text of the
// table about each object, by name.
func (o *Output) printChanges(to io.Writer, rows bool, before map[string]string, answer Answer) (map[string]string, error) {
	object, err := document(answer)
	if err != nil {
		return nil, err
	}
	objects := []map[string]any{object}
	if rows {
		objects = itemsOf(object)
	}
	texts := o.shown(rows, answer)
	now, only := make(map[string]string, len(objects)), map[int]bool{}
	text := newPage(&Output{Format: o.Format})
	for i, one := range objects {
		name := ""
		if rows {
			name = cmp.Or(nameOf(one), "\x00"+string(marshal(one))) // an event has no name, and does not change
		}
		previous, known := before[name]
		if now[name] = textOf(texts, i); o.Every == 0 && known && previous == now[name] {
			continue
		}
		if only[i] = true; !o.Table() {
			err = errors.Join(err, o.encodeChange(text, one))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, known := now[name]; o.Table() && !known && !strings.HasPrefix(name, "\x00") {
			text.Say("%s deleted\n", terminal.Text(name))
		}
	}
	if o.Table() && (len(only) > 0 || before == nil) {
		err = errors.Join(err, o.printRows(to, rows, len(before) == 0, only, answer))
	}
	_, failed := to.Write(text.Bytes())
	return now, errors.Join(err, failed)
}

// printRows prints a table at first, and then its rows that changed, or all of it again.
func (o *Output) printRows(to io.Writer, rows, first bool, only map[int]bool, answer Answer) error {
	if !first && !rows {
		fmt.Fprintln(to)
	}
	if first || !rows {
		return o.Print(to, answer)
	}
	p := newPage(&Output{Format: o.Format, NoHeaders: true, Color: o.Color, SortBy: o.SortBy})
	p.only = only
	terminal.Clean(answer)
	answer.Print(&p.Page)
	_, err := to.Write(p.Bytes())
	return err
}

// encodeChange writes an object that changed.
func (o *Output) encodeChange(to *page, object map[string]any) error {
	if o.Format == "yaml" {
		to.WriteString("---\n")
	}
	return o.encode(&to.Page, object)
}

// textOf returns what the table shows of an object: its row, or all of the answer.
func textOf(texts []string, i int) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[min(i, len(texts)-1)]
}
