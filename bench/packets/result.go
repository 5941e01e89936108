package main

import (
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// result is the figure of one variant in one case: an object of the output in JSON.
type result struct {
	// Backend is "nftables", "iptables-nft" or "iptables-legacy".
	Backend string `json:"backend"`
	// Family is "IPv4" or "IPv6".
	Family string `json:"family"`
	// Direction is "forwarded" (the client is a pod of the node) or "local" (it is on the node).
	Direction string `json:"direction"`
	// Services is their number, Endpoints how many most of them have.
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
	// Case is the kind of traffic, Variant who made the rules: "kube-proxy", the name of a build of
	// Sluice, "floor" (one masquerade rule that never applies) or "none" (no rules).
	Case    string `json:"case"`
	Variant string `json:"variant"`
	// Rounds is how many samples there are.
	Rounds int `json:"rounds"`
	// Microseconds is the median of the samples, for one exchange.
	Microseconds float64 `json:"us"`
	// Ratio is the median of the rounds' ratios to Baseline, Low and High are their quartiles. They
	// are 0 if Baseline has no figure.
	Baseline string  `json:"baseline"`
	Ratio    float64 `json:"ratio"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	// Spread is the largest deviation of a sample from Microseconds.
	Spread float64 `json:"spread"`
	// Goal is the largest ratio that is wanted, 0 for variants that are not Sluice. Verdict is "ok",
	// "even" (above a goal of 1, by no more than the spread) or "MISSED".
	Goal    float64 `json:"goal,omitempty"`
	Verdict string  `json:"verdict,omitempty"`
	// Error says why there is no figure.
	Error string `json:"error,omitempty"`
}

// compare fills in the measurements of a variant from its samples and the baseline's, round by round.
func (r *result) compare(samples, baseline []float64) {
	r.Rounds = len(samples)
	r.Microseconds = rig.Quantile(samples, 0.5)
	if len(samples) > 0 {
		r.Spread = max(slices.Max(samples)-r.Microseconds, r.Microseconds-slices.Min(samples))
	}
	var ratios []float64
	for i := range min(len(samples), len(baseline)) {
		ratios = append(ratios, samples[i]/baseline[i])
	}
	r.Ratio, r.Low, r.High = rig.Quantile(ratios, 0.5), rig.Quantile(ratios, 0.25), rig.Quantile(ratios, 0.75)
}

// judge compares the ratio with the goal.
func (r *result) judge() {
	switch {
	case r.Goal == 0 || r.Ratio == 0:
	case r.Ratio <= r.Goal:
		r.Verdict = "ok"
	case r.Goal == unslower && r.Low <= r.Goal:
		r.Verdict = "even"
	default:
		r.Verdict = "MISSED"
	}
}
