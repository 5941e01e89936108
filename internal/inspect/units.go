// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Age returns how long ago something was, as kubectl writes it.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return span(now.Sub(then))
}

// span returns a duration with one or two units.
func span(d time.Duration) string {
	d = max(0, d)
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d/day))
	}
}

// Micros returns a number of microseconds with a unit that suits it, in three digits.
func Micros(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%dµs", n)
	case n < 999_500:
		return threeDigits(float64(n)/1e3) + "ms"
	case n < 99_500_000:
		return threeDigits(float64(n)/1e6) + "s"
	default:
		return span(time.Duration(n) * time.Microsecond)
	}
}

func threeDigits(x float64) string {
	decimals := 0
	for limit := 99.95; decimals < 2 && x < limit; limit = 9.995 {
		decimals++
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// KnownMicros is Micros, or nothing for 0, which stands for an unknown time.
func KnownMicros(n int64) string {
	if n == 0 {
		return ""
	}
	return Micros(n)
}

func microsOf(n *int64) string {
	if n == nil {
		return ""
	}
	return Micros(*n)
}

// shortened returns the first texts and the number of the others.
func shortened(all []string, most int) string {
	if len(all) <= most {
		return strings.Join(all, ",")
	}
	return fmt.Sprintf("%s +%d more", strings.Join(all[:most], ","), len(all)-most)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
