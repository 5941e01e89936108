// Package result holds what the measurements of this module found out, as they store it and as they
// print it. The performance page is made from the same values.
package result

import (
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// Comparison is a run of bench/compare.
type Comparison struct {
	// Services and Endpoints are the size of the cluster, Mix the Services of each class.
	Services, Endpoints int
	Mix                 map[string]int
	Mode                string
	Variant             string `json:",omitempty"`
	Minutes             float64
	Rounds              int
	Steps               []string
	// Incomplete says why something is missing.
	Incomplete string `json:",omitempty"`

	Figures       []Figure
	Distributions []Distribution
}

// Figure is one value of one program in one round.
type Figure struct {
	Program string
	Round   int
	Step    string
	What    string
	// Unit is that of Value: s, MiB, /s, or empty for a count.
	Unit  string `json:",omitempty"`
	Value float64
	// Beyond says that it took longer than Value.
	Beyond bool `json:",omitempty"`
}

// Text is the figure for people.
func (f Figure) Text() string {
	if f.Beyond {
		return "not within " + f.scaled()
	}
	return f.scaled()
}

func (f Figure) scaled() string {
	switch {
	case f.Unit == "s" && f.Value < 1:
		return digits(f.Value*1000) + " ms"
	case f.Unit == "":
		return strconv.FormatFloat(f.Value, 'f', 0, 64)
	default:
		return digits(f.Value) + " " + f.Unit
	}
}

// digits is a number with three digits, or with all before the point.
func digits(v float64) string {
	for decimals, below := range []float64{999.5, 99.95, 9.995} {
		if v >= below || v == 0 {
			return strconv.FormatFloat(v, 'f', max(0, decimals-1), 64)
		}
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Distribution is how long something took each time.
type Distribution struct {
	Program string
	Round   int
	Step    string
	What    string
	// Count is how many were measured, Beyond how many of these were not seen to end.
	Count, Beyond int
	// Percentiles are in milliseconds, from 0 to 100. Those that fall on a measurement that did not
	// end are missing.
	Percentiles []float64
}

// Distribute returns the distribution of durations. Beyond is the number of those that did not end.
func Distribute(took []time.Duration, beyond int) (d Distribution) {
	d.Count, d.Beyond = len(took)+beyond, beyond
	for percent := range 101 {
		v, ok := rig.NearestRank(took, d.Count, percent)
		if !ok {
			break
		}
		d.Percentiles = append(d.Percentiles, float64(v.Round(10*time.Microsecond))/float64(time.Millisecond))
	}
	return d
}
