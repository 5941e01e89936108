package main

import (
	"encoding/json"
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

// The committed page is what the committed results give.
func TestThePageIsUpToDate(t *testing.T) {
	const docs = "../../docs"
	files, err := render("../results")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil || string(got) != want {
			t.Errorf("docs/%s is not what the results give (%v): run make performance-page", name, err)
		}
	}
	pictures, err := filepath.Glob(filepath.Join(docs, imagePrefix+"*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if len(pictures) != len(files)-1 {
		t.Errorf("%d pictures in docs, %d from the results: run make performance-page", len(pictures), len(files)-1)
	}
}

// Pages that quote resident memory quote one measurement: 10,000 Services at 100 changes/s, in the same run as
// kube-proxy.
func TestMemoryIsQuotedFromOneMeasurement(t *testing.T) {
	file, err := os.ReadFile("../results/compare-nftables-10000.json")
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Data comparison }
	if err := json.Unmarshal(file, &record); err != nil {
		t.Fatal(err)
	}
	own := ""
	var measured []string
	for _, f := range record.Data.Figures {
		if f.Step == "100 changes/s" && f.What == result.Resident {
			measured = append(measured, fmt.Sprintf("%.0f MiB", f.Value))
			if f.Program == "sluice" {
				own = measured[len(measured)-1]
			}
		}
	}
	if len(measured) != 2 || own == "" {
		t.Fatalf("resident memory at 100 changes/s: %v, want a figure for each program", measured)
	}
	figure := regexp.MustCompile(`[0-9.,]+ MiB`)
	for _, page := range []string{"README.md", "docs/comparison.md", "docs/troubleshooting.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		quoted := figure.FindAllString(string(text), -1)
		if !slices.Contains(quoted, own) {
			t.Errorf("%s does not quote %s", page, own)
		}
		for _, q := range quoted {
			if !slices.Contains(measured, q) {
				t.Errorf("%s quotes %s; measured were %v", page, q, measured)
			}
		}
	}
}

