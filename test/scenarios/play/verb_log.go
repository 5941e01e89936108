package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The log of the proxy that was started last.
var _ = define("log", verb{usage: `log has "msg":"serving" (a regular expression for a line), or log lacks REGEXP`, kernel: true, parse: parseLog})

func parseLog(words []string) (statement, error) {
	if len(words) < 2 || (words[0] != "has" && words[0] != "lacks") {
		return nil, errors.New("want has or lacks, and a regular expression")
	}
	pattern, err := regexp.Compile(strings.Join(words[1:], " "))
	if err != nil {
		return nil, err
	}
	want := words[0] == "has"
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		if !want {
			return searchLog(w, pattern, want)
		}
		return hold(ctx, func() error { return searchLog(w, pattern, want) })
	}), nil
}

func searchLog(w *network.World, pattern *regexp.Regexp, want bool) error {
	if w.Proxy() == nil {
		return errors.New("the proxy was not started")
	}
	text, err := os.ReadFile(w.Proxy().LogFile())
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if !pattern.MatchString(line) {
			continue
		}
		if want {
			return nil
		}
		return fmt.Errorf("a line of the log fits %v: %s", pattern, strings.TrimSpace(line))
	}
	if want {
		return fmt.Errorf("no line of the log fits %v; it ends with\n%s", pattern, w.Proxy().Tail(5))
	}
	return nil
}
