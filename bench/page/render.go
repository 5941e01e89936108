package main

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/sluice-proxy/sluice/bench/result"
)

// pageFile and the pictures, which begin with imagePrefix, are in docs.
const (
	pageFile    = "performance.md"
	imagePrefix = "images/performance-"
)

//go:embed page.md.tmpl
var text string

// page is what the template shows.
type page struct {
	Targets     []result.Table
	Comparisons []section
	Growth      []picture
	Reactions   []section
	Packets     []section
	Fleet       []section
	Soaks       []section

	files map[string]string
}

// section is one record.
type section struct {
	Title   string
	Command string
	Machine result.Machine
	// Intro is a sentence about what was measured.
	Intro    string
	Pictures []picture
	Tables   []result.Table
}

// picture is a file beside the page.
type picture struct{ File, Title string }

// source is a record with the name of its file, which orders records of the same size.
type source struct {
	*result.Record
	file string
}

// kinds knows how to show each kind of record.
var kinds = map[string]func(*page, []source) error{
	"compare":  (*page).comparisons,
	"reaction": (*page).reactions,
	"packets":  (*page).packets,
	"soak":     (*page).soaks,
}

func known(kind string) bool { return kinds[kind] != nil }

// render returns the files of the page by their names.
func render(results string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(results, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no results in %s", results)
	}
	byKind := map[string][]source{}
	for _, path := range paths {
		r, err := result.ReadRecord(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !known(r.Kind) {
			return nil, fmt.Errorf("%s: the page cannot show the kind %q", path, r.Kind)
		}
		byKind[r.Kind] = append(byKind[r.Kind], source{r, filepath.Base(path)})
	}
	p := &page{files: map[string]string{}}
	for _, kind := range []string{"compare", "reaction", "packets", "soak"} {
		if err := kinds[kind](p, byKind[kind]); err != nil {
			return nil, err
		}
	}
	functions := template.FuncMap{"wrap": wrap, "provenance": provenance}
	parsed, err := template.New(pageFile).Funcs(functions).Parse(text)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	if err := parsed.Execute(&b, p); err != nil {
		return nil, err
	}
	p.files[pageFile] = b.String()
	return p.files, nil
}

// draw adds a picture.
func (p *page) draw(name, title, svg string) picture {
	file := imagePrefix + name + ".svg"
	p.files[file] = svg
	return picture{file, title}
}

// decode reads the data of a record.
func decode[T any](s source) (value T, err error) {
	if err = json.Unmarshal(s.Data, &value); err != nil {
		err = fmt.Errorf("%s: %w", s.file, err)
	}
	return value, err
}

// wrap breaks a text into lines of the width of our pages.
func wrap(text string) string {
	const width = 120
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}

// provenance says how a record came to be.
func provenance(s section) string {
	m := s.Machine
	text := fmt.Sprintf("`%s`, %s, commit %s, Linux %s, %d × %s, %s MiB. Load average: %s", s.Command, m.Date, m.Commit,
		m.Kernel, m.Processors, m.Processor, grouped(m.MemoryMiB), m.LoadBefore)
	if m.LoadAfter != "" {
		text += " before, " + m.LoadAfter + " after"
	}
	names := slices.SortedFunc(maps.Keys(m.Versions), func(a, b string) int {
		return cmp.Compare(strings.ToLower(a), strings.ToLower(b))
	})
	for i, name := range names {
		names[i] = name + " `" + strings.TrimPrefix(m.Versions[name], name+" ") + "`"
	}
	return text + ". Versions: " + strings.Join(names, ", ") + "."
}
