package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/bench/result"
)

// packet is what the page shows of a result of bench/packets.
type packet struct {
	Backend, Family, Direction string
	Services, Endpoints        int
	Case, Variant, Baseline    string
	Rounds                     int
	Us, Ratio, Low, High, Goal float64
	Verdict, Error             string
}

// group says which results are in one table.
func (k packet) group() string {
	return fmt.Sprintf("%s, %s, %s, %s × %d", k.Backend, k.Family, k.Direction, grouped(k.Services), k.Endpoints)
}

func (p *page) packets(sources []source) error {
	verdicts := result.Table{Head: []string{"packets", "cases", "within the goal", "even", "missed"}}
	for _, s := range sources {
		all, err := decode[[]packet](s)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("%s: no results", s.file)
		}
		out := section{Command: s.Command, Machine: s.Machine}
		var about []string
		for _, group := range groupsOf(all) {
			if what := fmt.Sprintf("%s, %s Services", group[0].Backend, grouped(group[0].Services)); !slices.Contains(about, what) {
				about = append(about, what)
			}
			out.Tables = append(out.Tables, packetTable(group))
			count := map[string]int{}
			for _, k := range group {
				if k.Verdict != "" || k.Error != "" {
					count[k.Verdict]++
				}
			}
			ok, even := count["ok"], count["even"]
			judged := ok + even + count["MISSED"] + count[""]
			verdicts.Rows = append(verdicts.Rows, []string{group[0].group(), fmt.Sprint(judged), fmt.Sprint(ok), fmt.Sprint(even), fmt.Sprint(judged - ok - even)})
		}
		out.Title = strings.Join(about, "; ")
		p.Packets = append(p.Packets, out)
	}
	if len(verdicts.Rows) > 0 {
		p.Targets = append(p.Targets, verdicts)
	}
	return nil
}

// groupsOf divides results into tables, in their order.
func groupsOf(all []packet) (groups [][]packet) {
	for _, k := range all {
		i := slices.IndexFunc(groups, func(g []packet) bool { return g[0].group() == k.group() })
		if i < 0 {
			groups = append(groups, []packet{k})
		} else {
			groups[i] = append(groups[i], k)
		}
	}
	return groups
}

// packetTable has a line per case and a column per variant.
func packetTable(group []packet) result.Table {
	t := result.Table{Head: []string{group[0].group()}}
	var cases []string
	for _, k := range group {
		if !slices.Contains(t.Head, k.Variant) {
			t.Head = append(t.Head, k.Variant)
		}
		if !slices.Contains(cases, k.Case) {
			cases = append(cases, k.Case)
			t.Rows = append(t.Rows, []string{k.Case})
		}
	}
	variants := len(t.Head)
	t.Head = append(t.Head, "goal")
	for i, c := range cases {
		row := append(t.Rows[i], make([]string, variants)...)
		for _, k := range group {
			if k.Case != c {
				continue
			}
			row[slices.Index(t.Head, k.Variant)] = k.cell()
			if k.Goal > 0 {
				row[variants] = fmt.Sprintf("≤ %.3g", k.Goal)
			}
		}
		t.Rows[i] = row
	}
	return t
}

// cell is the figure of one variant: microseconds, or the ratio to the baseline with its quartiles.
func (k packet) cell() string {
	switch {
	case k.Error != "":
		return "failed"
	case k.Variant == k.Baseline || k.Ratio == 0:
		return fmt.Sprintf("%.2f µs", k.Us)
	}
	text := fmt.Sprintf("%.3f (%.3f–%.3f)", k.Ratio, k.Low, k.High)
	if k.Verdict == "MISSED" {
		text += " **missed**"
	} else if k.Verdict != "" {
		text += " " + k.Verdict
	}
	return text
}
