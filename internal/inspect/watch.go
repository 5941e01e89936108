package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// WatchEvery is the pause between two questions of Watch.
const WatchEvery = time.Second

// volatile are fields that change although nothing happens, and that tables show.
var volatile = []string{"now", "at", "micros", "heard", "lastAudit", "lastWrite", "batches", "activity", "conntrack"}

// Watch prints an answer, and again what changes, until the context ends. Rows says that the answer is a list whose
// table has a row for each item; then the items are watched one by one. JSON and YAML have a document for each change,
// like those of kubectl --output-watch-events. A table is printed again only if something that it shows changes, other than
// durations. A question that fails ends the watch.
func (o *Output) Watch(ctx context.Context, to io.Writer, rows bool, ask func(context.Context) (Answer, error)) error {
	var before map[string]version
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
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(WatchEvery):
		}
	}
}

// version is what Watch compares of an object: its document without volatile fields and, if it prints tables, what a table
// shows, without durations.
type version struct{ steady, shown string }

// durations are ages and times that something took, with the spaces whose number depends on them.
var durations = regexp.MustCompile(`(\d[\d.]* ?(ns|µs|ms|s|m|h|d))+\b| +`)

// shown returns what a table shows of each of its rows, or of all in the first text.
func (o *Output) shown(rows bool, answer Answer) (texts []string) {
	p := newPage(&Output{Format: o.Format})
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

// printChanges prints what differs from the previous answer, which is nil at first. It returns the texts of the objects
// that it compares, by name.
func (o *Output) printChanges(to io.Writer, rows bool, before map[string]version, answer Answer) (map[string]version, error) {
	object, err := document(answer)
	if err != nil {
		return nil, err
	}
	objects := []map[string]any{object}
	if rows {
		objects = itemsOf(object)
	}
	var texts []string
	if o.Table() {
		texts = o.shown(rows, answer)
	}
	now, only := make(map[string]version, len(objects)), map[int]bool{}
	text := newPage(&Output{Format: o.Format})
	for i, one := range objects {
		steady := string(marshal(withoutVolatile(one)))
		name := cmp.Or(nameOf(one), "\x00"+steady) // an event has no name, and does not change
		if !rows {
			name = ""
		}
		previous, known := before[name]
		made := version{steady: steady}
		if i < len(texts) {
			made.shown = texts[i]
		}
		now[name] = made
		if known && (previous.steady == steady || len(texts) == len(objects) && previous.shown == made.shown) {
			continue
		}
		only[i] = true
		if !o.Table() {
			what := "MODIFIED"
			if !known {
				what = "ADDED"
			}
			err = errors.Join(err, o.encodeChange(text, what, one, before == nil && len(only) == 1))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, known := now[name]; known || strings.HasPrefix(name, "\x00") {
			continue
		}
		if o.Table() {
			text.Say("%s deleted\n", terminal.Text(name))
			continue
		}
		var gone map[string]any
		err = errors.Join(err, json.Unmarshal([]byte(before[name].steady), &gone), o.encodeChange(text, "DELETED", gone, false))
	}
	if o.Table() && (len(only) > 0 || before == nil) {
		err = errors.Join(err, o.printRows(to, rows, len(before) == 0, only, answer))
	}
	_, failed := to.Write(text.Bytes())
	return now, errors.Join(err, failed)
}

// printRows prints a table at first, and then its rows that changed, or all of it again.
func (o *Output) printRows(to io.Writer, rows, first bool, only map[int]bool, answer Answer) error {
	if first {
		return o.Print(to, answer)
	}
	p := newPage(&Output{Format: o.Format, NoHeaders: o.NoHeaders || rows, Color: o.Color, SortBy: o.SortBy})
	if rows {
		p.only = only
	} else {
		p.WriteByte('\n')
	}
	terminal.Clean(answer)
	answer.Print(&p.Page)
	_, err := to.Write(p.Bytes())
	return err
}

// encodeChange writes a changed object. The first one has the headers of custom columns.
func (o *Output) encodeChange(to *page, what string, object map[string]any, first bool) error {
	to.out.NoHeaders = o.NoHeaders || !first
	switch o.Format {
	case "yaml":
		to.WriteString("---\n")
		fallthrough
	case "json":
		object = map[string]any{"type": what, "object": object}
	}
	return o.encode(&to.Page, object)
}

// withoutVolatile returns a copy of a value of JSON without volatile fields.
func withoutVolatile(value any) any {
	switch v := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(v))
		for name, field := range v {
			if !slices.Contains(volatile, name) {
				made[name] = withoutVolatile(field)
			}
		}
		return made
	case []any:
		made := make([]any, len(v))
		for i := range v {
			made[i] = withoutVolatile(v[i])
		}
		return made
	default:
		return value
	}
}
