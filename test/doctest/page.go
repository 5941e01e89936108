// SPDX-License-Identifier: Apache-2.0

// Package doctest runs the commands of a documentation page, so that the page stays true. A
// test calls Run. These fences hold commands:
//
//	```sh        each line is a command
//	```console   lines that begin with "$ " are commands, and the others are what they print
//
// A command goes on in the next line after a backslash. Each runs in a separate shell, in
// the directory of the bench, and must succeed. The printed lines of a page must be among
// those that the command prints, in the same order; "…" stands for any text. Words after the
// language change this:
//
//	exit=2       the status of each command of the fence
//	background   the command keeps running; its lines are awaited, and numbers in them may differ
//	await        the command is repeated until it prints the lines
//	figures      numbers, durations and times in the lines may differ
//	paste        the command begins like one that a background command has printed, apart from
//	             numbers; what was printed is taken instead
//	skip         nothing is run; for what cannot run in a test, with the reason in the text
//
// Every fence has a language, and only these two have commands.
package doctest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Command is one command of a page.
type Command struct {
	// Line is where it is on the page.
	Line int
	Text string
	// Want are the lines that it prints, among others.
	Want []string
	// Status is the exit status.
	Status                                  int
	Background, Await, Paste, Figures, Skip bool
}

// data are the languages of fences without commands.
var data = []string{"iptables", "json", "nft", "promql", "text", "yaml"}

// Parse returns the commands of a page, those to be skipped included.
func Parse(page string) ([]Command, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	var commands []Command
	var f *fence
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		info, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && f == nil:
			if f, err = newFence(info); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", page, i+1, err)
			}
		case isFence:
			commands = append(commands, f.commands...)
			f = nil
		case f != nil && !f.add(i+1, line):
			return nil, fmt.Errorf("%s:%d: %q in a fence for %s: commands need ```console", page, i+1, line, f.language)
		}
	}
	if f != nil {
		return nil, fmt.Errorf("%s: the last fence does not end", page)
	}
	return commands, nil
}

// fence is the inside of a fence.
type fence struct {
	language string
	// runs is set in a fence of commands.
	runs     bool
	like     Command
	commands []Command
	// open is set while the last line goes on.
	open bool
}

func newFence(info string) (*fence, error) {
	words := strings.Fields(info)
	if len(words) == 0 {
		return nil, fmt.Errorf("a fence without a language: must be sh or console for commands, %s", strings.Join(data, ", "))
	}
	f := &fence{language: words[0], runs: words[0] == "sh" || words[0] == "console"}
	if !f.runs && (len(words) > 1 || !slices.Contains(data, words[0])) {
		return nil, fmt.Errorf("```%s: must be sh or console for commands, %s", info, strings.Join(data, ", "))
	}
	for _, word := range words[1:] {
		status, isStatus := strings.CutPrefix(word, "exit=")
		var err error
		switch {
		case isStatus:
			f.like.Status, err = strconv.Atoi(status)
		case word == "background":
			f.like.Background = true
		case word == "await":
			f.like.Await = true
		case word == "paste":
			f.like.Paste = true
		case word == "figures":
			f.like.Figures = true
		case word == "skip":
			f.like.Skip = true
		default:
			err = fmt.Errorf("%q after ```%s: must be exit=N, background, await, paste, figures or skip", word, words[0])
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add takes a line. It reports false for a command where none may be.
func (f *fence) add(number int, line string) bool {
	text, prompt := strings.CutPrefix(line, "$ ")
	switch {
	case !f.runs:
		return !prompt
	case f.language == "sh" && (strings.TrimSpace(line) == "" || !f.open && strings.HasPrefix(line, "#")):
		return true
	case f.open:
		f.commands[len(f.commands)-1].Text += "\n" + line
	case f.language == "sh" || prompt:
		c := f.like
		c.Line, c.Text = number, text
		f.commands = append(f.commands, c)
	case len(f.commands) > 0 && strings.TrimSpace(line) != "":
		last := &f.commands[len(f.commands)-1]
		last.Want = append(last.Want, line)
		return true
	default:
		return true
	}
	f.open = strings.HasSuffix(line, "\\")
	return true
}
