package config

import (
	"fmt"
	"slices"
	"strings"
)

// Place says where something is wrong: in a file, or in a flag.
type Place struct {
	// File is the path of the configuration file, and Line where in it, counted
	// from 1; 0 when that is not known.
	File string
	Line int
	// Flag is the flag that the value came from, for example "--proxy-mode".
	// It goes without File and Field.
	Flag string
	// Field is the path of the field, for example "iptables.masqueradeBit".
	Field string
}

// String gives "config.conf:12: iptables.masqueradeBit" or "--proxy-mode".
func (p Place) String() string {
	var parts []string
	switch {
	case p.Flag != "":
		parts = append(parts, p.Flag)
	case p.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", p.File, p.Line))
	case p.File != "":
		parts = append(parts, p.File)
	}
	if p.Field != "" {
		parts = append(parts, p.Field)
	}
	return strings.Join(parts, ": ")
}

// Problem is one mistake in the configuration.
type Problem struct {
	Place
	// Message says which value is wrong and what is allowed, for example
	// "40: want 0 to 31".
	Message string
}

// String gives one line. A flag reads as it was typed: "--proxy-mode "x": want …".
func (p Problem) String() string {
	if p.Flag != "" && p.Field == "" {
		return p.Flag + " " + p.Message
	}
	if place := p.Place.String(); place != "" {
		return place + ": " + p.Message
	}
	return p.Message
}

// Warning is something that is odd in the configuration, and accepted.
type Warning struct {
	Place
	Message string
}

// String gives one line.
func (w Warning) String() string { return Problem(w).String() }

// InvalidError says that a configuration cannot be used. Whoever wrote it can
// mend it: commands exit with status 2.
type InvalidError struct {
	// Problems are all mistakes, in the order of the file; never empty.
	Problems []Problem
}

// Error gives one line for each mistake.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	lines := []string{fmt.Sprintf("%d mistakes in the configuration:", len(e.Problems))}
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// order sorts by place: flags, then the lines of the file.
func (e *InvalidError) order() {
	slices.SortStableFunc(e.Problems, func(a, b Problem) int { return a.Line - b.Line })
}

// finding is a mistake whose place in a file or flag is not known yet.
type finding struct {
	field   string
	message string
}

// findings collects mistakes.
type findings []finding

// wrong records a value that a field cannot have.
func (f *findings) wrong(field string, value any, want string, arguments ...any) {
	text := fmt.Sprint(value)
	if s, ok := value.(string); ok {
		text = fmt.Sprintf("%q", s)
	}
	*f = append(*f, finding{field, text + ": want " + fmt.Sprintf(want, arguments...)})
}
