// SPDX-License-Identifier: Apache-2.0

// Package script reads the text form of scenarios. A scenario begins with its number and title at
// the start of a line; its statements follow, indented, one per line, and a # begins a comment:
//
//	S-CIP-01 a pod reaches every endpoint under its own address
//	    endpoints a b
//	    p1 -> cluster => a b as client
//
// A scenario whose first statement is "for NAME NAME" is one for each name, which its number then
// ends with, and which replaces $it everywhere.
//
// Package play defines what the statements mean.
package script

import (
	"fmt"
	"regexp"
	"strings"
)

// Scenario is one scenario as written.
type Scenario struct {
	// ID is its number in the list of scenarios: S-CIP-01.
	ID    string
	Title string
	Lines []Line
	// File and Number say where it begins.
	File   string
	Number int
}

// Line is one statement. It may span several lines of text, joined by a backslash at the end.
type Line struct {
	// Words are separated by spaces; double quotes keep them together.
	Words []string
	// Text is the statement as written.
	Text   string
	Number int
}

// String returns the place of a scenario for messages.
func (s Scenario) String() string { return fmt.Sprintf("%s (%s:%d)", s.ID, s.File, s.Number) }

var heading = regexp.MustCompile(`^(S-[A-Z0-9]+-[0-9]+[a-z]?)\s+(\S.*)$`)

// Parse reads the scenarios of one file. An error names file and line.
func Parse(file, text string) ([]Scenario, error) {
	var all []Scenario
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		number := i + 1
		line := strings.TrimRight(lines[i], " \t")
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + strings.TrimSpace(lines[i])
		}
		content := strings.TrimSpace(line)
		if content == "" || content[0] == '#' {
			continue
		}
		if line[0] != ' ' && line[0] != '\t' {
			parts := heading.FindStringSubmatch(line)
			if parts == nil {
				return nil, fmt.Errorf("%s:%d: %q: want a heading, for example S-CIP-01 and a title, or an indented statement", file, number, line)
			}
			all = append(all, Scenario{ID: parts[1], Title: parts[2], File: file, Number: number})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s:%d: a statement before the first heading", file, number)
		}
		words, err := split(content)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		last := &all[len(all)-1]
		last.Lines = append(last.Lines, Line{Words: words, Text: content, Number: number})
	}
	var each []Scenario
	for _, s := range all {
		each = append(each, s.forEach()...)
	}
	return each, nil
}

// forEach returns the scenarios that one with "for" stands for.
func (s Scenario) forEach() []Scenario {
	if len(s.Lines) == 0 || s.Lines[0].Words[0] != "for" {
		return []Scenario{s}
	}
	var all []Scenario
	for _, name := range s.Lines[0].Words[1:] {
		one := Scenario{ID: s.ID + "-" + name, File: s.File, Number: s.Number}
		with := strings.NewReplacer("$it", name)
		one.Title = with.Replace(s.Title)
		for _, line := range s.Lines[1:] {
			var words []string
			for _, word := range line.Words {
				words = append(words, with.Replace(word))
			}
			one.Lines = append(one.Lines, Line{Words: words, Text: with.Replace(line.Text), Number: line.Number})
		}
		all = append(all, one)
	}
	return all
}

// split cuts a statement into words. Quotes may appear anywhere in a word. Inside them, # begins no
// comment.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inside, quoted := false, false
	for _, r := range text {
		switch {
		case r == '"':
			quoted, inside = !quoted, true
		case r == '#' && !quoted && !inside:
			return words, nil
		case (r == ' ' || r == '\t') && !quoted:
			if inside {
				words = append(words, word.String())
				word.Reset()
			}
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("%s: a quote is not closed", text)
	}
	if inside {
		words = append(words, word.String())
	}
	return words, nil
}
