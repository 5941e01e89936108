// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/sluice-proxy/sluice/internal/document"
)

// Position is where something is wrong: in a file, or in a flag.
type Position struct {
	// File is the path of the configuration file, and Line the line in it, counted
	// from 1; 0 if it is not known.
	File string
	Line int
	// Flag is the flag that the value came from, for example "--proxy-mode".
	// File and Field are empty then.
	Flag string
	// Field is the path of the field, for example "iptables.masqueradeBit".
	Field string
}

// String returns "config.conf:12: iptables.masqueradeBit" or "--proxy-mode".
func (p Position) String() string {
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

// Problem is one error in the configuration.
type Problem struct {
	Position
	// Message names the value and what is allowed, for example "40: must be 0 to 31".
	Message string
}

// String returns one line. A flag reads as it was typed: `--proxy-mode "x": must be …`.
func (p Problem) String() string {
	if p.Flag != "" && p.Field == "" {
		return p.Flag + " " + p.Message
	}
	if place := p.Position.String(); place != "" {
		return place + ": " + p.Message
	}
	return p.Message
}

// Warning is something in the configuration that is unusual but accepted.
type Warning Problem

// String returns one line.
func (w Warning) String() string { return Problem(w).String() }

// InvalidError is the error of a configuration that cannot be used and that its author can correct: commands exit with
// status 2.
type InvalidError struct {
	// Problems are all errors, in file order; never empty.
	Problems []Problem
}

// Error returns one line for each problem.
func (e *InvalidError) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	lines := []string{fmt.Sprintf("invalid configuration (%d errors):", len(e.Problems))}
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// finding is a problem whose place in a file or flag is not known yet.
type finding struct {
	field   string
	message string
}

// findings collects problems.
type findings []finding

// wrong records a value that a field cannot have.
func (f *findings) wrong(field string, value any, want string, arguments ...any) {
	text := fmt.Sprint(value)
	if s, ok := value.(string); ok {
		text = fmt.Sprintf("%q", s)
	}
	*f = append(*f, finding{field, text + ": must be " + fmt.Sprintf(want, arguments...)})
}

// file is what the configuration files hold, without defaults.
type file struct {
	kubeProxy v1alpha1.KubeProxyConfiguration
	sluice    SluiceConfiguration
	// first is the document of kube-proxy, and own are those of Sluice: if several set a field, the last one counts.
	first part
	own   []part
	// found are the values of wrong types; their fields are not set. at contains their positions, because another
	// document may set the same field.
	found findings
	at    map[string]Position
}

// part is a document of a file; its text is nil if it is missing.
type part struct {
	text *document.Document
	path string
}

// readFiles reads the configuration files.
func readFiles(paths []string) (*file, []Warning, error) {
	f := &file{}
	var problems []Problem
	var warnings []Warning
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			if problem, ok := errors.AsType[*os.PathError](err); ok {
				err = problem.Err
			}
			return nil, nil, &InvalidError{[]Problem{{Position{File: path}, fmt.Sprintf("cannot be read: %v", err)}}}
		}
		found, odd := f.parse(path, data)
		problems, warnings = append(problems, found...), append(warnings, odd...)
	}
	if len(problems) > 0 {
		return nil, nil, &InvalidError{problems}
	}
	return f, append(f.decode(), warnings...), nil
}

// parse finds the documents of a file; path is for messages.
func (f *file) parse(path string, data []byte) (problems []Problem, warnings []Warning) {
	var first *document.Document
	err := document.Each(data, func(d *document.Document) {
		first = cmp.Or(first, d)
		if problem := f.sort(path, d); problem != nil {
			problems = append(problems, *problem)
		}
	})
	switch {
	case err != nil:
		return []Problem{{Position{File: path, Line: err.Line}, err.Message}}, nil
	case first == nil:
		return []Problem{{Position{File: path}, fmt.Sprintf("contains no %s (apiVersion %s) and no %s (apiVersion %s)",
			kubeProxyKind, v1alpha1.SchemeGroupVersion, SluiceKind, SluiceAPIVersion)}}, nil
	case f.first.path == path && f.first.text != first:
		return problems, []Warning{{Position{File: path}, kubeProxyKind + " should be the first document: kube-proxy reads no other"}}
	}
	return problems, nil
}

