package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/kube-proxy/config/v1alpha1"
	yaml1 "sigs.k8s.io/yaml"

	"github.com/sluice-proxy/sluice/internal/yamllines"
)

// Place says where something is wrong: in a file, or in a flag.
type Place struct {
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
	// Message names the value and what is allowed, for example "40: want 0 to 31".
	Message string
}

// String returns one line. A flag reads as it was typed: `--proxy-mode "x": want …`.
func (p Problem) String() string {
	if p.Flag != "" && p.Field == "" {
		return p.Flag + " " + p.Message
	}
	if place := p.Place.String(); place != "" {
		return place + ": " + p.Message
	}
	return p.Message
}

// Warning is something in the configuration that is unusual but accepted.
type Warning Problem

// String returns one line.
func (w Warning) String() string { return Problem(w).String() }

// InvalidError says that a configuration cannot be used, and that its author can correct
// it: commands exit with status 2.
type InvalidError struct {
	// Problems are all mistakes, in file order; never empty.
	Problems []Problem
}

// Error returns one line for each mistake.
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

// file is a configuration file as it was read, without defaults.
type file struct {
	path      string
	kubeProxy v1alpha1.KubeProxyConfiguration
	sluice    SluiceConfiguration
	// kubeProxyText and sluiceText are the documents; nil if missing.
	kubeProxyText, sluiceText *document
	// found are the values of wrong types; their fields are not set.
	found findings
}

// readFile reads a configuration file.
func readFile(path string) (*file, []Warning, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		if problem, ok := errors.AsType[*os.PathError](err); ok {
			err = problem.Err
		}
		return nil, nil, &InvalidError{[]Problem{{Place{File: path}, fmt.Sprintf("cannot be read: %v", err)}}}
	}
	return parseFile(path, data)
}

// parseFile parses the text of a configuration file; path is for messages.
func parseFile(path string, data []byte) (*file, []Warning, error) {
	documents, err := parseDocuments(data)
	if err != nil {
		return nil, nil, &InvalidError{[]Problem{{Place{File: path, Line: err.Line}, err.Message}}}
	}
	f := &file{path: path}
	var problems []Problem
	for _, d := range documents {
		if problem := f.sort(d); problem != nil {
			problems = append(problems, *problem)
		}
	}
	if f.kubeProxyText == nil && len(problems) == 0 {
		problems = append(problems, Problem{Place{File: path},
			fmt.Sprintf("contains no %s (apiVersion %s)", kubeProxyKind, v1alpha1.SchemeGroupVersion)})
	}
	if len(problems) > 0 {
		return nil, nil, &InvalidError{problems}
	}
	warnings := f.decode()
	if documents[0] != f.kubeProxyText {
		warnings = append(warnings, Warning{Place{File: path},
			kubeProxyKind + " should be the first document: kube-proxy reads no other"})
	}
	return f, warnings, nil
}

// sort assigns a document by its kind.
func (f *file) sort(d *document) *Problem {
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	place := Place{File: f.path, Line: d.lines.Of("kind")}
	if err := json.Unmarshal(d.json, &meta); err != nil || meta.APIVersion == "" || meta.Kind == "" {
		return &Problem{place, "want apiVersion and kind"}
	}
	slot := &f.kubeProxyText
	switch meta.APIVersion + " " + meta.Kind {
	case v1alpha1.SchemeGroupVersion.String() + " " + kubeProxyKind:
	case SluiceAPIVersion + " " + SluiceKind:
		slot = &f.sluiceText
	default:
		return &Problem{place, fmt.Sprintf("%s %s: want %s %s, or %s %s", meta.APIVersion, meta.Kind,
			v1alpha1.SchemeGroupVersion, kubeProxyKind, SluiceAPIVersion, SluiceKind)}
	}
	if *slot != nil {
		return &Problem{place, fmt.Sprintf("%s is already on line %d", meta.Kind, (*slot).lines.Of("kind"))}
	}
	*slot = d
	return nil
}

// decode decodes both documents.
func (f *file) decode() (warnings []Warning) {
	found, odd := f.kubeProxyText.decode(&f.kubeProxy)
	f.found = found
	for _, o := range odd {
		warnings = append(warnings, Warning{f.place(o.field), o.message + o.unless})
	}
	if f.sluiceText == nil {
		return warnings
	}
	found, odd = f.sluiceText.decode(&f.sluice)
	for _, o := range odd {
		found = append(found, finding{o.field, o.message})
	}
	for _, own := range found {
		f.found = append(f.found, finding{sluicePrefix + own.field, own.message})
	}
	return warnings
}

// place returns where a field stands.
func (f *file) place(field string) Place {
	text, path := f.kubeProxyText, field
	if own, ok := strings.CutPrefix(field, sluicePrefix); ok {
		text, path = f.sluiceText, own
	}
	place := Place{File: f.path, Field: field}
	if text != nil {
		place.Line = text.lines.Of(path)
	}
	return place
}

// document is one YAML or JSON document of a configuration file.
type document struct {
	// json is the document as kube-proxy reads it: YAML 1.1, where "yes" and
	// "on" are true.
	json []byte
	// lines is empty if only the parser of json can read the document.
	lines yamllines.Lines
	twice []yamllines.Duplicate
}

// parseDocuments parses the documents of a file, except for those that hold nothing but
// comments.
func parseDocuments(data []byte) (documents []*document, _ *yamllines.Error) {
	for _, part := range splitDocuments(data) {
		encoded, err := yaml1.YAMLToJSON(part.text)
		if err != nil {
			return nil, yamllines.FromYAML(err, part.line)
		}
		if string(encoded) == "null" {
			continue
		}
		d := &document{json: encoded, lines: yamllines.Lines{}}
		var root yaml.Node
		if yaml.Unmarshal(part.text, &root) == nil && len(root.Content) == 1 {
			d.twice = d.lines.Locate(root.Content[0], part.line-1)
		}
		documents = append(documents, d)
	}
	return documents, nil
}

// part is the text of one document, and the line of the file that it starts on.
type part struct {
	text []byte
	line int
}

// splitDocuments splits a file at the lines that start with three dashes.
func splitDocuments(data []byte) (parts []part) {
	current := part{line: 1}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		rest, separator := bytes.CutPrefix(text, []byte("---"))
		if separator && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n")) {
			parts = append(parts, current)
			// The text behind the dashes belongs to the new document.
			current = part{text: append([]byte("   "), rest...), line: line}
			continue
		}
		current.text = append(current.text, text...)
	}
	return append(parts, current)
}
