// Package doctest runs the commands of a documentation page, so that the page stays true. A
// test calls Run. These fences hold commands:
//
//	```sh        each line is a command
//	```console   lines that begin with "$ " are commands, and the others are what they print
//
// A command goes on in the next line after a backslash. Each runs in a shell of its own, in
// the directory of the bench, and must succeed. The printed lines of a page must be among
// those that the command prints, in the same order; "…" stands for any text. Words after the
// language change this:
//
//	exit=2       the status of each command of the fence
//	background   the command keeps running; its lines are awaited, and numbers in them may differ
//	await        the command is repeated until it prints the lines
//	paste        the command begins like one that a background command has printed, apart from
//	             numbers; what was printed is taken instead
//	skip         nothing is run; for what cannot run in a test, with the reason in the text
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
	Status                   int
	Background, Await, Paste bool
}

// Parse returns the commands of a page.
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
		case f != nil:
			f.add(i+1, line)
		}
	}
	if f != nil {
		return nil, fmt.Errorf("%s: the last fence has no end", page)
	}
	return commands, nil
}

// fence is the inside of a fence.
type fence struct {
	language string
	like     Command
	commands []Command
	// open is set while the last line goes on.
	open bool
}

func newFence(info string) (*fence, error) {
	words := strings.Fields(info)
	f := &fence{}
	if len(words) == 0 || !slices.Contains([]string{"sh", "console"}, words[0]) {
		return f, nil
	}
	f.language = words[0]
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
		case word == "skip":
			f.language = ""
		default:
			err = fmt.Errorf("%q after ```%s: want exit=N, background, await, paste or skip", word, words[0])
		}
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fence) add(number int, line string) {
	text, prompt := strings.CutPrefix(line, "$ ")
	switch {
	case f.language == "" || f.language == "sh" && strings.TrimSpace(line) == "":
		return
	case f.open:
		f.commands[len(f.commands)-1].Text += "\n" + line
	case f.language == "sh" || prompt:
		c := f.like
		c.Line, c.Text = number, text
		f.commands = append(f.commands, c)
	case len(f.commands) > 0 && strings.TrimSpace(line) != "":
		last := &f.commands[len(f.commands)-1]
		last.Want = append(last.Want, line)
		return
	default:
		return
	}
	f.open = strings.HasSuffix(line, "\\")
}
