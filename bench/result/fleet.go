package result

import (
	"io"
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// Fleet is a run of bench/compare -nodes: many nodes with Sluice and one API server.
type Fleet struct {
	Services, Endpoints int
	// Changes are written in a step, ChangesPerSecond in a second.
	Changes, ChangesPerSecond int
	// Incomplete says why something is missing.
	Incomplete string `json:",omitempty"`

	Figures []FleetFigure
}

// FleetFigure is one value of a fleet of a size.
type FleetFigure struct {
	Nodes      int
	Step, What string
	// Unit is that of Value: s, MiB, KiB, or empty for a count.
	Unit  string `json:",omitempty"`
	Value float64
}

// Text is the figure for people.
func (f FleetFigure) Text() string { return Figure{Unit: f.Unit, Value: f.Value}.Text() }

// Sizes returns the measured numbers of nodes, the smallest first.
func (f *Fleet) Sizes() (sizes []int) {
	for _, figure := range f.Figures {
		sizes = append(sizes, figure.Nodes)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// Of returns the values of a measurement by the number of nodes.
func (f *Fleet) Of(step, what string) map[int]FleetFigure {
	values := map[int]FleetFigure{}
	for _, figure := range f.Figures {
		if figure.Step == step && figure.What == what {
			values[figure.Nodes] = figure
		}
	}
	return values
}

// Extrapolate returns the value for more nodes than were measured, on the line through the largest two
// fleets. It reports false if there are not two.
func (f *Fleet) Extrapolate(step, what string, nodes int) (FleetFigure, bool) {
	values := f.Of(step, what)
	sizes := slices.DeleteFunc(f.Sizes(), func(size int) bool { _, ok := values[size]; return !ok })
	if len(sizes) < 2 {
		return FleetFigure{}, false
	}
	low, high := values[sizes[len(sizes)-2]], values[sizes[len(sizes)-1]]
	each := (high.Value - low.Value) / float64(high.Nodes-low.Nodes)
	extended := high
	extended.Nodes, extended.Value = nodes, high.Value+each*float64(nodes-high.Nodes)
	return extended, true
}

// Tables returns one table for each step, with a column for each size.
func (f *Fleet) Tables() (all []rig.Table) {
	sizes, seen := f.Sizes(), map[[2]string]bool{}
	last := ""
	for _, figure := range f.Figures {
		name := [2]string{figure.Step, figure.What}
		if seen[name] {
			continue
		}
		seen[name] = true
		if figure.Step != last {
			last = figure.Step
			t := rig.Table{Head: []string{last}}
			for _, size := range sizes {
				t.Head = append(t.Head, FleetFigure{Value: float64(size)}.Text()+" nodes")
			}
			all = append(all, t)
		}
		row, values := []string{figure.What}, f.Of(figure.Step, figure.What)
		for _, size := range sizes {
			text := ""
			if value, ok := values[size]; ok {
				text = value.Text()
			}
			row = append(row, text)
		}
		all[len(all)-1].Add(row...)
	}
	return all
}

// Print prints the tables.
func (f *Fleet) Print(out io.Writer) error {
	for _, t := range f.Tables() {
		if err := t.Print(out); err != nil {
			return err
		}
	}
	return nil
}
