package health

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// writeText says in words what an answer is made of.
func writeText(r *Report, considerNode bool) []byte {
	var b bytes.Buffer
	status, word := code(&r.State, considerNode), "healthy"
	if status != http.StatusOK {
		word = "unhealthy"
	}
	fmt.Fprintf(&b, "%s (%d) at %s\n", word, status, r.At.Format(time.RFC3339))
	for _, i := range r.Instances {
		word := "healthy"
		if !i.Healthy {
			word = "unhealthy"
		}
		fmt.Fprintf(&b, "%s: %s, last known to be right %s ago", i.Family, word, age(r.At, i.Updated))
		if !i.Pending.IsZero() {
			fmt.Fprintf(&b, ", a change waits for %s", age(r.At, i.Pending))
		}
		b.WriteByte('\n')
	}
	if considerNode {
		word := "eligible"
		if !r.NodeEligible {
			word = "not eligible"
		}
		fmt.Fprintf(&b, "node: %s\n", word)
	}
	if len(r.Findings) == 0 {
		b.WriteString("\nnothing is amiss\n")
	}
	for i := range r.Findings {
		writeFinding(&b, r.At, &r.Findings[i])
	}
	return b.Bytes()
}

func writeFinding(b *bytes.Buffer, now time.Time, f *Finding) {
	b.WriteByte('\n')
	weight := "degraded"
	if f.Unhealthy {
		weight = "unhealthy"
	}
	fmt.Fprintf(b, "[%s] %s", weight, f.Kind)
	if f.About != "" {
		fmt.Fprintf(b, " %s", f.About)
	}
	if !f.Since.IsZero() {
		fmt.Fprintf(b, ", since %s", age(now, f.Since))
	}
	fmt.Fprintf(b, "\n  %s\n", f.Problem)
	for _, s := range f.Services {
		fmt.Fprintf(b, "    %s, since %s", s.Service, age(now, s.Since))
		if s.Reason != "" {
			fmt.Fprintf(b, ": %s", s.Reason)
		}
		b.WriteByte('\n')
	}
	if f.More > 0 {
		fmt.Fprintf(b, "    and %d more\n", f.More)
	}
	fmt.Fprintf(b, "  advice: %s\n", f.Kind.Advice())
}

// age gives the time since a moment, in whole seconds.
func age(now, since time.Time) string {
	return max(0, now.Sub(since)).Truncate(time.Second).String()
}
