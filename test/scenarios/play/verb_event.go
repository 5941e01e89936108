package play

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Events that the proxy has told the API server.
var _ = define("event", verb{
	usage: `event Starting about Node n1 [saying REGEXP], or event no Starting about Node n1`, kernel: true, parse: parseEvent,
})

// eventWanted is an event that has come, or must not have. Kind, object and reason
// are whole words.
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