// sort assigns a document by its kind.
func (f *file) sort(path string, d *document.Document) *Problem {
	version, kind := d.Text("apiVersion"), d.Text("kind")
	place := Position{File: path, Line: d.Line("kind")}
	switch {
	case version == "" || kind == "":
		return &Problem{place, "apiVersion and kind are required"}
	case version == v1alpha1.SchemeGroupVersion.String() && kind == kubeProxyKind:
		if f.first.text != nil {
			return f.first.already(place, kind)
		}
		f.first = part{d, path}
	case version == SluiceAPIVersion && kind == SluiceKind:
		if last := len(f.own) - 1; last >= 0 && f.own[last].path == path {
			return f.own[last].already(place, kind)
		}
		f.own = append(f.own, part{d, path})
	default:
		return &Problem{place, fmt.Sprintf("%s %s: must be %s %s, or %s %s", version, kind,
			v1alpha1.SchemeGroupVersion, kubeProxyKind, SluiceAPIVersion, SluiceKind)}
	}
	return nil
}

func (p part) already(place Position, kind string) *Problem {
	return &Problem{place, fmt.Sprintf("%s is already in %s:%d", kind, p.path, p.text.Line("kind"))}
}

// decode decodes both documents. An unknown field, or one that is set twice, is an error in Sluice's document. In
// kube-proxy's it is a warning, because kube-proxy accepts it with a log line, so that files of older and newer releases
// work.
func (f *file) decode() (warnings []Warning) {
	if f.first.text != nil {
		mistakes, _ := f.first.text.Decode(&f.kubeProxy, document.YAML11)
		for _, m := range mistakes {
			found := findingOf(m, reflect.ValueOf(&f.kubeProxy).Elem())
			switch m.Kind {
			case document.Unknown:
				warnings = append(warnings, Warning{f.place(m.Path), found.message + "; it is ignored"})
			case document.Repeated:
				warnings = append(warnings, Warning{f.place(m.Path), found.message + "; the last one counts"})
			default:
				f.found = append(f.found, found)
			}
		}
	}
	f.at = map[string]Position{}
	for _, own := range f.own {
		mistakes, _ := own.text.Decode(&f.sluice, document.YAML12)
		for _, m := range mistakes {
			found := findingOf(m, reflect.ValueOf(&f.sluice).Elem())
			found.field = sluicePrefix + found.field
			f.found = append(f.found, found)
			f.at[found.field] = Position{File: own.path, Line: m.Line, Field: strings.TrimSuffix(found.field, ".")}
		}
	}
	return warnings
}

// findingOf describes a mistake in a document that was decoded into a struct.
func findingOf(m document.Mistake, into reflect.Value) finding {
	switch {
	case m.Kind == document.Unknown && former[m.Path] != "":
		return finding{m.Path, "must be removed; " + former[m.Path]}
	case m.Kind == document.Mistyped && slices.Contains(pathsOf(into.Type()), m.Path):
		switch at(into, m.Path).Interface().(type) {
		case metav1.Duration, *metav1.Duration, logsapi.TimeOrMetaDuration:
			return finding{m.Path, m.Value + ": must be a duration like 30s, 5m or 1h30m"}
		case resource.QuantityValue:
			return finding{m.Path, m.Value + ": must be a size like 512, 64Ki or 2Mi"}
		}
	}
	return finding{m.Path, m.Message}
}

// has reports whether there is a document with a field.
func (f *file) has(field string) bool {
	if strings.HasPrefix(field, sluicePrefix) {
		return len(f.own) > 0
	}
	return f.first.text != nil
}

// place returns the position of a field.
func (f *file) place(field string) Position {
	if place, wrong := f.at[field]; wrong && place.Line > 0 {
		return place
	}
	of, path := f.first, field
	if own, ok := strings.CutPrefix(field, sluicePrefix); ok {
		path = own
		for i, part := range f.own {
			if i == 0 || part.text.Has(path) {
				of = part
			}
		}
	}
	place := Position{File: of.path, Field: strings.TrimSuffix(field, ".")}
	if of.text != nil {
		place.Line = of.text.Line(path)
	}
	return place
}
