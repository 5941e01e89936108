// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/sluice-proxy/sluice/bench/rig"

// result is the figure of one variant in one case.
type result struct {
	// Backend is "nftables", "iptables-nft" or "iptables-legacy".
	Backend string
	// Family is "IPv4" or "IPv6".
	Family string
	// Direction is "forwarded" (the client is a pod of the node) or "local" (it is on the node).
	Direction string
	// Services is their number, Endpoints how many most of them have.
	Services  int
	Endpoints int
	// Case is the kind of traffic, Variant who made the rules: "kube-proxy", the name of a build of
	// Sluice, "floor" (one masquerade rule that never applies) or "none" (no rules).
	Case    string
	Variant string
	// Rounds is how many samples there are.
	Rounds int
	// Microseconds is the median of the samples, for one exchange.
	Microseconds float64
	// Ratio is the median of the rounds' ratios to Baseline, Low and High are their quartiles. They
	// are 0 if Baseline has no figure.
	Baseline string
	Ratio    float64
	Low      float64
	High     float64
	// Goal is the largest ratio that is wanted, 0 for variants that are not Sluice. Missed says that the ratio is larger;
	// above a goal of 1, by more than the spread.
	Goal   float64
	Missed bool
	// Error says why there is no figure.
	Error string
}

// compare fills in the measurements of a variant from its samples and the baseline's, round by round.
func (r *result) compare(samples, baseline []float64) {
	r.Rounds = len(samples)
	r.Microseconds = rig.Quantile(samples, 0.5)
	var ratios []float64
	for i := range min(len(samples), len(baseline)) {
		ratios = append(ratios, samples[i]/baseline[i])
	}
	r.Ratio, r.Low, r.High = rig.Quantile(ratios, 0.5), rig.Quantile(ratios, 0.25), rig.Quantile(ratios, 0.75)
}

// judge compares the ratio with the goal.
func (r *result) judge() {
	r.Missed = r.Goal > 0 && r.Ratio > r.Goal && (r.Goal != unslower || r.Low > r.Goal)
}
