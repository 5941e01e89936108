// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs that change what the API says.
var (
	_ = define("service", verb{usage: "service type=NodePort etp=Local, or service t ports=p80:80", parse: parseService})
	_ = define("endpoints", verb{usage: "endpoints a b T(c)", parse: func(words []string) (statement, error) {
		return change(func(s *Stage) error { return s.SetSlice("main", words) }), nil
	}})
	_ = define("slice", verb{usage: "slice two ports=p80:9090 b", parse: named(func(s *Stage, name string, words []string) error {
		return s.SetSlice(name, words)
	})})
	_ = define("delete", verb{usage: "delete service s, delete slice main [of=t], delete node", parse: parseDelete})
	_ = define("node", verb{usage: "node zone=zb", parse: func(words []string) (statement, error) {
		return change(func(s *Stage) error { return s.ChangeNode(words) }), nil
	}})
	_ = define("servicecidrs", verb{usage: "servicecidrs service-cidr 10.96.0.0/16", parse: func(words []string) (statement, error) {
		return change(func(s *Stage) error { s.SetServiceCIDRs(words...); return nil }), nil
	}})
)

// change is a statement that changes what the API says.
func change(f func(s *Stage) error) statement {
	return act(func(_ context.Context, s *Stage) error {
		s.changed = true
		return f(s)
	})
}

// named is a change whose first word is a name.
func named(f func(s *Stage, name string, words []string) error) func([]string) (statement, error) {
	return func(words []string) (statement, error) {
		if len(words) == 0 {
			return nil, errors.New("want a name")
		}
		return change(func(s *Stage) error { return f(s, words[0], words[1:]) }), nil
	}
}

func parseService(words []string) (statement, error) {
	name := cluster.Main
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		name, words = words[0], words[1:]
	}
	return change(func(s *Stage) error { return s.ChangeService(name, words) }), nil
}

func parseDelete(words []string) (statement, error) {
	switch {
	case len(words) == 1 && words[0] == "node":
		return change(func(s *Stage) error { s.DeleteNode(); return nil }), nil
	case len(words) == 2 && words[0] == "service":
		return change(func(s *Stage) error { s.DeleteService(words[1]); return nil }), nil
	case len(words) >= 2 && words[0] == "slice":
		of := cluster.Main
		if len(words) == 3 {
			of = strings.TrimPrefix(words[2], "of=")
		}
		return change(func(s *Stage) error { s.DeleteSlice(of, words[1]); return nil }), nil
	default:
		return nil, errors.New("want node, service NAME, or slice NAME [of=SERVICE]")
	}
}

// Events that the proxy has sent to the API server.
var _ = define("event", verb{
	usage: `event Starting about Node n1 [saying REGEXP], or event no Starting about Node n1`, kernel: true, parse: parseEvent,
})

// eventWanted is an event that must have come, or must not. Kind, object and reason are whole
// words.
type eventWanted struct {
	absent               bool
	reason, kind, object string
	note                 *regexp.Regexp
}

func parseEvent(words []string) (statement, error) {
	want := eventWanted{note: regexp.MustCompile("")}
	if len(words) > 0 && words[0] == "no" {
		want.absent, words = true, words[1:]
	}
	if len(words) > 5 && words[4] == "saying" {
		var err error
		if want.note, err = regexp.Compile(strings.Join(words[5:], " ")); err != nil {
			return nil, err
		}
		words = words[:4]
	}
	if len(words) != 4 || words[1] != "about" {
		return nil, errors.New("want [no] REASON about KIND NAME [saying REGEXP]")
	}
	want.reason, want.kind, want.object = words[0], words[2], words[3]
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		if want.absent {
			return want.judge(w)
		}
		return hold(ctx, func() error { return want.judge(w) })
	}), nil
}

func (e eventWanted) judge(w *network.World) error {
	var seen []string
	for _, event := range w.API.Events() {
		about := event.Regarding
		text := fmt.Sprintf("%s about %s %s: %s", event.Reason, about.Kind, about.Name, event.Note)
		if event.Reason == e.reason && about.Kind == e.kind && about.Name == e.object && e.note.MatchString(event.Note) {
			if e.absent {
				return fmt.Errorf("there is an event %s", text)
			}
			return nil
		}
		seen = append(seen, text)
	}
	if e.absent {
		return nil
	}
	return fmt.Errorf("no such event, only %q", seen)
}
