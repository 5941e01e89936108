// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
)

func someServices() *ServiceList {
	return &ServiceList{Namespace: "n", Now: printedAt, Items: []Service{
		{Namespace: "n", Name: "a", Record: state.Record{State: state.Applied, Endpoints: 1, Changes: 3, LastMicros: number(9_000)}},
		{Namespace: "n", Name: "b", Record: state.Record{State: state.Rejected, Endpoints: 10, Changes: 1, Restarts: 1, LastMicros: number(5), LongestMicros: number(5)}},
		{Namespace: "n", Name: "c", Created: printedAt.Add(-time.Hour), Record: state.Record{State: state.Applied, Endpoints: 9, Changes: 2, LastMicros: number(20_000), LongestMicros: number(7)}},
	}}
}

func printed(t *testing.T, o *Output) string {
	t.Helper()
	l := someServices()
	var out strings.Builder
	if err := o.Print(&out, l); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestOutput_SortBy: tables and JSON have the same order, also by columns that only a wide table has.
func TestOutput_SortBy(t *testing.T) {
	for _, c := range []struct {
		by, want string
		reverse  bool
	}{
		{by: "latency", want: "cab"}, {by: "changes", want: "acb"}, {by: "restarts", want: "bac"}, {by: "endpoints", want: "bca"},
		{by: "longest", want: "cba"}, {by: "NAME", want: "abc"}, {by: "name", want: "cba", reverse: true}, {by: "age", want: "cab"},
		{by: "state", want: "acb"},
	} {
		for _, format := range []string{"", "name"} {
			got := printed(t, &Output{Format: format, NoHeaders: true, SortBy: c.by, Reverse: c.reverse})
			names := ""
			for line := range strings.Lines(got) {
				names += strings.TrimPrefix(line, "n/")[:1]
			}
			if names != c.want {
				t.Errorf("--sort-by %s -o %q: %s, want %s", c.by, format, names, c.want)
			}
		}
	}
	l := someServices()
	err := (&Output{SortBy: "size"}).Print(io.Discard, l)
	if !errors.As(err, new(UsageError)) || !strings.Contains(err.Error(), "NAME, CLUSTER-IP, ") {
		t.Errorf("an unknown column: %v", err)
	}
}

func TestOutput_Formats(t *testing.T) {
	for format, want := range map[string]string{
		"name": "n/a\nn/b\nn/c\n", "jsonpath={.items[*].metadata.name}": "a b c", "jsonpath=.kind": "ServiceList", "jsonpath={.items[1].changes}": "1",
	} {
		if got := printed(t, &Output{Format: format}); got != want {
			t.Errorf("%s: %q, want %q", format, got, want)
		}
	}
	var object struct {
		APIVersion, Kind string
		Items            []struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name, CreationTimestamp string }
		}
	}
	if err := json.Unmarshal([]byte(printed(t, &Output{Format: "json"})), &object); err != nil {
		t.Fatal(err)
	}
	last := object.Items[2]
	if object.Kind != "ServiceList" || object.APIVersion != Version || last.Kind != "Service" || last.Metadata.Name != "c" || last.Metadata.CreationTimestamp != "2026-03-01T11:00:00Z" {
		t.Errorf("not an object of Kubernetes: %+v", object)
	}
	if text := printed(t, &Output{NoHeaders: true}); strings.Contains(text, "NAME") || !strings.HasPrefix(text, "a ") {
		t.Errorf("with headers:\n%s", text)
	}
	if text := printed(t, &Output{Color: true}); !strings.Contains(text, "   \x1b[31mheld (rejected)\x1b[0m   1 ") || !strings.Contains(text, "\x1b[32mapplied\x1b[0m           3 ") {
		t.Errorf("states without colors, or columns out of line:\n%q", text)
	}
	for _, wrong := range []string{"xml", "jsonpath={.a", "custom-columns=N:.name", "jsonpath"} {
		if err := (&Output{Format: wrong}).Check(); err == nil {
			t.Errorf("-o %s is accepted", wrong)
		}
	}
}

