package play

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The programs iptables-restore that the proxy runs, and what it tells them.
var (
	_ = define("programs", verb{usage: "programs watched (before the proxy starts), then programs fail, or programs work", kernel: true, parse: parsePrograms})
	_ = define("restored", verb{usage: "restored forget (what the watched programs were told), then restored has REGEXP (in a line), or lacks", kernel: true, parse: parseRestored})
)

func parsePrograms(words []string) (statement, error) {
	switch strings.Join(words, " ") {
	case "watched":
		return inWorld((*network.World).WatchPrograms), nil
	case "fail":
		return settled(func(_ context.Context, _ *Stage, w *network.World) error { return w.FailPrograms(true) }), nil
	case "work":
		return inWorld(func(w *network.World) error { return w.FailPrograms(false) }), nil
	default:
		return nil, errors.New("want watched, fail or work")
	}
}

func parseRestored(words []string) (statement, error) {
	if len(words) == 1 && words[0] == "forget" {
		return settled(func(_ context.Context, _ *Stage, w *network.World) error {
			if err := os.Remove(w.Restored()); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}), nil
	}
	if len(words) < 2 || (words[0] != "has" && words[0] != "lacks") {
		return nil, errors.New("want forget, has or lacks")
	}
	pattern, err := regexp.Compile(strings.Join(words[1:], " "))
	if err != nil {
		return nil, err
	}
	want := words[0] == "has"
	return settled(func(_ context.Context, _ *Stage, w *network.World) error {
		text, err := os.ReadFile(w.Restored())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if pattern.MatchString(line) {
				if want {
					return nil
				}
				return fmt.Errorf("the programs were told %s", strings.TrimSpace(line))
			}
		}
		if want {
			return fmt.Errorf("no line of what the programs were told fits %v:\n%s", pattern, text)
		}
		return nil
	}), nil
}
