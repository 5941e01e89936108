package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// file is a configuration file as it was read, without defaults.
type file struct {
	path      string
	kubeProxy v1alpha1.KubeProxyConfiguration
	sluice    SluiceConfiguration
	// kubeProxyText and sluiceText are the documents; nil for one that is not
	// there.
	kubeProxyText, sluiceText *document
	// found are the values of wrong types; their fields are not set.
	found findings
}

// readFile reads a configuration file.
func readFile(path string) (*file, []Warning, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		var problem *os.PathError
		if errors.As(err, &problem) {
			err = problem.Err
		}
		return nil, nil, &InvalidError{[]Problem{{Place{File: path}, fmt.Sprintf("cannot be read: %v", err)}}}
	}
	return parseFile(path, data)
}

// parseFile reads the text of a configuration file; path is for messages.
func parseFile(path string, data []byte) (*file, []Warning, error) {
	documents, err := parseDocuments(data)
	if err != nil {
		problem := Problem{Place{File: path}, err.Error()}
		var syntax *syntaxError
		if errors.As(err, &syntax) {
			problem.Line = syntax.line
		}
		return nil, nil, &InvalidError{[]Problem{problem}}
	}
	f := &file{path: path}
	var problems []Problem
	for _, d := range documents {
		if problem := f.sort(d); problem != nil {
			problems = append(problems, *problem)
		}
	}
	if f.kubeProxyText == nil && len(problems) == 0 {
		problems = append(problems, Problem{Place{File: path}, fmt.Sprintf("holds no %s (apiVersion %s)", kubeProxyKind, v1alpha1.SchemeGroupVersion)})
	}
	if len(problems) > 0 {
		return nil, nil, &InvalidError{problems}
	}
	warnings := f.decode()
	if documents[0] != f.kubeProxyText {
		warnings = append(warnings, Warning{Place{File: path}, kubeProxyKind + " should be the first document: kube-proxy reads no other"})
	}
	return f, warnings, nil
}

// sort puts a document where it belongs.
func (f *file) sort(d *document) *Problem {
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	place := Place{File: f.path, Line: d.line("kind")}
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
		return &Problem{place, fmt.Sprintf("%s is already on line %d", meta.Kind, (*slot).line("kind"))}
	}
	*slot = d
	return nil
}

// decode reads both documents.
func (f *file) decode() (warnings []Warning) {
	found, odd := f.kubeProxyText.decode(&f.kubeProxy)
	f.found = found
	if f.sluiceText != nil {
		found, own := f.sluiceText.decode(&f.sluice)
		f.found = append(f.found, prefixed(found)...)
		odd = append(odd, prefixed(own)...)
	}
	for _, w := range odd {
		warnings = append(warnings, Warning{f.place(w.field), w.message})
	}
	return warnings
}

// prefixed marks fields as those of Sluice's document.
func prefixed(all []finding) (own []finding) {
	for _, f := range all {
		own = append(own, finding{sluicePrefix + f.field, f.message})
	}
	return own
}

// place says where a field stands.
func (f *file) place(field string) Place {
	text, path := f.kubeProxyText, field
	if own, ok := strings.CutPrefix(field, sluicePrefix); ok {
		text, path = f.sluiceText, own
	}
	place := Place{File: f.path, Field: field}
	if text != nil {
		place.Line = text.line(path)
	}
	return place
}