// TestWatch_PrintsChanges: a watch prints changed, new and deleted rows, and no unchanged row again.
func TestWatch_PrintsChanges(t *testing.T) {
	for _, c := range []struct {
		format string
		want   map[string]int
	}{
		{"", map[string]int{"NAME": 1, "same ": 1, "comes ": 2, "goes ": 2, "n/goes deleted\n": 1}},
		{"json", map[string]int{`"kind": "Service"`: 4, `"state": "pending"`: 1, `"state": "applied"`: 1}},
		{"yaml", map[string]int{"---\n": 4}},
		{"name", map[string]int{"n/same\n": 1, "n/comes\n": 2, "n/goes\n": 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			stop := errors.New("over")
			var out strings.Builder
			err := (&Output{Format: c.format}).Watch(t.Context(), &out, true, func(context.Context) (Answer, error) {
				l := &ServiceList{Namespace: "n", Now: printedAt.Add(time.Duration(asked) * time.Second), Items: []Service{{Namespace: "n", Name: "same"}}}
				switch asked++; asked {
				case 1:
					l.Items = append(l.Items, Service{Namespace: "n", Name: "goes"})
				case 2:
					l.Items = append(l.Items, Service{Namespace: "n", Name: "comes", Record: state.Record{State: state.Pending}})
				case 3:
					l.Items = append(l.Items, Service{Namespace: "n", Name: "comes", Record: state.Record{State: state.Applied}})
				default:
					return nil, stop
				}
				return l, nil
			})
			if !errors.Is(err, stop) {
				t.Error(err)
			}
			for what, want := range c.want {
				if got := strings.Count(out.String(), what); got != want {
					t.Errorf("-o %q: %q is printed %d times, want %d\n%s", c.format, what, got, want, out.String())
				}
			}
		})
	}
}

// TestWatch_OneAnswer: a watch prints a single answer again only if more than the time changed.
func TestWatch_OneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var out strings.Builder
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := (&Output{}).Watch(ctx, &out, false, func(context.Context) (Answer, error) {
			asked++
			s := &Status{Now: printedAt.Add(time.Duration(asked) * time.Second), Services: asked / 3}
			if asked == 4 {
				cancel()
			}
			return s, nil
		})
		if err != nil || strings.Count(out.String(), "Services:") != 2 || !strings.Contains(out.String(), "\n\nVersion:") {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
}

// uptime shows only one of its fields.
type uptime struct {
	Asked int
	up    string
}

func (u *uptime) Print(to *terminal.Page) { to.Say("up %s\n", u.up) }

// TestWatch_ComparesShownFields: a watch ignores changes of ages and of fields without a column.
func TestWatch_ComparesShownFields(t *testing.T) {
	for _, rows := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			stop := errors.New("over")
			var out strings.Builder
			err := (&Output{}).Watch(t.Context(), &out, rows, func(context.Context) (Answer, error) {
				if asked++; asked == 4 {
					return nil, stop
				}
				now := printedAt.Add(time.Duration(asked) * 1234567891)
				if !rows {
					return &uptime{asked, Age(now, printedAt)}, nil
				}
				l := &ServiceList{Namespace: "n", Now: now, Items: []Service{{Namespace: "n", Name: "web", Created: now}}}
				return l, nil
			})
			if lines := strings.Count(out.String(), "\n"); !errors.Is(err, stop) || rows && lines != 2 || !rows && lines != 1 {
				t.Errorf("rows %v: %v\n%s", rows, err, out.String())
			}
		})
	}
}

// TestWatch_Events: a watch of events prints new events only, and nothing about forgotten ones.
func TestWatch_Events(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		stop := errors.New("over")
		var out strings.Builder
		err := (&Output{}).Watch(t.Context(), &out, true, func(context.Context) (Answer, error) {
			l := &EventList{Now: printedAt, Items: []Event{{Reason: "First"}, {Reason: "Second"}, {Reason: "Third"}}}
			if asked++; asked == 3 {
				return nil, stop
			}
			l.Items = l.Items[asked-1 : asked+1]
			return l, nil
		})
		if !errors.Is(err, stop) || strings.Count(out.String(), "\n") != 4 || strings.Count(out.String(), "Third") != 1 {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
}

// TestWatch_EmptyList: a watch of an empty list prints the header with the first row.
func TestWatch_EmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		stop := errors.New("over")
		var out, notes strings.Builder
		err := (&Output{Notes: &notes}).Watch(t.Context(), &out, true, func(context.Context) (Answer, error) {
			l := &ServiceList{Namespace: "n", Items: []Service{}}
			switch asked++; asked {
			case 1, 2:
			case 3:
				l.Items = []Service{{Namespace: "n", Name: "web"}}
			default:
				return nil, stop
			}
			return l, nil
		})
		if !errors.Is(err, stop) || notes.String() != "No Services.\n" || strings.Count(out.String(), "\n") != 2 || !strings.HasPrefix(out.String(), "NAME ") {
			t.Errorf("%v, %q\n%s", err, notes.String(), out.String())
		}
	})
}

// TestEvents_Namespace: a namespace selects its events.
func TestEvents_Namespace(t *testing.T) {
	client := served(t, &stand{})
	all, err := client.Events(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out terminal.Page
	all.Print(&out)
	for _, want := range []string{" Starting             Node/n1\n", "a           ", " Warning   ServiceQuarantined   Service/web   rejected\n", "\nForgotten: 3 older events\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	some, err := client.Events(t.Context(), "a")
	if err != nil || len(some.Items) != 1 || some.Items[0].Object != "web" {
		t.Errorf("of a namespace: %+v, %v", some, err)
	}
}
