// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// The verbs about nf_tables and what it needs.
var (
	_ = define("nft", verb{
		usage:  `nft "ip map frontends" has REGEXP, or lacks REGEXP; the first is a regular expression, too: family, kind and name of tables, sets, maps and chains`,
		kernel: true, parse: parseNFT,
	})
	_ = define("without", verb{
		usage:  "without nfnetlink (proxies that start from now on find a kernel without it, and so without nf_tables)",
		kernel: true, parse: parseWithout,
	})
)

// parseNFT looks at the content of objects of nf_tables. In the expression for the content, ^ and $
// match at every line.
func parseNFT(words []string) (statement, error) {
	if len(words) != 3 || (words[1] != "has" && words[1] != "lacks") {
		return nil, errors.New("want an object, has or lacks, and a regular expression")
	}
	object, err := regexp.Compile("^(?:" + words[0] + ")$")
	if err != nil {
		return nil, err
	}
	inside, err := regexp.Compile("(?m)" + words[2])
	if err != nil {
		return nil, err
	}
	want := words[1] == "has"
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		return hold(ctx, func() error {
			listing, err := w.Run(ctx, "nft", "list", "ruleset")
			if err != nil {
				return err
			}
			return judgeBlocks(blocksOf(listing), object, inside, want)
		})
	}), nil
}

// judgeBlocks fails unless the content of at least one block matches, or of none.
func judgeBlocks(all []block, object, inside *regexp.Regexp, want bool) error {
	var seen []string
	fits := false
	for _, b := range all {
		if object.MatchString(b.name) {
			seen = append(seen, b.name+" {\n"+b.inside+"\n}")
			fits = fits || inside.MatchString(b.inside)
		}
	}
	switch {
	case len(seen) == 0:
		return fmt.Errorf("there is no object %v", object)
	case fits != want:
		return fmt.Errorf("want it to fit %v: %v, but these are\n%s", inside, want, strings.Join(seen, "\n"))
	default:
		return nil
	}
}

// block is one object of a listing by nft: "ip map frontends", or "table ip kube-proxy" for a table
// itself. Its content is not indented.
type block struct{ name, inside string }

// blocksOf cuts a listing, in which tables are not indented, objects by one tab, and their content
// by more.
func blocksOf(listing string) []block {
	var all []block
	table, family := 0, ""
	add := func(name string) { all = append(all, block{name: name}) }
	inside := func(at int, text string) {
		if all[at].inside != "" {
			all[at].inside += "\n"
		}
		all[at].inside += text
	}
	for line := range strings.Lines(listing) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimLeft(line, "\t")
		depth := len(line) - len(text)
		text, _, _ = strings.Cut(text, " # progname ") // behind the name of a table that a process owns
		opened, opens := strings.CutSuffix(text, " {")
		switch {
		case text == "" || text == "}":
		case depth == 0 && opens:
			table, family = len(all), strings.Fields(opened)[1]
			add(opened)
		case depth == 1 && opens:
			add(family + " " + opened)
		case depth == 1:
			inside(table, text)
		case depth > 1:
			inside(len(all)-1, text)
		}
	}
	return all
}

func parseWithout(words []string) (statement, error) {
	if len(words) != 1 || words[0] != "nfnetlink" {
		return nil, errors.New("want nfnetlink")
	}
	return inWorld(func(w *network.World) error { w.LackNfnetlink(); return nil }), nil
}

// Writes of mode nftables that the kernel refuses. The rules are lost meanwhile.
var _ = define("tables", verb{usage: "tables seized (another process owns the proxy's tables in nf_tables), then tables released", kernel: true, parse: parseTables})

// seizure is the owner of the tables.
type seizure struct{ io.Closer }

func parseTables(words []string) (statement, error) {
	switch strings.Join(words, " ") {
	case "seized":
		return settled(func(ctx context.Context, s *Stage, w *network.World) error {
			owner, err := w.Seize(ctx)
			if err != nil {
				return err
			}
			keep(s, "", &seizure{owner})
			s.atEnd(func() error { return release(s) })
			return nil
		}), nil
	case "released":
		return act(func(_ context.Context, s *Stage) error { return release(s) }), nil
	default:
		return nil, errors.New("want seized or released")
	}
}

// release lets go of the tables, once.
func release(s *Stage) error {
	held, err := kept[*seizure](s, "")
	if err != nil || held.Closer == nil {
		return err
	}
	owner := held.Closer
	held.Closer = nil
	return owner.Close()
}

// The iptables-restore programs that the proxy runs, and their input.
var (
	_ = define("programs", verb{usage: "programs watched (before the proxy starts), then programs fail, programs work, or programs lack --OPTION", kernel: true, parse: parsePrograms})
	_ = define("restored", verb{usage: "restored forget (the recorded input), then restored has REGEXP (in a line), or lacks", kernel: true, parse: parseRestored})
)

func parsePrograms(words []string) (statement, error) {
	if len(words) == 2 && words[0] == "lack" {
		return inWorld(func(w *network.World) error { return w.LackOption(words[1]) }), nil
	}
	switch strings.Join(words, " ") {
	case "watched":
		return inWorld((*network.World).WatchPrograms), nil
	case "fail":
		return settled(func(_ context.Context, _ *Stage, w *network.World) error { return w.FailPrograms(true) }), nil
	case "work":
		return inWorld(func(w *network.World) error { return w.FailPrograms(false) }), nil
	default:
		return nil, errors.New("want watched, fail, work, or lack and an option")
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
	wanted, err := parseSearch(words)
	return settled(func(_ context.Context, _ *Stage, w *network.World) error {
		text, err := os.ReadFile(w.Restored())
		if err != nil {
			return err
		}
		return wanted.judge("the programs' input", string(text))
	}), err
}
