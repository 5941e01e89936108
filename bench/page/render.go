package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// The pages, the report and the pictures, which begin with imagePrefix, are in docs.
const (
	pageFile    = "performance.md"
	fleetFile   = "fleet.md"
	imagePrefix = "images/performance-"
)

//go:embed page.md.tmpl
var text string

// page is what the template shows. The slices hold the data of the records of each kind.
type page struct {
	Records     []*result.Record
	Comparisons []*result.Comparison
	Reactions   []*reaction
	Packets     []packet
	Soaks       []*result.Soak
	// Instructions are counted by bench/packets.
	Instructions []*result.Instructions
	Fleets       []*result.Fleet
	// Nodes are costs of a running proxy, by bench/packets.
	Nodes []result.NodeCost

	files map[string]string
}

// add decodes the data of a record.
func (p *page) add(r *result.Record) (err error) {
	p.Records = append(p.Records, r)
	switch r.Kind {
	case "compare":
		p.Comparisons, err = decode(r.Data, p.Comparisons)
	case "reaction":
		p.Reactions, err = decode(r.Data, p.Reactions)
	case "packets":
		var all []packet
		err = json.Unmarshal(r.Data, &all)
		p.Packets = append(p.Packets, all...)
	case "soak":
		p.Soaks, err = decode(r.Data, p.Soaks)
	case "instructions":
		p.Instructions, err = decode(r.Data, p.Instructions)
	case "node":
		err = json.Unmarshal(r.Data, &p.Nodes)
	case "fleet":
		p.Fleets, err = decode(r.Data, p.Fleets)
	default:
		err = fmt.Errorf("the page cannot show the kind %q", r.Kind)
	}
	return err
}

func decode[T any](data []byte, all []*T) ([]*T, error) {
	value := new(T)
	return append(all, value), json.Unmarshal(data, value)
}

// render returns the files of the page by their names.
func render(results string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(results, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no results in %s", results)
	}
	p := &page{files: map[string]string{}}
	for _, path := range paths {
		r, err := result.ReadRecord(path)
		if err == nil {
			err = p.add(r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	slices.SortStableFunc(p.Comparisons, func(a, b *result.Comparison) int { return a.Services - b.Services })
	parsed, err := template.New(pageFile).Parse(text)
	if err != nil {
		return nil, err
	}
	for file, name := range map[string]string{pageFile: pageFile, fleetFile: "fleet", p.Report(): "report"} {
		var out strings.Builder
		err = errors.Join(err, parsed.ExecuteTemplate(&out, name, p))
		p.files[file] = strings.TrimSpace(out.String()) + "\n"
	}
	return p.files, err
}

// Date is the day of the last record.
func (p *page) Date() (last string) {
	for _, r := range p.Records {
		day, _, _ := strings.Cut(r.Machine.Date, " ")
		last = max(last, day)
	}
	return last
}

// Report is the file with what is not on the page. A report of another day is another file.
func (p *page) Report() string { return "benchmarks/" + p.Date() + "-performance.md" }

// picture adds a plot to the files and returns the link to it. There is none if nothing was measured.
func (p *page) picture(name string, drawn plot) string {
	drawn.lines = slices.DeleteFunc(drawn.lines, func(l line) bool { return len(l.points) == 0 })
	if len(drawn.lines) == 0 {
		return ""
	}
	file := imagePrefix + name + ".svg"
	p.files[file] = drawn.svg()
	return fmt.Sprintf("![%s](%s)", drawn.title, file)
}

// Sources is a list of the origins of the records, in lines of the width of our pages. An item names the
// machine and the version of kube-proxy only if they differ from those of the items before.
func (p *page) Sources() string {
	var lines []string
	last, kubeProxy := "", ""
	for _, r := range p.Records {
		m := r.Machine
		text := fmt.Sprintf("- `%s`, %s, commit %s, load average %s", r.Command, m.Date, m.Commit, m.LoadBefore)
		machine := fmt.Sprintf("; Linux %s, %d × %s, %s MiB, %s",
			m.Kernel, m.Processors, m.Processor, grouped(m.MemoryMiB), m.Versions["Go"])
		if machine != last {
			text, last = text+machine, machine
		}
		if v := m.Versions[result.KubeProxy]; v != "" && v != kubeProxy {
			text, kubeProxy = text+"; kube-proxy: "+v, v
		}
		line := ""
		for word := range strings.FieldsSeq(text) {
			if len(line)+1+len(word) > 120 {
				lines, line = append(lines, line), " "
			}
			if line += " " + word; word == "-" {
				line = word
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Seeing has what it costs to see the traffic.
func (p *page) Seeing() rig.Table { return result.NodeTable(p.Nodes) }
