package health

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind Kind
	// About is the domain or the API resource; empty for the whole node.
	About string
	// Since is when it began, zero when that is not known.
	Since time.Time
	// Unhealthy tells that an answer of 503 is due to this.
	Unhealthy bool
	// Problem says what is wrong, in one line.
	Problem string
	// Services are those concerned, sorted by name, at most ServicesMax; More
	// counts the others.
	Services []Affected
	More     int
}

// Affected is one Service that a finding is about.
type Affected struct {
	// Service is "namespace/name".
	Service string
	Since   time.Time
	// Reason is in one line; empty when there is nothing to say.
	Reason string
}

// ServicesMax bounds the Services that one finding names: an answer must not
// grow with the cluster.
const ServicesMax = 10

// bounded sorts the Services by name and leaves out what is too many.
func bounded(all []Affected) (named []Affected, more int) {
	slices.SortStableFunc(all, func(a, b Affected) int { return cmp.Compare(a.Service, b.Service) })
	n := min(len(all), ServicesMax)
	return all[:n:n], len(all) - n
}

// lineMax bounds the text of others in one line, in bytes.
const lineMax = 300

// oneLine makes somebody else's words fit into one line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) <= lineMax {
		return text
	}
	end := lineMax
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// serviceFindings gives one finding about Services, or none when there are none.
// The problem has a place for their number.
func serviceFindings(kind Kind, problem string, services iter.Seq[Affected]) []Finding {
	all := slices.Collect(services)
	if len(all) == 0 {
		return nil
	}
	f := Finding{Kind: kind, Problem: fmt.Sprintf(problem, len(all))}
	for i := range all {
		f.Since = dataplane.Earliest(f.Since, all[i].Since)
	}
	f.Services, f.More = bounded(all)
	return []Finding{f}
}