// examples are records of every kind.
func examples(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, r := range map[string]result.Record{
		"compare-1000": {Kind: "compare", Command: "make bench-compare N=1000", Data: []byte(comparisonExample(1000, 0.5, 0.005))},
		"compare-5000": {Kind: "compare", Command: "make bench-compare N=5000", Data: []byte(comparisonExample(5000, 3.5, 0.020))},
		"reaction": {Kind: "reaction", Command: "make bench", Data: []byte(`{"Results":[
			{"Name":"react-1000","Mode":"nftables","Reactions":[{"Services":1000,"Endpoints":10,"Kind":"endpoint replaced","Pace":"100/s","P50":100000,"P99":200000,"Max":300000}]},
			{"Name":"react-10000","Mode":"nftables","Reactions":[{"Services":10000,"Endpoints":10,"Kind":"endpoint replaced","Pace":"100/s","P50":110000,"P99":200000,"Max":300000}]},
			{"Name":"churn","Mode":"nftables","Churn":{"Share":0.25,"Services":700,"Endpoints":10,"Pace":"100/s","P50":190000000,"Own":2000000000,"Children":40000000000}},
			{"Name":"cold-10000x10","Mode":"nftables","Cold":{"Services":10000,"Endpoints":10,"Programmed":900000000,"Processor":1000000000,"Memory":{"Peak":200,"Resident":150}}}],
			"Growth":[{"What":"replaced, p50","From":1000,"To":10000,"Exponent":0.041,"Expected":0}],
			"Verdicts":[{"Target":"V6","What":"resident","Figure":"150 MiB","Want":"≤ 100 MiB","Met":false}]}`)},
		"soak": {Kind: "soak", Command: "make soak", Data: []byte(`{"Services":10000,"Endpoints":81000,"Seconds":3600,"ChangesPerSecond":100,"Restarts":11,"HandOvers":60,"Attempted":250000,
			"Samples":[{"Seconds":10,"ResidentMiB":150,"Goroutines":57},{"Seconds":20,"ResidentMiB":151,"Goroutines":57,"Elements":9000}],
			"Checks":[{"What":"goroutines","First":"57","Last":"58","Allowed":"equal at rest"}]}`)},
		"packets": {Kind: "packets", Command: "make bench-packets", Data: []byte(`[
			{"backend":"nftables","family":"IPv4","direction":"forwarded","services":1000,"endpoints":10,"case":"new TCP","variant":"kube-proxy","baseline":"kube-proxy","rounds":15,"us":30.5},
			{"backend":"nftables","family":"IPv4","direction":"forwarded","services":1000,"endpoints":10,"case":"new TCP","variant":"sluice","baseline":"kube-proxy","rounds":15,"us":29,"ratio":0.951,"low":0.94,"high":0.96,"goal":0.94,"verdict":"MISSED"}]`)},
	} {
		r.Machine = result.Machine{Date: "2026-01-02", Kernel: "6.18", Processors: 2, Processor: "example", LoadBefore: "0 0 0", Commit: "abc"}
		if err := r.Write(filepath.Join(dir, name+".json")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRender(t *testing.T) {
	dir := examples(t)
	files, err := render(dir)
	if err != nil {
		t.Fatal(err)
	}
	page := files[pageFile]
	for _, want := range []string{
		"| nftables: cold start | 1,000 | 500 ms | ≤ 3.00 s | ok |",
		"| nftables: cold start | 5,000 | 3.50 s | ≤ 3.00 s | **missed** |",
		"| nftables: API write to answer, p50, 100 changes/s | 5,000 | 20.0 ms | ≤ 10.0 ms | **missed** |",
		"| nftables: API write to answer, p50, 100 changes/s | 5,000 | more than 3,000 × less than kube-proxy | ≥ 300 × | ok |",
		"| nftables: connections lost, all steps | 1,000 | 2 of 1,234 | 0 | **missed** |",
		"| new TCP | 30.50 µs | 0.951 (0.940–0.960) **missed** | ≤ 0.94 |",
		"| nftables, IPv4, forwarded, 1,000 × 10 | 1 | 0 | 0 | 1 |",
		"| cold | 10,000 | 10 | 900 ms | 1.00 s | 150 MiB | 200 MiB |",
		"| 700 | 10 | 100/s | 0.25 | 190 ms | 0 ms | 0 ms | 2.00 s | 40.0 s |",
		"| replaced, p50 | 1,000 | 10,000 | 0.04 | 0 |", "| resident | V6 | 150 MiB | ≤ 100 MiB | **missed** |",
		"### nftables, 1,000 Services\n\n`make bench-packets`, 2026-01-02, commit abc",
		"### 10,000 Services, 60 minutes", "| goroutines | 57 | 58 | equal at rest | MISSED |", "(images/performance-soak-10000-0-memory.svg)",
		"(images/performance-growth-nftables.svg)", "(images/performance-latency-nftables-5000.svg)",
		"(images/performance-processor-nftables-1000.svg)", "(images/performance-reaction-nftables-1.svg)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	again, err := render(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if again[name] != text {
			t.Errorf("%s: two renderings differ", name)
		}
		if strings.HasSuffix(name, ".svg") {
			if !strings.Contains(page, "("+name+")") {
				t.Errorf("%s is not on the page", name)
			}
			wellFormed(t, name, text)
		}
	}
	for line := range strings.Lines(page) {
		if len([]rune(strings.TrimSpace(line))) > 120 && !strings.HasPrefix(line, "|") {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
	}
	if strings.Contains(page, "\n\n\n") {
		t.Error("the page has two empty lines in a row")
	}
}

func wellFormed(t *testing.T, name, text string) {
	t.Helper()
	if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("%s: a coordinate is no number", name)
	}
	for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}

func TestUnknownRecordsAreRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := render(dir); err == nil {
		t.Error("a page of nothing is rendered")
	}
	r := result.Record{Kind: "weather", Data: []byte("1")}
	if err := r.Write(filepath.Join(dir, "x.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := render(dir); err == nil || !strings.Contains(err.Error(), "weather") {
		t.Errorf("a record of an unknown kind: %v", err)
	}
}

// comparisonExample is the data of a comparison in which kube-proxy's changes never get there.
func comparisonExample(services int, start, p50 float64) string {
	c := result.Comparison{Services: services, Endpoints: services * 10, Mode: "nftables", Minutes: 1, Rounds: 1, Mix: map[string]int{"plain": services}}
	add := func(program, step, what, unit string, value float64, beyond bool) {
		c.Figures = append(c.Figures, result.Figure{Program: program, Round: 1, Step: step, What: what, Unit: unit, Value: value, Beyond: beyond})
	}
	for _, program := range programs {
		add(program, result.ColdStart, result.ToAnswers, "s", start, false)
		add(program, busy, result.UserPerMinute, "s", 3, false)
		add(program, busy, result.SystemPerMinute, "s", 2, false)
		add(program, busy, result.Attempted, "", 1234, false)
		add(program, busy, result.Lost, "", 2, false)
	}
	add(result.Sluice, busy, result.AnswerP50, "s", p50, false)
	add(result.KubeProxy, busy, result.AnswerP50, "s", 60, true)
	c.Distributions = []result.Distribution{{Program: result.Sluice, Round: 1, Step: busy, Count: 2, Percentiles: []float64{1, 2}}}
	return encoded(c)
}

func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}
