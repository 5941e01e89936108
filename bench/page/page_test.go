package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/bench/result"
)

// rendered is the page of the committed results.
func rendered(t *testing.T) map[string]string {
	t.Helper()
	files, err := render("../results")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The committed page is the page of the committed results.
func TestThePageIsUpToDate(t *testing.T) {
	const docs = "../../docs"
	files := rendered(t)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil || string(got) != want {
			t.Errorf("docs/%s differs from the results (%v): run make performance-page", name, err)
		}
	}
	pictures, _ := filepath.Glob(filepath.Join(docs, imagePrefix+"*.svg"))
	if len(pictures) != len(files)-3 || len(pictures) != 4 {
		t.Errorf("%d pictures in docs, %d from the results, want 4: run make performance-page", len(pictures), len(files)-3)
	}
}

// Pages that quote resident memory quote one measurement: 10,000 Services at 100 changes/s.
func TestMemoryIsQuotedFromOneMeasurement(t *testing.T) {
	r, err := result.ReadRecord("../results/compare-nftables-10000.json")
	p := &page{}
	if err = errors.Join(err, p.add(r)); err != nil {
		t.Fatal(err)
	}
	var measured []string
	for _, program := range p.programs() {
		f, _ := p.Comparisons[0].Median(program, busy, result.Resident)
		measured = append(measured, fmt.Sprintf("%.0f MiB", f.Value))
	}
	figure := regexp.MustCompile(`[0-9.,]+ MiB`)
	for _, page := range []string{"README.md", "docs/comparison.md", "docs/requirements.md", "docs/troubleshooting.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		quoted := figure.FindAllString(string(text), -1)
		if err != nil || !slices.Contains(quoted, measured[0]) {
			t.Errorf("%s does not quote %s (%v)", page, measured[0], err)
		}
		for _, q := range quoted {
			if !slices.Contains(measured, q) {
				t.Errorf("%s quotes %s; measured were %v", page, q, measured)
			}
		}
	}
}

func TestPageIsReadable(t *testing.T) {
	files := rendered(t)
	text := files[pageFile]
	for name, svg := range files {
		if strings.HasSuffix(name, ".md") {
			continue
		}
		if !strings.Contains(text, "("+name+")") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s is not on the page, or a coordinate is no number", name)
		}
		decoder, err := xml.NewDecoder(strings.NewReader(svg)), error(nil)
		for err == nil {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for line := range strings.Lines(text) {
		if len([]rune(line)) > 121 && !strings.HasPrefix(line, "|") {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
	}
	if words := len(strings.Fields(strings.ReplaceAll(text, "|", " "))); words > 1000 {
		t.Errorf("%d words, want at most 1000", words)
	}
}

// A page of other results shows misses, other modes and values that were not reached.
func TestRender(t *testing.T) {
	dir := t.TempDir()
	if _, err := render(dir); err == nil {
		t.Error("no error without results")
	}
	f := func(program, step, what, unit string, value float64, beyond bool) string {
		return fmt.Sprintf(`{"Program":%q,"Round":1,"Step":%q,"What":%q,"Unit":%q,"Value":%g,"Beyond":%t}`, program, step, what, unit, value, beyond)
	}
	for name, data := range map[string]string{
		"compare": `{"Services":5000,"Mode":"nftables","Figures":[` + strings.Join([]string{
			f("sluice", busy, result.AnswerP50, "s", 0.02, false), f("kube-proxy", busy, result.AnswerP50, "s", 60, true),
			f("sluice", busy, result.Attempted, "", 1234, false), f("sluice", busy, result.Lost, "", 2, false)}, ",") + `]}`,
		"reaction": `{"Results":[{"Mode":"iptables","Reactions":[{"Services":1000,"Kind":"replaced","Pace":"1/s","P50":100000,"P99":200000}]}]}`,
		"packets":  `[{"backend":"nftables","services":1000,"case":"tcp","variant":"sluice","us":29,"ratio":0.951,"goal":0.94,"verdict":"MISSED"}]`,
		"instructions": `{"Exchanges":[
			{"Case":"established-pod","Variant":"direct link","Instructions":22000},
			{"Case":"established-cluster-ip","Variant":"sluice","Instructions":32000},
			{"Case":"established-cluster-ip","Variant":"sluice with offload","Instructions":27000}]}`,
		"node": `[{"Variant":"all","Services":10000,"Endpoints":10,"Open":9000,"PerSecond":1000,"RestCPU":12.5,"Resident":168.25}]`,
		"soak": `{"Services":10000,"Seconds":3600,"Checks":[{"What":"lost","First":"0","Last":"5","Allowed":"none"}]}`,
	} {
		if err := (&result.Record{Kind: name, Data: []byte(data)}).Write(filepath.Join(dir, name+".json")); err != nil {
			t.Fatal(err)
		}
	}
	files, err := render(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| API write to first answer, p50 | sluice | **20.0 ms** | ≤ 10.0 ms |", "|  | kube-proxy | not within 60.0 s | ≥ 300 × at 5,000 |",
		"## Cost of a packet in instructions\n", "| sluice | 10,000 |", "| sluice with offload | **5,000** |",
		"## Cost of seeing the traffic\n", "| all | 1.25% | 0.00% | 168 MiB |",
		"| connections lost | sluice | **2 of 1,234** | 0 |", "| iptables: replaced, 1/s | 1,000 | 0.10 ms | p99 0.20 ms |  |",
		"| tcp | 1,000 | **0.951–0.951 ×** | 29.0 µs | ≤ 0.94, missed 1 of 1 |", "| 60 min, lost | 10,000 | **5** | first 0 | none |",
	} {
		if !strings.Contains(files[pageFile]+files["benchmarks/-performance.md"], want) {
			t.Errorf("the pages lack %q", want)
		}
	}
	if err := (&page{}).add(&result.Record{Kind: "weather", Data: []byte("1")}); err == nil {
		t.Error("a record of an unknown kind is accepted")
	}
}

func TestAxes(t *testing.T) {
	log := newAxis([]float64{3, 450}, true, 100)
	if at := log.at(10); !slices.Equal(log.ticks, []float64{1, 10, 100, 1000}) || at < 33.3 || at > 33.4 {
		t.Errorf("ticks %v, 10 is at %v of 100, want a third", log.ticks, at)
	}
	linear := newAxis([]float64{0.7, 36}, false, 50)
	if !slices.Equal(linear.ticks, []float64{0, 10, 20, 30, 40, 50}) || linear.at(25) != 25 {
		t.Errorf("ticks %v", linear.ticks)
	}
	if got := grouped(999) + " " + grouped(1000) + " " + grouped(1234567); got != "999 1,000 1,234,567" {
		t.Errorf("numbers %s", got)
	}
}
