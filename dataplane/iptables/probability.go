package iptables

import "strconv"

// probabilityOne is the kernel's fixed-point notation of certainty: the
// statistic match compares 31 random bits with a threshold (include/uapi/linux/
// netfilter/xt_statistic.h).
const probabilityOne = 1 << 31

// appendProbability appends the probability of 1/k as iptables-save prints it,
// which is the threshold that the kernel keeps with eleven decimals. The text is
// fine enough to lead back to the same threshold. k is at least 1.
func appendProbability(b []byte, k int) []byte {
	threshold := (probabilityOne + k/2) / k
	return strconv.AppendFloat(b, float64(threshold)/probabilityOne, 'f', 11, 64)
}
