// SPDX-License-Identifier: Apache-2.0

// Package rules represents iptables rules as data. [Parse] reads a rule as iptables-save prints it,
// and [Rule.String] is its reverse. The recovery of dispatch elements, the attribution of foreign
// rules and package explain use this representation.
//
// The renderer does not use it, because it appends millions of rules to one buffer. A test checks that
// each rendered rule equals the String of its parsed form.
package rules

import "strings"

// Rule is one rule, without "-A CHAIN".
type Rule struct {
	// Matches are in the order of the text. A packet has to meet all of them.
	Matches []Match
	Target  Target
}

// Match is a match with its options.
type Match struct {
	// Module is the argument of -m. It is empty for options that need none, such as -s and -p.
	Module  string
	Options []Option
}

// Target is the action of a rule. Its Name is a chain or an extension, empty for a rule that only
// counts.
type Target struct {
	Name    string
	Goto    bool
	Options []Option
}

// Option is an option with its arguments as printed: an argument with spaces is in quotes.
type Option struct {
	Not  bool
	Name string
	Args []string
}

const (
	not         = "!"
	optMatch    = "-m"
	optJump     = "-j"
	optGoto     = "-g"
	optComment  = "--comment"
	optionStart = '-'
)

// Parse reads a rule. It accepts any text, with any options.
func Parse(line string) Rule {
	p := parser{words: split(line)}
	for len(p.words) > 0 {
		p.step()
	}
	return p.rule
}

type parser struct {
	rule  Rule
	words []string
	// inTarget is set after the name of the target, whose options follow.
	inTarget bool
}

// step reads one option, or the name of a match or a target.
func (p *parser) step() {
	word := p.words[0]
	if !p.inTarget && len(p.words) > 1 {
		switch word {
		case optMatch:
			p.rule.Matches = append(p.rule.Matches, Match{Module: p.words[1]})
			p.words = p.words[2:]
			return
		case optJump, optGoto:
			p.rule.Target.Name, p.rule.Target.Goto, p.inTarget = p.words[1], word == optGoto, true
			p.words = p.words[2:]
			return
		}
	}
	p.add(p.option())
}

// option reads an option with its arguments. A lonely "!" is an option without a name.
func (p *parser) option() Option {
	var o Option
	if p.words[0] == not {
		o.Not, p.words = true, p.words[1:]
		if len(p.words) == 0 || len(p.words) > 1 && isName(p.words[0]) || p.words[0] == not {
			return o
		}
	}
	o.Name = p.words[0]
	end := 1
	if o.Name == optComment && len(p.words) > 1 {
		end = 2 // a comment may look like an option
	}
	for end < len(p.words) && p.words[end] != not && p.words[end][0] != optionStart {
		end++
	}
	o.Args, p.words = p.words[1:end:end], p.words[end:]
	return o
}

// isName reports whether a word begins a match or a target.
func isName(word string) bool { return word == optMatch || word == optJump || word == optGoto }

// builtIn holds the options that belong to no module.
const builtIn = " -s -d -i -o -p -f "

// add adds an option to the target or to its match.
func (p *parser) add(o Option) {
	if p.inTarget {
		p.rule.Target.Options = append(p.rule.Target.Options, o)
		return
	}
	last := len(p.rule.Matches) - 1
	if last < 0 || strings.Contains(builtIn, " "+o.Name+" ") {
		p.rule.Matches = append(p.rule.Matches, Match{Options: []Option{o}})
		return
	}
	p.rule.Matches[last].Options = append(p.rule.Matches[last].Options, o)
}

// String returns the rule as iptables-save prints it.
func (r Rule) String() string {
	var b []byte
	word := func(w string) {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(b, w...)
	}
	options := func(all []Option) {
		for _, o := range all {
			if o.Not {
				word(not)
			}
			if o.Name != "" {
				word(o.Name)
			}
			for _, arg := range o.Args {
				word(arg)
			}
		}
	}
	for _, m := range r.Matches {
		if m.Module != "" {
			word(optMatch)
			word(m.Module)
		}
		options(m.Options)
	}
	if r.Target.Name != "" {
		jump := optJump
		if r.Target.Goto {
			jump = optGoto
		}
		word(jump)
		word(r.Target.Name)
	}
	options(r.Target.Options)
	return string(b)
}
